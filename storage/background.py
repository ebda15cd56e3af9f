"""The port for work that must not block the loop: syncing, writing checkpoints, deleting.

Such work is a function of paths and numbers that were noted beforehand. It never looks at a log or an open
`File`, since it may run in a thread. Its outcome goes to `then`, which runs on the loop.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol

Work = Callable[[], None]
Then = Callable[[Exception | None], None]


RunAll = Callable[[Sequence[Work]], list[Exception | None]]
"""Does all of the work, in any order and on any threads, and waits for it. Returns each one's exception, or None.
"""


class Lane(Enum):
    """Work in one lane is done one by one, in the order in which it came. No lane waits for another."""

    FLUSHING = "flushing"
    """Syncing logs. Producers may wait for it."""
    METADATA = "metadata"
    """Syncing the metadata log. Each change waits for it, and no other log's slow sync delays it (Kafka: the
    thread of `KafkaRaftClient`)."""
    WRITING = "writing"
    """Writing checkpoints and snapshots."""
    DELETING = "deleting"
    """Deleting files out of use, and syncing the names that must be on the disk before that."""


class Background(Protocol):
    """Does such work: on threads in a node, in the caller in a test."""

    def __call__(self, work: Work, then: Then, /, *, lane: Lane, delay_ms: int = 0) -> None:
        """Run `work` in its lane after `delay_ms`, on any thread, then `then` on the loop, with None or the
        exception of `work`.

        Raises nothing but MemoryError, and then nothing has begun. If there is no thread now, the work begins
        later, in the lane's order.

        Work that still waits for its delay when the process ends may be dropped. The next start finds it
        again (`.deleted` files, `-delete` folders).
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
