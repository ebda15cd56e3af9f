"""Moving a partition from one log directory to another (KIP-113).

A second log in the other directory, the future log, is filled from the present one, batch by batch as a follower's
is. So its segments, indexes and snapshots arise as everywhere. Once it has everything that the present one has, it
takes over. Source: kafka.server ReplicaAlterLogDirsThread, LogManager.replaceCurrentWithFutureLog.
"""

import os
from dataclasses import replace
from itertools import islice

from protocol.errors import Error, KafkaError
from protocol.records.batch import walk_batches
from storage.log import syncing
from storage.log.leader_epochs import UNDEFINED_EPOCH
from storage.log.log_config import LONG_MAX, LogConfig
from storage.log.log_state import AppendOrigin, told_to_clients
from storage.log.partition_log import PartitionLog


def config_of_future(config: LogConfig) -> LogConfig:
    """The future log's settings. Nobody waits for its flushes: it is synced when it rolls, and before it
    takes over."""
    return replace(config, flush_messages=LONG_MAX)


def start_offset_of(present: PartitionLog) -> int:
    """The start of a future log: the base offset of the batch that holds the log start."""
    return present.base_offset_of(present.log_start_offset)


def begin(future: PartitionLog, present: PartitionLog, now_ms: int) -> None:
    """Make the future log's directory. One that already exists is cut off where its epochs begin to differ.

    The present log may have been cut off and filled again since the future one was filled. The future log is
    also cut off at a hole from a power loss, as the present one has the records.
    """
    present.cuts_are_followed()
    if not future.created:
        future.create(now_ms)
        return
    end = _common_end(future, present)
    _cut_off(future, present, end if future.hole is None else min(end, future.hole), now_ms)
    future.update_high_watermark(present.high_watermark)


def follow_cut(future: PartitionLog, present: PartitionLog, now_ms: int) -> bool:
    """Cut off the future log where the present one was cut off. Returns True if the present one was.

    If the present log is a follower's, it may lose its end to its leader's log. Then the future log loses the
    same offsets, even if the present one has filled them again by now (Kafka:
    `ReplicaFetcherThread.truncate`, which marks the future log for truncation).

    Raises `KafkaError` (KAFKA_STORAGE_ERROR).
    """
    cut = present.lowest_cut
    if cut is None:
        return False
    if cut < future.log_end_offset or future.log_end_offset < present.log_start_offset:
        _cut_off(future, present, min(cut, _common_end(future, present)), now_ms)
    present.cuts_are_followed()
    return True


def _common_end(future: PartitionLog, present: PartitionLog) -> int:
    """The offset up to which both logs are the same: where the last epoch that both have ends in the first of them.

    -1 if there is none (Kafka: `AbstractFetcherThread.getOffsetTruncationState`).
    """
    known = {epoch for epoch, _ in present.leader_epochs.entries}
    for epoch, _ in reversed(future.leader_epochs.entries):
        if epoch in known:
            return min(log.end_offset_for_epoch(epoch)[1] for log in (future, present))
    return -1


def _cut_off(future: PartitionLog, present: PartitionLog, offset: int, now_ms: int) -> None:
    """Cut off the future log at the offset. If nothing useful would remain, it starts over, maybe with a
    later log start."""
    start = start_offset_of(present)
    if offset < start or offset <= future.log_start_offset:
        future.truncate_fully_and_start_at(start, now_ms)
    else:
        future.truncate_to(offset, now_ms)


def copy(
    future: PartitionLog, present: PartitionLog, *, max_bytes: int, max_batches: int, now_ms: int
) -> int:
    """Append to the future log what it lacks, as much as the bounds allow but at least one batch. Returns the
    bytes.

    It follows a cut first. If the disk doesn't have that cut yet, this waits for it.

    Raises `KafkaError` (KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE), `CorruptRecordError`.
    """
    follow_cut(future, present, now_ms)
    if present.log_start_offset == present.log_end_offset != future.log_end_offset:
        future.truncate_fully_and_start_at(present.log_end_offset, now_ms)
    copied = 0
    if future.log_end_offset < present.log_end_offset:
        offset = max(future.log_end_offset, present.log_start_offset)
        found = present.read(
            offset, max_bytes, upper_bound=present.log_end_offset, min_one_batch=True
        ).records
        copied = _append_all(future, bytearray(found), max_batches, now_ms)
        if not copied:
            raise KafkaError(
                Error.KAFKA_STORAGE_ERROR, f"{present.directory} has no whole batch at offset {offset}"
            )
    # no further: if the process ends during the move, the future log is opened with its checkpointed high watermark
    future.update_high_watermark(present.high_watermark)
    if future.log_start_offset < present.log_start_offset <= future.log_end_offset:
        future.delete_records_before(present.log_start_offset)
    return copied


