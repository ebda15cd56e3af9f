"""The shards of one internal topic that this broker hosts: one for each partition of it that is led here.

A shard is loaded, in steps, when this broker begins to lead its partition. Short partitions are loaded within the
change of the metadata; at a start, that is before the listeners open. The rest is loaded in turns of the loop, one
partition after the other; until then the answer is COORDINATOR_LOAD_IN_PROGRESS. If a partition can't be read, only its
own shard is lost: the log says where and why, its files stay as they are, and the answer is the same as Kafka's
(`unreadable`), until this broker leads it in a later leader epoch. Requests of clients wait while a shard is loaded
(`broker.early_requests`). Sources: `CoordinatorRuntime`, `TransactionStateManager`.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from broker.replicas.leader import Leader
from coordinator.java.maps import partition_of_key
from coordinator.ports import Barriers, WhenCommitted, append_error
from coordinator.ports import CoordinatorRecord as NewRecord
from protocol.errors import CodecError, Error, KafkaError, stops_the_broker
from protocol.records.batch import (
    ABORT,
    COMMIT,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    CorruptRecordError,
    Record,
    RecordsOfOneTime,
    build_batch_of_one_time,
    crc_is_valid,
    read_control_type,
    read_records,
)
from protocol.waiting import Waiting, at_once, carry_on, turn
from protocol.wire.primitives import Bytes
from storage.files import is_shortage
from storage.log.log_state import COORDINATOR
from storage.producer_state import VerificationGuard

if TYPE_CHECKING:
    from broker.environment.scheduler import Clock, LoopTimers, Scheduled, Scheduler
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions


# --- Durations, for metrics ---------------------------------------------------------------------------------

SAMPLES = 1_024
"""Durations that are kept: the last ones."""


class Durations:
    """Durations of one kind, in milliseconds: their count, their sum, and the last ones."""

    __slots__ = ("count", "last", "sum_ms")

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        self.last: deque[float] = deque(maxlen=SAMPLES)

    def add(self, took_ms: float) -> None:
        self.count += 1
        self.sum_ms += took_ms
        self.last.append(took_ms)


# --- A coordinator's shard in this broker: its partition's log, its timers (Kafka: `CoordinatorRuntime`) ------
#
# `PartitionRuntime` is the port `coordinator.ports.Runtime`; `loading` reads a partition into a shard.

log = logging.getLogger("barnabas.coordination")


class ReplayError(Exception):
    """A shard can't be loaded from its partition. The message says at which offset, and why."""

    def __init__(self, offset: int, cause: Exception) -> None:
        super().__init__(f"at offset {offset}: {reason(cause)}")


STEP_COST = 500
"""The cost of a step of `loading`, some milliseconds. The unit is a record."""
_BYTES_PER_COST = 1024
"""Bytes of a batch that cost as much to read as a record."""
_REPLAYED_BYTES_PER_COST = 32
"""Bytes of a value that cost as much to replay. In a member's assignment each partition has four bytes and takes some
µs."""


class LoadedShard(Protocol):
    """A shard, as `loading` sees it."""

    def stands_alone(self, value: Bytes | None) -> bool:
        """True if a record with this value has the whole state of its key, so that earlier records don't matter."""
        ...

    def replay(self, key: Bytes, value: Bytes | None, record_offset: int, producer_id: int) -> None: ...

    def end_transaction(self, producer_id: int, *, commit: bool) -> None: ...


