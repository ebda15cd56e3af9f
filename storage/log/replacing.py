"""Putting a cleaned segment in the place of those that it was made from.

    log synced, .cleaned → .swap, names synced | old files → .deleted, .swap → the real names, names synced | old files
    unlinked

Killed before the first bar, the log is as before at the next start; behind it, as after: `recovery` finishes what has
come so far. Kafka syncs the names at the end alone, and not the log: what made a record obsolete, a newer value or the
marker of an abort, may be in the page cache only, and a replica has it. Here a power loss would take both.
Source: LocalLog.replaceSegments.
"""

import contextlib
import errno
import logging
from collections.abc import Sequence
from functools import partial

from storage.background import Lane, Then
from storage.cleaning.cleaned_files import cleaned_path, remove_cleaned
from storage.cleaning.plan import CleanedSegment
from storage.file_names import SEGMENT_SUFFIXES, SWAP_SUFFIX, TXN_INDEX_SUFFIX, file_path
from storage.files import is_out_of_descriptors, is_shortage
from storage.log import removal, syncing
from storage.log.log_state import LogState
from storage.log.segment import Segment

logger = logging.getLogger(__name__)

NAMES_RETRY_MS = 1_000
"""After it had no descriptor the names' sync is tried again."""


class ReplacedMeanwhileError(Exception):
    """The log isn't any more what the cleaner has read: nothing was replaced."""


def replace_segments(log: LogState, cleaned: CleanedSegment, then: Then) -> None:
    """See `PartitionLog.replace_segments`."""
    if log.replacement is not None:
        raise ValueError(f"a segment of {log.directory} is being replaced already")
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
    """All that the pass went by is on the disk, unless there was a failure."""
    if log.replacement is None or log.replacement[0] is not cleaned:
        return
    directory, base_offset, then = log.directory, cleaned.base_offset, log.replacement[1]
    if failure is not None or log.closed or _replaced(log, cleaned) is None:
        log.replacement = None
        if not log.closed:  # else the folder may be another's by now
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
    """What is being replaced stays: the log's end is about to be cut off. It waits for the disk: a swap that came back
    after a power loss would take the place of what is appended from here on.

    Raises `OSError`, and the log takes nothing more.
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
        # the next start goes on from here
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
    """Returns why it can't be taken back."""
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
    """Returns the paths of what is out of use now. Where it fails the log can't be used any more."""
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
    """Does what too little memory, or too few descriptors, have kept from being done: what is out of use goes once the
    names are synced that took its place."""
    paths = log.out_of_use
    if paths:
        then = partial(_delete, log, paths)
        log.out_of_use = ()
        _sync_names(log, then)


def _delete(log: LogState, paths: Sequence[str], failure: Exception | None) -> None:
    """`failure` is that of the names' sync."""
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
    """The segments in whose place the cleaned one comes; None where they aren't all there, one behind the other, and
    closed."""
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
    """Removes the new segment, for sure. Where the disk refuses the log can't be used any more, since a start would
    finish the swap; then why is returned.

    The `.log` goes last: an index alone would be taken for that of the old one.
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
    """What the pass has made and nobody takes. What can't be removed is left to the next start."""
    with contextlib.suppress(OSError):
        remove_cleaned(log.files, log.directory, base_offset)


def _sync_names(log: LogState, then: Then, *, delay_ms: int = 0) -> None:
    files, directory = log.files, log.directory
    try:
        log.background(lambda: files.sync_directory(directory), then, lane=Lane.DELETING, delay_ms=delay_ms)
    except MemoryError as error:
        then(error)


def _changed(log: LogState) -> ReplacedMeanwhileError:
    return ReplacedMeanwhileError(f"{log.directory} isn't any more what was cleaned")
