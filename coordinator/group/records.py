"""The records of `__consumer_offsets` as keys and values of log records.

A key begins with its type, a value with its version (int16 each). The versions written are those of Kafka
4.3. All that it reads are read.
Source: `GroupCoordinatorRecordSerde`, `GroupCoordinatorRecordHelpers`.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from coordinator.ports import CoordinatorRecord
from protocol.errors import CodecError
from protocol.messages.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from protocol.messages.group_records_share import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from protocol.wire.codec import decode, encoder
from protocol.wire.primitives import Bytes
from protocol.wire.schema import ZERO_UUID, Message

LEGACY_OFFSET_COMMIT = 0
OFFSET_COMMIT = 1
GROUP_METADATA = 2

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_VERSION_WITH_EXPIRY = 1

MODERN_GROUP_VERSION = 0
"""The version of all records of groups that the server assigns."""

HIGHEST_EPOCH_READ = 2**31 - 2**16
"""The highest epoch or generation of a group that is read. No group rebalances so often.

Soon after it the next epoch wouldn't fit in its record. (Kafka's epoch would wrap around to negative numbers.)
"""

_INT16 = Struct(">h")
_INT32 = Struct(">i")


class OffsetKey(NamedTuple):
    """The partition that a group commits an offset for."""

    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """A committed offset (Kafka: `OffsetAndMetadata`)."""

    offset: int
    leader_epoch: int  # −1 if unknown
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1  # only from OffsetCommit v2 to v4
    topic_id: bytes = ZERO_UUID
    record_offset: int = -1  # of its own record in the log

    def at(self, record_offset: int) -> CommittedOffset:
        """The same offset, as read from a record at this offset."""
        return CommittedOffset(*self[:-1], record_offset)


class GroupRecord(NamedTuple):
    """The record of a classic group. Without a value, the group is deleted."""

    group_id: str
    value: GroupMetadataValue | None


class OffsetRecord(NamedTuple):
    """The record of an offset. Without a value, the offset is deleted."""

    key: OffsetKey
    value: CommittedOffset | None


class ModernGroupRecord(NamedTuple):
    """A record of a group that the server assigns. Its key's class says what kind. Without a value, it
    removes the entry of its key."""

    key: Message
    value: Message | None

    @property
    def group_id(self) -> str:
        group_id: str = getattr(self.key, "group_id")  # noqa: B009 - each of the key classes has it
        return group_id


class ConsumerGroupRecord(ModernGroupRecord):
    """A record of a consumer group."""

    __slots__ = ()


class ShareGroupRecord(ModernGroupRecord):
    """A record of a share group."""

    __slots__ = ()


class StreamsGroupRecord(ModernGroupRecord):
    """A record of a streams group."""

    __slots__ = ()


AnyRecord = GroupRecord | OffsetRecord | ConsumerGroupRecord | ShareGroupRecord | StreamsGroupRecord

_ModernRecord = type[ConsumerGroupRecord] | type[ShareGroupRecord] | type[StreamsGroupRecord]

_MODERN_GROUPS: dict[int, tuple[_ModernRecord, type[Message], type[Message]]] = {
    key.API_KEY: (record, key, value)
    for record, key, value in (
        (ConsumerGroupRecord, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        (ConsumerGroupRecord, ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        (ConsumerGroupRecord, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        (
            ConsumerGroupRecord,
            ConsumerGroupTargetAssignmentMetadataKey,
            ConsumerGroupTargetAssignmentMetadataValue,
        ),
        (
            ConsumerGroupRecord,
            ConsumerGroupTargetAssignmentMemberKey,
            ConsumerGroupTargetAssignmentMemberValue,
        ),
        (
            ConsumerGroupRecord,
            ConsumerGroupCurrentMemberAssignmentKey,
            ConsumerGroupCurrentMemberAssignmentValue,
        ),
        (ConsumerGroupRecord, ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
        (ShareGroupRecord, ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        (ShareGroupRecord, ShareGroupMetadataKey, ShareGroupMetadataValue),
        (ShareGroupRecord, ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        (ShareGroupRecord, ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        (ShareGroupRecord, ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        (ShareGroupRecord, ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
        (StreamsGroupRecord, StreamsGroupMetadataKey, StreamsGroupMetadataValue),
        (StreamsGroupRecord, StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
        (
            StreamsGroupRecord,
            StreamsGroupTargetAssignmentMetadataKey,
            StreamsGroupTargetAssignmentMetadataValue,
        ),
        (StreamsGroupRecord, StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
        (
            StreamsGroupRecord,
            StreamsGroupCurrentMemberAssignmentKey,
            StreamsGroupCurrentMemberAssignmentValue,
        ),
        (StreamsGroupRecord, StreamsGroupTopologyKey, StreamsGroupTopologyValue),
    )
}
"""Record class, key class and value class, by the type of the key."""


def _encode(prefix: int, message: Message, version: int) -> bytes:
    """`prefix`: the type of a key, or the version of a value."""
    chunks: list[Bytes] = [_INT16.pack(prefix)]
    encoder(type(message), version)(message, chunks)
    return b"".join(chunks)


def encode_record(record: AnyRecord) -> CoordinatorRecord:
    """Encode the key and the value as Kafka 4.3 writes them."""
    if isinstance(record, OffsetRecord):
        return _encode_offset(record)
    key: Message
    value: Message | None
    if isinstance(record, GroupRecord):
        key, value, version = GroupMetadataKey(group=record.group_id), record.value, GROUP_METADATA_VERSION
    else:
        key, value, version = record.key, record.value, MODERN_GROUP_VERSION
    encoded_key = _encode(type(key).API_KEY, key, 0)
    return encoded_key, None if value is None else _encode(version, value, version)


def _encode_offset(record: OffsetRecord) -> CoordinatorRecord:
    key, offset = record
    return encode_offset_key(*key), None if offset is None else _encode_committed(offset)


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of an offset's record."""
    return _begin_of_key(group_id, topic) + _INT32.pack(partition)


