"""The records of `__share_group_state`: what they say, and their bytes.

Source: `ShareCoordinatorRecordHelpers`, `ShareCoordinatorRecordSerde`.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from coordinator.persister import StateBatch
from coordinator.ports import CoordinatorRecord
from coordinator.share.share_group_offset import ShareGroupOffset
from coordinator.share.share_partition_key import SharePartitionKey
from protocol.errors import CodecError
from protocol.messages.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from protocol.messages.share_state import StateBatch as RecordedBatch
from protocol.wire.codec import decode, encode
from protocol.wire.primitives import Bytes

HIGHEST_SNAPSHOT_EPOCH = 2**31 - 2**16
"""That is read. Nobody takes so many snapshots; from there on a next one would have no room in its record soon."""

_INT16 = Struct(">h")
_SNAPSHOT = ShareSnapshotKey.API_KEY
_UPDATE = ShareUpdateKey.API_KEY
_VERSION = 0


class ShareRecord(NamedTuple):
    """A snapshot, or an update of the last one; no state: the share partition is deleted."""

    key: SharePartitionKey
    state: ShareGroupOffset | None
    is_update: bool = False


@lru_cache(1024)  # a share partition is written to again and again
def _encode_key(key: SharePartitionKey, is_update: bool) -> bytes:
    group_id, topic_id, partition = key
    if is_update:
        update = ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition)
        return _INT16.pack(_UPDATE) + encode(update, 0)
    snapshot = ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition)
    return _INT16.pack(_SNAPSHOT) + encode(snapshot, 0)


def encode_record(record: ShareRecord) -> CoordinatorRecord:
    """Key and value, as Kafka 4.3 writes them."""
    key = _encode_key(record.key, record.is_update)
    state = record.state
    if state is None:
        return key, None
    batches = [
        RecordedBatch(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_state=batch.delivery_state,
            delivery_count=batch.delivery_count,
        )
        for batch in state.state_batches
    ]
    value: ShareSnapshotValue | ShareUpdateValue
    if record.is_update:
        value = ShareUpdateValue(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            state_batches=batches,
        )
    else:
        value = ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            create_timestamp=state.create_timestamp,
            write_timestamp=state.write_timestamp,
            state_batches=batches,
        )
    return key, _INT16.pack(_VERSION) + encode(value, _VERSION)


def decode_record(key: Bytes, value: Bytes | None) -> ShareRecord | None:
    """What a record says; None for a key of no known type. Raises CodecError where it makes no sense."""
    key_type = _int16(key, "a key")
    if key_type == _SNAPSHOT:
        named: ShareSnapshotKey | ShareUpdateKey = decode(ShareSnapshotKey, 0, key, _INT16.size)
    elif key_type == _UPDATE:
        named = decode(ShareUpdateKey, 0, key, _INT16.size)
    else:
        return None
    share_partition = SharePartitionKey(named.group_id, named.topic_id, named.partition)
    if value is None:
        if key_type == _UPDATE:
            raise CodecError("an update of a share partition without a value")
        return ShareRecord(share_partition, None)
    version = _int16(value, "a value")
    if key_type == _SNAPSHOT:
        return ShareRecord(
            share_partition, _snapshot(decode(ShareSnapshotValue, version, value, _INT16.size))
        )
    update = decode(ShareUpdateValue, version, value, _INT16.size)
    if update.snapshot_epoch > HIGHEST_SNAPSHOT_EPOCH:  # that of a snapshot which isn't there any more
        raise CodecError(f"a share partition at snapshot epoch {update.snapshot_epoch}")
    return ShareRecord(
        share_partition,
        ShareGroupOffset(
            snapshot_epoch=update.snapshot_epoch,
            leader_epoch=update.leader_epoch,
            start_offset=update.start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=_batches(update.state_batches),
        ),
        is_update=True,
    )


def _snapshot(value: ShareSnapshotValue) -> ShareGroupOffset:
    if value.snapshot_epoch > HIGHEST_SNAPSHOT_EPOCH:
        raise CodecError(f"a share partition at snapshot epoch {value.snapshot_epoch}")
    return ShareGroupOffset(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        state_batches=_batches(value.state_batches),
        create_timestamp=value.create_timestamp,
        write_timestamp=value.write_timestamp,
    )


def _batches(recorded: list[RecordedBatch]) -> tuple[StateBatch, ...]:
    """Raises CodecError for a batch that ends before it begins."""
    found = []
    for batch in recorded:
        if batch.last_offset < batch.first_offset:
            raise CodecError(f"a state batch from {batch.first_offset} to {batch.last_offset}")
        found.append(
            StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        )
    return tuple(found)


def _int16(data: Bytes, what: str) -> int:
    if len(data) < _INT16.size:
        raise CodecError(f"{what} of {len(data)} bytes")
    value: int = _INT16.unpack_from(data)[0]
    return value
