"""Beginning a new segment."""

from storage.files import TornWriteError
from storage.log import syncing
from storage.log.log_state import LogState
from storage.log.segment import Segment


def roll_at(log: LogState, base_offset: int, now_ms: int, *, synced: bool = False) -> Segment:
    """Makes a segment at the offset the active one, unless that one is empty and begins there.

    The producers' state is written down at its base, and the old segment synced behind it; once that is done
    the recovery point is the new base. A roll that fails leaves no file of the new segment: the next start
    would take it for the active one, and what the old one holds from there on for nothing.

    `synced`: this waits until the disk has what the old one holds, so that no loss of power leaves a hole before the
    new one. With a hole in a closed segment, the only voter's metadata log has lost what was committed. So it does
    where the log was cut off: a start might trust the old segment by what the checkpoint said of the one before.
    """
    old = log.segments.active
    if base_offset == old.base_offset:
        return old
    if synced or log.flushing.may_be_claimed(base_offset):
        syncing.sync_written(log)
    old.become_inactive()
    keep_txn_index(log)
    log.producers.map_end_offset = base_offset
    log.snapshots.take(log.producers)
    segment = new_segment(log, base_offset, now_ms)
    try:
        segment.create()
    except OSError as failure:
        _take_back(segment, failure)
        raise
    log.segments.add(segment)
    log.flushing.begin_segment(base_offset)
    syncing.flush_to(log, base_offset, now_ms)
    return segment


def _take_back(segment: Segment, failure: OSError) -> None:
    segment.close()
    try:
        for path in segment.paths():
            segment.files.remove(path)
    except OSError as second:
        raise TornWriteError(
            second.errno, f"can't take back a failed roll: {second}", segment.log.path
        ) from failure


def new_segment(log: LogState, base_offset: int, now_ms: int) -> Segment:
    """A segment whose files are not touched yet, with its own share of chance in when it is rolled."""
    limit_ms = min(log.config.segment_jitter_ms, log.config.segment_ms)
    return Segment(
        log.files,
        log.directory,
        base_offset,
        created_ms=now_ms,
        jitter_ms=log.jitter(limit_ms) if limit_ms > 0 else 0,
        max_index_bytes=log.config.segment_index_bytes,
    )


def keep_txn_index(log: LogState) -> None:
    """Leaves the active segment a transaction index, perhaps an empty one, where its partition knows transactions: a
    missing one then means a lost one."""
    if log.producers.knows_transactions and not log.segments.active.txn_index.exists():
        log.segments.active.txn_index.create()