@lru_cache(maxsize=256)
def _begin_of_key(group_id: str, topic: str) -> bytes:
    """The key without the partition. Many keys have it in common."""
    key = _encode(OFFSET_COMMIT, OffsetCommitKey.of(group=group_id, topic=topic, partition=0), 0)
    return key[: -_INT32.size]


def _encode_committed(offset: CommittedOffset) -> bytes:
    expires = offset.expire_timestamp_ms != -1
    version = OFFSET_COMMIT_VERSION_WITH_EXPIRY if expires else OFFSET_COMMIT_VERSION
    value = OffsetCommitValue.of(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
        expire_timestamp=offset.expire_timestamp_ms,
        topic_id=offset.topic_id,
    )
    return _encode(version, value, version)


def decode_record(key: Bytes, value: Bytes | None, record_offset: int) -> AnyRecord | None:
    """Decode a record. Returns None for a key of an unknown type. Raises CodecError if the record makes no sense."""
    if len(key) < _INT16.size:
        raise CodecError(f"a key of {len(key)} bytes")
    (key_type,) = _INT16.unpack_from(key)
    if key_type in (OFFSET_COMMIT, LEGACY_OFFSET_COMMIT):
        return _decode_offset(key_type, key, value, record_offset)
    if key_type == GROUP_METADATA:
        group_id = decode(GroupMetadataKey, 0, key, 2).group
        if value is None:
            return GroupRecord(group_id, None)
        group = decode(GroupMetadataValue, _version(value), value, 2)
        _check_epoch(group_id, group.generation)
        return GroupRecord(group_id, group)
    if key_type in _MODERN_GROUPS:
        record_class, key_class, value_class = _MODERN_GROUPS[key_type]
        record = record_class(
            decode(key_class, 0, key, 2),
            None if value is None else decode(value_class, _version(value), value, 2),
        )
        if isinstance(
            record.value, ConsumerGroupMetadataValue | ShareGroupMetadataValue | StreamsGroupMetadataValue
        ):
            _check_epoch(record.group_id, record.value.epoch)
        return record
    return None


def _version(value: Bytes) -> int:
    if len(value) < _INT16.size:
        raise CodecError(f"a value of {len(value)} bytes")
    version: int = _INT16.unpack_from(value)[0]
    return version


def _check_epoch(group_id: str, epoch: int) -> None:
    if epoch > HIGHEST_EPOCH_READ:
        raise CodecError(f"group {group_id!r} is at epoch {epoch}")


@lru_cache(1024)  # a group commits the same partitions again and again
def _offset_key(key: bytes) -> OffsetKey:
    found: OffsetCommitKey | LegacyOffsetCommitKey
    if key.startswith(_INT16.pack(OFFSET_COMMIT)):
        found = decode(OffsetCommitKey, 0, key, 2)
    else:
        found = decode(LegacyOffsetCommitKey, 0, key, 2)
    return OffsetKey(found.group, found.topic, found.partition)


def _decode_offset(key_type: int, key: Bytes, value: Bytes | None, record_offset: int) -> OffsetRecord:
    offset_key = _offset_key(bytes(key))
    if value is None:
        return OffsetRecord(offset_key, None)
    if key_type == LEGACY_OFFSET_COMMIT:
        old = decode(LegacyOffsetCommitValue, _version(value), value, 2)
        return OffsetRecord(
            offset_key,
            CommittedOffset(old.offset, -1, old.metadata, old.commit_timestamp, record_offset=record_offset),
        )
    new = decode(OffsetCommitValue, _version(value), value, 2)
    return OffsetRecord(
        offset_key,
        CommittedOffset(
            new.offset,
            new.leader_epoch,
            new.metadata,
            new.commit_timestamp,
            new.expire_timestamp,
            new.topic_id,
            record_offset,
        ),
    )
