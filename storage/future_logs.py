"""The logs and folders of partitions that are being moved to a log directory.

Source: kafka.log.LogManager (getOrCreateLog of a future log, replaceCurrentWithFutureLog).
"""

from typing import TYPE_CHECKING

from storage import checkpoints, files, moving, removal
from storage.partition_log import Jitter, PartitionLog

if TYPE_CHECKING:
    from storage.log_directory import LogDirectory, PartitionFolder

FUTURE_DIRECTORY_SUFFIX = "-future"


def open_future(
    directory: "LogDirectory",
    present: PartitionLog,
    unique: str,
    *,
    now_ms: int,
    jitter: Jitter = lambda limit: 0,
) -> PartitionLog:
    """The log that is going to take the place of the present one, which is in another directory: what an earlier
    run left of it, or else a new one. `unique` is 32 hex digits. Raises as `open_log` and `moving.begin`."""
    key = (present.topic, present.partition)
    folder = directory._unopened_futures.get(key)
    name = f"{present.topic}-{present.partition}.{unique}{FUTURE_DIRECTORY_SUFFIX}"
    start = directory._log_starts.pop(key, 0)
    if folder is None:
        start = moving.start_offset_of(present)
    future = PartitionLog.open(
        directory._path(name) if folder is None else folder.path,
        present.topic,
        present.partition,
        moving.config_of_future(present.config),
        now_ms=now_ms,
        clean=directory.clean or folder is None,
        recovery_point=directory._recovery_points.pop(key, 0),
        log_start_offset=start,
        background=directory.background,
        jitter=jitter,
        topic_id=present.topic_id,
        found_topic_id=None if folder is None else folder.topic_id,
    )
    future.report = directory.report
    moving.begin(future, present, now_ms)
    directory.futures[key] = future
    directory._unopened_futures.pop(key, None)
    return future


def delete_future(directory: "LogDirectory", log: PartitionLog, unique: str) -> None:
    """Gives up moving a partition here. Raises as `delete_log`; the next start then goes on with the move."""
    key = (log.topic, log.partition)
    directory.futures.pop(key, None)
    log.delete(unique)
    directory._forget(key)


def discard_future(directory: "LogDirectory", folder: "PartitionFolder", unique: str) -> None:
    """Deletes the folder of a move that is not to go on."""
    doomed = removal.out_of_use_path(
        folder.path, folder.topic, folder.partition, unique, removal.DELETE_DIRECTORY_SUFFIX
    )
    files.rename(folder.path, doomed)
    removal.remove_directory_later(doomed, directory.background, 0)
    directory._unopened_futures.pop((folder.topic, folder.partition), None)


def promote_folder(directory: "LogDirectory", folder: "PartitionFolder") -> None:
    """A folder of a move becomes the partition's, of which there is no other: a crash came in between."""
    key = (folder.topic, folder.partition)
    path = directory._path(f"{folder.topic}-{folder.partition}")
    files.rename(folder.path, path)
    del directory._unopened_futures[key]
    directory._unopened[key] = folder._replace(path=path)


def promote(
    directory: "LogDirectory",
    future: PartitionLog,
    present: PartitionLog,
    source: "LogDirectory",
    unique: str,
) -> None:
    """The future log, caught up, takes the place of the present one, which is deleted. See `moving.take_over`."""
    key = (future.topic, future.partition)
    doomed = removal.out_of_use_path(
        present.directory, present.topic, present.partition, unique, removal.DELETE_DIRECTORY_SUFFIX
    )
    was_created = present.created
    if future.log_start_offset > future.base_offsets[0]:
        # else a crash would bring back what was deleted: the present one's directory forgets it
        directory._write_now(checkpoints.LOG_START_FILE, directory._encode_log_starts())
    moving.take_over(future, present, directory._path(f"{future.topic}-{future.partition}"), doomed)
    directory.logs[key] = directory.futures.pop(key)
    source.logs.pop(key, None)
    source._forget(key)
    for changed in (directory, source):
        _sync_names(changed)
    if was_created:
        removal.remove_directory_later(doomed, source.background, present.config.file_delete_delay_ms)


def _sync_names(directory: "LogDirectory") -> None:
    path = directory.path
    directory.background(lambda: files.sync_directory(path), removal.log_failure)
