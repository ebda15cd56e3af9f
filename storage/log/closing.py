"""Ending a log. A clean end writes and syncs all, and leaves the snapshot that the next start trusts."""

from storage.log import rolling, syncing
from storage.log.log_state import LogState
from storage.log.syncing import LastSync


def close(log: LogState, clean: bool) -> None:
    """Both halves. Raises `OSError`."""
    last_sync = begin_close(log, clean=clean)
    if last_sync is None:
        return
    try:
        last_sync.work()
        if last_sync.parent is not None:
            log.files.sync_directory(last_sync.parent)
    except OSError as failure:
        end_close(log, failure)
        raise
    end_close(log, None)


def begin_close(log: LogState, *, clean: bool) -> LastSync | None:
    """All is written. What remains to be synced may be so in any thread, and `end_close` is told; None where nothing
    remains, the log being closed then."""
    if log.closed:
        return None
    was_usable = log.usable
    log.close_down()
    last_sync = None
    try:
        if clean and was_usable:
            log.segments.active.become_inactive()
            rolling.keep_txn_index(log)
            last_sync = syncing.last_sync(log, log.snapshots.take(log.producers))
    finally:
        if last_sync is None:
            log.flushing.tell_lost(log.closed_error())
        try:
            log.segments.close()
        except OSError:  # what was written may be lost: there is nothing to be synced
            log.flushing.tell_lost(log.closed_error())
            raise
    return last_sync


def end_close(log: LogState, failure: Exception | None) -> None:
    """All is synced, or isn't."""
    if failure is None:
        log.flushing.synced_to(log.log_end_offset)
    log.flushing.tell_lost(log.closed_error())
