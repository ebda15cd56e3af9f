"""The shards of one internal topic that this broker hosts: one for each partition of it that is led here.

Shards are loaded where their partitions come to be led here, in steps. What is read quickly is there once the change of
the metadata is followed, at a start before the listeners open; the rest is read in turns of the loop, one partition
after the other, and until it is there who asks for it is told COORDINATOR_LOAD_IN_PROGRESS. A partition that makes no
sense costs its own shard and no other: the log says where and why, its files stay as they are, and who asks for it is
told what Kafka tells (`unreadable`), until it comes to be led here in a later leader epoch. Clients' requests wait for
a shard that is loaded (`broker.early_requests`).
Sources: `CoordinatorRuntime`, `TransactionStateManager`.
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


# --- How long things took, for whoever watches --------------------------------------------------------------

SAMPLES = 1_024
"""The last so many durations are kept."""


class Durations:
    """Of one kind, in milliseconds: how many there were, their sum, and the last ones."""

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
    """A shard can't be made of its partition; the text says at which offset, and why."""

    def __init__(self, offset: int, cause: Exception) -> None:
        super().__init__(f"at offset {offset}: {reason(cause)}")


STEP_COST = 500
"""Of a step of `loading`: some milliseconds. The unit is a record."""
_BYTES_PER_COST = 1024
"""Of a batch that is read."""
_REPLAYED_BYTES_PER_COST = 32
"""Of a value that is replayed: what a member of a group is assigned is some µs for each partition, of four bytes."""


class LoadedShard(Protocol):
    """What `loading` needs of a shard."""

    def stands_alone(self, value: Bytes | None) -> bool:
        """Whether a record of this value says all there is to know of its key, so that those before it need not be
        looked into."""
        ...

    def replay(self, key: Bytes, value: Bytes | None, record_offset: int, producer_id: int) -> None: ...

    def end_transaction(self, producer_id: int, *, commit: bool) -> None: ...


class PartitionRuntime:
    """One partition, the server's clock, timers and threads, chance."""

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
        """See the port. A batch may have `max.message.bytes`."""
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
            if size_bytes > limit:  # of what may be tens of megabytes no batch is built
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
    return KafkaError(Error.MESSAGE_TOO_LARGE, f"a batch of {size_bytes} bytes, {limit} are allowed")


def _told(error: KafkaError) -> KafkaError:
    """What a client is told where the log or the partition said this."""
    return KafkaError(append_error(error.error), error.message)


def loading(leader: Leader, shard: LoadedShard) -> Generator[int, None, int]:
    """Feeds a shard the whole log, with all that comes to it meanwhile. Others may be served after each `STEP_COST`:
    what it yields is the cost of the step, and what it returns that of the last one.

    Raises ReplayError where that makes no sense: whatever a record does to the shard that takes it, as in Kafka
    (`CoordinatorLoaderImpl`), but for a lack of memory or descriptors. The checksums are looked at, which Kafka leaves
    out here: a flipped bit would be an offset that nobody committed.

    What the log was compacted to between two steps says the same as what it was before, as long as no marker goes that
    ends what was read already: no pass begins while a partition is loaded. Where the partition has moved to another
    directory meanwhile, it goes on in the log there.
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
        if is_shortage(error.__cause__):  # a log that is read tells of it by KAFKA_STORAGE_ERROR
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
    """In one line. What nobody foresaw is told with its kind; where it came from is in the log of level debug."""
    cause = error.__cause__
    if isinstance(error, KafkaError) and isinstance(cause, CodecError):
        return str(cause)  # a client isn't told of it
    if isinstance(error, CodecError | CorruptRecordError | KafkaError | ReplayError):
        return str(error)
    log.debug("what nobody foresaw", exc_info=error)
    return f"{type(error).__name__} {error}".rstrip()


# --------------------------------------------------------------------------------------------------------------


AT_ONCE = 5_000
"""What is loaded before a change is followed, of all partitions that come together. The unit is a record."""

_PARTITION_COST = 5
_RETRY_S = 1.0
"""After there was too little memory, or no descriptor left."""


class Shard(LoadedShard, Protocol):
    """What hosting needs of a shard."""

    def start(self, end_offset: int) -> None:
        """Everything is replayed, this partition up to this offset, and all that came with it. Not all of that need be
        committed."""
        ...

    def unload(self) -> None:
        """The partition is led elsewhere, or gone."""
        ...

    def interpose(self, barriers: Barriers | None) -> None:
        """From now on a test may have it wait there."""
        ...


ShardT = TypeVar("ShardT", bound=Shard)


class _Hosted(Generic[ShardT]):
    """A partition that is led here since `leader_epoch`, or an earlier one; no shard while it is loaded, or where it
    can't be read."""

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
        """When it was found that it has to be loaded."""
        self.partition = partition
        self.leader = leader
        self.leader_epoch = leader.leader_epoch
        self.runtime = runtime
        self.shard: ShardT | None = None
        self.is_loading = False
        self.is_new = True
        """Whether it came to be led here with the last change that was followed."""
        self.loading: ShardT | None = None
        """What is loaded, and becomes the shard."""
        self.steps: Generator[int, None, int] | None = None
        self.to_tell: list[Callable[[ShardT], object]] = []
        """What it has to learn once it is loaded."""

    def will_load(self, will: bool) -> None:
        self.is_loading = self.partition.is_being_loaded = will
        self.loading = self.steps = None


