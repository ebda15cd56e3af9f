"""Dropping a log's end, as a replica does that had written what its leader hadn't.

Source: org.apache.kafka.storage UnifiedLog.truncateTo, truncateFullyAndStartAt.
"""

import errno

from protocol.errors import KafkaError
from protocol.records.batch import CorruptRecordError
from storage.files import TornWriteError
from storage.log import producer_replay, removal, replacing, rolling
from storage.log.log_state import LogState, RestOfCut

_CUT_SHORT = (OSError, MemoryError, KafkaError, CorruptRecordError)
"""What may end a cut when a part of the files has gone."""


def truncate_to(log: LogState, offset: int, now_ms: int) -> bool:
    """Drops all batches from the one that holds the offset. Returns whether there were any."""
    if offset < 0:
        raise ValueError(f"can't truncate to {offset}")
    if offset >= log.log_end_offset:
        log.leader_epochs.truncate_from_end(log.log_end_offset)
        finish_cut(log, now_ms)
        return False
    if offset < log.segments.base_offsets[0]:
        truncate_fully_and_start_at(log, offset, now_ms)
        return True
    if offset < log.segments.active.base_offset:
        _end_pass(log)
    try:
        removal.drop_segments(log, log.segments.newest_first(above=offset))
        log.segments.active.truncate_to(offset, now_ms)
    except _CUT_SHORT as failure:
        raise _half_done(failure) from failure
    log.end_at(offset)
    if log.hole is not None and offset <= log.hole:
        log.hole = None
    _follow_cut(log, _behind_what_is_left, now_ms)
    return True


def truncate_fully_and_start_at(log: LogState, offset: int, now_ms: int) -> None:
    """Drops everything; the log begins and ends at the offset."""
    created = log.created
    _end_pass(log)
    try:
        removal.drop_segments(log, log.segments.newest_first() if created else [])
        log.segments.begin_with(rolling.new_segment(log, offset, now_ms))
        if created:
            log.segments.active.create()
    except _CUT_SHORT as failure:
        raise _half_done(failure) from failure
    log.begin_at(offset)
    log.end_at(offset)
    log.hole = None
    _follow_cut(log, _behind_nothing, now_ms)


def finish_cut(log: LogState, now_ms: int) -> None:
    """What has to follow from a cut, where that failed; nothing is appended before. Raises `OSError`."""
    rest = log.rest_of_cut
    if rest is not None:
        rest(log, now_ms)
        log.cut_is_followed()


def _follow_cut(log: LogState, rest: RestOfCut, now_ms: int) -> None:
    log.rest_of_cut = rest
    try:
        finish_cut(log, now_ms)
    finally:
        log.tell_truncated()  # last: who is told may look at the log, or append to it


def _behind_what_is_left(log: LogState, now_ms: int) -> None:
    offset = log.log_end_offset
    log.truncated((log.topic, log.partition), log.segments.active.base_offset)
    log.leader_epochs.truncate_from_end(offset)
    producer_replay.rebuild(log, offset, now_ms)
    log.producers.on_high_watermark(log.high_watermark)
    log.update_first_unstable_offset()


def _behind_nothing(log: LogState, now_ms: int) -> None:
    offset = log.log_end_offset
    log.truncated((log.topic, log.partition), offset)
    log.leader_epochs.clear()
    log.snapshots.remove_all()
    log.producers.reset((), offset)
    log.update_first_unstable_offset()


def _end_pass(log: LogState) -> None:
    """Segments are about to be dropped. The pass goes first: it was ended, and has not failed."""
    log.end_cleaning()
    replacing.give_up(log)


def _half_done(failure: Exception) -> TornWriteError:
    """The log no longer ends where it is believed to: nothing may be appended."""
    code = failure.errno if isinstance(failure, OSError) else errno.EIO
    return TornWriteError(code, f"truncated in part only: {failure!r}")
