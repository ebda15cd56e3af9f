"""Waiting for records to be committed: up to an offset of a partition's log, or at the gate of a
coordinator's shard.

`CommitWaiters` belong to a log (Kafka: the purgatory of `DelayedProduce`). Each waits for the end offset of
its own append. A `Gate` belongs to a shard (Kafka: `DeferredEventQueue`). A request at the gate waits for
everything that the shard has appended so far, and all requests pass in the order in which they came.

A shard that applies what it appends has its reads pass the gate too, so they wait for the writes before them.
Kafka's reads (`CoordinatorReadEvent`) don't wait: the timeline structures answer them from the last committed
snapshot.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TypeVar

from coordinator.ports import CoordinatorRecord, Runtime, WhenCommitted, append_error
from protocol.errors import BrokenInvariantError, Error, KafkaError, stops_the_broker
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.waiting import Later

log = logging.getLogger("barnabas.replicas")

A = TypeVar("A")

Failed = Callable[[BaseException], None]

MANY_CANCELLED = 64


class CommitWaiter:
    """A callback that waits. Pass it to the `cancel` of whatever returned it to take it out again."""

    __slots__ = ("then",)

    def __init__(self, then: WhenCommitted) -> None:
        self.then: WhenCommitted | None = then


class CommitWaiters:
    """Calls each waiter once, in the order of offsets; waiters for the same offset in the order in which they came.

    A callback may append and wait again, or end the leadership. Waiters that become due meanwhile are called
    by the call that is already at work, after those that were due before. A failure of one is logged and
    harms none of the others. Each costs O(log n).
    """

    __slots__ = ("_cancelled", "_failed", "_is_telling", "_order", "_reached", "heap", "lost")

    def __init__(self, failed: Failed) -> None:
        """`failed` is called with a broken invariant that a waiter raised."""
        self._failed = failed
        self.heap: list[tuple[int, int, CommitWaiter]] = []
        """Entries (offset, order, waiter). Empty if nobody waits."""
        self._order = 0
        self._cancelled = 0
        self._reached = -1
        self._is_telling = False
        self.lost: KafkaError | None = None
        """Why nothing will be committed here any more."""

    def __len__(self) -> int:
        return len(self.heap) - self._cancelled

    def wait(self, offset: int, high_watermark: int, then: WhenCommitted) -> CommitWaiter | None:
        """Call `then` now if its outcome is known, else return the waiter."""
        if high_watermark > self._reached:
            self._reached = (
                high_watermark  # a committed offset stays committed, even if leadership is lost next
            )
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
        """Take the waiter out. Nothing happens if it was called already."""
        if waiter.then is None:
            return
        waiter.then = None
        self._cancelled += 1
        if self._cancelled > MANY_CANCELLED and self._cancelled * 2 > len(self.heap):
            # In place: a call of `_tell` may be iterating over it.
            self.heap[:] = [entry for entry in self.heap if entry[2].then is not None]
            heapify(self.heap)
            self._cancelled = 0

    def tell_committed(self, high_watermark: int) -> None:
        """Call the waiters below this high watermark."""
        self._reached = max(self._reached, high_watermark)
        self._tell()

    def tell_lost(self, error: KafkaError) -> None:
        """Call all waiters with this error: leadership was lost, the partition is gone, or its disk failed."""
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
                    log.exception("a request that waited for a commit failed")
                    if stops_the_broker(error):
                        self._failed(error)
        finally:
            self._is_telling = False


# --- the gate of a shard --------------------------------------------------------------------------------------

_gate_log = logging.getLogger("barnabas.coordination")


class Gate:
    """The one way out of a shard. It holds back what must not be known before it is committed.

    The shard appends through `append`, and reports what others append for it through `appended`. Everything
    that must wait for the commit goes through `when_committed`. If an append commits at once, each costs one
    call and one comparison more.

    Waiters pass one after the other, in the order in which they came. Nothing that one does lets the next one
    in before it has returned. A failure of one is logged and harms none of the others. A broken invariant is
    raised after the last.
    """

    __slots__ = (
        "_appended",
        "_cancelled",
        "_closes_on_loss",
        "_is_closed",
        "_is_passing",
        "_passing",
        "_runtime",
        "_settled",
        "_waiting",
    )

    def __init__(self, runtime: Runtime, *, closes_on_loss: bool = False) -> None:
        """`closes_on_loss`: for a shard that applies what it appends before that is committed. If such an
        append is lost, the shard's state is useless, and the gate closes so that nobody sees it."""
        self._runtime = runtime
        self._closes_on_loss = closes_on_loss
        self._appended = 0
        """The end offset of the shard's last append."""
        self._settled = 0
        """Everything up to here is committed, or its waiters have got an error."""
        self._waiting: deque[tuple[int, CommitWaiter]] = deque()
        """Each with the offset that it waits for."""
        self._cancelled = 0
        self._passing: deque[tuple[WhenCommitted, KafkaError | None]] = deque()
        self._is_passing = False
        self._is_closed = False

    def append(
        self,
        records: Sequence[CoordinatorRecord],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        guard: object | None = None,
    ) -> int:
        """Append records (see `Runtime.append`) and return the offset after the last one. Later waiters wait
        for them too.

        Raises KafkaError; NOT_COORDINATOR once the gate is closed.
        """
        if self._is_closed:
            raise KafkaError(Error.NOT_COORDINATOR)
        end_offset = self._runtime.append(
            records, producer_id=producer_id, producer_epoch=producer_epoch, guard=guard
        )
        self._appended = end_offset
        if not self._waiting and self._runtime.is_committed(end_offset):
            # As on one node: nobody waits, so no callback is needed.
            self._settled = end_offset
        else:
            try:
                self.appended(end_offset)
            except Exception as error:  # it is in the log, and nobody would ever hear of its commit
                raise BrokenInvariantError(f"can't wait for an append to be committed: {error}") from error
        return end_offset

    def appended(self, end_offset: int) -> None:
        """Note an append to the shard's partition, the shard's own or another's. Later waiters wait for it too."""
        self._appended = end_offset
        self._runtime.when_committed(end_offset, partial(self._settle, end_offset))

    @property
    def is_open(self) -> bool:
        """True if everything appended is committed and nobody is ahead, so that a newcomer passes at once."""
        return self._settled >= self._appended and not self._is_closed and not self._passing

    def when_committed(self, then: WhenCommitted) -> CommitWaiter | None:
        """Call `then` once everything appended so far is committed; in this call if it is already. Returns
        the waiter.

        `then` gets a KafkaError if that can't be known any more: NOT_COORDINATOR if the shard was given up.
        """
        if self._is_closed:
            then(KafkaError(Error.NOT_COORDINATOR))
        elif self._settled < self._appended:
            waiter = CommitWaiter(then)
            self._waiting.append((self._appended, waiter))
            return waiter
        elif self._passing:
            self._passing.append((then, None))
            self._pass()
        else:
            then(None)
        return None

    async def committed(self) -> KafkaError | None:
        """Wait until everything appended so far is committed. Returns an error as `when_committed` does."""
        told: Later[KafkaError | None] = Later()
        self.when_committed(told.reply)
        return await told

    def cancel(self, waiter: CommitWaiter) -> None:
        """Take the waiter out. However many are cancelled while nothing is committed, few are kept."""
        if waiter.then is None:
            return
        waiter.then = None
        self._cancelled += 1
        if self._cancelled > MANY_CANCELLED and self._cancelled * 2 > len(self._waiting):
            self._waiting = deque(entry for entry in self._waiting if entry[1].then is not None)
            self._cancelled = 0

    def close(self) -> None:
        """Give up the shard. All who wait now or later get NOT_COORDINATOR."""
        self._is_closed = True
        refused = KafkaError(Error.NOT_COORDINATOR)
        self._passing = deque((then, refused) for then, _ in self._passing)
        self._passing.extend((each.then, refused) for _, each in self._waiting if each.then is not None)
        self._waiting.clear()
        self._cancelled = 0
        self._pass()

    def _settle(self, end_offset: int, error: KafkaError | None) -> None:
        """Let through those that waited for this offset: it is committed, or lost."""
        if self._is_closed:
            return
        if end_offset > self._settled:
            self._settled = end_offset
        waiting = self._waiting
        if waiting:
            while waiting and waiting[0][0] <= end_offset:
                then = waiting.popleft()[1].then
                if then is None:
                    self._cancelled -= 1
                else:
                    self._passing.append((then, error))
            self._pass()
        if error is not None and self._closes_on_loss:
            self.close()

    def _pass(self) -> None:
        if self._is_passing:
            return  # called by one that is passing: the next one passes after it
        self._is_passing = True
        broken: Exception | None = None
        try:
            while self._passing:
                then, error = self._passing.popleft()
                try:
                    then(error)
                except Exception as failure:
                    _gate_log.exception("a request that waited at a shard's gate failed")
                    if broken is None and stops_the_broker(failure):
                        broken = failure
        finally:
            self._is_passing = False
        if broken is not None:
            raise broken


async def let_out(answer: A | KafkaError, gate: Gate, runtime: Runtime, timeout_ms: int) -> A | KafkaError:
    """Return this answer once everything that the shard has appended so far is committed.

    Returns COORDINATOR_NOT_AVAILABLE if that takes too long: the records may still be committed, and then
    they count. Returns NOT_COORDINATOR if it can't be known any more, because another node leads the
    partition.
    """
    if gate.is_open:
        return answer
    told: Later[KafkaError | None] = Later()

    def committed(lost: KafkaError | None) -> None:
        runtime.cancel(told)
        told.reply(lost)

    waiter = gate.when_committed(committed)
    if waiter is not None:

        def expired() -> None:
            gate.cancel(waiter)
            told.reply(KafkaError(append_error(Error.REQUEST_TIMED_OUT)))

        runtime.schedule(told, timeout_ms, expired)
    lost = await told
    return answer if lost is None else lost
