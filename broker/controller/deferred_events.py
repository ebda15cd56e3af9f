"""What waits until the metadata log is committed so far (Kafka: `DeferredEventQueue`)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import TypeAlias

from protocol.errors import KafkaError

Then: TypeAlias = Callable[[KafkaError | None], None]
"""Called once: with None once it is committed, with an error where it never will be."""


class DeferredEventQueue:
    """By the offset that each waits for; those of one offset run in the order in which they came."""

    __slots__ = ("_events", "_next", "committed_offset")

    def __init__(self) -> None:
        self.committed_offset = 0
        """Everything below it is committed."""
        self._events: list[tuple[int, int, Then]] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._events)

    def when_committed(self, end_offset: int, then: Then) -> None:
        """Run `then` once everything below `end_offset` is committed: in this call where it is already."""
        if end_offset <= self.committed_offset and not self._events:
            then(None)
            return
        self._next += 1
        insort(self._events, (end_offset, self._next, then))
        self._run()

    def commit(self, end_offset: int) -> None:
        """Everything below `end_offset` is committed."""
        self.committed_offset = max(self.committed_offset, end_offset)
        self._run()

    def fail(self, error: KafkaError) -> None:
        """Nobody here will learn what becomes of the rest: whoever waits for it is told so."""
        failed, self._events = self._events, []
        for _, _, then in failed:
            then(error)

    def _run(self) -> None:
        while self._events and self._events[0][0] <= self.committed_offset:
            self._events.pop(0)[2](None)
