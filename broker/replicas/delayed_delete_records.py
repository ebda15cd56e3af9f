"""The DeleteRecords that waits for the other replicas, and a log on its way to another directory, to begin where the
leader does (Kafka: DelayedDeleteRecords)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.replicas.leader import Leader
    from broker.replicas.partition import Partition
    from protocol.messages.topics import DeleteRecordsPartitionResult

INVALID_LOW_WATERMARK = -1


class AwaitedDeletion:
    """One partition's part of it: all below `offset` is to go, and does not count as gone yet."""

    __slots__ = ("_done", "_leader", "_offset", "_partition_of", "_result")

    def __init__(
        self, partition_of: Callable[[], Partition], offset: int, result: DeleteRecordsPartitionResult
    ) -> None:
        """`partition_of` raises KafkaError where it isn't here any more, and says why."""
        self._partition_of = partition_of
        self._offset = offset
        self._result = result
        self._leader: Leader | None = None
        self._done: Callable[[], None] | None = None

    def start(self, done: Callable[[], None]) -> None:
        """`done` is called once it is known what became of it. Raises KafkaError where the partition isn't led here."""
        self._leader = self._partition_of().leader()
        self._leader.await_deletion(self.recheck)
        self._done = done

    def recheck(self) -> None:
        """A replica has said where it begins, or another broker leads."""
        try:
            low_watermark = self._partition_of().low_watermark
        except KafkaError as error:
            self._result.low_watermark, self._result.error_code = INVALID_LOW_WATERMARK, error.error
        else:
            if low_watermark < self._offset:
                return
            self._result.low_watermark = low_watermark
        done = self._done
        self.abandon()
        if done is not None:
            done()

    def expire(self) -> None:
        """It is told with the low watermark as it was at first."""
        if self._done is not None:
            self._result.error_code = Error.REQUEST_TIMED_OUT
            self.abandon()

    def abandon(self) -> None:
        self._done = None
        if self._leader is not None:
            self._leader.end_deletion(self.recheck)


class DelayedDeleteRecords:
    """The deletions of one request, which are waited for together."""

    __slots__ = ("_deletions", "_left", "_then", "_timer")

    def __init__(self) -> None:
        self._deletions: list[AwaitedDeletion] = []
        self._left = 0
        self._then: Callable[[], None] | None = None
        self._timer: Scheduled | None = None

    def add(self, deletion: AwaitedDeletion) -> None:
        """From now on it is looked for. Raises KafkaError where nobody leads it here."""
        deletion.start(self._one_done)
        self._deletions.append(deletion)
        self._left += 1

    def start(self, scheduler: Scheduler, timeout_ms: int, then: Callable[[], None]) -> None:
        """Calls `then` once all of them are told of, or the time is over: in this call where there are none."""
        if not self._left:
            then()
            return
        self._then = then
        self._timer = scheduler.call_later(max(timeout_ms, 0) / 1000, self._expire)

    def abandon(self) -> None:
        """The client has gone."""
        self._then = None
        self._cancel_timer()
        for deletion in self._deletions:
            deletion.abandon()

    def _one_done(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._cancel_timer()
            self._reply()

    def _expire(self) -> None:
        self._timer = None
        for deletion in self._deletions:
            deletion.expire()
        self._reply()

    def _reply(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            then()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
