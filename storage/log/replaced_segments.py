"""A log and the cleaner: planning a pass, and replacing segments by the cleaned one that was made from them.

    log synced, .cleaned → .swap, names synced | old files → .deleted, .swap → the real names, names synced | old files
    unlinked

After a kill before the first bar, the log is as before at the next start. After a kill behind it, the start
finishes the replacement (`settle`). Kafka only syncs the names at the end, and doesn't sync the log. The
record that made another one obsolete, a newer value or the marker of an abort, may then only be in the page
cache, but a replica has it. Here a power loss would take both.
Source: org.apache.kafka.storage LocalLog.replaceSegments, LogToClean, LogLoader.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from array import array
from collections.abc import Sequence
from functools import partial

from protocol.waiting import turn
from storage.background import Lane, Then
from storage.cleaning.cleaned_files import cleaned_path, remove_cleaned
from storage.cleaning.plan import CleanedSegment, CleaningPlan, CleaningSettings, SegmentSizes
from storage.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
    Files,
    file_path,
    is_out_of_descriptors,
    is_shortage,
    offset_of,
)
from storage.indexes import OFFSET_ENTRY, TIME_ENTRY
from storage.log import removal, segment_recovery, syncing
from storage.log.log_state import LogState
from storage.log.segment import Segment

logger = logging.getLogger(__name__)

# ---- the input of the cleaner

PRODUCERS_PER_TURN = 5_000
"""The producers whose last batches are listed before others are served."""


def cleaning_plan(
    log: LogState, *, first_dirty_offset: int, first_uncleanable_offset: int, now_ms: int, max_keys: int
) -> CleaningPlan:
    """Plan a pass over the current log, without `producers`. See `PartitionLog.cleaning_plan`."""
    segments = log.segments
    end_slot = segments.slot_of(first_uncleanable_offset)
    config = log.config
    return CleaningPlan(
        topic=log.topic,
        partition=log.partition,
        directory=log.directory,
        segments=tuple(
            SegmentSizes(
                segment.base_offset,
                segment.size,
                segment.offset_index.count * OFFSET_ENTRY.size,
                segment.time_index.count * TIME_ENTRY.size,
            )
            for segment in segments.row[:end_slot]
        ),
        log_start_offset=log.log_start_offset,
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=segments.base_offsets[end_slot],
        high_watermark=log.high_watermark,
        now_ms=now_ms,
        max_keys=max_keys,
        producers=array("q"),
        keep_txn_index=log.producers.knows_transactions,
        settings=CleaningSettings(
            segment_bytes=config.segment_bytes,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            delete_retention_ms=config.delete_retention_ms,
            max_decompressed_message_bytes=config.max_decompressed_message_bytes,
        ),
    )


async def producers_in_steps(log: LogState) -> array[int]:
    """Return the plan's `producers`, each as it is at its step.

    If a producer has written since the plan was made, its earlier batch isn't its last one any more, and the
    new one lies above everything that is cleaned.
    """
    ids, epochs, last_data_offsets = array("q"), array("q"), array("q")
    for number, producer_id in enumerate([*log.producers.producers], 1):
        producer = log.producers.producers.get(producer_id)
        if producer is not None:
            ids.append(producer_id)
            epochs.append(producer.epoch)
            last_data_offsets.append(producer.last_data_offset)
        if number % PRODUCERS_PER_TURN == 0:
            await turn()
    return ids + epochs + last_data_offsets


# ---- replacing segments by the cleaned one

NAMES_RETRY_MS = 1_000
"""The delay before the names' sync is retried after it got no descriptor."""


class ReplacedMeanwhileError(Exception):
    """The log has changed since the cleaner read it. Nothing was replaced."""


def replace_segments(log: LogState, cleaned: CleanedSegment, then: Then) -> None:
    """See `PartitionLog.replace_segments`."""
    if log.replacement is not None:
        raise ValueError(f"another segment of {log.directory} is being replaced")
    if log.closed or _replaced(log, cleaned) is None:
        _discard(log, cleaned.base_offset)
        then(_changed(log))
        return
    log.replacement = cleaned, then
    end_offset = log.log_end_offset
    try:
        syncing.flush_to(log, end_offset, log.flushing.last_ms)
        syncing.when_flushed(log, end_offset, lambda failure: _begin(log, cleaned, failure))
    except MemoryError:
        if log.replacement is not None and log.replacement[0] is cleaned:
            log.replacement = None
        raise


def _begin(log: LogState, cleaned: CleanedSegment, failure: Exception | None) -> None:
    """Start the replacement once everything that the pass relied on is on the disk, unless that failed."""
    if log.replacement is None or log.replacement[0] is not cleaned:
        return
    directory, base_offset, then = log.directory, cleaned.base_offset, log.replacement[1]
    if failure is not None or log.closed or _replaced(log, cleaned) is None:
        log.replacement = None
        if not log.closed:  # else another log may use the folder by now
            _discard(log, base_offset)
        then(failure or _changed(log))
        return
    try:
        for suffix in SEGMENT_SUFFIXES:
            _rename(
                log,
                cleaned_path(directory, base_offset, suffix),
                file_path(directory, base_offset, suffix) + SWAP_SUFFIX,
                optional=suffix == TXN_INDEX_SUFFIX,
            )
    except (OSError, MemoryError) as error:
        _stop(log, cleaned, then, error)
        return
    _sync_names(log, lambda failure: _go_on(log, cleaned, failure))


