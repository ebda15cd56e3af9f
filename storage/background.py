"""The port for work that must not hold up the loop: syncing, writing checkpoints, deleting.

Such work is a function over paths and numbers that were taken down beforehand. It never looks at a log or an
open `File`, since it may run in a thread; what it found out is told to `then`, which runs back on the loop.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

Work = Callable[[], None]
Then = Callable[[Exception | None], None]


RunAll = Callable[[Sequence[Work]], list[Exception | None]]
"""Does all of the work, in any order and in any threads, and waits for it: what each raised, or None."""


class Lane(Enum):
    """Work of one lane is done one after the other, in the order it came; no lane waits for another."""

    FLUSHING = "flushing"
    """Syncing logs, which producers may wait for."""
    METADATA = "metadata"
    """Syncing the metadata log, which each change waits for: no other log's slow sync holds it up (Kafka: the thread
    of `KafkaRaftClient`)."""
    WRITING = "writing"
    """Checkpoints and snapshots."""
    DELETING = "deleting"
    """What is out of use, and the names that must be on the disk before it goes."""


class Background(Protocol):
    """Whoever does such work: threads on a node, nobody but the caller in a test."""

    def __call__(self, work: Work, then: Then, /, *, lane: Lane, delay_ms: int = 0) -> None:
        """Runs `work` in its lane after `delay_ms`, in any thread, then `then` on the loop: with None, or what work
        raised.

        Raises nothing but a MemoryError, and then nothing has begun. What can't be begun now, there being no thread to
        be had, is begun later, in the lane's order.

        Work that is still waiting for its delay when the process ends may be dropped: it is found again at
        the next start (`.deleted` files, `-delete` folders).
        """


def run_in_turn(works: Sequence[Work]) -> list[Exception | None]:
    """A `RunAll` without threads."""
    failures: list[Exception | None] = []
    for work in works:
        try:
            work()
        except Exception as failure:
            failures.append(failure)
        else:
            failures.append(None)
    return failures
