"""Dropping a log's end, as a replica does that had written what its leader hadn't.

Source: org.apache.kafka.storage UnifiedLog.truncateTo, truncateFullyAndStartAt.
"""

from typing import TYPE_CHECKING

from storage.files import TornWriteError
from storage.log import flush_waiters, removal, rolling
from storage.log.storage_errors import told_to_clients
from storage.producers import producer_replay

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog


@told_to_clients
def truncate_to(log: "PartitionLog", offset: int, now_ms: int) -> bool:
    """Drops all batches from the one that holds the offset. Returns whether there were any."""
    if offset < 0:
        raise ValueError(f"can't truncate to {offset}")
    if offset >= log.log_end_offset:
        log.leader_epochs.truncate_from_end(log.log_end_offset)
        return False
    if offset < log.base_offsets[0]:
        truncate_fully_and_start_at(log, offset, now_ms)
        return True
    try:
        removal.drop_segments(
            log, [segment for segment in reversed(log.segments) if segment.base_offset > offset]
        )
        log.active.truncate_to(offset, now_ms)
    except OSError as failure:
        raise _half_done(failure) from failure
    log.log_start_offset = min(offset, log.log_start_offset)
    _end_at(log, offset)
    log.leader_epochs.truncate_from_end(offset)
    producer_replay.rebuild(log, offset, now_ms)
    log.producers.on_high_watermark(log.high_watermark)
    log.update_first_unstable_offset()
    return True


@told_to_clients
def truncate_fully_and_start_at(log: "PartitionLog", offset: int, now_ms: int) -> None:
    """Drops everything; the log begins and ends at the offset."""
    created = log.created
    try:
        removal.drop_segments(log, log.segments[::-1] if created else [])
        log.segments, log.base_offsets = [], []
        rolling.add(log, rolling.new_segment(log, offset, now_ms))
        if created:
            log.active.create()
    except OSError as failure:
        raise _half_done(failure) from failure
    log.log_start_offset = offset
    _end_at(log, offset)
    log.high_watermark = offset
    log.leader_epochs.clear()
    log.snapshots.remove_all()
    log.producers.reset((), offset)
    log.update_first_unstable_offset()


def _half_done(failure: OSError) -> TornWriteError:
    """The log no longer ends where it is believed to: nothing may be appended."""
    return TornWriteError(failure.errno, f"truncated in part only: {failure}")


def _end_at(log: "PartitionLog", offset: int) -> None:
    log.log_end_offset = offset
    log.recovery_point = min(log.recovery_point, offset)
    log.flush_wanted_to = min(log.flush_wanted_to, offset)
    log.high_watermark = min(log.high_watermark, offset)
    log.truncations += 1
    flush_waiters.tell_lost(log, OSError(f"{log.directory} was truncated to {offset}"), above=offset)
    log.positions = None
