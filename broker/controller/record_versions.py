"""In which version each metadata record is written: by the metadata.version in force, as Kafka's `MetadataVersion`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from protocol.messages import metadata_records as records
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
