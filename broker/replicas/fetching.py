"""Reading for a Fetch (Kafka: `ReplicaManager.readFromLog`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from broker.replicas.leader import Leader
from broker.replicas.replica import NO_BROKER_EPOCH
from protocol.errors import Error, KafkaError
from protocol.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from protocol.records.batch import CorruptRecordError
from protocol.waiting import turn
from storage.log.aborted import IndexInTheMakingError
from storage.log.leader_epochs import UNDEFINED_OFFSET
from storage.log.log_config import LONG_MAX

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.quotas import ReplicationQuota
    from broker.replicas.fetch_targets import FetchTarget
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from broker.replicas.replica_selector import RackAwareReplicaSelector
    from storage.files import FileRange
    from storage.log.log_state import ReadResult
    from storage.log.partition_log import PartitionLog


# --- By which settings a follower fetches ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Kafka's `replica.fetch.*`, and `replica.socket.timeout.ms`."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    response_max_bytes: int = 10 * 1024 * 1024
    max_bytes: int = 1024 * 1024
    backoff_ms: int = 1_000
    timeout_ms: int = 30_000

    @classmethod
    def of(cls, config: BrokerConfig) -> FetchSettings:
        """Those of a start: none of them can be altered."""
        return cls(
            wait_max_ms=config.get_int("replica.fetch.wait.max.ms"),
            min_bytes=config.get_int("replica.fetch.min.bytes"),
            response_max_bytes=config.get_int("replica.fetch.response.max.bytes"),
            max_bytes=config.get_int("replica.fetch.max.bytes"),
            backoff_ms=config.get_int("replica.fetch.backoff.ms"),
            timeout_ms=config.get_int("replica.socket.timeout.ms"),
        )


# --- What a reader of committed records is told of those that were aborted ------------------------------------


def aborted_in(
    log: PartitionLog, offset: int, read: ReadResult, upper_bound: int
) -> list[AbortedTransaction] | None:
    """Of what was read from the offset on. None while that isn't known: nothing of it is for the reader then, who comes
    again."""
    try:
        found = log.aborted_transactions(offset, read, upper_bound)
    except IndexInTheMakingError:
        return None
    return [
        AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in found
    ]


# --------------------------------------------------------------------------------------------------------------

Results = list[tuple["FetchTarget", PartitionData]]

CONSUMER = -1  # as the id of the replica that fetches
READ_UNCOMMITTED = 0  # IsolationLevel
READ_COMMITTED = 1
MOST_READ_AT_ONCE = 256 * 1024
"""What an answer holds of records until its client takes it; all others stay in their files."""
MOST_ABORTED = 5_000
"""Markers of aborts that lie in what one answer gives. Where there are more, a reader of committed records is given
fewer records, and comes again: the list of the transactions is made and encoded in one turn of the loop."""
ABORTED_OF_EACH = 50  # of each partition at least
PARTITION_AT_ONCE_BYTES = 64 * 1024  # of one partition that has no more
FIRST_VERSION_AT_FOLLOWERS = 11  # KIP-392: a consumer may read from any replica


class FetchParameters:
    """What holds for all partitions of one Fetch (Kafka: `FetchParams`)."""

    __slots__ = (
        "by_id",
        "from_follower",
        "leader_quota",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "only_leader",
        "read_committed",
        "replica_epoch",
        "replica_id",
        "selector",
    )

    def __init__(
        self,
        *,
        api_version: int,
        replica_id: int,
        replica_epoch: int = NO_BROKER_EPOCH,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        read_committed: bool,
        selector: RackAwareReplicaSelector | None = None,
        leader_quota: ReplicationQuota | None = None,
    ) -> None:
        """`selector`: who may be a better one to read from, where the consumer says its rack. `leader_quota`: what
        throttles replication here; of a follower's fetch alone."""
        self.by_id = api_version >= 13
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        """The broker epoch of the follower, as far as it says one (from version 15 on)."""
        self.from_follower = replica_id >= 0
        self.leader_quota = leader_quota
        self.only_leader = self.from_follower or (
            replica_id == CONSUMER and api_version < FIRST_VERSION_AT_FOLLOWERS
        )
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min(min_bytes, max_bytes)
        self.max_bytes = max_bytes
        self.read_committed = read_committed
        self.selector = selector

    def bound(self, partition: Partition) -> int:
        """The offset below which may be read: a follower takes what isn't committed yet, and nothing for now where it
        is throttled."""
        if self.from_follower:
            return 0 if self._throttles(partition) else partition.log.log_end_offset
        return partition.log.last_stable_offset if self.read_committed else partition.log.high_watermark

    def _throttles(self, partition: Partition) -> bool:
        """Who is in sync stays so (Kafka: `ReplicaManager.shouldLeaderThrottle`)."""
        quota, role = self.leader_quota, partition.role
        return (
            quota is not None
            and quota.is_throttled(partition.topic.name, partition.index)
            and not (isinstance(role, Leader) and self.replica_id in role.isr)
            and quota.is_exceeded()
        )


