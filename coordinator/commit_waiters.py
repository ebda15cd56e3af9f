"""Who waits for records to be committed: for an offset of a partition's log, or at the gate of a coordinator's shard.

`CommitWaiters` are of a log (Kafka: the purgatory of `DelayedProduce`): each waits for the offset behind what it has
appended. A `Gate` is of a shard (Kafka: `DeferredEventQueue`): who comes waits for all that the shard has appended so
far, and all pass in the order in which they came.

Reads of a shard that applies what it appends pass the gate too, and so wait for the writes before them. Kafka's
(`CoordinatorReadEvent`) don't wait: they are answered from the last committed snapshot of its timeline structures.
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


# --- the gate of a shard --------------------------------------------------------------------------------------

_gate_log = logging.getLogger("barnabas.coordination")


class Gate:
    """Everything that the shard appends goes through `append`, what others append for it through `appended`, everything
    that must not be known before it is committed through `when_committed`. Where appending is committing, each is a
    call and a comparison more.

    What waits passes in the order in which it came, one after the other: what one of them does can't let the next in
    before it has returned. A failure of one is logged and harms none of the others; a broken invariant is raised behind
    the last of them.
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
        """`closes_on_loss`: for a shard that applies what it appends before that is committed. Where that is lost its
        state is of no use any more, and nobody is to learn of it."""
        self._runtime = runtime
        self._closes_on_loss = closes_on_loss
        self._appended = 0
        """Where the shard's last append ends."""
        self._settled = 0
        """Up to here everything is committed, or those who waited for it were told that it isn't."""
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
        """See `Runtime.append`; what passes from now on waits for these records too. The offset behind the last one.

        Raises KafkaError; NOT_COORDINATOR once the gate is closed.
        """
        if self._is_closed:
            raise KafkaError(Error.NOT_COORDINATOR)
        end_offset = self._runtime.append(
            records, producer_id=producer_id, producer_epoch=producer_epoch, guard=guard
        )
        self._appended = end_offset
        if not self._waiting and self._runtime.is_committed(end_offset):
            # As on one node: nobody has to be told, and nothing is made that would tell it.
            self._settled = end_offset
        else:
            try:
                self.appended(end_offset)
            except Exception as error:  # it is in the log, and nobody would ever learn that it is committed
                raise BrokenInvariantError(f"what is written can't be waited for: {error}") from error
        return end_offset

    def appended(self, end_offset: int) -> None:
        """Something was appended to the shard's partition, by others than the shard even: what passes from now on
        waits for that, too."""
        self._appended = end_offset
        self._runtime.when_committed(end_offset, partial(self._settle, end_offset))

    @property
    def is_open(self) -> bool:
        """Whether all that was appended is committed and nobody is ahead: who comes now passes at once."""
        return self._settled >= self._appended and not self._is_closed and not self._passing

    def when_committed(self, then: WhenCommitted) -> CommitWaiter | None:
        """Call `then` once all that was appended so far is committed: in this call where it is already. Returns what
        waits.

        It is given a KafkaError where that can't be known any more: NOT_COORDINATOR where the shard was given up.
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
        """Once all that was appended so far is committed, or why that can't be known any more: see `when_committed`."""
        told: Later[KafkaError | None] = Later()
        self.when_committed(told.reply)
        return await told

    def cancel(self, waiter: CommitWaiter) -> None:
        """It isn't told any more. However many do so while nothing is committed, few are kept."""
        if waiter.then is None:
            return
        waiter.then = None
        self._cancelled += 1
        if self._cancelled > MANY_CANCELLED and self._cancelled * 2 > len(self._waiting):
            self._waiting = deque(entry for entry in self._waiting if entry[1].then is not None)
            self._cancelled = 0

    def close(self) -> None:
        """The shard is given up: who waits is told NOT_COORDINATOR, and so is whoever comes later."""
        self._is_closed = True
        refused = KafkaError(Error.NOT_COORDINATOR)
        self._passing = deque((then, refused) for then, _ in self._passing)
        self._passing.extend((each.then, refused) for _, each in self._waiting if each.then is not None)
        self._waiting.clear()
        self._cancelled = 0
        self._pass()

    def _settle(self, end_offset: int, error: KafkaError | None) -> None:
        """What was appended up to here is committed, or lost."""
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
            return  # one of those who pass brought this about: the next one comes after it
        self._is_passing = True
        broken: Exception | None = None
        try:
            while self._passing:
                then, error = self._passing.popleft()
                try:
                    then(error)
                except Exception as failure:
                    _gate_log.exception("somebody who waited at a shard's gate can't be told")
                    if broken is None and stops_the_broker(failure):
                        broken = failure
        finally:
            self._is_passing = False
        if broken is not None:
            raise broken


async def let_out(answer: A | KafkaError, gate: Gate, runtime: Runtime, timeout_ms: int) -> A | KafkaError:
    """An answer of now, once all is committed that the shard has appended so far.

    COORDINATOR_NOT_AVAILABLE where that takes so long: what was written may still be committed, and counts then.
    NOT_COORDINATOR where it isn't known any more, since the partition is led elsewhere.
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
