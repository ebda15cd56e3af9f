"""Syncing a log to the disk, and rolling its segments.

The background only gets paths. Closed segments are synced with their indexes and snapshots, which a start
trusts below the recovery point. Of the active one only the `.log` is synced, since a start after an unclean
stop rebuilds the rest.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import NamedTuple

from storage import checkpoints
from storage.background import Then, Work
from storage.files import INDEX_SUFFIXES, LOG_SUFFIX, Files, TornWriteError, file_path, is_out_of_descriptors
from storage.log.log_state import LogState
from storage.log.segment import Segment


def flush_to(log: LogState, offset: int, now_ms: int, *, at_once: bool = False) -> None:
    """Begin to sync everything below the offset.

    If a flush is under way, one more after it syncs what is wanted meanwhile. `at_once`: that one takes its
    place in the lane now, ahead of other logs' later flushes.
    """
    log.flushing.want(offset, now_ms)
    if at_once or not log.flushing.running:
        _start(log)


def _start(log: LogState) -> None:
    flushing = log.flushing
    target = min(flushing.wanted_to, log.log_end_offset)
    if target <= flushing.recovery_point or not log.usable:
        return
    files = log.files
    paths, directories = unsynced(log, target)
    active = log.segments.active.base_offset
    begun = flushing.start()

    def work() -> None:
        sync_all(files, paths, directories)

    def then(failure: Exception | None) -> None:
        flushing.stop()
        if is_out_of_descriptors(failure):
            log.leader_epochs.sync_called_off()
            log.say_once(failure)  # `go_on` retries
            return
        if failure is not None:
            _fail(log, failure)
            return
        log.descriptors_are_back()
        flushing.end(begun, _trusted_up_to(log, active, target))
        if not flushing.running:
            _start(log)

    log.leader_epochs.sync_begun()
    try:
        log.background(work, then, lane=flushing.lane)
    except MemoryError:
        flushing.stop()
        log.leader_epochs.sync_called_off()
        raise


def go_on(log: LogState) -> None:
    """Do what was put off for lack of memory or descriptors: begin a flush that is wanted, and call those who wait."""
    log.flushing.tell_synced()
    if not log.flushing.running:
        _start(log)


def _trusted_up_to(log: LogState, active: int, target: int) -> int:
    """The offset up to which a start may trust a flush.

    If the segment that was active was rolled meanwhile, its indexes and the snapshot after it aren't synced yet.
    """
    bases = log.segments.base_offsets
    slot = bisect_right(bases, active)
    return bases[slot] - 1 if slot < len(bases) and target >= bases[slot] else target


def _fail(log: LogState, failure: Exception) -> None:
    # The page cache may have dropped the data, and a second sync would succeed without it.
    log.give_up(failure if isinstance(failure, OSError) else OSError(str(failure)))


def unsynced(log: LogState, target: int) -> tuple[list[str], list[str]]:
    """What to sync to move the recovery point to `target`: files, and the directories of new ones."""
    paths = []
    new_names = False
    recovery_point = log.flushing.recovery_point
    segments = log.segments
    # only look at segments that have something to sync: a log may have very many
    for slot in range(segments.slot_of(recovery_point), len(segments)):
        segment = segments[slot]
        next_base = segments.next_base_offset(slot)
        end = log.log_end_offset if next_base is None else next_base
        if segment.base_offset >= target:
            break
        if end <= recovery_point:
            continue
        new_names = new_names or segment.base_offset >= recovery_point
        paths.append(file_path(log.directory, segment.base_offset, LOG_SUFFIX))
        if next_base is not None:
            paths += [file_path(log.directory, segment.base_offset, suffix) for suffix in INDEX_SUFFIXES]
            paths.append(log.snapshots.path(next_base))
    if new_names:
        paths.append(f"{log.directory}/{checkpoints.PARTITION_METADATA_FILE}")
    epochs_path = log.leader_epochs.unsynced_path()
    if epochs_path is not None:
        paths.append(epochs_path)
    directories = [log.directory] if new_names or epochs_path is not None else []
    if new_names and recovery_point <= segments.base_offsets[0]:
        directories.append(os.path.dirname(log.directory))  # its own name is new, too
    return paths, directories


def when_flushed(log: LogState, offset: int, then: Then) -> None:
    """Call `then` once everything below the offset is synced: with None, or with the failure that prevents it."""
    if log.failure is not None:
        then(log.failure)
    elif offset <= log.flushing.recovery_point:
        then(None)
    elif log.closed:
        then(log.closed_error())
    else:
        log.flushing.wait(offset, then)


def sync_all(files: Files, paths: list[str], directories: list[str]) -> None:
    """Sync files and directories. It waits for the disk, on any thread."""
    for path in paths:
        files.sync(path)
    for directory in directories:
        files.sync_directory(directory)


def sync_now(log: LogState) -> None:
    """Wait until everything that was appended is on the disk. No flush may be under way. Raises `OSError`."""
    paths, directories = unsynced(log, log.log_end_offset)
    log.leader_epochs.sync_begun()
    try:
        _sync(log, paths, directories)
    except OSError as failure:
        if is_out_of_descriptors(failure):
            log.leader_epochs.sync_called_off()
        raise
    log.flushing.synced_to(log.log_end_offset)


def sync_written(log: LogState) -> None:
    """Wait until everything that was appended is on the disk. A flush may be under way; it still moves the
    recovery point. Raises `OSError`."""
    _sync(log, *unsynced(log, log.log_end_offset))


def _sync(log: LogState, paths: list[str], directories: list[str]) -> None:
    try:
        sync_all(log.files, paths, directories)
    except OSError as failure:
        if not is_out_of_descriptors(failure):
            _fail(log, failure)
        raise


def sync_cut(log: LogState) -> None:
    """Wait until the disk has the end after a truncation. Raises `OSError`."""
    cut = log.cut
    if cut is not None:
        _sync(log, *_of_cut(log))
        log.cut_is_synced(cut)


def sync_cut_beside(log: LogState, then: Then) -> None:
    """Do the same as `sync_cut` in the background, then call `then`. Raises MemoryError if there is no room for it."""
    cut, files = log.cut, log.files
    paths, directories = _of_cut(log)

    def work() -> None:
        sync_all(files, paths, directories)

    def done(failure: Exception | None) -> None:
        if failure is None:
            log.cut_is_synced(cut)
        elif is_out_of_descriptors(failure):
            log.say_once(failure)  # the next append retries
        else:
            _fail(log, failure)
        then(failure)

    log.background(work, done, lane=log.flushing.lane)


def _of_cut(log: LogState) -> tuple[list[str], list[str]]:
    return [log.segments.active.log.path], [log.directory]


class LastSync(NamedTuple):
    """The last sync of a clean close."""

    work: Work
    """Runs on any thread."""
    parent: str | None
    """The parent of the log's directory, if the directory's name is new. One sync of it serves many logs."""


def last_sync(log: LogState, snapshot: str | None) -> LastSync:
    """Make the last sync. `snapshot` is the path of one that was just taken."""
    files = log.files
    paths, directories = unsynced(log, log.log_end_offset)
    parent = directories.pop() if len(directories) > 1 else None
    if log.cut is not None:
        of_cut = _of_cut(log)
        paths += [path for path in of_cut[0] if path not in paths]
        directories = directories or of_cut[1]
    if snapshot is None and log.flushing.made_anew:
        snapshot = log.snapshots.path(log.log_end_offset)
    if snapshot is not None:
        paths.append(snapshot)
        directories = directories or [log.directory]
    if paths:
        active = log.segments.active.base_offset
        paths += [file_path(log.directory, active, suffix) for suffix in INDEX_SUFFIXES]
    return LastSync(lambda: sync_all(files, paths, directories), parent)


# ---- beginning a new segment, and syncing the old one after that


def roll_at(log: LogState, base_offset: int, now_ms: int, *, synced: bool = False) -> Segment:
    """Begin a new active segment at the offset, unless the active one is empty and begins there.

    The producers' state is written at its base, and the old segment is synced after that. Then the recovery
    point is the new base. A failed roll leaves no file of the new segment: the next start would take it for
    the active one, and ignore what the old one holds from there on.

    `synced`: wait until the disk has the old segment's records, so that no power loss leaves a hole before
    the new one. With a hole in a closed segment, the metadata log of the only voter has lost committed
    records. It also waits if the log was cut off: a start might trust the old segment because of the
    checkpoint for the one before it.
    """
    old = log.segments.active
    if base_offset == old.base_offset:
        return old
    if synced or log.flushing.may_be_claimed(base_offset):
        sync_written(log)
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
    flush_to(log, base_offset, now_ms)
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
    """Make a segment without touching its files, with its own random time to roll."""
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
    """Give the active segment a transaction index, maybe an empty one, if its partition knows transactions.

    Then a missing index means that it was lost.
    """
    if log.producers.knows_transactions and not log.segments.active.txn_index.exists():
        log.segments.active.txn_index.create()
