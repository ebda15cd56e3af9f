"""Removing files of a log, by retention and otherwise: they are renamed at once, and unlinked in the background
after a delay."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

from protocol.errors import Error, KafkaError
from storage.background import Background, Lane
from storage.files import Files
from storage.log import syncing
from storage.log.log_state import LogState
from storage.log.segment import Segment

logger = logging.getLogger(__name__)

DELETE_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
MAX_NAME = 255


def drop_segments(log: LogState, doomed: Sequence[Segment]) -> None:
    """Remove the segments and the snapshots at their bases, in the given order.

    For a log's end the last segment comes first, so that a kill meanwhile leaves no hole. If one can't be
    renamed, it and those after it stay in the log, and `OSError` is raised.
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
    """See `PartitionLog.delete`."""
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


# ---- retention: segments that may go because they are below the log start, too old, or too many
#
# The oldest segment goes first, up to the first one that stays. None goes that reaches above the high
# watermark. The active one may go too: then an empty one at the log end takes its place. Source:
# UnifiedLog.deleteOldSegments.


Breaches = Callable[[Segment, int | None], bool]
"""Takes a segment and the base offset of the next one. True if the segment may go."""


MOST_DELETED_AT_ONCE = 100
"""The most segments to delete at once. Renaming their files takes some 5 ms, in which nobody else is served.
A topic with segment.ms=1 soon has ten thousand of them."""


def apply_retention(log: LogState, now_ms: int, most: int) -> int:
    """See `PartitionLog.apply_retention`. If a segment can't be renamed, it lies below the log start from
    then on, and the next pass retries."""
    if not log.created or log.closed:
        return 0
    deleted = _delete(log, now_ms, _below_log_start(log), most)
    if log.config.deletes:
        if 0 <= log.config.retention_bytes <= log.segments.size:
            deleted += _delete(log, now_ms, _too_large(log), most - deleted)
        if log.config.retention_ms >= 0:
            deleted += _delete(log, now_ms, _too_old(log, now_ms), most - deleted)
    return deleted


def _below_log_start(log: LogState) -> Breaches:
    return lambda segment, next_base: next_base is not None and next_base <= log.log_start_offset


def _too_large(log: LogState) -> Breaches:
    surplus = log.segments.size - log.config.retention_bytes

    def breaches(segment: Segment, next_base: int | None) -> bool:
        nonlocal surplus
        if surplus < segment.size:
            return False
        surplus -= segment.size
        return True

    return breaches


def _too_old(log: LogState, now_ms: int) -> Breaches:
    retention_ms = log.config.retention_ms
    return lambda segment, next_base: now_ms - segment.largest_timestamp_ms() > retention_ms


def _delete(log: LogState, now_ms: int, breaches: Breaches, most: int) -> int:
    doomed = []
    for slot, segment in enumerate(log.segments):
        if slot == most:
            break
        next_base = log.segments.next_base_offset(slot)
        end = log.log_end_offset if next_base is None else next_base
        if (
            (next_base is None and segment.size == 0)
            or log.high_watermark < end
            or not breaches(segment, next_base)
        ):
            break
        doomed.append(segment)
    if not doomed:
        return 0
    if len(doomed) == len(log.segments):
        syncing.roll_at(log, log.log_end_offset, now_ms)
    log_start_offset = log.segments.base_offsets[len(doomed)]
    logger.info(
        "%s-%d: %d segments before offset %d are deleted",
        log.topic,
        log.partition,
        len(doomed),
        log_start_offset,
    )
    log.move_log_start(log_start_offset)
    drop_segments(log, doomed)
    return len(doomed)


def delete_records_before(log: LogState, offset: int) -> int:
    """See `PartitionLog.delete_records_before`."""
    if not 0 <= offset <= log.high_watermark:
        raise KafkaError(
            Error.OFFSET_OUT_OF_RANGE,
            f"{offset} isn't between 0 and the high watermark {log.high_watermark}",
        )
    log.move_log_start(offset)
    return log.log_start_offset