class Reading:
    """One pass over the partitions: an answer for each, and whether the fetch may wait for more.

    `found` are those of the cluster, as it was known at first sight. None is one that isn't here: nothing waits then,
    and so only those that are here keep a fetch waiting. What is unknown, or isn't for this client to read, is answered
    behind the others, ids before partitions, as in Kafka.
    """

    __slots__ = (
        "_aborted_left",
        "_at_once_left",
        "_left",
        "_partitions",
        "bytes_read",
        "found",
        "must_answer",
        "parameters",
        "refused",
        "results",
        "unknown_ids",
    )

    def __init__(
        self,
        partitions: Partitions,
        parameters: FetchParameters,
        targets: list[FetchTarget],
        may_read: Callable[[str], bool],
        before: Reading | None = None,
    ) -> None:
        """`may_read(topic)` is asked once for each topic. What was read `before` of the same fetch counts as read."""
        self._partitions = partitions
        self.parameters = parameters
        self.found: list[tuple[FetchTarget, Partition | None]] = []
        unknown_ids: Results = []
        refused: Results = []
        readable: dict[str, bool] = {}
        for target in targets:
            if not _resolve(partitions, parameters, target):
                unknown_ids.append((target, refusal(target, Error.UNKNOWN_TOPIC_ID)))
                continue
            topic = target.topic_name
            if topic not in readable:
                readable[topic] = may_read(topic)
            partition = partitions.find(topic, target.index)
            if not readable[topic]:
                refused.append((target, refusal(target, Error.TOPIC_AUTHORIZATION_FAILED)))
            elif partition is None and (
                (missing := partitions.missing(topic, target.index)) == Error.UNKNOWN_TOPIC_OR_PARTITION
            ):
                refused.append((target, refusal(target, missing)))
            else:
                self.found.append((target, partition))
        self.unknown_ids = unknown_ids
        self.refused = unknown_ids + refused
        self._begin()
        if before is not None:
            self._go_on_from(before)
        for target, partition in self.found:
            self.results.append((target, self._read(partition, target)))
        self.results += self.refused
        if parameters.from_follower:
            self._learn_positions()

    @property
    def may_wait(self) -> bool:
        """Whether the answer is to wait for more: it has time, and nothing is to be said yet."""
        parameters = self.parameters
        return (
            not self.must_answer
            and self.bytes_read < parameters.min_bytes
            and parameters.max_wait_ms > 0
            and bool(self.found)
        )

    @property
    def waited_for(self) -> list[tuple[FetchTarget, Partition]]:
        """What was found, where the answer may wait: all of it is here."""
        return cast("list[tuple[FetchTarget, Partition]]", self.found)

    def read(self) -> None:
        """Read what was found, anew: `results` is what is there now."""
        self._begin()
        for target, _ in self.found:
            partition = self._partitions.find(target.topic_name, target.index)
            self.results.append((target, self._read(partition, target)))
        self.results += self.refused

    def add(self, part: Reading) -> None:
        """Take over what was read behind this, of other partitions."""
        self._go_on_from(part)
        self.results[len(self.found) :] = part.results[: len(part.found)]
        self.found += part.found
        refused = self.refused[len(self.unknown_ids) :] + part.refused[len(part.unknown_ids) :]
        self.unknown_ids += part.unknown_ids
        self.refused = self.unknown_ids + refused
        self.results += self.refused

    async def read_in_parts(self, at_once: int) -> None:
        """As `read`, so many partitions at a time."""
        self._begin()
        for start in range(0, len(self.found), at_once):
            for target, _ in self.found[start : start + at_once]:
                partition = self._partitions.find(target.topic_name, target.index)
                self.results.append((target, self._read(partition, target)))
            await turn()
        self.results += self.refused

    def forget(self) -> None:
        """The fetch waits, and will read anew: what was read needn't be held so long."""
        self._begin()

    def _begin(self) -> None:
        self.bytes_read = 0
        self.must_answer = False
        self._left = self.parameters.max_bytes
        self._at_once_left = MOST_READ_AT_ONCE
        self._aborted_left = MOST_ABORTED
        self.results: Results = []

    def _go_on_from(self, before: Reading) -> None:
        self.bytes_read = before.bytes_read
        self.must_answer = before.must_answer
        self._left = before._left
        self._at_once_left = before._at_once_left
        self._aborted_left = before._aborted_left

    def _learn_positions(self) -> None:
        """What a follower asks for tells what it has (Kafka: `Partition.updateFollowerFetchState`)."""
        follower, epoch = self.parameters.replica_id, self.parameters.replica_epoch
        for number, (target, partition) in enumerate(self.found):
            answer = self.results[number][1]
            if partition is None or answer.error_code or answer.diverging_epoch is not None:
                continue
            role = partition.role
            if not isinstance(role, Leader):
                continue
            try:
                role.follower_fetched(follower, target.fetch_offset, target.log_start_offset, epoch)
            except KafkaError as error:
                self.must_answer = True
                self.results[number] = (target, _failed(target, error.error))

    def _read(self, partition: Partition | None, target: FetchTarget) -> PartitionData:
        try:
            if partition is None:  # elsewhere, deleted while the fetch waited, or its disk failed
                raise KafkaError(self._partitions.missing(target.topic_name, target.index))
            if self.parameters.by_id and partition.topic.topic_id != target.topic:
                raise KafkaError(Error.INCONSISTENT_TOPIC_ID)  # created again under the same name
            answer = self._read_partition(partition, target)
        except (KafkaError, OSError, CorruptRecordError) as error:
            self.must_answer = True
            answer = _failed(target, _error_of(error))
        if self._left < 0:
            self._left = 0  # below it by the request alone, or by a first batch that came whole
        if answer.diverging_epoch is not None:
            self.must_answer = True
        return answer

    def _elsewhere(
        self, selector: RackAwareReplicaSelector, partition: Partition, target: FetchTarget
    ) -> PartitionData | None:
        """Where the reader is to fetch from; None: from here."""
        preferred = selector.select(partition, target.fetch_offset)
        if preferred < 0:
            return None
        self.must_answer = True
        log = partition.log
        return PartitionData.of(
            partition_index=target.index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            diverging_epoch=None,
            aborted_transactions=None,
            preferred_read_replica=preferred,
            records=b"",
        )

    def _read_partition(self, partition: Partition, target: FetchTarget) -> PartitionData:
        parameters = self.parameters
        if target.current_leader_epoch >= 0:  # else it says none
            partition.check_leader_epoch(target.current_leader_epoch)
        if parameters.only_leader:
            leader = partition.leader()
            if parameters.from_follower and not leader.has_replica(parameters.replica_id):
                raise _not_its_follower(target)
        log, offset = partition.log, target.fetch_offset
        if parameters.selector is not None:
            elsewhere = self._elsewhere(parameters.selector, partition, target)
            if elsewhere is not None:
                return elsewhere
        diverging = None
        if target.last_fetched_epoch >= 0:
            diverging = _diverging_epoch(partition, target.last_fetched_epoch, offset)
        records: bytes | list[bytes | FileRange] = b""
        aborted: list[AbortedTransaction] | None = [] if parameters.read_committed else None
        if diverging is None:
            if offset < log.log_start_offset or offset > log.log_end_offset:
                raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
            if self._left < 0 or target.partition_max_bytes < 0:
                raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
            bound = parameters.bound(partition)
            if offset < bound:
                aborted_bound = LONG_MAX
                if parameters.read_committed:
                    most = self._aborted_left if self._aborted_left > ABORTED_OF_EACH else ABORTED_OF_EACH
                    aborted_bound = log.bound_by_aborted(offset, most)
                max_bytes, left, at_once = target.partition_max_bytes, self._left, self._at_once_left
                read = log.read(
                    offset,
                    max_bytes if max_bytes < left else left,
                    min(bound, aborted_bound),
                    min_one_batch=self.bytes_read == 0,
                    at_once=at_once if at_once < PARTITION_AT_ONCE_BYTES else PARTITION_AT_ONCE_BYTES,
                )
                records, rest = read.records, read.rest
                if parameters.read_committed:
                    aborted = aborted_in(log, offset, read, aborted_bound)
                    if aborted is None:
                        aborted, records, rest = [], b"", None
                    self._aborted_left -= len(aborted)
                size = len(records)
                self._at_once_left = at_once - size
                if rest is not None:
                    size += len(rest)
                    records = [records, rest]
                self._left = left - size
                self.bytes_read += size
        return PartitionData.of(
            partition_index=target.index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            diverging_epoch=diverging,
            aborted_transactions=aborted,
            records=records,
        )


def _not_its_follower(target: FetchTarget) -> KafkaError:
    """With its epoch a follower knows more than we do: it was made one a moment ago, perhaps."""
    knows_epoch = target.current_leader_epoch >= 0
    return KafkaError(Error.UNKNOWN_LEADER_EPOCH if knows_epoch else Error.NOT_LEADER_OR_FOLLOWER)


def _diverging_epoch(partition: Partition, last_fetched_epoch: int, offset: int) -> EpochEndOffset | None:
    """KIP-595: where a reader's log and ours part; None where they agree."""
    epoch, end_offset = partition.log.end_offset_for_epoch(last_fetched_epoch)
    if end_offset == UNDEFINED_OFFSET or offset < partition.log.log_start_offset:
        raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
    if epoch < last_fetched_epoch or end_offset < offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def refusal(target: FetchTarget, error: Error) -> PartitionData:
    """Of what isn't there, or isn't for this client to read: it doesn't end the wait of the others."""
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


def _failed(target: FetchTarget, error: Error) -> PartitionData:
    return PartitionData(
        partition_index=target.index,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )
