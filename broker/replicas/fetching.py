"""Reading for a Fetch, and waiting until there is enough to read (Kafka: `ReplicaManager.readFromLog`,
`DelayedFetch`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, cast

from broker.network.turns import PER_TURN, portions
from broker.replicas.leader import Leader
from broker.replicas.replica import NO_BROKER_EPOCH
from protocol.errors import Error, KafkaError
from protocol.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from protocol.records.batch import CorruptRecordError
from protocol.waiting import Later, turn
from storage.log.aborted import IndexInTheMakingError
from storage.log.leader_epochs import UNDEFINED_OFFSET
from storage.log.log_config import LONG_MAX
from storage.log.reads import ENOUGH_BYTES

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.network.turns import Turns
    from broker.quotas import ReplicationQuota
    from broker.replicas.fetch_sessions import FetchTarget
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from broker.replicas.replica_selector import RackAwareReplicaSelector
    from storage.files import FileRange
    from storage.log.log_state import ReadResult
    from storage.log.partition_log import PartitionLog

logger = logging.getLogger("barnabas.fetch")

# --- Aborted transactions, for readers of committed records -------------------------------------------------


def aborted_in(
    log: PartitionLog, offset: int, read: ReadResult, upper_bound: int
) -> list[AbortedTransaction] | None:
    """Return the aborted transactions in what was read from `offset` on. None while they aren't known: then
    the reader gets no records, and asks again."""
    try:
        found = log.aborted_transactions(offset, read, upper_bound)
    except IndexInTheMakingError:
        return None
    return [
        AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in found
    ]


# --------------------------------------------------------------------------------------------------------------

Results = list[tuple["FetchTarget", PartitionData]]

CONSUMER = -1  # the replica id of consumers
READ_UNCOMMITTED = 0  # IsolationLevel
READ_COMMITTED = 1
MOST_READ_AT_ONCE = 256 * 1024
"""The records that an answer holds in memory. All others stay in their files until the client takes them."""
MOST_ABORTED = 5_000
"""The most abort markers in the range of one answer. With more, a reader of committed records gets fewer
records and asks again: one turn of the loop makes and encodes the list."""
ABORTED_OF_EACH = 50  # of each partition, at least
PARTITION_AT_ONCE_BYTES = 64 * 1024  # at most, from one partition
FIRST_VERSION_AT_FOLLOWERS = 11  # KIP-392: a consumer may read from any replica


class FetchParameters:
    """The parameters of a Fetch that hold for all its partitions (Kafka: `FetchParams`)."""

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
        """`selector` finds a better replica to read from, for consumers that name their rack. `leader_quota`
        throttles replication, so only followers' fetches have it."""
        self.by_id = api_version >= 13
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        """The follower's broker epoch, if the request has one (from version 15 on)."""
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
        """The offset up to which the partition may be read. A follower may also read what isn't committed,
        but nothing while it is throttled."""
        if self.from_follower:
            return 0 if self._throttles(partition) else partition.log.log_end_offset
        return partition.log.last_stable_offset if self.read_committed else partition.log.high_watermark

    def _throttles(self, partition: Partition) -> bool:
        """True if the quota throttles this fetch. Replicas in sync aren't throttled, so they stay in sync
        (Kafka: `ReplicaManager.shouldLeaderThrottle`)."""
        quota, role = self.leader_quota, partition.role
        return (
            quota is not None
            and quota.is_throttled(partition.topic.name, partition.index)
            and not (isinstance(role, Leader) and self.replica_id in role.isr)
            and quota.is_exceeded()
        )


class Reading:
    """The reading for one fetch: an answer for each partition, and whether the fetch may wait for more.

    `found` holds the partitions that existed at first sight. None stands for one that isn't on this node;
    then the fetch doesn't wait, so all partitions of a waiting fetch are here. As in Kafka, unknown and
    forbidden partitions come last in the answer, unknown ids before partitions.
    """

    __slots__ = (
        "_aborted_left",
        "_at_once_left",
        "_left",
        "_may_read",
        "_partitions",
        "_readable",
        "answers",
        "bytes_read",
        "found",
        "must_answer",
        "parameters",
        "refused",
        "unknown_ids",
    )

    def __init__(
        self,
        partitions: Partitions,
        parameters: FetchParameters,
        may_read: Callable[[str], bool] | None = None,
    ) -> None:
        """`may_read(topic)` is called once for each topic. Without it, everything may be read."""
        self._partitions = partitions
        self.parameters = parameters
        self._may_read = may_read
        self._readable: dict[str, bool] = {}
        self.found: list[tuple[FetchTarget, Partition | None]] = []
        self.unknown_ids: Results = []
        self.refused: Results = []
        self.forget()

    @property
    def results(self) -> Results:
        """All results, including refusals."""
        return self.answers + self.unknown_ids + self.refused

    @property
    def may_wait(self) -> bool:
        """True if the fetch should wait for more: it has time left, and there is nothing to say yet."""
        parameters = self.parameters
        return (
            not self.must_answer
            and self.bytes_read < parameters.min_bytes
            and parameters.max_wait_ms > 0
            and bool(self.found)
        )

    def read(self, targets: Sequence[FetchTarget]) -> None:
        """Read these partitions, after those read before."""
        partitions, by_id = self._partitions, self.parameters.by_id
        may_read, readable = self._may_read, self._readable
        begin = len(self.found)
        for target in targets:
            topic = target.topic_name
            if by_id and not topic:
                # As in Kafka, a session remembers the name even after the topic is deleted.
                of_id = partitions.by_id.get(target.topic)  # type: ignore[arg-type]
                if of_id is None:
                    self.unknown_ids.append((target, refusal(target, Error.UNKNOWN_TOPIC_ID)))
                    continue
                topic = target.topic_name = of_id.name
            if may_read is not None and topic not in readable:
                readable[topic] = may_read(topic)
            hosted = partitions.by_name.get(topic)
            partition = None if hosted is None else hosted.partitions.get(target.index)
            if may_read is not None and not readable[topic]:
                self.refused.append((target, refusal(target, Error.TOPIC_AUTHORIZATION_FAILED)))
            elif partition is None and (
                (missing := partitions.missing(topic, target.index)) == Error.UNKNOWN_TOPIC_OR_PARTITION
            ):
                self.refused.append((target, refusal(target, missing)))
            else:
                self.found.append((target, partition))
                self.answers.append((target, self._read(partition, target)))
        if self.parameters.from_follower:
            self._learn_positions(begin)

    def forget(self) -> None:
        """Forget what was read: the fetch waits, and will read anew."""
        self.bytes_read = 0
        self.must_answer = False
        self._left = self.parameters.max_bytes
        self._at_once_left = MOST_READ_AT_ONCE
        self._aborted_left = MOST_ABORTED
        self.answers: Results = []

    def read_anew(self, found: Sequence[tuple[FetchTarget, Partition | None]]) -> None:
        """Read some of the found partitions again."""
        for target, _ in found:
            partition = self._partitions.find(target.topic_name, target.index)
            self.answers.append((target, self._read(partition, target)))

    def _learn_positions(self, begin: int) -> None:
        """Learn a follower's position from its request (Kafka: `Partition.updateFollowerFetchState`)."""
        follower, epoch = self.parameters.replica_id, self.parameters.replica_epoch
        for number in range(begin, len(self.found)):
            target, partition = self.found[number]
            answer = self.answers[number][1]
            if partition is None or answer.error_code or answer.diverging_epoch is not None:
                continue
            role = partition.role
            if not isinstance(role, Leader):
                continue
            try:
                role.follower_fetched(follower, target.fetch_offset, target.log_start_offset, epoch)
            except KafkaError as error:
                self.must_answer = True
                self.answers[number] = (target, _failed(target, error.error))

    def _read(self, partition: Partition | None, target: FetchTarget) -> PartitionData:
        """Return the answer for one partition. Any error becomes the answer."""
        parameters = self.parameters
        records: bytes | list[bytes | FileRange] = b""
        aborted: list[AbortedTransaction] | None = None
        diverging = None
        try:
            # 1. Check that the partition is here, and that this reader may have it.
            if partition is None:  # on another node, deleted meanwhile, or its disk failed
                raise KafkaError(self._partitions.missing(target.topic_name, target.index))
            if parameters.by_id and partition.topic.topic_id != target.topic:
                raise KafkaError(Error.INCONSISTENT_TOPIC_ID)  # created again under the same name
            if target.current_leader_epoch >= 0:  # otherwise the request has none
                partition.check_leader_epoch(target.current_leader_epoch)
            if parameters.only_leader:
                role = partition.role
                if role.__class__ is not Leader:
                    raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
                if parameters.from_follower and not role.has_replica(parameters.replica_id):
                    raise _not_its_follower(target)
            log, offset = partition.log, target.fetch_offset
            # 2. Send the reader to a better replica.
            if parameters.selector is not None:
                elsewhere = self._elsewhere(parameters.selector, partition, target)
                if elsewhere is not None:
                    return elsewhere
            # 3. Check that the reader's log agrees with this one up to the offset.
            if target.last_fetched_epoch >= 0:
                diverging = _diverging_epoch(partition, target.last_fetched_epoch, offset)
            stable_offset = log.last_stable_offset
            if parameters.read_committed:
                aborted = []
            if diverging is not None:
                self.must_answer = True
            else:
                # 4. Read the records.
                if offset < log.log_start_offset or offset > log.log_end_offset:
                    raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
                if self._left < 0 or target.partition_max_bytes < 0:
                    raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
                if parameters.from_follower:
                    bound = parameters.bound(partition)
                else:
                    bound = stable_offset if parameters.read_committed else log.high_watermark
                if offset < bound:
                    reads_aborted = parameters.read_committed and log.has_aborted_behind(offset)
                    aborted_bound = LONG_MAX
                    if reads_aborted:
                        most = self._aborted_left if self._aborted_left > ABORTED_OF_EACH else ABORTED_OF_EACH
                        aborted_bound = log.bound_by_aborted(offset, most)
                    max_bytes, left, at_once = target.partition_max_bytes, self._left, self._at_once_left
                    read = log.read(
                        offset,
                        max_bytes if max_bytes < left else left,
                        bound if bound < aborted_bound else aborted_bound,
                        self.bytes_read == 0,
                        at_once if at_once < PARTITION_AT_ONCE_BYTES else PARTITION_AT_ONCE_BYTES,
                    )
                    records, rest = read.records, read.rest
                    if reads_aborted:
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
        except (KafkaError, OSError, CorruptRecordError) as error:
            self.must_answer = True
            return _failed(target, _error_of(error))
        finally:
            if self._left < 0:
                self._left = 0  # negative in the request, or after a first batch that came whole
        return PartitionData.of(
            partition_index=target.index,
            high_watermark=log.high_watermark,
            last_stable_offset=stable_offset,
            log_start_offset=log.log_start_offset,
            diverging_epoch=diverging,
            aborted_transactions=aborted,
            records=records,
        )

    def _elsewhere(
        self, selector: RackAwareReplicaSelector, partition: Partition, target: FetchTarget
    ) -> PartitionData | None:
        """Return an answer that sends the reader to another replica, or None to read here."""
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


