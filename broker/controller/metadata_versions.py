"""The versions of metadata records, the features whose levels decide them, and the encoding of records.

The metadata.version in force decides a record's version, as in Kafka's `MetadataVersion`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from protocol.errors import CodecError
from protocol.messages import metadata_records as records
from protocol.wire.codec import Decode, decoder, encoder
from protocol.wire.primitives import Bytes, encode_unsigned_varint, read_unsigned_varint
from protocol.wire.schema import Message

METADATA_VERSION = "metadata.version"
OLDEST_METADATA_VERSION = 7  # 3.3-IV3, the first one of KRaft
LATEST_METADATA_VERSION = 33  # 4.4-IV2
DIRECTORIES_SINCE = 17  # 3.7-IV2: records name directories
CORDONED_SINCE = 30  # 4.3-IV0: heartbeats and records name the directories that are cordoned
BOOTSTRAP_IN_LOG_SINCE = 31
"""4.4-IV0. From this version on, the tool formats a folder with the new cluster's records in the metadata
log's own directory, as its snapshot 0-0. Kafka 4.4 is the first release with it."""
CIDR_SINCE = 32  # 4.4-IV1: the hosts of ACLs may be ranges
CONTROLLER_UNREGISTRATION_SINCE = 33  # 4.4-IV2: controllers can be unregistered

# record type → (from this metadata.version on, record version), newest first; all other types have version 0
_WRITTEN: dict[type[Message], tuple[tuple[int, int], ...]] = {
    records.RegisterBrokerRecord: ((30, 4), (DIRECTORIES_SINCE, 3), (8, 2), (0, 1)),
    records.BrokerRegistrationChangeRecord: ((30, 3), (DIRECTORIES_SINCE, 2), (0, 1)),
    records.PartitionRecord: ((23, 2), (DIRECTORIES_SINCE, 1), (0, 0)),
    records.PartitionChangeRecord: ((23, 2), (DIRECTORIES_SINCE, 1), (0, 0)),
}


def level_in(decided: Iterable[Message]) -> int | None:
    """Return the metadata.version that the records set, or None if they set none."""
    for record in decided:
        if isinstance(record, records.FeatureLevelRecord) and record.name == METADATA_VERSION:
            return record.feature_level
    return None


@lru_cache(maxsize=1024)
def written_version(record_type: type[Message], metadata_version: int) -> int:
    """The version in which records of this type are written at a metadata.version."""
    for since, version in _WRITTEN.get(record_type, ()):
        if metadata_version >= since:
            return version
    return 0


def fitted(record: Message, metadata_version: int) -> Message:
    """Return the record without the fields that its version can't hold (directories, eligible leader
    replicas). The features behind these fields are newer than the cluster's level."""
    record_type = type(record)
    if metadata_version >= CORDONED_SINCE or record_type not in _WRITTEN:
        return record
    version = written_version(record_type, metadata_version)
    there = {
        field.name: getattr(record, field.name)
        for field in record_type.FIELDS
        if field.versions[0] <= version
    }
    return record_type(**there)


# --- A cluster's features and their supported levels: those of Kafka 4.4 ------------------------------------
#
# Source: `Feature`, `QuorumFeatures`.

TRANSACTION_VERSION = "transaction.version"
SHARE_VERSION = "share.version"
ELR_VERSION = "eligible.leader.replicas.version"
KRAFT_VERSION = "kraft.version"

# name → lowest and highest supported level
FEATURES: dict[str, tuple[int, int]] = {
    METADATA_VERSION: (OLDEST_METADATA_VERSION, LATEST_METADATA_VERSION),
    ELR_VERSION: (0, 1),
    "group.version": (0, 1),
    SHARE_VERSION: (0, 2),
    "streams.version": (0, 1),
    TRANSACTION_VERSION: (0, 2),
}
KRAFT_VERSION_RANGE = (0, 1)  # supported, but no FeatureLevelRecord finalizes it


def is_supported(name: str, level: int) -> bool:
    lowest, highest = FEATURES.get(name, (0, 0))
    return lowest <= level <= highest


# --- Releases, and the initial levels of a new cluster (`MetadataVersion`, `Feature.defaultLevel`) ----------

_IV = {  # the metadata versions of each release, by their number within it
    "3.3": range(3, 4),
    "3.4": range(1),
    "3.5": range(3),
    "3.6": range(3),
    "3.7": range(5),
    "3.8": range(1),
    "3.9": range(1),
    "4.0": range(4),
    "4.1": range(2),
    "4.2": range(2),
    "4.3": range(1),
    "4.4": range(3),
}
_NAMES = [f"{release}-IV{number}" for release, numbers in _IV.items() for number in numbers]
_LEVELS = dict(zip(_NAMES, range(OLDEST_METADATA_VERSION, LATEST_METADATA_VERSION + 1), strict=True))

