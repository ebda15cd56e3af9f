"""Syncing a log, and how far it is synced.

One flush of a log runs at a time; what is wished for meanwhile is served by one more behind it. The
background is given paths only. Closed segments are synced with their indexes and snapshots, which a start
trusts below the recovery point; of the active one only the `.log`, since a start that isn't clean makes the
rest of it anew.
"""

from typing import TYPE_CHECKING

from storage.background import Lane, Then, Work
from storage.directory import checkpoints
from storage.files import Files
from storage.log import flush_waiters, rolling
from storage.log.segment_files import INDEX_SUFFIXES, LOG_SUFFIX, file_path
from storage.log.storage_errors import give_up, told_to_clients

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog


def flush(log: "PartitionLog", now_ms: int) -> None:
    """Begins to sync all that was appended; `recovery_point` follows once it is done."""
    flush_to(log, log.log_end_offset, now_ms)


def flush_if_due(log: "PartitionLog", now_ms: int) -> None:
    """Flushes where the last flush was `flush.ms` ago."""
    if now_ms - log.last_flush_ms >= log.config.flush_ms and log.recovery_point < log.log_end_offset:
        flush(log, now_ms)


def flush_to(log: "PartitionLog", offset: int, now_ms: int) -> None:
    """Begins to sync all below the offset."""
    log.last_flush_ms = now_ms
    if offset > log.flush_wanted_to:
        log.flush_wanted_to = offset
    if not log.flush_running:
        _start(log)


def when_flushed(log: "PartitionLog", offset: int, then: Then) -> None:
    """Calls `then` once all below the offset is synced: with None, or with the failure that prevents it."""
    if log.failure is not None:
        then(log.failure)
    elif offset <= log.recovery_point:
        then(None)
    elif log.closed:
        then(flush_waiters.closed_error(log))
    else:
        flush_waiters.add(log, offset, then)


def _start(log: "PartitionLog") -> None:
    target = min(log.flush_wanted_to, log.log_end_offset)
    if target <= log.recovery_point or not log.ready:
        return
    paths, directory = _unsynced(log, target)
    files, truncations = log.files, log.truncations

    def work() -> None:
        _sync(files, paths, directory)

    def then(failure: Exception | None) -> None:
        log.flush_running = False
        if failure is not None:
            _fail(log, failure)
            return
        if truncations == log.truncations:
            log.recovery_point = max(log.recovery_point, target)
        flush_waiters.tell_flushed(log)
        _start(log)

    log.flush_running = True
    log.background(work, then, lane=Lane.FLUSHING)


def _fail(log: "PartitionLog", failure: Exception) -> None:
    # what the page cache held may be gone from it, and a second sync would succeed over the loss
    give_up(log, failure if isinstance(failure, OSError) else OSError(str(failure)))


def _unsynced(log: "PartitionLog", target: int) -> tuple[list[str], str | None]:
    """What must be synced for the recovery point to become `target`: files, and the directory of new ones."""
    paths = []
    new_names = False
    for slot, segment in enumerate(log.segments):
        last = segment is log.active
        next_base = log.log_end_offset if last else log.base_offsets[slot + 1]
        if next_base <= log.recovery_point or segment.base_offset >= target:
            continue
        new_names = new_names or segment.base_offset >= log.recovery_point
        paths.append(file_path(log.directory, segment.base_offset, LOG_SUFFIX))
        if not last:
            paths += [file_path(log.directory, segment.base_offset, suffix) for suffix in INDEX_SUFFIXES]
            paths.append(log.snapshots.path(next_base))
    if new_names:
        paths.append(f"{log.directory}/{checkpoints.PARTITION_METADATA_FILE}")
    epochs_path = log.leader_epochs.unsynced_path()
    if epochs_path is not None:
        paths.append(epochs_path)
    return paths, log.directory if new_names else None


def _sync(files: Files, paths: list[str], directory: str | None) -> None:
    for path in paths:
        files.sync(path)
    if directory is not None:
        files.sync_directory(directory)


def sync_now(log: "PartitionLog") -> None:
    """Waits for the disk until all that was appended is synced; no flush may be running. Raises `OSError`."""
    paths, directory = _unsynced(log, log.log_end_offset)
    try:
        _sync(log.files, paths, directory)
    except OSError as failure:
        _fail(log, failure)
        raise
    log.recovery_point = log.log_end_offset
    flush_waiters.tell_flushed(log)


@told_to_clients
def close(log: "PartitionLog", *, clean: bool = True) -> None:
    """Ends the log. A clean end syncs all, and leaves the snapshot that the next start trusts.

    It waits for the disk, without the background. Whoever waits for a flush that now won't be is told so.
    """
    work = _begin_close(log, clean)
    if work is None:
        return
    try:
        work()
    except OSError as failure:
        end_close(log, failure)
        raise
    end_close(log, None)


@told_to_clients
def begin_close(log: "PartitionLog") -> Work | None:
    """The first half of a clean `close`: all is written. What remains to be synced may be so in any thread, and
    `end_close` is told; None where nothing remains, the log being closed then."""
    return _begin_close(log, True)


def end_close(log: "PartitionLog", failure: Exception | None) -> None:
    """The second half of a clean `close`: all is synced, or isn't."""
    if failure is None:
        log.recovery_point = log.log_end_offset
        flush_waiters.tell_flushed(log)
    flush_waiters.tell_lost(log, flush_waiters.closed_error(log))


def _begin_close(log: "PartitionLog", clean: bool) -> Work | None:
    if log.closed:
        return None
    was_ready = log.ready
    log.closed = True
    log.ready = False
    work = None
    try:
        if clean and was_ready:
            work = _last_sync(log)
    finally:
        if work is None:
            flush_waiters.tell_lost(log, flush_waiters.closed_error(log))
        for segment in log.segments:
            segment.close()
    return work


def _last_sync(log: "PartitionLog") -> Work:
    files = log.files
    paths, directory = _unsynced(log, log.log_end_offset)
    log.active.become_inactive()
    rolling.keep_txn_index(log)
    snapshot = log.snapshots.take(log.producers)
    if snapshot is not None:
        paths.append(snapshot)
        directory = log.directory
    if paths:
        paths += [file_path(log.directory, log.active.base_offset, suffix) for suffix in INDEX_SUFFIXES]
    return lambda: _sync(files, paths, directory)
