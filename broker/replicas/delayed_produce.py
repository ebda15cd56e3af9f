"""The Produce that waits (Kafka: `DelayedProduce`): for its records to be committed with acks=all, and for the disk
where `flush.messages` was reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.network.turns import PER_TURN, in_turns
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.network.turns import Turns
    from broker.replicas.leader import Leader
    from coordinator.commit_waiters import CommitWaiter
    from protocol.messages.produce import PartitionProduceResponse
    from storage.log.partition_log import PartitionLog


class AwaitedAppend:
    """One partition's part of it: what ends at `end_offset` was appended, and isn't to be acknowledged yet."""

    __slots__ = (
        "_done",
        "_flushes",
        "_leader",
        "_log",
        "_waiter",
        "answer",
        "commits",
        "end_offset",
    )

    def __init__(
        self,
        answer: PartitionProduceResponse,
        leader: Leader,
        end_offset: int,
        *,
        commits: bool,
        flushes: bool,
    ) -> None:
        """`commits`, `flushes`: what it waits for."""
        self.answer = answer
        self.end_offset = end_offset
        self.commits = commits
        self._flushes = flushes
        self._leader = leader
        self._log: PartitionLog = leader.log  # the one that was appended to, wherever the partition is moved
        self._waiter: CommitWaiter | None = None
        self._done: Callable[[], None] | None = None

    @property
    def is_over(self) -> bool:
        return not self.commits and not self._flushes

    def start(self, done: Callable[[], None]) -> None:
        """`done` is called once nothing is waited for any more."""
        self._done = done
        if self._flushes:
            self._log.when_flushed(self.end_offset, self._flushed)
        if self.commits:
            self._waiter = self._leader.when_committed(self.end_offset, self._committed)

    def expire(self) -> None:
        """It took too long: the records stay, and may still be committed."""
        if self.commits:
            self._stop_waiting()
            if self.answer.error_code == Error.NONE:
                self.answer.error_code = Error.REQUEST_TIMED_OUT
            self._tell_if_over()

    def abandon(self) -> None:
        self._done = None
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        self.commits = False
        if self._waiter is not None:
            self._leader.wait_no_more(self._waiter)
            self._waiter = None

    def _committed(self, error: KafkaError | None) -> None:
        self.commits = False
        self._waiter = None
        if self.answer.error_code == Error.NONE:
            if error is not None:
                self.answer.error_code = error.error
            elif self._leader.is_under_min_after_append:
                self.answer.error_code = Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        self._tell_if_over()

    def _flushed(self, failure: Exception | None) -> None:
        self._flushes = False
        answer = self.answer
        if failure is not None:  # as in Kafka, where a sync is part of the append
            answer.error_code = answer.error_code or Error.KAFKA_STORAGE_ERROR
            answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
        self._tell_if_over()

    def _tell_if_over(self) -> None:
        if self.is_over and self._done is not None:
            done, self._done = self._done, None
            done()


class DelayedProduce:
    """Calls `then` once all of the appends are told of, or the time is over: that of the disk isn't limited. Many
    appends begin to wait in turns of the loop, and end so."""

    __slots__ = ("_appends", "_failed", "_left", "_then", "_timer", "_turns")

    def __init__(
        self,
        appends: Sequence[AwaitedAppend],
        then: Callable[[], None],
        failed: Callable[[BaseException], None],
        turns: Turns,
    ) -> None:
        """`failed` is told instead of `then` of what a later turn fails with."""
        self._appends = appends
        self._left = len(appends)
        self._then: Callable[[], None] | None = then
        self._failed = failed
        self._turns = turns
        self._timer: Scheduled | None = None

    def start(self, scheduler: Scheduler, timeout_ms: int) -> None:
        """`then` may be called in here."""
        if self._then is None:
            return  # the client has gone before
        if any(append.commits for append in self._appends):
            self._timer = scheduler.call_later(max(timeout_ms, 0) / 1000, self._expire)
        self._with_all(self._start)

    def abandon(self) -> None:
        """The client has gone."""
        self._then = None
        self._cancel_timer()
        self._with_all(_abandon)

    def _with_all(self, take: Callable[[Sequence[AwaitedAppend]], None]) -> None:
        if len(self._appends) > PER_TURN:
            self._turns.carry_out(in_turns(self._appends, take), self._fail)
        else:
            take(self._appends)

    def _start(self, appends: Sequence[AwaitedAppend]) -> None:
        if self._then is None:
            return  # abandoned before their turn
        for append in appends:
            append.start(self._one_done)

    def _one_done(self) -> None:
        self._left -= 1
        if self._left == 0 and self._then is not None:
            then, self._then = self._then, None
            self._cancel_timer()
            then()

    def _fail(self, error: BaseException) -> None:
        if self._then is not None:
            self._then = None
            self._cancel_timer()
            self._failed(error)

    def _expire(self) -> None:
        """While some have yet to begin to wait, their turns come before those in which they end."""
        self._timer = None
        self._with_all(_expire)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _expire(appends: Sequence[AwaitedAppend]) -> None:
    for append in appends:
        append.expire()


def _abandon(appends: Sequence[AwaitedAppend]) -> None:
    for append in appends:
        append.abandon()