def give_up(log: LogState) -> None:
    """Take back the replacement under way, since the log's end is about to be cut off.

    It waits for the disk. Otherwise a swap file that a power loss brought back could replace what is appended
    from now on.

    Raises `OSError`; then the log takes no more records.
    """
    if log.replacement is not None:
        failure = _stop(log, *log.replacement, _changed(log))
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # its traceback holds this frame


def _go_on(log: LogState, cleaned: CleanedSegment, failure: Exception | None) -> None:
    if log.replacement is None or log.replacement[0] is not cleaned:
        return
    then = log.replacement[1]
    if is_out_of_descriptors(failure) and not log.closed:
        _sync_names(log, lambda again: _go_on(log, cleaned, again), delay_ms=NAMES_RETRY_MS)
        return
    if failure is None and log.closed:
        # the next start continues from here
        log.replacement = None
        then(log.closed_error())
        return
    old = _replaced(log, cleaned)
    if failure is not None or old is None:
        _stop(log, cleaned, then, failure or _changed(log))
        return
    try:
        segment = _segment_of(log, cleaned, old[0])
    except MemoryError as error:
        _stop(log, cleaned, then, error)
        return
    log.replacement = None
    try:
        paths = _replace(log, segment, old)
    except (OSError, MemoryError) as error:
        log.give_up(
            error if isinstance(error, OSError) else OSError(errno.ENOMEM, "there is too little memory")
        )
        then(error)
        return
    _sync_names(log, lambda failure: _end(log, paths, then, failure))


def _stop(log: LogState, cleaned: CleanedSegment, then: Then, why: Exception) -> OSError | None:
    """Take back the replacement, and call `then`. Returns the failure if it can't be taken back."""
    log.replacement = None
    failure = _take_back(log, cleaned.base_offset)
    then(why)
    return failure


def _segment_of(log: LogState, cleaned: CleanedSegment, first: Segment) -> Segment:
    segment = Segment(
        log.files,
        log.directory,
        cleaned.base_offset,
        created_ms=first.created_ms,
        jitter_ms=first.jitter_ms,
        max_index_bytes=first.max_index_bytes,
    )
    segment.size = cleaned.log_bytes
    segment.max_timestamp_ms = cleaned.max_timestamp_ms
    segment.max_timestamp_offset = cleaned.max_timestamp_offset
    return segment


def _replace(log: LogState, segment: Segment, old: list[Segment]) -> list[str]:
    """Replace the segments, and return the paths of files out of use. If it fails, the log can't be used any more."""
    log.segments.replace(old, segment)
    log.read_positions = None
    paths = []
    for each in old:
        paths += each.mark_deleted()
    for suffix in SEGMENT_SUFFIXES:
        path = file_path(log.directory, segment.base_offset, suffix)
        _rename(log, path + SWAP_SUFFIX, path, optional=suffix == TXN_INDEX_SUFFIX)
    for each in old[1:]:
        paths += log.snapshots.mark_deleted(each.base_offset)
    return paths


def _end(log: LogState, paths: list[str], then: Then, failure: Exception | None) -> None:
    _delete(log, paths, failure)
    then(failure)


def go_on(log: LogState) -> None:
    """Do what was put off for lack of memory or descriptors: delete replaced files, once the new names are synced."""
    paths = log.out_of_use
    if paths:
        then = partial(_delete, log, paths)
        log.out_of_use = ()
        _sync_names(log, then)


def _delete(log: LogState, paths: Sequence[str], failure: Exception | None) -> None:
    """Delete files later. `failure` is that of the names' sync."""
    if failure is None:
        try:
            removal.unlink_later(log, paths)
        except MemoryError as error:
            failure = error
    if is_shortage(failure):
        log.out_of_use = [*log.out_of_use, *paths] if log.out_of_use else paths
    elif isinstance(failure, OSError):
        log.give_up(failure)


def _replaced(log: LogState, cleaned: CleanedSegment) -> list[Segment] | None:
    """The segments that the cleaned one replaces, or None unless they are all there, consecutive, and closed."""
    bases = log.segments.base_offsets
    slot = log.segments.slot_of(cleaned.base_offset)
    end = slot + len(cleaned.replaced)
    if end >= len(bases) or tuple(bases[slot:end]) != cleaned.replaced:
        return None
    return log.segments.row[slot:end]


def _rename(log: LogState, old: str, new: str, *, optional: bool) -> None:
    try:
        log.files.rename(old, new)
    except FileNotFoundError:
        if not optional:
            raise


def _take_back(log: LogState, base_offset: int) -> OSError | None:
    """Remove the new segment, and sync that. Returns the failure if the disk refuses.

    Then the log can't be used any more, since a start would finish the swap. The `.log` goes last: an index
    alone would be taken for that of the old segment.
    """
    try:
        for suffix in reversed(SEGMENT_SUFFIXES):
            log.files.remove(file_path(log.directory, base_offset, suffix) + SWAP_SUFFIX)
        log.files.sync_directory(log.directory)
    except OSError as failure:
        log.give_up(failure)
        return failure
    _discard(log, base_offset)
    return None


