"""Appending what producers send to the partitions that are led here (Kafka: `ReplicaManager.appendRecords`,
`Partition.appendRecordsToLeader`).

A batch is checked, patched and written where it was received, without an object per record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.environment.scheduler import IN_A_ROW_S
from broker.replicas.leader import Leader
from protocol.errors import Error, KafkaError
from protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse
from protocol.records.checks import CheckedBatch, RecordValidationError, stamped, validate
from protocol.records.validation_budget import LITTLE, Effort, TooMuchEffortError, Unpacked

if TYPE_CHECKING:
    from broker.environment.scheduler import Clock
    from broker.replicas.partition import Partition
    from coordinator.commit_waiters import CommitWaiter
    from storage.log.partition_log import PartitionLog
    from storage.producer_state import VerificationGuard

Key = tuple[str | bytes, int]
"""A partition as the request names it: by the topic's name or its id, and its number."""

Batches = dict[Key, tuple["Partition", memoryview]]
Answers = dict[Key, PartitionProduceResponse]
Checked = CheckedBatch | KafkaError
"""A batch fit to be stored, or what is wrong with it."""

MANY_BATCHES = 2
"""More may be too much for one turn of the loop: to check each is up to `validation_budget.LITTLE`, and the files of
each segment that rolls take a millisecond to make."""

NOTHING: Batches = {}

ALL_IN_SYNC = -1
VALID_ACKS = (ALL_IN_SYNC, 0, 1)

# Found out beside the log, the answer of these errors tells where it starts.
_TOLD_WITH_LOG_START = frozenset(
    {
        Error.UNKNOWN_SERVER_ERROR,
        Error.INVALID_RECORD,
        Error.INVALID_TIMESTAMP,
        Error.NOT_ENOUGH_REPLICAS,
        Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Error.INVALID_PRODUCER_EPOCH,
        Error.INVALID_TXN_STATE,
    }
)


class Appends:
    """The appends of one request: their answers so far, and what these have to wait for."""

    __slots__ = ("_acks", "_are_many", "_internal_topics_allowed", "answers", "are_done", "awaited", "left")

    def __init__(self, acks: int, internal_topics_allowed: bool) -> None:
        self._acks = acks
        self._are_many = False
        self._internal_topics_allowed = internal_topics_allowed
        self.answers: Answers = {}
        self.awaited: list[AwaitedAppend] = []
        self.left: Batches = {}
        """What takes too long to check in passing, and waits for `checking` and `append_checked`."""
        self.are_done = True
        """Whether all were appended, and are to be acknowledged at once."""

    def append(
        self, batches: Batches, clock: Clock, guards: Mapping[Partition, VerificationGuard]
    ) -> Batches:
        """Append them; of many, as many as one turn of the loop has time for, and the first one in any case. Returns
        the rest. `guards`: what the transaction's coordinator was asked with, for the appends to show to the log."""
        now_ms = clock.time_ns() // 1_000_000
        if len(batches) > MANY_BATCHES:
            self._are_many = True
        end_s = clock.monotonic_s() + IN_A_ROW_S if self._are_many else None
        rest = iter(batches.items())
        for key, (partition, batch) in rest:
            if self._acks not in VALID_ACKS:
                self.are_done = False
                self.answers[key] = refused(key[1], Error.INVALID_REQUIRED_ACKS)
            elif partition.topic.is_internal and not self._internal_topics_allowed:
                self.answers[key] = self._refused(partition, Error.INVALID_TOPIC_EXCEPTION)
            else:
                guard = guards.get(partition) if guards else None
                try:
                    self.answers[key] = self._append(partition, batch, now_ms, guard)
                except TooMuchEffortError:
                    self.left[key] = (partition, batch)
                    self.are_done = False
            if end_s is not None and clock.monotonic_s() >= end_s:
                return dict(rest)
        return NOTHING

    def append_checked(
        self, key: Key, checked: Checked, now_ms: int, guards: Mapping[Partition, VerificationGuard]
    ) -> None:
        """Append one that was left: what was found out beside the loop holds, all else is as it is by now."""
        partition, batch = self.left[key]
        guard = guards.get(partition) if guards else None
        self.answers[key] = self._append(partition, batch, now_ms, guard, checked)

    def _append(
        self,
        partition: Partition,
        batch: memoryview,
        now_ms: int,
        guard: VerificationGuard | None,
        checked: Checked | None = None,
    ) -> PartitionProduceResponse:
        """Check one batch and append it; whatever is wrong with it becomes the partition's answer."""
        leader = partition.role
        if leader.__class__ is not Leader:
            return self._refused(partition, Error.NOT_LEADER_OR_FOLLOWER)
        log = leader.log
        try:
            if self._acks == ALL_IN_SYNC and leader.is_under_min_isr:
                raise KafkaError(Error.NOT_ENOUGH_REPLICAS)
            if checked is None:
                checked = validate(
                    batch, partition.topic.rules, now_ms, partition.topic.name, partition.index, LITTLE
                )
            elif isinstance(checked, KafkaError):
                return self._refused_for(checked, partition, log.log_start_offset)
            else:
                checked = stamped(checked, partition.topic.rules, now_ms)
            appended = leader.append(checked.batch, now_ms, header=checked.header, guard=guard)
        except KafkaError as failure:
            return self._refused_for(failure, partition, log.log_start_offset)
        answer = PartitionProduceResponse.of(
            index=partition.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.log_append_time_ms,
            log_start_offset=appended.log_start_offset,
        )
        end_offset = appended.last_offset + 1
        commits = self._acks == ALL_IN_SYNC and log.high_watermark < end_offset
        flushes = appended.flushing
        if commits or flushes:
            awaited = AwaitedAppend(answer, leader, end_offset, commits=commits, flushes=flushes)
            self.awaited.append(awaited)
            self.are_done = False
        return answer

    def _refused_for(
        self, failure: KafkaError, partition: Partition, log_start_offset: int
    ) -> PartitionProduceResponse:
        if isinstance(failure, RecordValidationError):
            answer = self._refused(partition, failure.error, failure.message, log_start_offset)
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                for index, text in failure.record_errors
            ]
            return answer
        start = log_start_offset if failure.error in _TOLD_WITH_LOG_START else -1
        return self._refused(partition, failure.error, None, start)

    def _refused(
        self, partition: Partition, error: Error, message: str | None = None, log_start_offset: int = -1
    ) -> PartitionProduceResponse:
        self.are_done = False
        return refused(partition.index, error, message, log_start_offset)


def checking(
    partition: Partition, batch: memoryview, now_ms: int, effort: Effort, unpacked: Unpacked | None = None
) -> Callable[[], Checked | None]:
    """What checks the batch by what is known now, and looks at nothing else; it gives None where that takes more than
    the effort. `unpacked` is told what it unpacks to.

    What is wrong with the batch is given without the frames that hold the batch and all that it unpacked to.
    """
    rules, topic, index = partition.topic.rules, partition.topic.name, partition.index

    def check() -> Checked | None:
        try:
            return validate(batch, rules, now_ms, topic, index, effort, unpacked)
        except TooMuchEffortError:
            return None
        except KafkaError as failure:
            return failure.as_value()

    return check


def refused(
    index: int, error: Error, message: str | None = None, log_start_offset: int = -1
) -> PartitionProduceResponse:
    """The answer for a partition of which nothing was appended."""
    return PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=log_start_offset,
        error_message=message,
    )


# --- until an append is acknowledged (Kafka: `DelayedProduce`) --------------------------------------------------


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
        self._tell_if_over()  # its time may have been over before

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