def _append_all(future: PartitionLog, records: bytearray, max_batches: int, now_ms: int) -> int:
    view = memoryview(records)
    end = 0
    for position, header in islice(walk_batches(records), max_batches):
        end = position + header.size_bytes
        future.append(view[position:end], leader_epoch=-1, now_ms=now_ms, origin=AppendOrigin.REPLICATION)
    return end


def is_caught_up(future: PartitionLog, present: PartitionLog) -> bool:
    """True if it has everything. Its log start may be later, as it has segments, and so retention, of its own."""
    return (
        future.log_end_offset == present.log_end_offset
        and future.log_start_offset >= present.log_start_offset
        and _have_the_same_last_epoch(future, present)
    )


def _have_the_same_last_epoch(future: PartitionLog, present: PartitionLog) -> bool:
    """True if the last record has the same epoch in both logs, or if one of them lacks the record or the epoch."""
    end = future.log_end_offset
    if end in (future.log_start_offset, present.log_start_offset):
        return True
    ours, theirs = (log.leader_epochs.epoch_for(end - 1) for log in (future, present))
    return ours == theirs or UNDEFINED_EPOCH in (ours, theirs)


@told_to_clients
def take_over(future: PartitionLog, present: PartitionLog, path: str, doomed: str) -> None:
    """Let the future log, caught up and with no flush under way, become the partition's log at `path`.

    The present log is closed, and its directory renamed to `doomed`. Those who wait for its flushes now wait
    for those of the future log. They aren't called in here, since the partition still has the closed log. The
    caller does that, with `PartitionLog.tell_flushed`.

    If the process is killed in between, only the future log remains, which is complete. A start that finds no
    other makes it the partition's (Kafka does too, if the partition's record names its directory). Raises
    `KafkaError` (KAFKA_STORAGE_ERROR), after the log whose directory refused has reported it. Then nothing
    has changed, except that a present log that can't be renamed back has failed.
    """
    future.hole, future.goes_on_with_hole = present.hole, present.goes_on_with_hole
    future.snapshots.take(present.producers)
    future.leader_epochs.take_over(present.leader_epochs)
    has_folder = folder_exists(present)
    if has_folder:
        _rename_present(present, doomed)
    try:
        future.files.rename(future.directory, path)
    except OSError:
        if has_folder:
            _name_back(present, doomed)
        raise
    future.relocate(path)
    future.producers = present.producers
    future.verifies_transactions = present.verifies_transactions
    future.update_high_watermark(present.high_watermark)
    future.update_first_unstable_offset()
    wanted_to = present.flushing.wanted_to
    future.flushing.take_over(present.flushing)
    present.take_out_of_use()
    if has_folder:
        present.directory = doomed
        present.created = False
    if wanted_to > future.recovery_point:
        syncing.flush_to(future, wanted_to, future.flushing.last_ms)


def folder_exists(log: PartitionLog) -> bool:
    """True if its folder exists, even if a power loss has left it without a segment, so that it isn't `created`."""
    return log.created or log.files.exists(log.directory)


@told_to_clients
def _rename_present(present: PartitionLog, doomed: str) -> None:
    """Rename the present log, and wait until the disk has that.

    The disk may get two directories' names in any order. After a power loss a start could find the partition
    in both, and not know which one is out of date.
    """
    present.files.rename(present.directory, doomed)
    try:
        present.files.sync_directory(os.path.dirname(doomed))
    except OSError:
        _name_back(present, doomed)
        raise


def _name_back(present: PartitionLog, doomed: str) -> None:
    try:
        present.files.rename(doomed, present.directory)
    except OSError as failure:
        present.give_up(failure)
