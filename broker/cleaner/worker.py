"""The process that compacts: it works off the plans that the broker sends, and tells it of each step.

It has the paths of files and nothing else of the broker: no lock of a folder, no socket of a client. What it writes is
under names of its own until the broker renames them, so that it may be killed at any time. It ends with the broker.

To it: `Order`, `GO`. From it: steps of a pass, a `Rest` where the broker has to say `GO`, and a `Failure`.
"""

from __future__ import annotations

import os
from array import array
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from broker.cleaner.passes import PassLostError
from broker.environment.worker_channel import WorkerChannel
from storage.cleaning import cleaner
from storage.cleaning.plan import CleaningPlan, LastBatch, Progress, UncleanableError
from storage.disk_files import DiskFiles

if TYPE_CHECKING:
    from storage.files import Files

_NICENESS = 5

GO = "go"


class Order(NamedTuple):
    """A pass to make. The producers of a plan go apart, as one array: of a hundred thousand, each an object, the loop
    would take a quarter of a second to send it."""

    plan: CleaningPlan
    producers: array[int]
    """All ids, then epoch and offset of each."""
    asks_each_bytes: int
    """After so many bytes it rests until it hears `GO`; 0 where it needn't ask."""

    @classmethod
    def of(cls, plan: CleaningPlan, asks_each_bytes: int) -> Order:
        producers = array("q", plan.last_batches)
        producers.extend(chain.from_iterable(plan.last_batches.values()))
        return cls(replace(plan, last_batches={}), producers, asks_each_bytes)

    def whole_plan(self) -> CleaningPlan:
        count = len(self.producers) // 3
        batches = zip(self.producers[count::2], self.producers[count + 1 :: 2], strict=True)
        return replace(
            self.plan,
            last_batches=dict(zip(self.producers[:count], map(LastBatch._make, batches), strict=True)),
        )


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
    files = DiskFiles()
    while True:
        _work(broker.receive(), files, broker)


def _work(order: Order, files: Files, broker: WorkerChannel) -> None:
    handled = 0
    try:
        for step in cleaner.clean(files, order.whole_plan()):
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