# feature → its levels, each with the metadata.version from which on new clusters have it
_FIRST_LEVELS: dict[str, dict[int, int]] = {
    ELR_VERSION: {1: _LEVELS["4.1-IV0"]},
    "group.version": {1: _LEVELS["4.0-IV0"]},
    SHARE_VERSION: {1: _LEVELS["4.2-IV0"], 2: _LEVELS["4.4-IV0"]},
    "streams.version": {1: _LEVELS["4.2-IV1"]},
    TRANSACTION_VERSION: {2: _LEVELS["4.0-IV2"]},
}

ELR_NEEDS = _LEVELS["4.0-IV1"]
"""The metadata.version that level 1 of eligible leader replicas needs. No other feature needs one."""
SCRAM_NEEDS = _LEVELS["3.5-IV2"]
"""The first metadata.version with SCRAM credentials."""
TOKENS_NEED = _LEVELS["3.6-IV2"]
"""The first metadata.version with delegation tokens."""


def metadata_version_of(release: str) -> int:
    """Return the level of a name such as `4.3-IV0`, or the last one of a release such as `4.3` or `4.3.1`.
    Raises ValueError."""
    key = ".".join(release.split(".")[:2])
    of_release = [level for name, level in _LEVELS.items() if name.partition("-")[0] == key]
    level = _LEVELS.get(key) or (of_release or [0])[-1]
    if not level:
        raise ValueError(
            f"Unknown metadata.version '{release}'. Supported metadata.version are: {', '.join(_NAMES)}"
        )
    return level


def release_of(metadata_version: int) -> str:
    """Return the name of a metadata.version. Raises ValueError if there is none, or none yet."""
    if not OLDEST_METADATA_VERSION <= metadata_version <= LATEST_METADATA_VERSION:
        raise ValueError(
            f"No MetadataVersion with feature level {metadata_version}. Valid feature levels are from "
            f"{OLDEST_METADATA_VERSION} to {LATEST_METADATA_VERSION}."
        )
    return _NAMES[metadata_version - OLDEST_METADATA_VERSION]


def initial_levels(metadata_version: int, wished: Mapping[str, int]) -> dict[str, int]:
    """Return the level of each feature, by name, without those at level 0. A wished level overrides the
    default of the metadata.version. Raises ValueError for an unknown feature or level."""
    release_of(metadata_version)
    levels = {METADATA_VERSION: metadata_version}
    for name, level in wished.items():
        if name not in FEATURES:
            supported = ", ".join(sorted([*_FIRST_LEVELS, KRAFT_VERSION]))
            raise ValueError(f"Unsupported feature: {name}. Supported features are: {supported}")
        if not is_supported(name, level):
            raise ValueError(f"No feature:{name} with feature level {level}")
    for name, since in sorted(_FIRST_LEVELS.items()):
        reached = [level for level, needed in since.items() if metadata_version >= needed]
        levels[name] = wished.get(name, max(reached, default=0))
    if levels[ELR_VERSION] and metadata_version < ELR_NEEDS:
        raise ValueError(
            f"{ELR_VERSION} could not be set to {levels[ELR_VERSION]} because it depends on {METADATA_VERSION} level "
            f"{ELR_NEEDS}"
        )
    return {name: level for name, level in levels.items() if level}


def feature_levels(levels: Mapping[str, int] | None = None) -> list[Message]:
    """Return the first records of a new cluster with these levels, by default the latest."""
    if levels is None:
        levels = initial_levels(LATEST_METADATA_VERSION, {})
    return [records.FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]


# --- A metadata record as the value of a log record (Kafka: `MetadataRecordSerde`) --------------------------
#
# unsigned varint frame version (1) | unsigned varint api key | unsigned varint version | the message

FRAME_VERSION = 1

_TYPES: dict[int, type[Message]] = {
    record.API_KEY: record
    for record in vars(records).values()
    if isinstance(record, type) and issubclass(record, Message) and record.API_KEY >= 0
}

_HEAD_BYTES = 3  # three varints of one byte, as there are fewer than 128 types and versions of each
_decoders: dict[bytes, Decode] = {}  # by the first bytes of a value


@lru_cache(maxsize=1024)
def _head(record_type: type[Message], version: int) -> bytes:
    return b"".join(map(encode_unsigned_varint, (FRAME_VERSION, record_type.API_KEY, version)))


def encode_metadata_record(record: Message, version: int) -> bytes:
    """Encode a metadata record as the value of a record of `__cluster_metadata-0`."""
    record_type = type(record)
    chunks: list[Bytes] = [_head(record_type, version)]
    encoder(record_type, version)(record, chunks)
    return b"".join(chunks)


def decode_metadata_record(value: bytes) -> Message:
    """Decode a metadata record. Raises CodecError if this version of Kafka doesn't have it."""
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
