"""The process that compacts: it follows the broker's plans, and reports each step.

It gets the paths of files and nothing else of the broker: no lock of a folder, no socket of a client. It
writes under names of its own until the broker renames the files, so it may be killed at any time. It ends
with the broker.

It receives `Order` and `GO`. It sends `HELLO`, then the steps of a pass, a `Rest` when it waits for `GO`, a
`Failure`.
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
    """After so many bytes, wait for `GO`. 0: don't wait."""


class Rest(NamedTuple):
    """How many bytes were handled since the last one."""

    handled: int


class Failure(NamedTuple):
    """The pass has ended because of the disk, too little memory, or the partition itself."""

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
        )  # an error of our own affects only this partition
