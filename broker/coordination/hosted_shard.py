"""A coordinator's shard in this broker: its partition's log, its timers (Kafka: `CoordinatorRuntime`).

`PartitionRuntime` is the port `coordinator.ports.Runtime`; `loading` reads a partition into a shard.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import TYPE_CHECKING, Protocol

from broker.replicas.leader import Leader
from coordinator.ports import CoordinatorRecord as NewRecord
from coordinator.ports import WhenCommitted, append_error
from protocol.errors import CodecError, Error, KafkaError
from protocol.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    CorruptRecordError,
    crc_is_valid,
)
from protocol.records.records import (
    ABORT,
    COMMIT,
    Record,
    RecordsOfOneTime,
    build_batch_of_one_time,
    read_control_type,
    read_records,
)
from protocol.waiting import Waiting
from protocol.wire.primitives import Bytes
from storage.files import is_shortage
from storage.log.log_state import COORDINATOR
from storage.producer_state import VerificationGuard

if TYPE_CHECKING:
    from broker.environment.scheduler import Clock, LoopTimers
    from broker.replicas.partition import Partition


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
    ) -> None:
        self._partition = partition
        self.carry_out = carry_out
        self.now_ms = clock.now_ms
        self._timers = timers
        self.new_uuid = new_uuid

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
        now_ms = self.now_ms()
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
