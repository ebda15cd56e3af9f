"""The folders of partitions as a start finds them in a log directory, before anybody opens their logs."""

import logging
from typing import NamedTuple

from protocol.topic_partition import TopicPartition
from storage import checkpoints
from storage.checkpoints import CheckpointError
from storage.files import Files
from storage.log import removal

logger = logging.getLogger(__name__)

FUTURE_DIRECTORY_SUFFIX = "-future"


class PartitionFolder(NamedTuple):
    """One partition's folder."""

    topic: str
    partition: int
    path: str
    topic_id: str | None
    """Its text form; None where partition.metadata is missing or makes no sense."""


class FoundFolders(NamedTuple):
    """All that a log directory has, by what their names say."""

    partitions: dict[TopicPartition, PartitionFolder]
    futures: dict[TopicPartition, PartitionFolder]
    """Of partitions that are being moved here (`-future`)."""
    deleted: list[str]
    """The paths of those on their way out (`-delete`)."""


def find(files: Files, path: str) -> FoundFolders:
    """What is in the directory; strays aren't looked at. Raises `OSError`."""
    found = FoundFolders({}, {}, [])
    for name in files.list_subdirectories(path):
        if name.endswith(removal.DELETE_DIRECTORY_SUFFIX):
            found.deleted.append(f"{path}/{name}")
        elif name.endswith(FUTURE_DIRECTORY_SUFFIX):
            stem = name.removesuffix(FUTURE_DIRECTORY_SUFFIX).rpartition(".")[0]
            _add(found.futures, files, f"{path}/{name}", stem)
        elif not name.endswith(removal.STRAY_DIRECTORY_SUFFIX):
            _add(found.partitions, files, f"{path}/{name}", name)
    return found


def _add(among: dict[TopicPartition, PartitionFolder], files: Files, path: str, stem: str) -> None:
    topic, _dash, number = stem.rpartition("-")
    if not topic or not (number.isascii() and number.isdigit()):
        logger.warning("%s is no partition's folder, and is left alone", path)
        return
    try:
        topic_id = checkpoints.read_partition_metadata(files, f"{path}/{checkpoints.PARTITION_METADATA_FILE}")
    except (CheckpointError, IsADirectoryError):  # told where the partition is opened
        topic_id = None
    partition = int(number)
    among[topic, partition] = PartitionFolder(topic, partition, path, topic_id)