def _discard(log: LogState, base_offset: int) -> None:
    """Remove what the pass has made in vain. The next start removes what can't be removed now."""
    with contextlib.suppress(OSError):
        remove_cleaned(log.files, log.directory, base_offset)


def _sync_names(log: LogState, then: Then, *, delay_ms: int = 0) -> None:
    files, directory = log.files, log.directory
    try:
        log.background(lambda: files.sync_directory(directory), then, lane=Lane.DELETING, delay_ms=delay_ms)
    except MemoryError as error:
        then(error)


def _changed(log: LogState) -> ReplacedMeanwhileError:
    return ReplacedMeanwhileError(f"{log.directory} has changed since it was cleaned")


# ---- files that an earlier run left of segments that were about to replace others, or to be deleted
#
# A kill leaves the files of some step. After a power loss, each name that wasn't synced may be the old one or
# the new one.
# Source: LogLoader (removeTempFilesAndCollectSwapFiles, load).

_METADATA_SNAPSHOT_DELETED_SUFFIX = ".checkpoint.deleted"


def settle(files: Files, directory: str, names: set[str]) -> set[str]:
    """Finish complete swaps, undo the others, and delete what is out of use. Returns the remaining names.
    Raises `OSError`."""
    return _finish_swaps(files, directory, _remove_temporary(files, directory, names))


def _remove_temporary(files: Files, directory: str, names: set[str]) -> set[str]:
    """Delete files that were being removed, or being added and aren't complete."""
    cleaned = [offset_of(name) for name in names if name.endswith(CLEANED_SUFFIX)]
    least_cleaned = min((offset for offset in cleaned if offset is not None), default=None)
    undone: set[str] = set()
    if least_cleaned is not None:
        # A swap file at or above a segment that was still being made belongs to an unfinished split
        # (KAFKA-6264). But if its old segment has made way for it, nothing else has these records.
        undone = {
            name
            for name in names
            if name.endswith(SWAP_SUFFIX)
            and (base := offset_of(name)) is not None
            and base >= least_cleaned
            and not _has_made_way(base, names)
        }
    _remove(files, directory, undone)
    if undone:
        # the file that shows it isn't complete goes afterwards
        files.sync_directory(directory)
    out_of_use = {
        name
        for name in names
        if name.endswith(CLEANED_SUFFIX)
        or (name.endswith(DELETED_SUFFIX) and not name.endswith(_METADATA_SNAPSHOT_DELETED_SUFFIX))
    }
    _remove(files, directory, out_of_use)
    return names - undone - out_of_use


def _has_made_way(base_offset: int, names: set[str]) -> bool:
    log = f"{base_offset:020d}{LOG_SUFFIX}"
    return log + DELETED_SUFFIX in names and log not in names


def _finish_swaps(files: Files, directory: str, names: set[str]) -> set[str]:
    """Let complete compacted segments replace those that they were made from."""
    swaps = {name for name in names if name.endswith(SWAP_SUFFIX) and offset_of(name) is not None}
    if not swaps:
        return names
    # A kill may have come before these names were synced. A power loss must not take them back once the old
    # files are gone.
    files.sync_directory(directory)
    logs = {name for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)}
    bases = {offset for offset in map(offset_of, logs) if offset is not None}
    names = _remove_doubtful(
        files, directory, names, {name for name in swaps if offset_of(name) not in bases}
    )
    swaps &= names
    if bases:
        # even if the new one is empty, the old one's side files at its base go
        end = max(segment_recovery.end_of_file(files, f"{directory}/{name}") for name in logs)
        end = max(end, *(base + 1 for base in bases))
        replaced = {
            name
            for name in names - swaps
            if (offset := offset_of(name)) is not None and min(bases) <= offset < end
        }
        _remove(files, directory, replaced)
        names = names - replaced
    # The logs last: the side files of one that has its name, if they still have swap names, are doubtful.
    for name in sorted(swaps, key=lambda name: (name in logs, name)):
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP_SUFFIX)}")
    files.sync_directory(directory)
    return {name.removesuffix(SWAP_SUFFIX) if name in swaps else name for name in names}


def _remove_doubtful(files: Files, directory: str, names: set[str], swaps: set[str]) -> set[str]:
    """Remove the files of a swap of which only indexes are left, and the indexes with the real names.

    Either the `.log` has its name by now, or a power loss took it and the old one is there. Nobody can tell
    which `.log` the indexes belong to, so all of them are rebuilt. Kafka assumes the former.
    """
    named = {name.removesuffix(SWAP_SUFFIX) for name in swaps} & names
    if named:
        _remove(files, directory, named)
        files.sync_directory(directory)  # first: without the swap files nobody would doubt them
    _remove(files, directory, swaps)
    return names - named - swaps


def _remove(files: Files, directory: str, names: set[str]) -> None:
    for name in sorted(names):
        files.remove(f"{directory}/{name}")
