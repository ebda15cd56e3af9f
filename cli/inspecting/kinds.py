"""The kind of file or folder that a path is, and the function that reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from cli.errors import CommandUsageError
from cli.inspecting import batches, folders, side_files, small_files
from cli.inspecting.batches import Asked
from cli.inspecting.entry import Entry
from cli.inspecting.place import FILES, Place, names_in, partition_of
from storage import checkpoints
from storage.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    offset_of,
)

_ON_THEIR_WAY = (CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX, ".part")


def entries_of(path: str, asked: Asked) -> Iterator[Entry]:
    """Return all lines to show. Raises CommandUsageError if the path isn't a file or folder of Kafka's."""
    if os.path.isdir(path):
        path = os.path.abspath(path)
        if is_partition(path):
            return folders.partition(path)
        if is_data_folder(path):
            return folders.data(path)
        raise CommandUsageError(f"{path} isn't a Kafka folder: it has neither partitions nor meta.properties")
    if not os.path.exists(path):
        raise CommandUsageError(f"{path} doesn't exist")
    place = Place(path)
    name = place.name
    for suffix in _ON_THEIR_WAY:
        name = name.removesuffix(suffix)
    if name in small_files.READERS:
        return small_files.READERS[name](place)
    if name.endswith(".checkpoint") or (name.endswith(LOG_SUFFIX) and offset_of(name) is not None):
        return batches.entries(place, asked)
    for suffix, reader in (
        (TIME_INDEX_SUFFIX, side_files.time_index),
        (TXN_INDEX_SUFFIX, side_files.txn_index),
        (INDEX_SUFFIX, side_files.offset_index),
        (SNAPSHOT_SUFFIX, side_files.snapshot),
    ):
        if name.endswith(suffix) and offset_of(name) is not None:
            return reader(place)
    raise CommandUsageError(f"{path} isn't a Kafka file, going by its name")


def is_partition(path: str) -> bool:
    """Return True if the folder is a partition's, by its name and contents."""
    names = names_in(path)
    of_it = checkpoints.PARTITION_METADATA_FILE in names or any(offset_of(name) is not None for name in names)
    return of_it or (not names and partition_of(os.path.basename(path))[0] != "")


def is_data_folder(path: str) -> bool:
    """Return True if it is one of `log.dirs`."""
    names = names_in(path)
    known = {
        checkpoints.META_PROPERTIES_FILE,
        checkpoints.RECOVERY_POINT_FILE,
        checkpoints.HIGH_WATERMARK_FILE,
    }
    if known & {*names}:
        return True
    try:
        return any(is_partition(f"{path}/{name}") for name in FILES.list_subdirectories(path))
    except OSError:
        return False
