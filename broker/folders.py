"""Which partitions have a folder, and where: what a start finds before it opens any log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.start_error import StartError
from protocol.primitives import uuid_to_text
from storage.log_directory import METADATA_TOPIC

if TYPE_CHECKING:
    from broker.metadata.image import ClusterImage
    from storage.log_directory import LogDirectory

log = logging.getLogger("barnabas.folders")


def find_folders(
    image: ClusterImage, directories: Mapping[bytes, LogDirectory], new_folder_name: Callable[[], str]
) -> dict[tuple[str, int], bytes]:
    """The directory id of each partition that has a folder; `directories` are by directory id.

    Folders that are no topic's of ours, or an earlier one's of the same name, are renamed, never deleted
    (Kafka: `LogManager.isStrayReplica`); `new_folder_name()` is 32 hex digits, for their names. Raises StartError
    for two folders of one partition.
    """
    found: dict[tuple[str, int], bytes] = {}
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
            elif key in found:
                other = directories[found[key]].path
                raise StartError(
                    f"{folder.topic}-{folder.partition} is both in {other} and in {directory.path}: "
                    "move the one away that is out of date"
                )
            else:
                found[key] = directory_id
    return found