def _not_its_follower(target: FetchTarget) -> KafkaError:
    """Return the error. A follower that names its epoch knows more than we do: it may have just become
    one."""
    knows_epoch = target.current_leader_epoch >= 0
    return KafkaError(Error.UNKNOWN_LEADER_EPOCH if knows_epoch else Error.NOT_LEADER_OR_FOLLOWER)


def _diverging_epoch(partition: Partition, last_fetched_epoch: int, offset: int) -> EpochEndOffset | None:
    """KIP-595: return where the reader's log and ours diverge, or None if they agree."""
    epoch, end_offset = partition.log.end_offset_for_epoch(last_fetched_epoch)
    if end_offset == UNDEFINED_OFFSET or offset < partition.log.log_start_offset:
        raise KafkaError(Error.OFFSET_OUT_OF_RANGE)
    if epoch < last_fetched_epoch or end_offset < offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def refusal(target: FetchTarget, error: Error) -> PartitionData:
    """Return the answer for a missing or forbidden partition. It doesn't end the wait for the others."""
    return PartitionData(
        partition_index=target.index,
        error_code=error,
        high_watermark=-1,
        aborted_transactions=[],
        records=b"",
    )


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


# --- Waiting until there is enough to read (Kafka: `DelayedFetch`) ------------------------------------------


