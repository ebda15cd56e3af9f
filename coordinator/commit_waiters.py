"""Who waits for an offset of a log to be committed (Kafka: the purgatory of `DelayedProduce`; `DeferredEventQueue`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from coordinator.ports import WhenCommitted
from protocol.errors import KafkaError, stops_the_broker

log = logging.getLogger("barnabas.replicas")

Failed = Callable[[BaseException], None]

MANY_CANCELLED = 64


class CommitWaiter:
    """One who waits; `cancel` of those who returned it takes it out again."""

    __slots__ = ("then",)

    def __init__(self, then: WhenCommitted) -> None:
        self.then: WhenCommitted | None = then


class CommitWaiters:
    """Tells each once, in the order of offsets, and of one offset in the order in which they came.

    Whoever is told may append and wait anew, or end the leadership: what comes up meanwhile is told by the call that
    tells already, behind what is due before it. A failure of one is logged and harms none of the others. Each costs
    O(log n).
    """

    __slots__ = ("_cancelled", "_failed", "_is_telling", "_order", "_reached", "heap", "lost")

    def __init__(self, failed: Failed) -> None:
        """`failed` learns of a broken invariant of somebody who was told."""
        self._failed = failed
        self.heap: list[tuple[int, int, CommitWaiter]] = []
        """(offset, order, who); empty where nobody waits."""
        self._order = 0
        self._cancelled = 0
        self._reached = -1
        self._is_telling = False
        self.lost: KafkaError | None = None
        """Why nothing is committed here any more."""

    def __len__(self) -> int:
        return len(self.heap) - self._cancelled

    def wait(self, offset: int, high_watermark: int, then: WhenCommitted) -> CommitWaiter | None:
        """Tells it now where that can be said already; returns what waits."""
        if high_watermark > self._reached:
            self._reached = high_watermark  # what is committed stays so, even where leadership is lost next
        if not (self._is_telling and self.heap):
            if self.lost is not None:
                then(self.lost)
                return None
            if offset <= high_watermark:
                then(None)
                return None
        waiter = CommitWaiter(then)
        self._order += 1
        heappush(self.heap, (offset, self._order, waiter))
        return waiter

    def cancel(self, waiter: CommitWaiter) -> None:
        """It isn't told any more; nothing happens where it was told."""
        if waiter.then is None:
            return
        waiter.then = None
        self._cancelled += 1
        if self._cancelled > MANY_CANCELLED and self._cancelled * 2 > len(self.heap):
            # In place: the call that tells may be at work on it.
            self.heap[:] = [entry for entry in self.heap if entry[2].then is not None]
            heapify(self.heap)
            self._cancelled = 0

    def tell_committed(self, high_watermark: int) -> None:
        """All below the high watermark is committed."""
        self._reached = max(self._reached, high_watermark)
        self._tell()

    def tell_lost(self, error: KafkaError) -> None:
        """Leadership was lost, the partition is gone, or its disk failed: nobody waits any more."""
        if self.lost is None:
            self.lost = error
        self._tell()

    def _tell(self) -> None:
        if self._is_telling:
            return
        self._is_telling = True
        try:
            heap = self.heap
            while heap and (self.lost is not None or heap[0][0] <= self._reached):
                offset, _, waiter = heappop(heap)
                then, waiter.then = waiter.then, None
                if then is None:
                    self._cancelled -= 1
                    continue
                try:
                    then(None if offset <= self._reached else self.lost)
                except Exception as error:
                    log.exception("somebody who waited for a commit can't be told")
                    if stops_the_broker(error):
                        self._failed(error)
        finally:
            self._is_telling = False
