"""Which partitions have a folder, and where: what a start finds before it opens any log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Mapping
from typing import TYPE_CHECKING

from broker.controller.assigned_directories import directory_of
from broker.controller.directory_ids import LOST, MIGRATING, UNASSIGNED
from broker.process.start_error import StartError
from protocol.wire.primitives import uuid_to_text
from storage.directory.log_directory import METADATA_TOPIC

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage, PartitionImage
    from storage.directory.log_directory import LogDirectory, PartitionFolder

log = logging.getLogger("barnabas.folders")


def settle_moves(
    image: ClusterImage,
    directories: Mapping[bytes, LogDirectory],
    found: dict[tuple[str, int], bytes],
    any_failed: bool,
    new_folder_name: Callable[[], str],
) -> list[tuple[str, int, bytes]]:
    """What becomes of the `-future` folders: the moves that are to go on, by topic, partition and directory id.

    One without another folder of the partition takes its place, as a move that was interrupted between the two renames
    leaves it, and is added to `found`. While a log directory has failed the other folder may be in that one: only a
    record that names the future one's directory says that it isn't.
    """
    ids = {topic.name: uuid_to_text(topic.topic_id) for topic in image.topics.values()}
    moves: dict[tuple[str, int], bytes] = {}
    for directory_id, directory in directories.items():
        for folder in directory.future_folders():
            key = (folder.topic, folder.partition)
            topic = image.topics.get(folder.topic)
            partition = None if topic is None else topic.partitions.get(folder.partition)
            if partition is None or folder.topic_id not in (None, ids[folder.topic]):
                stray = directory.set_aside(folder, new_folder_name())
                log.warning("%s belongs to no topic: renamed to %s", folder.path, stray)
            elif key not in found and (not any_failed or directory_id in partition.directories):
                log.warning("%s takes the place of the folder that it was to replace", folder.path)
                directory.promote_folder(folder)
                found[key] = directory_id
            elif key in moves or found.get(key) == directory_id:
                log.warning("%s is of a move that another one came after: deleted", folder.path)
                directory.discard_future(folder, new_folder_name())
            elif key in found:
                moves[key] = directory_id
    return [(*key, directory_id) for key, directory_id in moves.items()]


def find_folders(
    image: ClusterImage,
    node_id: int,
    directories: Mapping[bytes, LogDirectory],
    new_folder_name: Callable[[], str],
) -> dict[tuple[str, int], bytes]:
    """The directory id of each partition that has a folder; `directories` are by directory id.

    Folders that are no topic's of ours, or an earlier one's of the same name, are renamed, never deleted
    (Kafka: `LogManager.isStrayReplica`); `new_folder_name()` is 32 hex digits, for their names. So are all but one of a
    partition that has several: where a directory failed, the partition may have gone to other brokers and come back to
    another directory. Raises StartError where nobody knows which one counts (Kafka: always).
    """
    found: dict[tuple[str, int], dict[bytes, PartitionFolder]] = {}
    ids = {topic.name: uuid_to_text(topic.topic_id) for topic in image.topics.values()}
    for directory_id, directory in directories.items():
        for folder in directory.folders():
            if folder.topic == METADATA_TOPIC:
                continue
            key = (folder.topic, folder.partition)
            topic = image.topics.get(folder.topic)
            if (
                topic is None
                or folder.partition not in topic.partitions
                or folder.topic_id not in (None, ids[folder.topic])
            ):
                stray = directory.set_aside(folder, new_folder_name())
                log.warning("%s belongs to no topic: renamed to %s", folder.path, stray)
            else:
                found.setdefault(key, {})[directory_id] = folder
    return {
        key: next(iter(folders))
        if len(folders) == 1
        else _one_of(folders, image.topics[key[0]].partitions[key[1]], node_id, directories, new_folder_name)
        for key, folders in found.items()
    }


def say_missing(
    image: ClusterImage, node_id: int, online: Collection[bytes], found: Container[tuple[str, int]]
) -> None:
    """Tell of partitions that were in a directory of this node which isn't there, as where its disk isn't mounted: they
    are about to begin anew elsewhere. (Kafka refuses a directory that nobody has formatted.)"""
    accounted_for = {UNASSIGNED, MIGRATING, LOST, *online}
    missing = [
        (topic.name, index)
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
        if node_id in partition.replicas
        and (topic.name, index) not in found
        and directory_of(partition, node_id) not in accounted_for
    ]
    if missing:
        log.error(
            "partitions that were in a log directory which isn't there any more: %d, the first %s-%d. They begin anew,"
            " without what they had here; stop and put that directory back if it is to be had",
            len(missing),
            *missing[0],
        )


def _one_of(
    folders: Mapping[bytes, PartitionFolder],
    partition: PartitionImage,
    node_id: int,
    directories: Mapping[bytes, LogDirectory],
    new_folder_name: Callable[[], str],
) -> bytes:
    """The directory id of the folder that counts: the record's. Where that names none of them, and nobody takes this
    replica for whole, it may be any of them: what it lacks, or has too much, its leader knows. Raises StartError where
    nobody else has what would be lost with the wrong one, or would say that it is."""
    named = directory_of(partition, node_id) if node_id in partition.replicas else None
    whole = {*partition.isr, *partition.elr, *partition.last_known_elr}
    counts, other, *_ = folders
    if node_id in whole and (named not in folders or len(whole) == 1):
        folder = folders[counts]
        raise StartError(
            f"{folder.topic}-{folder.partition} is both in {directories[counts].path} and in "
            f"{directories[other].path}: move the one away that is out of date"
        )
    if named is not None and named in folders:
        counts = named
    for directory_id, folder in folders.items():
        if directory_id != counts:
            stray = directories[directory_id].set_aside(folder, new_folder_name())
            log.warning(
                "%s is out of date, its partition being in %s: renamed to %s",
                folder.path,
                directories[counts].path,
                stray,
            )
    return counts
