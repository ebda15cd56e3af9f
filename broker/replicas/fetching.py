"""Reading for a Fetch, and the Fetch that waits (Kafka: `ReplicaManager.fetchMessages`, `DelayedFetch`).

A fetch that finds too little registers itself at its partitions. Whatever moves one of them (its high watermark, its
last stable offset, a leader change, its deletion) wakes it; it measures what is there and, once that is enough, reads
everything anew. Its time limit does the same whatever there is.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker.replicas.follower import NO_LEADER_EPOCH
from protocol.errors import Error, KafkaError
from protocol.messages.fetch import AbortedTransaction, EpochEndOffset, LeaderIdAndEpoch, PartitionData
from protocol.records.batch import CorruptRecordError
from storage.log.reads import ENOUGH_BYTES

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.replicas.fetch_sessions import FetchTarget
    from broker.replicas.partitions import Partition, Partitions

Results = list[tuple["FetchTarget", PartitionData]]


UNDEFINED_OFFSET = -1


class FetchParameters:
    """What holds for all partitions of one Fetch."""

    __slots__ = (
        "api_version",
        "by_id",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "read_committed",
        "replica_id",
    )

    def __init__(
        self,
        *,
        api_version: int,
        replica_id: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        read_committed: bool,
    ) -> None:
        self.api_version = api_version
        self.by_id = api_version >= 13
        self.replica_id = replica_id
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min(min_bytes, max_bytes)
        self.max_bytes = max_bytes
        self.read_committed = read_committed

    def bound(self, partition: Partition) -> int:
        """The offset below which a consumer may read."""
        return partition.log.last_stable_offset if self.read_committed else partition.log.high_watermark


class Reading:
    """One pass over the partitions: an answer for each, and whether the fetch may wait for more.

    `found` are those that were there at first sight; only they keep a fetch waiting. What is unknown then is answered
    behind the others, ids before partitions, as in Kafka.
    """

    __slots__ = ("_left", "_parameters", "bytes_read", "found", "must_answer", "results", "unknown")

    def __init__(
        self, partitions: Partitions, parameters: FetchParameters, targets: list[FetchTarget]
    ) -> None:
        self._parameters = parameters
        self.found: list[tuple[FetchTarget, Partition]] = []
        unknown_ids: Results = []
        unknown_partitions: Results = []
        for target in targets:
            if not _resolve(partitions, parameters, target):
                unknown_ids.append((target, _not_found(target, Error.UNKNOWN_TOPIC_ID)))
                continue
            partition = partitions.find(target.topic_name, target.index)
            if partition is None:
                missing = partitions.missing(target.topic_name, target.index)
                unknown_partitions.append((target, _not_found(target, missing)))
            else:
                self.found.append((target, partition))
        self.unknown = unknown_ids + unknown_partitions
        self.read(partitions)

    def read(self, partitions: Partitions) -> None:
        """Read what was found, anew: `results` is what is there now."""
        self.bytes_read = 0
        self.must_answer = False
        self._left = self._parameters.max_bytes
        self.results: Results = []
        for target, _ in self.found:
            self.results.append((target, self._read(partitions, target)))
        self.results += self.unknown

    def _read(self, partitions: Partitions, target: FetchTarget) -> PartitionData:
        partition = partitions.find(target.topic_name, target.index)
        try:
            if partition is None:  # deleted while the fetch waited, or its disk failed
                raise KafkaError(partitions.missing(target.topic_name, target.index))
            if self._parameters.by_id and partition.topic.topic_id != target.topic:
                raise KafkaError(Error.INCONSISTENT_TOPIC_ID)  # created again under the same name
            answer = self._read_partition(partition, target)
        except (KafkaError, OSError, CorruptRecordError) as error:
            self.must_answer = True
            answer = _failed(partition, target, _error_of(error), self._parameters.api_version)
        size = len(answer.records or b"")
        self.bytes_read += size
        self._left = max(0, self._left - size)
        if answer.diverging_epoch is not None:
            self.must_answer = True
        return answer

    def _read_partition(self, partition: Partition, target: FetchTarget) -> PartitionData:
        parameters = self._parameters
        partition.check_leader_epoch(max(target.current_leader_epoch, NO_LEADER_EPOCH))
        if parameters.replica_id >= 0:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)  # a follower, and this node has none
        log = partition.log
        offset = target.fetch_offset
        diverging = None
        if target.last_fetched_epoch >= 0:
            diverging = _diverging_epoch(partition, target.last_fetched_epoch, offset)
        records: bytes | memoryview = b""
        aborted: list[AbortedTransaction] | None = [] if parameters.read_committed else None
        if diverging is None:
            if offset < log.log_start_offset or offset > log.log_end_offset:
                raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
            if self._left < 0 or target.partition_max_bytes < 0:
                raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
            bound = parameters.bound(partition)
            if offset < bound:
                read = log.read(
                    offset,
                    min(target.partition_max_bytes, self._left),
                    upper_bound=bound,
                    min_one_batch=self.bytes_read == 0,
                )
                records = read.records
                if parameters.read_committed:
                    aborted = [
                        AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset)
                        for entry in log.aborted_transactions(offset, read)
                    ]
        return PartitionData(
            partition_index=target.index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            diverging_epoch=diverging,
            aborted_transactions=aborted,
            records=records,
        )


class DelayedFetch:
    """A fetch that waits. `answer` is done with the results once there is enough, or its time is over."""

    __slots__ = ("_parameters", "_partitions", "_reading", "_timer", "answer")

    def __init__(
        self, partitions: Partitions, scheduler: Scheduler, parameters: FetchParameters, reading: Reading
    ) -> None:
        self._partitions = partitions
        self._parameters = parameters
        self._reading = reading
        self.answer: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        self.answer.add_done_callback(self._forget)
        for _, partition in reading.found:
            partition.waiting.add(self)
        self._timer = scheduler.call_later(parameters.max_wait_ms / 1000, self._complete)
        self.recheck()

    def recheck(self) -> None:
        """Called whenever one of the partitions moved: answer if there is enough now.

        It raises nothing: who moved the partition, a producer perhaps, has no part in what goes wrong here.
        """
        if self.answer.done():
            return
        try:
            if self._is_enough():
                self._complete()
        except (KafkaError, OSError, CorruptRecordError):
            self._complete()  # reading finds the same fault, and says it with its partition
        except Exception as error:
            self.answer.set_exception(error)

    def _is_enough(self) -> bool:
        available = 0
        for target, partition in self._reading.found:
            if partition.is_gone or not partition.leader_epoch_passes(target.current_leader_epoch):
                return True
            bound = self._parameters.bound(partition)
            if target.fetch_offset > bound and target.fetch_offset > partition.log.log_end_offset:
                return True
            if target.fetch_offset < bound:
                bytes_there = partition.log.available_bytes(target.fetch_offset, bound)
                if bytes_there == ENOUGH_BYTES:
                    return True  # the offset lies in an older segment: such a fetch never waits
                available += min(bytes_there, target.partition_max_bytes)
        return available >= self._parameters.min_bytes

    def _complete(self) -> None:
        if self.answer.done():
            return
        try:
            self._reading.read(self._partitions)
        except Exception as error:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(self._reading.results)

    def _forget(self, _: asyncio.Future[Results]) -> None:
        self._timer.cancel()
        for _target, partition in self._reading.found:
            partition.waiting.discard(self)


def _diverging_epoch(partition: Partition, last_fetched_epoch: int, offset: int) -> EpochEndOffset | None:
    """KIP-595: where a reader's log and ours part; None where they agree."""
    epoch, end_offset = partition.log.end_offset_for_epoch(last_fetched_epoch)
    if end_offset == UNDEFINED_OFFSET:
        raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
    if epoch < last_fetched_epoch or end_offset < offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _not_found(target: FetchTarget, error: Error) -> PartitionData:
    """A topic or partition that isn't there: it doesn't end the wait of the others."""
    return PartitionData(
        partition_index=target.index,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=[],
        records=b"",
    )


def _resolve(partitions: Partitions, parameters: FetchParameters, target: FetchTarget) -> bool:
    """Find the name behind a topic id. A session remembers it, also when the topic is gone, as Kafka's do."""
    if parameters.by_id and not target.topic_name:
        topic = partitions.by_id.get(target.topic)  # type: ignore[arg-type]
        if topic is None:
            return False
        target.topic_name = topic.name
    return True


def _error_of(error: KafkaError | OSError | CorruptRecordError) -> Error:
    if isinstance(error, KafkaError):
        return error.error
    return Error.KAFKA_STORAGE_ERROR if isinstance(error, OSError) else Error.CORRUPT_MESSAGE


def _failed(
    partition: Partition | None, target: FetchTarget, error: Error, api_version: int
) -> PartitionData:
    answer = PartitionData(
        partition_index=target.index,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )
    if (
        partition is not None
        and api_version >= 16
        and error in (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH)
    ):
        answer.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader_id, leader_epoch=partition.leader_epoch
        )
    return answer
