"""Appending producers' batches to the partitions that this node leads (Kafka: `ReplicaManager.appendRecords`,
`Partition.appendRecordsToLeader`).

A batch is checked, patched and written in the buffer that received it, without an object for each record.
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
"""A partition as the request names it: by its topic's name or id, and its number."""

Batches = dict[Key, tuple["Partition", memoryview]]
Answers = dict[Key, PartitionProduceResponse]
Checked = CheckedBatch | KafkaError
"""A batch that is ready to be stored, or the error in it."""

MANY_BATCHES = 2
"""More batches may take too long for one turn of the loop: each check takes up to `validation_budget.LITTLE`,
and creating the files of a new segment takes a millisecond."""

NOTHING: Batches = {}

ALL_IN_SYNC = -1
VALID_ACKS = (ALL_IN_SYNC, 0, 1)

# For these errors, which the log itself raises, the answer includes the log start offset.
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
    """The appends of one request: the answers so far, and what they wait for."""

    __slots__ = ("_acks", "_are_many", "_internal_topics_allowed", "answers", "are_done", "awaited", "left")

    def __init__(self, acks: int, internal_topics_allowed: bool) -> None:
        self._acks = acks
        self._are_many = False
        self._internal_topics_allowed = internal_topics_allowed
        self.answers: Answers = {}
        self.awaited: list[AwaitedAppend] = []
        self.left: Batches = {}
        """Batches that take too long to check in passing. They wait for `checking` and `append_checked`."""
        self.are_done = True
        """True if all were appended and can be acknowledged at once."""

    def append(
        self, batches: Batches, clock: Clock, guards: Mapping[Partition, VerificationGuard]
    ) -> Batches:
        """Append batches, and return those that are left. If there are many, one turn of the loop appends the
        first one and as many more as it has time for.

        `guards` hold the guards with which the transaction coordinator was asked; appends show them to the
        log.
        """
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
        """Append a batch that was left. The check's result holds; everything else is read anew."""
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
        """Check one batch and append it. Any error becomes the partition's answer."""
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
    """Return a function that checks the batch by the present settings and reads nothing else.

    It returns None if the check takes more than `effort`. `unpacked` receives the uncompressed batch. Errors
    are returned without the frames that hold the batch and its uncompressed form.
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
    """Return the answer for a partition to which nothing was appended."""
    return PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=log_start_offset,
        error_message=message,
    )


# --- Waiting until an append is acknowledged (Kafka: `DelayedProduce`) --------------------------------------


class AwaitedAppend:
    """One partition's part of the wait: what ends at `end_offset` was appended, but can't be acknowledged
    yet."""

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
        """`commits` and `flushes` say what it waits for."""
        self.answer = answer
        self.end_offset = end_offset
        self.commits = commits
        self._flushes = flushes
        self._leader = leader
        self._log: PartitionLog = leader.log  # the one appended to, even if the partition moves
        self._waiter: CommitWaiter | None = None
        self._done: Callable[[], None] | None = None

    @property
    def is_over(self) -> bool:
        return not self.commits and not self._flushes

    def start(self, done: Callable[[], None]) -> None:
        """Call `done` once nothing is left to wait for."""
        self._done = done
        if self._flushes:
            self._log.when_flushed(self.end_offset, self._flushed)
        if self.commits:
            self._waiter = self._leader.when_committed(self.end_offset, self._committed)
        self._tell_if_over()  # it may have expired before

    def expire(self) -> None:
        """Stop waiting: it took too long. The records stay, and may still be committed."""
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
        if failure is not None:  # as in Kafka, where the append includes the sync
            answer.error_code = answer.error_code or Error.KAFKA_STORAGE_ERROR
            answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
        self._tell_if_over()

    def _tell_if_over(self) -> None:
        if self.is_over and self._done is not None:
            done, self._done = self._done, None
            done()
