"""What waits until the metadata log is committed so far (Kafka: `DeferredEventQueue`)."""

from __future__ import annotations

from coordinator.commit_waiters import CommitWaiters
from coordinator.ports import WhenCommitted
from protocol.errors import KafkaError


class DeferredEventQueue:
    """By the offset that each waits for; those of one offset run in the order in which they came.

    None runs within another one, and a failure of one harms none of the others: see `CommitWaiters`. A broken invariant
    is raised behind the last of them, to whoever brought it about.
    """

    __slots__ = ("_broken", "_waiters", "committed_offset")

    def __init__(self) -> None:
        self.committed_offset = 0
        """Everything below it is committed."""
        self._broken: list[BaseException] = []
        self._waiters = CommitWaiters(self._broken.append)

    def __len__(self) -> int:
        return len(self._waiters)

    def when_committed(self, end_offset: int, then: WhenCommitted) -> None:
        """Run `then` once everything below `end_offset` is committed: in this call where it is already, unless others
        are ahead."""
        self._waiters.wait(end_offset, self.committed_offset, then)

    def commit(self, end_offset: int) -> None:
        """Everything below `end_offset` is committed."""
        if end_offset > self.committed_offset:
            self.committed_offset = end_offset
        if self._waiters.heap:
            self._waiters.tell_committed(self.committed_offset)
            self._raise_broken()

    def fail(self, error: KafkaError) -> None:
        """Nobody here will learn what becomes of the rest: whoever waits for it is told so."""
        failed, self._waiters = self._waiters, CommitWaiters(self._broken.append)
        failed.tell_lost(error)
        self._raise_broken()

    def _raise_broken(self) -> None:
        if self._broken:
            broken = self._broken[0]
            self._broken.clear()
            raise broken