class PartitionRuntime:
    """A shard's surroundings: its partition's log, the server's clock, timers and threads, and random ids."""

    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        timers: LoopTimers,
        new_uuid: Callable[[], bytes],
        carry_out: Callable[[str, Waiting[None]], None],
        begin: Callable[[Waiting[None]], None],
    ) -> None:
        self._partition = partition
        self.carry_out = carry_out
        self.begin = begin
        self._time_ns = clock.time_ns
        self._timers = timers
        self.new_uuid = new_uuid

    def now_ms(self) -> int:
        return self._time_ns() // 1_000_000

    def append(
        self,
        records: Sequence[NewRecord],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        guard: object | None = None,
    ) -> int:
        """See the port. A batch may have up to `max.message.bytes`."""
        assert guard is None or isinstance(guard, VerificationGuard)
        partition = self._partition
        now_ms = self._time_ns() // 1_000_000
        try:
            leader = partition.role
            if leader.__class__ is not Leader:
                raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
            leader.check_in_sync()
            limit = partition.topic.config.max_message_bytes
            if isinstance(records, RecordsOfOneTime):
                size_bytes = len(records.payload)
            else:
                size_bytes = 0
                for key, value in records:
                    size_bytes += len(key) if value is None else len(key) + len(value)
            if size_bytes > limit:  # don't build a batch of maybe tens of megabytes
                raise _too_large(size_bytes, limit)
            batch = build_batch_of_one_time(
                now_ms, records, producer_id=producer_id, producer_epoch=producer_epoch
            )
            if len(batch) > limit:
                raise _too_large(len(batch), limit)
            appended = leader.append(batch, now_ms, COORDINATOR, guard=guard)
        except KafkaError as error:
            raise _told(error) from error
        return appended.last_offset + 1

    def is_committed(self, end_offset: int) -> bool:
        """See the port."""
        role = self._partition.role
        return role.__class__ is Leader and role.log.high_watermark >= end_offset

    def when_committed(self, end_offset: int, then: WhenCommitted) -> None:
        """See the port."""
        if self.is_committed(end_offset):
            then(None)
            return
        try:
            leader = self._partition.leader()
        except KafkaError as error:
            then(_told(error))
        else:
            leader.when_committed(end_offset, lambda error: then(None if error is None else _told(error)))

    def delete_before(self, offset: int) -> None:
        """Have all records below this offset deleted. Raises KafkaError."""
        self._partition.leader().log.delete_records_before(offset)

    def schedule(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        self._timers.schedule((id(self), key), delay_ms, callback)

    def cancel(self, key: Hashable) -> None:
        self._timers.cancel((id(self), key))

    def cancel_all(self) -> None:
        """The shard is given up."""
        owner = id(self)
        self._timers.cancel_where(lambda key: isinstance(key, tuple) and key[0] == owner)


def _too_large(size_bytes: int, limit: int) -> KafkaError:
    return KafkaError(Error.MESSAGE_TOO_LARGE, f"a batch of {size_bytes} bytes; at most {limit} are allowed")


def _told(error: KafkaError) -> KafkaError:
    """The error that a client gets for this error of the log or the partition."""
    return KafkaError(append_error(error.error), error.message)


def loading(leader: Leader, shard: LoadedShard) -> Generator[int, None, int]:
    """Replay the whole log into a shard, including records that are appended meanwhile.

    Yields the cost of each step of about `STEP_COST`, so that others can be served, and returns that of the last one.

    Raises ReplayError for any error that a record causes in the shard, as in Kafka (`CoordinatorLoaderImpl`), unless
    memory or descriptors are short. This checks checksums, which Kafka doesn't do here: a flipped bit could become an
    offset that nobody committed.

    A log that is compacted between two steps has the same state as before, unless a marker goes that ends records which
    were read already. So no pass begins while a partition is loaded. If the partition moves to another directory
    meanwhile, loading goes on in the log there.
    """
    last: dict[bytes, tuple[bytes | None, int, int]] = {}
    cost = 0
    offset = following = leader.log.log_start_offset
    try:
        while following < leader.log.log_end_offset:
            partition_log = leader.log
            end_offset = partition_log.log_end_offset
            for header, batch in partition_log.batches(following, upper_bound=end_offset):
                offset = header.base_offset
                cost += len(batch) // _BYTES_PER_COST
                producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
                for record in _records_of(header, batch):
                    offset = record.offset
                    cost += 1
                    if header.is_control:
                        outcome = read_control_type(record.key)
                        if outcome in (ABORT, COMMIT):
                            shard.end_transaction(header.producer_id, commit=outcome == COMMIT)
                    elif record.key is None:
                        raise CodecError("a record without a key")
                    elif shard.stands_alone(record.value):
                        value = None if record.value is None else bytes(record.value)
                        last[bytes(record.key)] = (value, record.offset, producer_id)
                    else:
                        shard.replay(record.key, record.value, record.offset, producer_id)
                        cost += _replay_cost(record.value)
                    if cost >= STEP_COST:
                        yield cost
                        cost = 0
                offset = following = header.last_offset + 1
                if leader.log is not partition_log:
                    break
            else:
                following = end_offset
        for key, (value, offset, producer_id) in last.items():
            shard.replay(key, value, offset, producer_id)
            cost += 1 + _replay_cost(value)
            if cost >= STEP_COST:
                yield cost
                cost = 0
    except Exception as error:
        if is_shortage(error):
            raise
        if is_shortage(error.__cause__):  # reading a log turns it into KAFKA_STORAGE_ERROR
            raise error.__cause__ from None
        raise ReplayError(offset, error) from error
    return cost


def _replay_cost(value: Bytes | None) -> int:
    return 0 if value is None else len(value) // _REPLAYED_BYTES_PER_COST


def _records_of(header: BatchHeader, batch: memoryview) -> list[Record]:
    if not crc_is_valid(batch, 0, header.size_bytes):
        raise CorruptRecordError("the batch's checksum doesn't match its bytes")
    return read_records(batch)


def reason(error: Exception) -> str:
    """An error in one line. An unexpected one has the name of its class; its traceback is logged at level DEBUG."""
    cause = error.__cause__
    if isinstance(error, KafkaError) and isinstance(cause, CodecError):
        return str(cause)  # clients don't get it
    if isinstance(error, CodecError | CorruptRecordError | KafkaError | ReplayError):
        return str(error)
    log.debug("an unexpected error", exc_info=error)
    return f"{type(error).__name__} {error}".rstrip()


# --------------------------------------------------------------------------------------------------------------


AT_ONCE = 5_000
"""How much is loaded within a change of the metadata, over all new partitions. The unit is a record."""

_PARTITION_COST = 5
_RETRY_S = 1.0
"""The wait after memory or descriptors were short."""


class Shard(LoadedShard, Protocol):
    """A shard, as its host sees it."""

    def start(self, end_offset: int) -> None:
        """Begin to serve: the partition is replayed up to this offset, and so are those loaded with it. Not all of that
        need be committed."""
        ...

    def unload(self) -> None:
        """The partition is led elsewhere, or gone."""
        ...

    def interpose(self, barriers: Barriers | None) -> None:
        """Wait at these barriers from now on, if a test wants it."""
        ...


ShardT = TypeVar("ShardT", bound=Shard)


class _Hosted(Generic[ShardT]):
    """A partition that this broker has led since `leader_epoch` or an earlier one. It has no shard while it is loaded,
    or if it can't be read."""

    __slots__ = (
        "begun_s",
        "is_loading",
        "is_new",
        "leader",
        "leader_epoch",
        "loading",
        "partition",
        "runtime",
        "shard",
        "steps",
        "to_tell",
    )

    def __init__(
        self, partition: Partition, leader: Leader, runtime: PartitionRuntime, begun_s: float
    ) -> None:
        self.begun_s = begun_s
        """When it turned out that it has to be loaded."""
        self.partition = partition
        self.leader = leader
        self.leader_epoch = leader.leader_epoch
        self.runtime = runtime
        self.shard: ShardT | None = None
        self.is_loading = False
        self.is_new = True
        """True if the last change of the metadata made this broker its leader."""
        self.loading: ShardT | None = None
        """The shard while it is loaded."""
        self.steps: Generator[int, None, int] | None = None
        self.to_tell: list[Callable[[ShardT], object]] = []
        """Calls to make once the shard is loaded."""

    def will_load(self, will: bool) -> None:
        self.is_loading = self.partition.is_being_loaded = will
        self.loading = self.steps = None


class HostedShards(Generic[ShardT]):
    """Finds the shard of a key. Loads and gives up shards as the partitions come and go."""

    def __init__(
        self,
        topic: str,
        partition_count: int,
        partitions: Partitions,
        scheduler: Scheduler,
        runtime_of: Callable[[Partition], PartitionRuntime],
        make: Callable[[PartitionRuntime, int], ShardT],
        *,
        content: str,
        unreadable: Error,
        reloads_in_new_epoch: bool,
    ) -> None:
        """`partition_count`: of the topic once it is created; `make(runtime, leader_epoch)` makes an empty shard;
        `content` is the name of its contents in log lines.

        `unreadable`: the error for a partition that can't be read. For groups it is NOT_COORDINATOR, since Kafka's
        `CoordinatorRuntime` has failed then. For transactions it is COORDINATOR_LOAD_IN_PROGRESS, since Kafka's loading
        never ends.

        `reloads_in_new_epoch`: whether a partition is loaded again if this broker goes on to lead it in a later leader
        epoch. Kafka's `TransactionCoordinator.onElection` does so. `CoordinatorRuntime` keeps an active shard, and
        tries again if it couldn't be loaded.
        """
        self._topic = topic
        self._partition_count = partition_count
        self._partitions = partitions
        self._scheduler = scheduler
        self._runtime_of = runtime_of
        self._make = make
        self._content = content
        self._unreadable = unreadable
        self._reloads_in_new_epoch = reloads_in_new_epoch
        self._hosted: dict[int, _Hosted[ShardT]] = {}
        self._to_load: dict[int, _Hosted[ShardT]] = {}
        self._turn: Scheduled | None = None
        self._barriers: Barriers | None = None
        self._standing: dict[int, _Hosted[ShardT]] = {}
        """Partitions that a test has wait before they are loaded."""
        self.on_loaded: Callable[[int], None] = lambda index: None
        """Called with the number of each partition that has been loaded, or can't be."""
        self.load_times = Durations()
        """The load times of shards, the wait in line included, as in Kafka."""

    # --- finding --------------------------------------------------------------------------------------------

    def partition_of(self, key: str) -> int:
        """The partition of the topic that has a key. As in Kafka, partitions that are added to the topic count only
        from the next start on. Otherwise keys would lose their records in the other partitions."""
        return partition_of_key(key, self._partition_count)

    def of(self, key: str) -> ShardT:
        """The shard of a key. Raises KafkaError: NOT_COORDINATOR; COORDINATOR_LOAD_IN_PROGRESS for a partition that
        isn't loaded yet, `unreadable` for one that can't be read."""
        # inlined, since each request of a group or a transaction calls it
        found = self._hosted.get(partition_of_key(key, self._partition_count))
        if found is None:
            raise KafkaError(Error.NOT_COORDINATOR)
        shard = found.shard
        return self._loaded(found) if shard is None else shard

    def at(self, index: int) -> ShardT:
        """The shard of a partition. Raises as `of`."""
        found = self._hosted.get(index)
        if found is None:
            raise KafkaError(Error.NOT_COORDINATOR)
        return self._loaded(found)

    @property
    def is_loading(self) -> bool:
        """True if a partition isn't loaded yet."""
        return bool(self._to_load or self._standing)

    def by_state(self) -> Counter[str]:
        """How many partitions are active, loading and failed (Kafka: `num-partitions`)."""
        return Counter(
            "active" if hosted.shard is not None else "loading" if hosted.is_loading else "failed"
            for hosted in self._hosted.values()
        )

    def loading_partition_of(self, key: str) -> int | None:
        """The partition of a key if its shard isn't loaded yet, −1 if it is, None if it isn't led here."""
        index = partition_of_key(key, self._partition_count)
        found = self._hosted.get(index)
        if found is None:
            return None
        return index if found.is_loading else -1

    def all(self) -> list[ShardT]:
        """All shards. Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS if one isn't loaded yet, `unreadable` if one
        can't be read."""
        return [self._loaded(hosted) for hosted in self._hosted.values()]

    def readable(self) -> list[ShardT]:
        """All shards but those that can't be read. Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) if one isn't loaded
        yet."""
        return [
            self._loaded(hosted)
            for hosted in self._hosted.values()
            if hosted.shard is not None or hosted.is_loading
        ]

    def tell(self, what: Callable[[ShardT], object]) -> None:
        """Call `what` with all shards, with those that aren't loaded yet once they are. Unreadable ones are left
        out."""
        for hosted in self._hosted.values():
            if hosted.shard is not None:
                what(hosted.shard)
            elif hosted.is_loading:
                hosted.to_tell.append(what)

    async def tell_in_steps(self, what: Callable[[ShardT, bool], Waiting[None]]) -> None:
        """As `tell`, for calls that may be long. For a shard that isn't loaded yet, the call is made in one go once it
        is.

        The second argument is whether this change made the broker the partition's leader, as for all partitions at a
        start: then other brokers may have written later records that the shard has read."""
        for hosted in [*self._hosted.values()]:
            if hosted.shard is not None:
                await what(hosted.shard, hosted.is_new)
            elif hosted.is_loading:
                is_new = hosted.is_new
                hosted.to_tell.append(lambda shard, is_new=is_new: at_once(what(shard, is_new)))  # type: ignore[misc]

    # --- following the partitions ---------------------------------------------------------------------------

    async def follow(self) -> None:
        """The metadata changed: give up the shards of partitions that went, load those of new ones."""
        topic = self._partitions.by_name.get(self._topic)
        here = {} if topic is None else topic.partitions
        led = {
            index: (partition, role)
            for index, partition in here.items()
            if isinstance(role := partition.role, Leader)
        }
        if topic is not None and not self._hosted:
            self._partition_count = len(here) + len(topic.offline) + len(topic.to_open) + len(topic.elsewhere)
        for index, hosted in [*self._hosted.items()]:
            hosted.is_new = False
            if index not in led or not self._goes_on(hosted, led[index][1]):
                self._give_up(index)
        new = [index for index in led if index not in self._hosted]
        for index in new:
            self._begin(index, *led[index])
        if new:
            await self._load(AT_ONCE)

    def stop_loading(self) -> None:
        """Load no more shards."""
        self._to_load.clear()
        self._standing.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def unload(self) -> None:
        """The node stops: give up all shards."""
        self.stop_loading()
        for index in [*self._hosted]:
            self._give_up(index)

    def _goes_on(self, hosted: _Hosted[ShardT], leader: Leader) -> bool:
        if leader is not hosted.leader:
            return False  # led elsewhere in between: records that others wrote have to be read
        is_loaded_or_loading = hosted.shard is not None or hosted.is_loading
        is_kept = is_loaded_or_loading and not self._reloads_in_new_epoch
        return is_kept or leader.leader_epoch == hosted.leader_epoch

    def _give_up(self, index: int) -> None:
        hosted = self._hosted.pop(index)
        self._to_load.pop(index, None)
        self._standing.pop(index, None)
        hosted.will_load(False)
        self._end(hosted)

    @staticmethod
    def _end(hosted: _Hosted[ShardT]) -> None:
        shard, hosted.shard = hosted.shard, None
        try:
            if shard is not None:
                shard.unload()
        finally:
            hosted.runtime.cancel_all()

    def _begin(self, index: int, partition: Partition, leader: Leader) -> None:
        hosted: _Hosted[ShardT] = _Hosted(
            partition, leader, self._runtime_of(partition), self._scheduler.time()
        )
        hosted.will_load(True)
        self._hosted[index] = hosted
        if self._barriers is None:
            self._to_load[index] = hosted
        else:
            carry_on(self._load_behind(self._barriers, index, hosted))

    async def _load_behind(self, barriers: Barriers, index: int, hosted: _Hosted[ShardT]) -> None:
        """Load the partition once a test lets it go on."""
        self._standing[index] = hosted
        await barriers.before_loading(self._topic, index)
        if self._standing.get(index) is hosted:  # it is still led here
            del self._standing[index]
            self._to_load[index] = hosted
            if self._turn is None:
                self._turn = self._scheduler.call_soon(self._take_turn)

    def interpose(self, barriers: Barriers | None) -> None:
        """Let a test have all shards, present and future ones, wait at these barriers. None ends that."""
        self._barriers = barriers
        self.tell(lambda shard: shard.interpose(barriers))

    async def _load(self, cost: int) -> None:
        """Load about `cost` within this call, and the rest in turns."""
        is_short = False
        while self._to_load:
            spent = self._load_step()
            if spent is None:
                is_short = True
                break
            cost -= spent
            if cost <= 0:
                break
            if self._to_load:
                await turn()
        if self._to_load and self._turn is None:
            scheduler = self._scheduler
            self._turn = (
                scheduler.call_later(_RETRY_S, self._take_turn)
                if is_short
                else scheduler.call_soon(self._take_turn)
            )

    def _load_step(self) -> int | None:
        """Load about `STEP_COST`. Shards that are complete start once all partitions of this step are read.

        Returns the cost, or None if memory or descriptors were short."""
        loaded: list[tuple[int, _Hosted[ShardT]]] = []
        over: list[int] = []
        is_enough, spent = True, 0
        while spent < STEP_COST and self._to_load:
            index, hosted = next(iter(self._to_load.items()))
            try:
                if hosted.steps is None:
                    hosted.loading = self._make(hosted.runtime, hosted.leader_epoch)
                    hosted.loading.interpose(self._barriers)
                    hosted.steps = loading(hosted.leader, hosted.loading)
                spent += next(hosted.steps)
                continue
            except StopIteration as end:
                spent += _PARTITION_COST + end.value
                hosted.shard = hosted.loading
                loaded.append((index, hosted))
            except ReplayError as error:
                self._complain(index, error)
            except (MemoryError, OSError) as error:
                if not is_shortage(error):
                    raise
                self._load_again(index, hosted, error)
                is_enough = False
                break
            del self._to_load[index]
            hosted.will_load(False)
            over.append(index)
        for index, hosted in loaded:
            try:
                self._start(index, hosted)
            except (MemoryError, OSError) as error:
                if not is_shortage(error):
                    raise
                self._load_again(index, hosted, error)
                self._end(hosted)
                is_enough = False
        for index in over:
            self.on_loaded(index)
        return spent if is_enough else None

    def _take_turn(self) -> None:
        self._turn = None
        at_once(self._load(STEP_COST))

    def _load_again(self, index: int, hosted: _Hosted[ShardT], failure: MemoryError | OSError) -> None:
        lacks = (
            "there is too little memory" if isinstance(failure, MemoryError) else "too many files are open"
        )
        log.error("the %s of %s-%d will be loaded later: %s", *self._names(index), lacks)
        self._to_load[index] = hosted
        hosted.will_load(True)

    def _start(self, index: int, hosted: _Hosted[ShardT]) -> None:
        """Start a shard. If it can't start with what was read, it counts as unreadable, too."""
        shard = self._loaded(hosted)
        try:
            shard.start(hosted.leader.log.log_end_offset)
        except Exception as error:
            if is_shortage(error) or stops_the_broker(error):
                raise
            self._complain(index, error)
            self._end(hosted)
            return
        self.load_times.add((self._scheduler.time() - hosted.begun_s) * 1000)
        while hosted.to_tell:  # if memory is short for one, it is called once the shard is loaded again
            hosted.to_tell[0](shard)
            del hosted.to_tell[0]

    def _complain(self, index: int, error: Exception) -> None:
        log.error("the %s of %s-%d can't be loaded: %s", *self._names(index), reason(error))

    def _names(self, index: int) -> tuple[str, str, int]:
        return self._content, self._topic, index

    def _loaded(self, hosted: _Hosted[ShardT]) -> ShardT:
        if hosted.shard is not None:
            return hosted.shard
        raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS if hosted.is_loading else self._unreadable)
