"""The logs and folders of partitions that are being moved to a log directory.

Source: kafka.log.LogManager (getOrCreateLog of a future log, replaceCurrentWithFutureLog).
"""

from contextlib import suppress

from protocol.errors import KafkaError
from protocol.topic_partition import TopicPartition
from storage.background import Lane
from storage.directory import future_log_copying
from storage.directory.directory_state import DirectoryState
from storage.directory.partition_folders import FUTURE_DIRECTORY_SUFFIX, PartitionFolder
from storage.file_names import LOG_SUFFIX
from storage.files import File
from storage.log import removal
from storage.log.log_state import Jitter
from storage.log.partition_log import PartitionLog
from storage.log.storage_errors import told_to_clients


def open_future(
    directory: DirectoryState,
    present: PartitionLog,
    unique: str,
    *,
    now_ms: int,
    jitter: Jitter = lambda limit: 0,
) -> PartitionLog:
    """The log that is going to take the place of the present one, which is in another directory: what an earlier
    run left of it, or else a new one. `unique` is 32 hex digits. Raises as `open_log` and
    `future_log_copying.begin`; the directory is told what the disk refused, as it is by all that is done with the
    log."""
    key = (present.topic, present.partition)
    assert key not in directory.logs, f"{present.directory} is to be moved to where it is"
    assert key not in directory.left_futures, "a partition that is offline stays so until the next start"
    folder = directory.unopened_futures.get(key)
    name = f"{present.topic}-{present.partition}.{unique}{FUTURE_DIRECTORY_SUFFIX}"
    found = folder is not None
    recovery_point, log_start_offset, _ = (
        directory.offsets.of_unopened(key) if found else (0, future_log_copying.start_offset_of(present), 0)
    )
    try:
        directory.name_is_free(key)
        future = PartitionLog.open(
            directory.path_of(name) if folder is None else folder.path,
            present.topic,
            present.partition,
            future_log_copying.config_of_future(present.config),
            now_ms=now_ms,
            clean=directory.clean or not found,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            files=directory.files,
            background=directory.background,
            jitter=jitter,
            topic_id=present.topic_id,
            found_topic_id=None if folder is None else folder.topic_id,
        )
    except OSError as failure:
        directory.report(failure)
        raise
    future.report = directory.report
    future.producers.count_in(directory.producer_memory)
    try:
        future_log_copying.begin(future, present, now_ms)
    except KafkaError:
        directory.clean = False
        _put_back(directory, future)
        raise
    directory.futures[key] = future
    directory.unopened_futures.pop(key, None)
    directory.offsets.opened(key)
    directory.attach(future)
    if future.cut is not None:
        with suppress(MemoryError):  # the next writing comes by the clock
            directory.offsets.write_recovery_points()
            directory.offsets.write_log_starts()
    return future


def leave_future(directory: DirectoryState, log: PartitionLog) -> None:
    """The move can't go on in this run, the partition being offline: its folder waits for a start, as one that was
    found and not opened. As in Kafka it is kept open, and no more is done with it: what it lacks to be synced is so at
    the end of the run, with that of the others."""
    key = (log.topic, log.partition)
    directory.futures.pop(key)
    if log.created:
        directory.left_futures[key] = log
        _note_unopened(directory, log)
    else:
        log.take_out_of_use()


def _put_back(directory: DirectoryState, log: PartitionLog) -> None:
    log.take_out_of_use()
    if log.created:
        _note_unopened(directory, log)


def _note_unopened(directory: DirectoryState, log: PartitionLog) -> None:
    key = (log.topic, log.partition)
    directory.unopened_futures[key] = PartitionFolder(log.topic, log.partition, log.directory, log.topic_id)
    directory.offsets.closed(key, log)


