"""Which directory has each partition of this node (KIP-858): in the records and on the disks.

The folder counts. If a partition's folder is in another directory than its record names, the record is
corrected. If a partition has no folder and one of `log.dirs` has failed, the partition is offline: it may
be in that directory.

Source: `ReplicaManager.maybeUpdateTopicAssignment`, `Partition.createLogInAssignedDirectoryId`, `DirectoryId`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from broker.controller.image import (
    LOST,
    MIGRATING,
    UNASSIGNED,
    ClusterImage,
    PartitionImage,
)
from broker.controller.metadata_versions import (
    DIRECTORIES_SINCE,
    METADATA_VERSION,
)
from protocol.messages import metadata_records as records
from protocol.wire.schema import Message


def directory_of(partition: PartitionImage, node_id: int) -> bytes:
    """The directory id that the record names for the node, or MIGRATING if it names none."""
    place = partition.replicas.index(node_id)
    return partition.directories[place] if place < len(partition.directories) else MIGRATING


def is_online(partition: PartitionImage, node_id: int, online: Collection[bytes]) -> bool:
    """True if the node can have the partition. `online` holds the ids of its directories."""
    directory_id = directory_of(partition, node_id)
    return directory_id in (UNASSIGNED, MIGRATING) or directory_id in online


def actual_directory(
    named: bytes,
    found: bytes | None,
    online: Collection[bytes],
    any_failed: bool,
    choose: Callable[[], bytes],
) -> bytes | None:
    """Return the directory of a replica.

    That is the one with its folder; otherwise the one that the record names; otherwise, if that is gone for
    good or none is named, the one that `choose` returns. None if the replica may be in an offline directory.
    """
    if found is not None:
        return found
    if named in online:
        return named
    return choose() if named in (UNASSIGNED, MIGRATING) or not any_failed else None


def corrections(
    image: ClusterImage,
    node_id: int,
    found: Mapping[tuple[bytes, int], bytes],
    online: Collection[bytes],
    any_failed: bool,
    choose: Callable[[], bytes],
) -> list[Message]:
    """Return the changes that bring the records in line with the directories of partitions.

    `found` holds the directory id of each partition with a folder, by topic id and number. `choose()` returns
    one for a partition that has no folder and whose directory is gone for good.
    """
    decided: list[Message] = []
    if image.features.get(METADATA_VERSION, 0) < DIRECTORIES_SINCE:
        return decided
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if node_id not in partition.replicas:
                continue
            named = directory_of(partition, node_id)
            actual = actual_directory(named, found.get((topic.topic_id, index)), online, any_failed, choose)
            if actual is not None and actual != named:
                decided.append(_assigned(topic.topic_id, index, partition, node_id, actual))
    return decided


def assignment(
    image: ClusterImage, topic_id: bytes, index: int, node_id: int, directory_id: bytes
) -> Message | None:
    """Return the record for a partition's new directory. None if the image already has it, or records can't
    hold it."""
    partition = image.topics_by_id[topic_id].partitions[index]
    if (
        image.features.get(METADATA_VERSION, 0) < DIRECTORIES_SINCE
        or directory_of(partition, node_id) == directory_id
    ):
        return None
    return _assigned(topic_id, index, partition, node_id, directory_id)


def _assigned(
    topic_id: bytes, index: int, partition: PartitionImage, node_id: int, directory_id: bytes
) -> Message:
    directories = [*partition.directories]
    directories += [MIGRATING] * (len(partition.replicas) - len(directories))
    directories[partition.replicas.index(node_id)] = directory_id
    return records.PartitionChangeRecord(partition_id=index, topic_id=topic_id, directories=directories)


# --------------------------------------------------------------------------------------------------------------

RESERVED = 100
"""Ids below this one are never a broker's directory."""


def is_reserved(directory_id: bytes) -> bool:
    """True if no directory may have the id. As in Kafka, its lower half counts as a signed number."""
    upper, lower = _halves(directory_id)
    return upper == 0 and lower < RESERVED


def in_order(directory_ids: Iterable[bytes]) -> list[bytes]:
    """Sort uuids as Kafka does: as two signed numbers."""
    return sorted(directory_ids, key=_halves)


def has_online(registered: Collection[bytes], directory_id: bytes) -> bool:
    """True if a broker with these registered directories can have a partition in the directory.

    A broker that registered none, because its metadata.version didn't have directories, can have any.
    """
    if directory_id in (UNASSIGNED, MIGRATING):
        return True
    if directory_id == LOST:
        return False
    return not registered or directory_id in registered


def _halves(directory_id: bytes) -> tuple[int, int]:
    return (
        int.from_bytes(directory_id[:8], "big", signed=True),
        int.from_bytes(directory_id[8:], "big", signed=True),
    )
