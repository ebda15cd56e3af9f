"""Which directory each partition of this node is in (KIP-858): what the records say, and what the folders show.

The folder counts: where a partition was found in another directory than its record names, the record is corrected.
A partition whose directory isn't there, while one of `log.dirs` has failed, is offline: it may be in that one.
Source: ReplicaManager.maybeUpdateTopicAssignment, Partition.createLogInAssignedDirectoryId, DirectoryId.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from broker.controller.image import MIGRATING, UNASSIGNED, ClusterImage, PartitionImage
from broker.controller.metadata_versions import DIRECTORIES_SINCE, METADATA_VERSION
from protocol.messages import metadata_records as records
from protocol.wire.schema import Message


def directory_of(partition: PartitionImage, node_id: int) -> bytes:
    """The directory id that the record names for the node; where it names none, MIGRATING."""
    place = partition.replicas.index(node_id)
    return partition.directories[place] if place < len(partition.directories) else MIGRATING


def is_online(partition: PartitionImage, node_id: int, online: Collection[bytes]) -> bool:
    """Whether the node can have the partition, `online` being the ids of its directories."""
    directory_id = directory_of(partition, node_id)
    return directory_id in (UNASSIGNED, MIGRATING) or directory_id in online


def actual_directory(
    named: bytes,
    found: bytes | None,
    online: Collection[bytes],
    any_failed: bool,
    choose: Callable[[], bytes],
) -> bytes | None:
    """Where a replica is, or goes to: the directory that it has a folder in, else the one that the record names, else,
    where that is gone for good or none was named, the one of `choose`. None where it may be in one that is offline."""
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
    """The changes that make the records name the directories where partitions are.

    `found`: the directory id of each partition that has a folder, by topic id and number; `choose()`: the one for a
    partition that has none and whose directory is gone for good.
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
    """The change that says where the partition is from now on; None where that is said already, or can't be."""
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