class DelayedFetch:
    """A fetch that waits at each of its partitions.

    A partition only reports that it moved: its high watermark, its last stable offset, its leader, or its
    deletion. It reads nothing, because a producer shouldn't pay for others' reads. The fetch then measures
    that partition in a turn of its own. Once everything together seems enough, it measures all partitions
    again, since a partition doesn't report that records were deleted.
    """

    __slots__ = ("_moved", "_readable", "_reading", "_sum", "_told", "is_over")

    def __init__(self, reading: Reading) -> None:
        self.is_over = False
        """True once the wait is over, whatever there is to read."""
        self._reading = reading
        self._readable = [0] * len(reading.found)  # of each partition, when it last moved
        self._sum = 0
        self._moved: dict[int, None] = {}
        self._told: Later[None] | None = None

    async def wait(self, scheduler: Scheduler, turns: Turns) -> None:
        """Wait until there is enough to read, or the time is up."""
        reading = self._reading
        found = cast("list[tuple[FetchTarget, Partition]]", reading.found)  # all of it is here
        every = range(len(found))
        timer = scheduler.call_later(reading.parameters.max_wait_ms / 1000, self._end)
        try:
            for some in portions(every):
                for place in some:
                    found[place][1].waiting.add(self, place)
                if len(some) == PER_TURN:
                    await turn()
            is_enough = await self._is_enough_with(every)
            while not (self.is_over or is_enough):
                if not self._moved:
                    self._told = Later()
                    await self._told
                moved, self._moved = self._moved, {}
                is_enough = await self._is_enough_with([*moved])
                if is_enough and len(found) > 1 and not self.is_over:
                    is_enough = await self._is_enough_with(every)
        finally:
            self.is_over = True
            timer.cancel()
            # Also needed if the client has hung up and this has to end now.
            turns.take_all(found, self._wait_no_more, _left_waiting)

    def recheck(self, place: int) -> None:
        """Note that one of the partitions moved."""
        if not self.is_over:
            self._moved[place] = None
            self._wake()

    def _end(self) -> None:
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        told, self._told = self._told, None
        if told is not None:
            told.reply(None)

    def _wait_no_more(self, found: Iterable[tuple[FetchTarget, Partition]]) -> None:
        for _, partition in found:
            partition.waiting.discard(self)

    async def _is_enough_with(self, places: Sequence[int]) -> bool:
        """Measure these partitions again. Returns True if there is enough in total."""
        found = cast("list[tuple[FetchTarget, Partition]]", self._reading.found)
        parameters, readable = self._reading.parameters, self._readable
        for some in portions(places):
            try:
                for place in some:
                    now = bytes_to_read(parameters, *found[place])
                    self._sum += now - readable[place]
                    readable[place] = now
            except (KafkaError, OSError, CorruptRecordError):
                return True  # reading finds the same error, and reports it with its partition
            if len(some) == PER_TURN:
                await turn()
        return self._sum >= parameters.min_bytes


def _left_waiting(error: BaseException) -> None:
    logger.error("some partitions may keep a fetch that is over", exc_info=error)


def bytes_to_read(parameters: FetchParameters, target: FetchTarget, partition: Partition) -> int:
    """Return how many bytes there are to read of a partition, or ENOUGH_BYTES if the answer has something
    else to say.

    Raises KafkaError, OSError, CorruptRecordError: reading finds the same error.
    """
    epoch = target.current_leader_epoch
    if partition.is_gone or (epoch >= 0 and epoch != partition.role.leader_epoch):
        return ENOUGH_BYTES
    if parameters.only_leader and not isinstance(partition.role, Leader):
        return ENOUGH_BYTES
    bound = parameters.bound(partition)
    offset = target.fetch_offset
    if offset >= bound:
        return ENOUGH_BYTES if offset > bound and offset > partition.log.log_end_offset else 0
    bytes_there = partition.log.available_bytes(offset, bound)
    if bytes_there == ENOUGH_BYTES:
        return ENOUGH_BYTES  # it is in an older segment: such a fetch waits only while throttled
    return min(bytes_there, target.partition_max_bytes)
