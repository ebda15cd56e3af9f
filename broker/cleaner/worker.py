"""The process that compacts: it works off the plans that the broker sends, and tells it of each step.

It has the paths of files and nothing else of the broker: no lock of a folder, no socket of a client. What it writes is
under names of its own until the broker renames them, so that it may be killed at any time. It ends with the broker.

To it: `Order`, `GO`. From it: `HELLO`, then steps of a pass, a `Rest` where the broker has to say `GO`, a `Failure`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from broker.cleaner.passes import PassLostError
from broker.environment.worker_channel import WorkerChannel
from storage.cleaning.plan import CleaningPlan, Progress, UncleanableError
from storage.disk_files import DiskFiles

if TYPE_CHECKING:
    from storage.files import Files

_NICENESS = 5

HELLO = "hello"
GO = "go"


class Order(NamedTuple):
    """A pass to make."""

    plan: CleaningPlan
    asks_each_bytes: int
    """After so many bytes it rests until it hears `GO`; 0 where it needn't ask."""


class Rest(NamedTuple):
    """So many bytes were handled since the last one."""

    handled: int


class Failure(NamedTuple):
    """The pass has ended, for one of three reasons: the disk, too little memory, or the partition itself."""

    kind: str
    text: str
    errno: int = 0

    def error(self) -> Exception:
        if self.kind == "disk":
            return OSError(self.errno, self.text)
        return PassLostError(self.text) if self.kind == "memory" else UncleanableError(self.text)


def main() -> None:
    os.nice(_NICENESS)
    broker = WorkerChannel()
    broker.send(HELLO)
    files = DiskFiles()
    while True:
        _work(broker.receive(), files, broker)


def _work(order: Order, files: Files, broker: WorkerChannel) -> None:
    from storage.cleaning import cleaner  # the broker loads this module too, for the messages

    handled = 0
    try:
        for step in cleaner.clean(files, order.plan):
            if not isinstance(step, Progress):
                broker.send(step)
                continue
            handled += step.read_bytes + step.written_bytes
            if 0 < order.asks_each_bytes <= handled:
                broker.send(Rest(handled))
                handled = 0
                broker.receive()
    except UncleanableError as failure:
        broker.send(Failure("partition", str(failure)))
    except OSError as failure:
        broker.send(Failure("disk", str(failure), failure.errno or 0))
    except MemoryError:
        broker.send(Failure("memory", "there is too little memory"))
    except Exception:
        import traceback

        broker.send(
            Failure("partition", traceback.format_exc())
        )  # a fault of ours: it costs this partition alone
