"""Ending a log. A clean end writes and syncs all, and leaves the snapshot that the next start trusts."""

from storage.background import Work
from storage.log import rolling, syncing
from storage.log.log_state import LogState


def begin_close(log: LogState, clean: bool) -> Work | None:
    """All is written. What remains to be synced may be so in any thread, and `end_close` is told; None where nothing
    remains, the log being closed then."""
    if log.closed:
        return None
    was_ready = log.ready
    log.close_down()
    work = None
    try:
        if clean and was_ready:
            log.segments.active.become_inactive()
            rolling.keep_txn_index(log)
            work = syncing.last_sync(log, log.snapshots.take(log.producers))
    finally:
        if work is None:
            log.flushing.tell_lost(log.closed_error())
        log.segments.close()
    return work


def end_close(log: LogState, failure: Exception | None) -> None:
    """All is synced, or isn't."""
    if failure is None:
        log.flushing.synced_to(log.log_end_offset)
    log.flushing.tell_lost(log.closed_error())
