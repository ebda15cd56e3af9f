"""In which version each metadata record is written, the features whose levels decide that, and a record's bytes.

The version is by the metadata.version in force, as in Kafka's `MetadataVersion`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from protocol.errors import CodecError
from protocol.messages import metadata_records as records
from protocol.wire.codec import Decode, decoder, encoder
from protocol.wire.primitives import Bytes, encode_unsigned_varint, read_unsigned_varint
from protocol.wire.schema import Message

METADATA_VERSION = "metadata.version"
OLDEST_METADATA_VERSION = 7  # 3.3-IV3, the first one of KRaft
LATEST_METADATA_VERSION = 30  # 4.3-IV0
DIRECTORIES_SINCE = 17  # 3.7-IV2: records name directories
CORDONED_SINCE = 30  # 4.3-IV0: heartbeats and records name the directories that are cordoned

# record type → (metadata.version from which on, version written), the newest first; all others are at version 0
_WRITTEN: dict[type[Message], tuple[tuple[int, int], ...]] = {
    records.RegisterBrokerRecord: ((30, 4), (DIRECTORIES_SINCE, 3), (8, 2), (0, 1)),
    records.BrokerRegistrationChangeRecord: ((30, 3), (DIRECTORIES_SINCE, 2), (0, 1)),
    records.PartitionRecord: ((23, 2), (DIRECTORIES_SINCE, 1), (0, 0)),
    records.PartitionChangeRecord: ((23, 2), (DIRECTORIES_SINCE, 1), (0, 0)),
}


def level_in(decided: Iterable[Message]) -> int | None:
    """The metadata.version that the records themselves begin with; None where they don't."""
    for record in decided:
        if isinstance(record, records.FeatureLevelRecord) and record.name == METADATA_VERSION:
            return record.feature_level
    return None


@lru_cache(maxsize=1024)
def written_version(record_type: type[Message], metadata_version: int) -> int:
    """The version in which a record of the type is written at a metadata.version."""
    for since, version in _WRITTEN.get(record_type, ()):
        if metadata_version >= since:
            return version
    return 0


def fitted(record: Message, metadata_version: int) -> Message:
    """The record without what its version at a metadata.version can't say (directories, eligible leader replicas):
    the features behind those fields came later than the cluster's level.
    """
    record_type = type(record)
    if metadata_version >= LATEST_METADATA_VERSION or record_type not in _WRITTEN:
        return record
    version = written_version(record_type, metadata_version)
    there = {
        field.name: getattr(record, field.name)
        for field in record_type.FIELDS
        if field.versions[0] <= version
    }
    return record_type(**there)


# --- The features of a cluster, and the levels of each that this version supports: those of Kafka 4.3 -------
#
# Source: `Feature`, `QuorumFeatures`.

TRANSACTION_VERSION = "transaction.version"
SHARE_VERSION = "share.version"
ELR_VERSION = "eligible.leader.replicas.version"
KRAFT_VERSION = "kraft.version"

# name → (lowest and highest level supported, level that a new cluster is given)
FEATURES: dict[str, tuple[int, int, int]] = {
    METADATA_VERSION: (OLDEST_METADATA_VERSION, LATEST_METADATA_VERSION, LATEST_METADATA_VERSION),
    ELR_VERSION: (0, 1, 1),
    "group.version": (0, 1, 1),
    SHARE_VERSION: (0, 1, 1),
    "streams.version": (0, 1, 1),
    TRANSACTION_VERSION: (0, 2, 2),
}
KRAFT_VERSION_RANGE = (0, 1)  # supported, never finalized by a FeatureLevelRecord


def is_supported(name: str, level: int) -> bool:
    lowest, highest, _ = FEATURES.get(name, (0, 0, 0))
    return lowest <= level <= highest


# --- One metadata record as the value of a log record (Kafka: `MetadataRecordSerde`) --------------------------
#
# unsigned varint frame version (1) | unsigned varint api key | unsigned varint version | the message

FRAME_VERSION = 1

_TYPES: dict[int, type[Message]] = {
    record.API_KEY: record
    for record in vars(records).values()
    if isinstance(record, type) and issubclass(record, Message) and record.API_KEY >= 0
}

_HEAD_BYTES = 3  # while there are fewer than 128 types and versions of each, which are varints of a byte
_decoders: dict[bytes, Decode] = {}  # by the head of a value


@lru_cache(maxsize=1024)
def _head(record_type: type[Message], version: int) -> bytes:
    return b"".join(map(encode_unsigned_varint, (FRAME_VERSION, record_type.API_KEY, version)))


def encode_metadata_record(record: Message, version: int) -> bytes:
    """The value of a record of `__cluster_metadata-0`."""
    record_type = type(record)
    chunks: list[Bytes] = [_head(record_type, version)]
    encoder(record_type, version)(record, chunks)
    return b"".join(chunks)


def decode_metadata_record(value: bytes) -> Message:
    """The metadata record in a value. Raises CodecError for one that this version of Kafka doesn't have."""
    head = value[:_HEAD_BYTES]
    decode = _decoders.get(head)
    if decode is not None:
        known: Message = decode(value, _HEAD_BYTES, len(value))[0]
        return known
    frame_version, pos = read_unsigned_varint(value, 0, len(value))
    if frame_version != FRAME_VERSION:
        raise CodecError(f"metadata record frame version {frame_version}")
    api_key, pos = read_unsigned_varint(value, pos, len(value))
    version, pos = read_unsigned_varint(value, pos, len(value))
    record_type = _TYPES.get(api_key)
    if record_type is None:
        raise CodecError(f"metadata record of the unknown type {api_key}")
    decode = decoder(record_type, version)
    if pos == _HEAD_BYTES:
        _decoders[head] = decode
    record: Message = decode(value, pos, len(value))[0]
    return record
