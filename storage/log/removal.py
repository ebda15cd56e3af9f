"""Taking files out of use: renamed at once, unlinked in the background after a delay."""

import logging
import os
from collections.abc import Sequence

from storage.background import Background, Lane
from storage.files import Files
from storage.log.log_state import LogState
from storage.log.segment import Segment

logger = logging.getLogger(__name__)

DELETE_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
MAX_NAME = 255


def drop_segments(log: LogState, doomed: Sequence[Segment]) -> None:
    """Takes the segments and the snapshots at their bases out of the log, in the order given: of a log's end
    the last one first, so that no hole is left by one who is killed meanwhile.

    Where one can't be renamed, it and those behind it stay in the log, and `OSError` is raised.
    """
    paths = []
    try:
        for segment in doomed:
            paths += segment.mark_deleted()
            log.segments.drop(segment)
            log.read_positions = None
            paths += log.snapshots.mark_deleted(segment.base_offset)
    finally:
        unlink_later(log, paths)


def unlink_later(log: LogState, paths: Sequence[str]) -> None:
    files = log.files

    def work() -> None:
        for path in paths:
            files.remove(path)

    if paths:
        log.background(work, log_failure, lane=Lane.DELETING, delay_ms=log.config.file_delete_delay_ms)


def log_failure(failure: Exception | None) -> None:
    if failure is not None:
        logger.warning("Files that are out of use can't be deleted: %s", failure)


def delete(log: LogState, unique: str) -> str | None:
    """Takes the log out of use and renames its directory to `<topic>-<partition>.<unique>-delete`. Returns its new
    path, None where there was none."""
    log.take_out_of_use()
    log.created = False
    if not log.files.exists(log.directory):
        return None
    doomed = out_of_use_path(log.directory, log.topic, log.partition, unique, DELETE_DIRECTORY_SUFFIX)
    log.files.rename(log.directory, doomed)
    log.directory = doomed
    remove_directory_later(log.files, doomed, log.background, log.config.file_delete_delay_ms)
    return doomed


def remove_directory_later(files: Files, directory: str, background: Background, delay_ms: int) -> None:
    def work() -> None:
        files.remove_tree(directory)

    background(work, log_failure, lane=Lane.DELETING, delay_ms=delay_ms)


def out_of_use_path(directory: str, topic: str, partition: int, unique: str, suffix: str) -> str:
    """`<topic>-<partition>.<unique><suffix>` beside the directory, the topic's name cut so that it fits."""
    end = f"-{partition}.{unique}{suffix}"
    return os.path.join(os.path.dirname(directory), topic[: MAX_NAME - len(end)] + end)