def unopened_future_sizes(directory: DirectoryState) -> dict[TopicPartition, int]:
    """Of the moves that can't go on in this run, the bytes of their `.log` files, as `PartitionLog.size`."""
    sizes = {}
    for key, folder in directory.unopened_futures.items():
        try:
            names = [
                name for name in directory.files.list_directory(folder.path) if name.endswith(LOG_SUFFIX)
            ]
            sizes[key] = sum(directory.files.size_of(File(f"{folder.path}/{name}")) for name in names)
        except OSError as failure:
            directory.report(failure)
    return sizes


def delete_future(directory: DirectoryState, log: PartitionLog, unique: str) -> None:
    """Gives up moving a partition here. Raises as `delete_log`; the next start then goes on with the move."""
    key = (log.topic, log.partition)
    directory.futures.pop(key, None)
    try:
        log.delete(unique)
    finally:
        directory.forget(key)


def discard_future(directory: DirectoryState, folder: PartitionFolder, unique: str) -> None:
    """Deletes the folder of a move that is not to go on. Raises `OSError`, of which the directory is told."""
    doomed = removal.out_of_use_path(
        folder.path, folder.topic, folder.partition, unique, removal.DELETE_DIRECTORY_SUFFIX
    )
    try:
        directory.files.rename(folder.path, doomed)
    except OSError as failure:
        directory.report(failure)
        raise
    finally:
        forget_unopened(directory, (folder.topic, folder.partition))
    removal.remove_directory_later(directory.files, doomed, directory.background, 0)


def forget_unopened(directory: DirectoryState, key: TopicPartition) -> None:
    """The folder of a move has gone. The checkpoints forget it, which else would count for a new partition of that
    name; where the partition itself is in the directory they are of that."""
    directory.unopened_futures.pop(key, None)
    left = directory.left_futures.pop(key, None)
    if left is not None:
        left.take_out_of_use()
    if key not in directory.logs and key not in directory.unopened:
        directory.forget(key)


def promote_folder(directory: DirectoryState, folder: PartitionFolder) -> None:
    """A folder of a move becomes the partition's, of which there is no other: a crash came in between."""
    key = (folder.topic, folder.partition)
    path = directory.path_of(f"{folder.topic}-{folder.partition}")
    directory.files.rename(folder.path, path)
    del directory.unopened_futures[key]
    directory.unopened[key] = folder._replace(path=path)


def promote(
    directory: DirectoryState,
    future: PartitionLog,
    present: PartitionLog,
    source: DirectoryState,
    unique: str,
) -> None:
    """The future log, caught up, takes the place of the present one, which is deleted.
    See `future_log_copying.take_over`.

    Raises `KafkaError` (KAFKA_STORAGE_ERROR), the directory that refused being told, as Kafka's `UnifiedLog.renameDir`
    does.
    """
    key = (future.topic, future.partition)
    doomed = removal.out_of_use_path(
        present.directory, present.topic, present.partition, unique, removal.DELETE_DIRECTORY_SUFFIX
    )
    has_folder = future_log_copying.folder_exists(present)
    if future.log_start_offset > future.base_offsets[0] or directory.offsets.says_later_start(key, future):
        # else a crash would bring back what was deleted: the present one's directory forgets it
        _write_log_starts(future, directory)
    future_log_copying.take_over(
        future, present, directory.path_of(f"{future.topic}-{future.partition}"), doomed
    )
    directory.logs[key] = directory.futures.pop(key)
    directory.attach(future)
    source.logs.pop(key, None)
    source.cleaner_offsets.move(key, directory.cleaner_offsets)
    source.forget(key)
    with suppress(MemoryError):  # the places have changed; what is out of use the next start finds
        for changed in (directory, source):
            _sync_names(changed)
        if has_folder:
            removal.remove_directory_later(
                source.files, doomed, source.background, present.config.file_delete_delay_ms
            )


@told_to_clients
def _write_log_starts(future: PartitionLog, directory: DirectoryState) -> None:
    directory.offsets.write_log_starts_now()


def _sync_names(directory: DirectoryState) -> None:
    path, files = directory.path, directory.files
    # before what it replaces is deleted
    directory.background(lambda: files.sync_directory(path), removal.log_failure, lane=Lane.DELETING)
