"""Taking files out of use: renamed at once, unlinked in the background after a delay."""

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from storage.background import Background, Lane
from storage.files import Files
from storage.log import flush_waiters
from storage.log.segment import Segment
from storage.log.storage_errors import told_to_clients

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

DELETE_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
MAX_NAME = 255


def drop_segments(log: "PartitionLog", doomed: Sequence[Segment]) -> None:
    """Takes the segments and the snapshots at their bases out of the log, in the order given: of a log's end
    the last one first, so that no hole is left by one who is killed meanwhile.

    Where one can't be renamed, it and those behind it stay in the log, and `OSError` is raised.
    """
    paths = []
    try:
        for segment in doomed:
            paths += segment.mark_deleted()
            log.segments = [other for other in log.segments if other is not segment]
            log.base_offsets = [other.base_offset for other in log.segments]
            log.positions = None
            paths += log.snapshots.mark_deleted(segment.base_offset)
    finally:
        if log.segments:
            log.active = log.segments[-1]
        unlink_later(log, paths)


def unlink_later(log: "PartitionLog", paths: list[str]) -> None:
    files = log.files

    def work() -> None:
        for path in paths:
            files.remove(path)

    if paths:
        log.background(work, log_failure, lane=Lane.DELETING, delay_ms=log.config.file_delete_delay_ms)


def log_failure(failure: Exception | None) -> None:
    if failure is not None:
        logger.warning("Files that are out of use can't be deleted: %s", failure)


@told_to_clients
def delete(log: "PartitionLog", unique: str) -> str | None:
    """Takes the log out of use and renames its directory to `<topic>-<partition>.<unique>-delete`.

    `unique` is 32 hex digits. The directory goes after `file.delete.delay.ms`. Returns its new path, None
    where there was none.
    """
    take_out_of_use(log)
    log.created = False
    if not log.files.exists(log.directory):
        return None
    doomed = out_of_use_path(log.directory, log.topic, log.partition, unique, DELETE_DIRECTORY_SUFFIX)
    log.files.rename(log.directory, doomed)
    log.directory = doomed
    remove_directory_later(log.files, doomed, log.background, log.config.file_delete_delay_ms)
    return doomed


def take_out_of_use(log: "PartitionLog") -> None:
    """Nothing is appended to it any more, and nobody waits for it."""
    log.closed = True
    log.ready = False
    flush_waiters.tell_lost(log, flush_waiters.closed_error(log))
    for segment in log.segments:
        segment.close()


def remove_directory_later(files: Files, directory: str, background: Background, delay_ms: int) -> None:
    def work() -> None:
        files.remove_tree(directory)

    background(work, log_failure, lane=Lane.DELETING, delay_ms=delay_ms)


def out_of_use_path(directory: str, topic: str, partition: int, unique: str, suffix: str) -> str:
    """`<topic>-<partition>.<unique><suffix>` beside the directory, the topic's name cut so that it fits."""
    end = f"-{partition}.{unique}{suffix}"
    return os.path.join(os.path.dirname(directory), topic[: MAX_NAME - len(end)] + end)