class HostedShards(Generic[ShardT]):
    """Finds the shard of a key, and lets shards come and go with the partitions."""

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
        """`partition_count` of the topic once it is made; `make(runtime, leader_epoch)` is an empty shard; `content` is
        how log lines call what is in it.

        `unreadable` is what is said of a partition that can't be read: NOT_COORDINATOR of groups, whose
        `CoordinatorRuntime` has failed then; COORDINATOR_LOAD_IN_PROGRESS of transactions, where Kafka's loading never
        ends.

        `reloads_in_new_epoch`: whether a partition that goes on to be led here, in a later leader epoch, is loaded
        anew. Kafka's `TransactionCoordinator.onElection` does so; `CoordinatorRuntime` keeps a shard that is active and
        tries again where it couldn't be loaded.
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
        """Those that a test has wait before they are loaded."""
        self.on_loaded: Callable[[int], None] = lambda index: None
        """Called with the partition of each that has been loaded, or can't be."""
        self.load_times = Durations()
        """Of those that have been loaded, the time in which they stood in line included, as in Kafka."""

    # --- finding --------------------------------------------------------------------------------------------

    def partition_of(self, key: str) -> int:
        """The partition of the topic that has a key. As in Kafka, partitions that are added to the topic count from
        the next start on: what the others have would be lost otherwise."""
        return partition_of_key(key, self._partition_count)

    def of(self, key: str) -> ShardT:
        """Raises KafkaError: NOT_COORDINATOR; COORDINATOR_LOAD_IN_PROGRESS for a partition that isn't read yet,
        `unreadable` for one that can't be."""
        # written out, since it is asked with each request of a group or a transaction
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
        """Whether one of them isn't read yet."""
        return bool(self._to_load or self._standing)

    def by_state(self) -> Counter[str]:
        """How many are active, loading and failed (Kafka: `num-partitions`)."""
        return Counter(
            "active" if hosted.shard is not None else "loading" if hosted.is_loading else "failed"
            for hosted in self._hosted.values()
        )

    def loading_partition_of(self, key: str) -> int | None:
        """The partition of a key whose shard isn't read yet; −1 where it is, None where it isn't led here."""
        index = partition_of_key(key, self._partition_count)
        found = self._hosted.get(index)
        if found is None:
            return None
        return index if found.is_loading else -1

    def all(self) -> list[ShardT]:
        """Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS where one of them isn't read yet, `unreadable` where one
        can't be."""
        return [self._loaded(hosted) for hosted in self._hosted.values()]

    def readable(self) -> list[ShardT]:
        """But for those that can't be read. Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) where one of them isn't
        read yet."""
        return [
            self._loaded(hosted)
            for hosted in self._hosted.values()
            if hosted.shard is not None or hosted.is_loading
        ]

    def tell(self, what: Callable[[ShardT], object]) -> None:
        """All shards, those that aren't loaded yet once they are; the ones that can't be read learn nothing."""
        for hosted in self._hosted.values():
            if hosted.shard is not None:
                what(hosted.shard)
            elif hosted.is_loading:
                hosted.to_tell.append(what)

    async def tell_in_steps(self, what: Callable[[ShardT, bool], Waiting[None]]) -> None:
        """As `tell`, for what may be long; a shard that isn't loaded yet is told at once when it is.

        With it goes whether the shard has come with the change that is followed, as all have at a start: what it has
        read may have been written by others after that."""
        for hosted in [*self._hosted.values()]:
            if hosted.shard is not None:
                await what(hosted.shard, hosted.is_new)
            elif hosted.is_loading:
                is_new = hosted.is_new
                hosted.to_tell.append(lambda shard, is_new=is_new: at_once(what(shard, is_new)))  # type: ignore[misc]

    # --- following the partitions ---------------------------------------------------------------------------

    async def follow(self) -> None:
        """The metadata changed: give up the shards that went, load those that are new here."""
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
        """What isn't loaded yet won't be."""
        self._to_load.clear()
        self._standing.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def unload(self) -> None:
        """The node stops: all shards are given up."""
        self.stop_loading()
        for index in [*self._hosted]:
            self._give_up(index)

    def _goes_on(self, hosted: _Hosted[ShardT], leader: Leader) -> bool:
        if leader is not hosted.leader:
            return False  # led elsewhere in between: what others wrote meanwhile has to be read
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
        """It is loaded once a test lets it."""
        self._standing[index] = hosted
        await barriers.before_loading(self._topic, index)
        if self._standing.get(index) is hosted:  # it's led here still
            del self._standing[index]
            self._to_load[index] = hosted
            if self._turn is None:
                self._turn = self._scheduler.call_soon(self._take_turn)

    def interpose(self, barriers: Barriers | None) -> None:
        """From now on a test may have all shards wait there, and those that come; None: not any more."""
        self._barriers = barriers
        self.tell(lambda shard: shard.interpose(barriers))

    async def _load(self, cost: int) -> None:
        """About so much in steps of this call, and the rest in turns."""
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
        """About `STEP_COST`; what has come to its end starts, once all that is read in the same step is there. Returns
        what it did cost; None where there was too little memory, or no descriptor left."""
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
        log.error("the %s of %s-%d are loaded later: %s", *self._names(index), lacks)
        self._to_load[index] = hosted
        hosted.will_load(True)

    def _start(self, index: int, hosted: _Hosted[ShardT]) -> None:
        """A shard that can't begin with what was read is none, either."""
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
        while hosted.to_tell:  # with too little memory for one, it is told once the shard is loaded anew
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
