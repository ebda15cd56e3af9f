"""A log directory: its lock, its checkpoints, the folders of its partitions, the clean shutdown mark.

    .lock  meta.properties  .kafka_cleanshutdown  recovery-point-offset-checkpoint
    log-start-offset-checkpoint  replication-offset-checkpoint  cleaner-offset-checkpoint  <topic>-<partition>/
    <topic>-<partition>.<unique>-delete/  <topic>-<partition>.<unique>-future/

A `-future` folder belongs to a partition that is being moved here from another log directory. A start that
uses the directory removes the mark, and it is written last of all. Source: kafka.log.LogManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from protocol.errors import KafkaError
from protocol.topic_partition import TopicPartition
from storage import checkpoints
from storage.background import Background, Lane, RunAll, run_in_turn
from storage.checkpoints import META_PROPERTIES_FILE, CheckpointError
from storage.directory import future_log_copying
from storage.directory.directory_checkpoints import CheckpointWriter, CleanerCheckpoint, OffsetCheckpoints
from storage.files import LOG_SUFFIX, File, Files
from storage.log import removal
from storage.log.log_config import LogConfig
from storage.log.log_state import Jitter, told_to_clients
from storage.log.partition_log import PartitionLog
from storage.log.syncing import LastSync
from storage.producer_state import ProducerMemory

__all__ = ["METADATA_TOPIC", "LogDirectory", "PartitionFolder"]

LOCK_FILE = ".lock"

logger = logging.getLogger(__name__)
METADATA_TOPIC = "__cluster_metadata"
FUTURE_DIRECTORY_SUFFIX = "-future"


class PartitionFolder(NamedTuple):
    """One partition's folder."""

    topic: str
    partition: int
    path: str
    topic_id: str | None
    """In text form; None if partition.metadata is missing or makes no sense."""


class FoundFolders(NamedTuple):
    """The folders in a log directory, by what their names say."""

    partitions: dict[TopicPartition, PartitionFolder]
    futures: dict[TopicPartition, PartitionFolder]
    """Folders of partitions that are being moved here (`-future`)."""
    deleted: list[str]
    """The paths of folders that are being deleted (`-delete`)."""


def find(files: Files, path: str) -> FoundFolders:
    """Find the folders in the directory, except strays. Raises `OSError`."""
    found = FoundFolders({}, {}, [])
    for name in files.list_subdirectories(path):
        if name.endswith(removal.DELETE_DIRECTORY_SUFFIX):
            found.deleted.append(f"{path}/{name}")
        elif name.endswith(FUTURE_DIRECTORY_SUFFIX):
            stem = name.removesuffix(FUTURE_DIRECTORY_SUFFIX).rpartition(".")[0]
            _add(found.futures, files, f"{path}/{name}", stem)
        elif not name.endswith(removal.STRAY_DIRECTORY_SUFFIX):
            _add(found.partitions, files, f"{path}/{name}", name)
    return found


def _add(among: dict[TopicPartition, PartitionFolder], files: Files, path: str, stem: str) -> None:
    topic, _dash, number = stem.rpartition("-")
    if not topic or not (number.isascii() and number.isdigit()):
        logger.warning("%s is no folder of a partition, and is left alone", path)
        return
    try:
        topic_id = checkpoints.read_partition_metadata(files, f"{path}/{checkpoints.PARTITION_METADATA_FILE}")
    except (CheckpointError, IsADirectoryError):  # reported when the partition is opened
        topic_id = None
    partition = int(number)
    among[topic, partition] = PartitionFolder(topic, partition, path, topic_id)


class LogDirectory:
    """A log directory, made by `LogDirectory.open`, or by `read` and `begin`. It holds the lock until `close`.

    `logs` are those that `open_log` opened, `futures` those of partitions that are being moved here. No
    partition is in both.
    """

    def __init__(self, path: str, files: Files, background: Background) -> None:
        """Only `read` calls this."""
        self.path = path
        self.files = files
        self.background = background
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self.on_failure: Callable[[LogDirectory, OSError], bool] | None = None
        """Called with this directory and each failure of its disk. Returns True if the directory goes offline
        for it."""
        self.producer_memory = ProducerMemory()
        """The sum for all partitions of its node."""
        self.clean = False
        """True if the last run stopped cleanly."""
        self.unopened: dict[TopicPartition, PartitionFolder] = {}
        """Partitions whose log isn't open in this run yet: not recovered if the last stop wasn't clean."""
        self.unopened_futures: dict[TopicPartition, PartitionFolder] = {}
        self.left_futures: dict[TopicPartition, PartitionLog] = {}
        """Those that this run had open, and has left. They are synced with the others at its end."""
        self.writer = CheckpointWriter(path, files, background, self.report)
        self.offsets = OffsetCheckpoints(self.writer, self._checkpointed)
        self.cleaner_offsets = CleanerCheckpoint(self.writer)
        # once for all logs, instead of bound methods for each
        self._told_by_logs = (self.report, self._truncated)
        self.broker_epoch: int | None = None
        """That of the run that stopped cleanly; None after any other stop, -1 if the mark has none."""
        self.meta_properties: dict[str, str] | None = None
        self.was_formatted = False
        """True if it had a `meta.properties` when it was read."""
        self._deleted: list[str] = []
        """Folders of deleted partitions. `begin` deletes them."""

    @classmethod
    def open(cls, path: str, *, files: Files, background: Background) -> LogDirectory:
        """Do `read` and `begin`. Raises as they do."""
        directory = cls.read(path, files=files, background=background)
        try:
            directory.begin()
        except BaseException:
            directory.close(clean=False)
            raise
        return directory

    @classmethod
    def read(cls, path: str, *, files: Files, background: Background) -> LogDirectory:
        """Lock the directory, which is made if it doesn't exist, and read everything but the logs. Nothing in
        it changes.

        Raises `LockedError`, `OSError`.
        """
        directory = cls(path, files, background)
        files.make_directories(path)
        files.lock(directory.path_of(LOCK_FILE))
        try:
            directory._load()
        except BaseException:
            files.unlock(directory.path_of(LOCK_FILE))
            raise
        return directory

    def _load(self) -> None:
        self.meta_properties = checkpoints.read_meta_properties(
            self.files, self.path_of(checkpoints.META_PROPERTIES_FILE)
        )
        self.was_formatted = self.meta_properties is not None
        mark = self.path_of(checkpoints.CLEAN_SHUTDOWN_FILE)
        self.broker_epoch = checkpoints.read_clean_shutdown(self.files, mark)
        self.clean = self.broker_epoch is not None
        self.unopened, self.unopened_futures, self._deleted = find(self.files, self.path)
        self.offsets.load(self.files, self.path, self.unopened.keys() | self.unopened_futures.keys())
        self.cleaner_offsets.load(self.files, self.path, self.unopened)

    def begin(self) -> None:
        """Start using the directory: remove the mark, and delete the folders of deleted partitions in the
        background.

        Raises `OSError`.
        """
        if self.clean:
            # after this a crash is no clean stop any more (KAFKA-10471)
            self.files.remove(self.path_of(checkpoints.CLEAN_SHUTDOWN_FILE))
            self.files.sync_directory(self.path)
        for path in self._deleted:
            removal.remove_directory_later(self.files, path, self.background, 0)
        self._deleted.clear()

    def write_meta_properties(self, *, cluster_id: str, node_id: int, directory_id: str) -> None:
        """Make it the directory of a node. Ids are in text form."""
        properties = {
            "node.id": str(node_id),
            "directory.id": directory_id,
            "version": "1",
            "cluster.id": cluster_id,
        }
        self.files.replace_whole(
            self.path_of(checkpoints.META_PROPERTIES_FILE), checkpoints.encode_properties(properties)
        )
        self.meta_properties = properties

    # ---- partitions

    def folders(self) -> list[PartitionFolder]:
        """Partitions with a folder whose log isn't open in this run yet, by name, without those that are
        being deleted."""
        return list(self.unopened.values())

    def has_unopened_folder(self, topic: str, partition: int) -> bool:
        """True if one of these belongs to the partition."""
        return (topic, partition) in self.unopened

    def future_folders(self) -> list[PartitionFolder]:
        """Partitions that were being moved here, as in `folders`."""
        return list(self.unopened_futures.values())

    def open_log(
        self,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        now_ms: int,
        topic_id: str | None,
        jitter: Jitter = lambda limit: 0,
        begins_at: int = 0,
    ) -> PartitionLog:
        """Open the partition's log. It is recovered if the last stop wasn't clean. See `PartitionLog.open`.

        Its high watermark is the one at the last checkpoint, as far as the log goes. `begins_at`: the start
        of the metadata log, which has no checkpoint.

        Also raises `OSError` if checkpoints of a deleted partition of that name can't be forgotten.
        """
        key = (topic, partition)
        assert key not in self.futures, f"{topic}-{partition} is being moved to where it is"
        self.name_is_free(key)
        metadata = topic == METADATA_TOPIC
        recovery_point, log_start_offset, high_watermark = (
            (begins_at, begins_at, 0) if metadata else self.offsets.of_unopened(key)
        )
        folder = self.unopened.get(key)
        log = PartitionLog.open(
            self.path_of(f"{topic}-{partition}"),
            topic,
            partition,
            config,
            now_ms=now_ms,
            # the metadata log has no checkpoints, and everything depends on it: it is always read again
            clean=self.clean and not metadata,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            compacted_up_to=self.cleaner_offsets.get(key) or 0,
            files=self.files,
            background=self.background,
            jitter=jitter,
            topic_id=topic_id,
            found_topic_id=None if folder is None else folder.topic_id,
        )
        log.update_high_watermark(high_watermark)  # Kafka: `Partition.createLog`
        self.offsets.opened(key)
        self.attach(log)
        # if recovery has cut it, everything after the cut is new
        self.cleaner_offsets.lower(key, log.log_end_offset)
        self.logs[key] = log
        self.unopened.pop(key, None)
        return log

    def delete_log(self, log: PartitionLog, unique: str) -> None:
        """Delete a partition: `PartitionLog.delete`, and forget its checkpoints."""
        key = (log.topic, log.partition)
        log.delete(unique)
        self.logs.pop(key, None)
        self.forget(key)

    def set_aside(self, folder: PartitionFolder, unique: str) -> str:
        """Rename a folder that belongs to no topic any more with `-stray`, as Kafka does. Returns its new path."""
        stray = removal.out_of_use_path(
            folder.path, folder.topic, folder.partition, unique, removal.STRAY_DIRECTORY_SUFFIX
        )
        self.files.rename(folder.path, stray)
        if folder.path.endswith(FUTURE_DIRECTORY_SUFFIX):
            self._forget_unopened((folder.topic, folder.partition))
        else:
            self.forget((folder.topic, folder.partition))
        return stray

    # ---- moves. Source: kafka.log.LogManager (getOrCreateLog of a future log, replaceCurrentWithFutureLog)

    def open_future(
        self,
        present: PartitionLog,
        unique: str,
        *,
        now_ms: int,
        jitter: Jitter = lambda limit: 0,
    ) -> PartitionLog:
        """Open the log that will replace the present one, which is in another directory.

        It is one that an earlier run has left, or a new one. `unique` is 32 hex digits. Raises as `open_log`
        and `future_log_copying.begin` do. The directory hears of failures of its disk, as it does for
        everything done with the log.
        """
        key = (present.topic, present.partition)
        assert key not in self.logs, f"{present.directory} is to be moved to where it is"
        assert key not in self.left_futures, "a partition that is offline stays so until the next start"
        folder = self.unopened_futures.get(key)
        name = f"{present.topic}-{present.partition}.{unique}{FUTURE_DIRECTORY_SUFFIX}"
        found = folder is not None
        recovery_point, log_start_offset, _ = (
            self.offsets.of_unopened(key) if found else (0, future_log_copying.start_offset_of(present), 0)
        )
        try:
            self.name_is_free(key)
            future = PartitionLog.open(
                self.path_of(name) if folder is None else folder.path,
                present.topic,
                present.partition,
                future_log_copying.config_of_future(present.config),
                now_ms=now_ms,
                clean=self.clean or not found,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
                files=self.files,
                background=self.background,
                jitter=jitter,
                topic_id=present.topic_id,
                found_topic_id=None if folder is None else folder.topic_id,
            )
        except OSError as failure:
            self.report(failure)
            raise
        future.report = self.report
        future.producers.count_in(self.producer_memory)
        try:
            future_log_copying.begin(future, present, now_ms)
        except KafkaError:
            self.clean = False
            self._put_back(future)
            raise
        self.futures[key] = future
        self.unopened_futures.pop(key, None)
        self.offsets.opened(key)
        self.attach(future)
        if future.cut is not None:
            with suppress(MemoryError):  # the regular checkpoint comes later
                self.offsets.write_recovery_points()
                self.offsets.write_log_starts()
        return future

    def leave_future(self, log: PartitionLog) -> None:
        """Give up the move for this run, as the partition is offline. Its folder waits for a start, like one
        that isn't open.

        As in Kafka the log stays open, and nothing more is done with it. At the end of the run it is synced
        with the others.
        """
        key = (log.topic, log.partition)
        self.futures.pop(key)
        if log.created:
            self.left_futures[key] = log
            self._note_unopened(log)
        else:
            log.take_out_of_use()

    def _put_back(self, log: PartitionLog) -> None:
        log.take_out_of_use()
        if log.created:
            self._note_unopened(log)

    def _note_unopened(self, log: PartitionLog) -> None:
        key = (log.topic, log.partition)
        self.unopened_futures[key] = PartitionFolder(log.topic, log.partition, log.directory, log.topic_id)
        self.offsets.closed(key, log)

    def unopened_future_sizes(self) -> dict[TopicPartition, int]:
        """The bytes of the `.log` files of moves that can't continue in this run, as `PartitionLog.size`."""
        sizes = {}
        for key, folder in self.unopened_futures.items():
            try:
                names = [name for name in self.files.list_directory(folder.path) if name.endswith(LOG_SUFFIX)]
                sizes[key] = sum(self.files.size_of(File(f"{folder.path}/{name}")) for name in names)
            except OSError as failure:
                self.report(failure)
        return sizes

    def delete_future(self, log: PartitionLog, unique: str) -> None:
        """Give up moving a partition here. Raises as `delete_log` does; then the next start continues the move."""
        key = (log.topic, log.partition)
        self.futures.pop(key, None)
        try:
            log.delete(unique)
        finally:
            self.forget(key)

    def discard_future(self, folder: PartitionFolder, unique: str) -> None:
        """Delete the folder of a move that is given up. Raises `OSError`, after reporting it to the directory."""
        doomed = removal.out_of_use_path(
            folder.path, folder.topic, folder.partition, unique, removal.DELETE_DIRECTORY_SUFFIX
        )
        try:
            self.files.rename(folder.path, doomed)
        except OSError as failure:
            self.report(failure)
            raise
        finally:
            self._forget_unopened((folder.topic, folder.partition))
        removal.remove_directory_later(self.files, doomed, self.background, 0)

    def _forget_unopened(self, key: TopicPartition) -> None:
        """Forget the checkpoints of a move whose folder has gone.

        Otherwise they would count for a new partition of that name. If the partition itself is in the
        directory, they belong to it.
        """
        self.unopened_futures.pop(key, None)
        left = self.left_futures.pop(key, None)
        if left is not None:
            left.take_out_of_use()
        if key not in self.logs and key not in self.unopened:
            self.forget(key)

    def promote_folder(self, folder: PartitionFolder) -> None:
        """Make a folder of a move the partition's, as there is no other: a crash came in between."""
        key = (folder.topic, folder.partition)
        path = self.path_of(f"{folder.topic}-{folder.partition}")
        self.files.rename(folder.path, path)
        del self.unopened_futures[key]
        self.unopened[key] = folder._replace(path=path)

    def promote(
        self,
        future: PartitionLog,
        present: PartitionLog,
        source: LogDirectory,
        unique: str,
    ) -> None:
        """Replace the present log by the future one, which has caught up. The present log is deleted. See
        `future_log_copying.take_over`.

        Raises `KafkaError` (KAFKA_STORAGE_ERROR), after reporting to the directory that refused, as Kafka's
        `UnifiedLog.renameDir` does.
        """
        key = (future.topic, future.partition)
        doomed = removal.out_of_use_path(
            present.directory, present.topic, present.partition, unique, removal.DELETE_DIRECTORY_SUFFIX
        )
        has_folder = future_log_copying.folder_exists(present)
        if future.log_start_offset > future.base_offsets[0] or self.offsets.says_later_start(key, future):
            # otherwise a crash would bring back deleted records, since the present log's directory forgets
            # the log start
            _write_log_starts(future, self)
        future_log_copying.take_over(
            future, present, self.path_of(f"{future.topic}-{future.partition}"), doomed
        )
        self.logs[key] = self.futures.pop(key)
        self.attach(future)
        source.logs.pop(key, None)
        source.cleaner_offsets.move(key, self.cleaner_offsets)
        source.forget(key)
        with suppress(
            MemoryError
        ):  # the places have changed already; the next start finds what is out of use
            for changed in (self, source):
                _sync_names(changed)
            if has_folder:
                removal.remove_directory_later(
                    source.files, doomed, source.background, present.config.file_delete_delay_ms
                )

    # ---- all its logs together

    def path_of(self, name: str) -> str:
        """The path of a file or folder in the directory."""
        return f"{self.path}/{name}"

    @property
    def was_deleted(self) -> bool:
        """True if somebody has deleted or moved it while it is in use: the file that identifies it has gone.

        Open files still take appends, but nobody will ever read them.
        """
        return not self.files.exists(self.path_of(META_PROPERTIES_FILE))

    def report(self, failure: OSError) -> bool:
        """Report a failure of the disk. Returns True if the directory goes offline for it, which needs
        another one to go on."""
        return self.on_failure is not None and self.on_failure(self, failure)

    def _truncated(self, key: TopicPartition, base_offset: int) -> None:
        """Correct the checkpoints after a log's end was cut off: what comes in its place isn't synced yet
        (Kafka: `LogManager.truncateTo`).

        If it was cut off below its log start, it now begins there. The file has to have that before anything
        is appended, or a crash would hide the new records. Raises `OSError`.
        """
        log = self.futures.get(key) if key in self.futures else self.logs.get(key)
        if log is not None and self.offsets.says_later_start(key, log):
            self.offsets.write_log_starts_now()
        self.cleaner_offsets.lower(key, base_offset)
        self.offsets.write_recovery_points()

    def attach(self, log: PartitionLog) -> None:
        """Attach the partition's log: from now on it reports to this directory."""
        log.report, log.truncated = self._told_by_logs
        log.producers.count_in(self.producer_memory)

    def name_is_free(self, key: TopicPartition) -> None:
        """Forget all checkpoints of earlier partitions of this name, before a log of this name is made or opened.

        Raises `OSError`.
        """
        self.cleaner_offsets.name_is_free(key)
        self.offsets.name_is_free(key)

    def forget(self, key: TopicPartition) -> None:
        """Forget a partition whose folder has gone."""
        self.unopened.pop(key, None)
        try:
            self.offsets.forget(key)
        finally:
            # even if the others can't be written for lack of memory: its entry must not apply to a new partition
            self.cleaner_offsets.forget(key)

    def _checkpointed(self) -> dict[TopicPartition, PartitionLog]:
        # the metadata log's offsets are in no checkpoint: it is always read again
        return {key: log for key, log in (self.futures | self.logs).items() if key[0] != METADATA_TOPIC}

    # ---- checkpoints

    def checkpoint_recovery_points(self) -> None:
        """Write how far each log is synced, in the background."""
        self.offsets.write_recovery_points()

    def checkpoint_high_watermarks(self) -> None:
        """Write how far each log is replicated, in the background."""
        self.offsets.write_high_watermarks()

    def checkpoint_log_starts(self) -> None:
        """Write the log starts that aren't the first segment's base, in the background."""
        self.offsets.write_log_starts()

    def log_start_moved(self) -> None:
        """Do `checkpoint_log_starts` after a client had records deleted: at once, or soon if that was done a
        moment ago."""
        self.offsets.write_log_starts_soon()

    # ---- end

    def close(self, *, broker_epoch: int = -1, clean: bool = True, run_all: RunAll = run_in_turn) -> bool:
        """Close all logs, the metadata log last, then write the checkpoints, then the mark if all went well.

        It waits for the disk. `run_all` syncs many files together, which is faster than one by one. With
        `clean` false it only closes everything, as a crash would. Returns True if it went as requested: open
        logs are synced, or weren't to be.
        """
        went_well = not clean or self._close_logs(run_all)
        for log in (*self.logs.values(), *self.futures.values(), *self.left_futures.values()):
            try:
                log.close(clean=False)
            except KafkaError as failure:
                logger.error("%s can't be closed: %s", log.directory, failure)
                went_well = not clean  # written data may be lost
        if clean and went_well and self._knows_all:
            self.offsets.write_all_now()
            self.cleaner_offsets.write_now()
            if not self._has_open_hole():
                mark = checkpoints.encode_clean_shutdown(broker_epoch)
                self.files.replace_whole(self.path_of(checkpoints.CLEAN_SHUTDOWN_FILE), mark)
        self.writer.stop()
        self.files.unlock(self.path_of(LOCK_FILE))
        return went_well

    @property
    def _knows_all(self) -> bool:
        """True if everything in the directory is as after a clean stop, once the open logs are."""
        return self.clean or not (self.unopened or self.unopened_futures.keys() - self.left_futures)

    def _has_open_hole(self) -> bool:
        """True if the next start has to look for a hole again, which it doesn't with the mark.

        The metadata log doesn't count: it is always read again, and has no hole then.
        """
        for log in self.logs.values():
            if log.open_hole is not None and log.topic != METADATA_TOPIC:
                logger.warning(
                    "%s lacks records from offset %d on, and hasn't heard of its leader: this stop isn't clean",
                    log.directory,
                    log.open_hole,
                )
                return True
        return False

    def _close_logs(self, run_all: RunAll) -> bool:
        """Close the logs. Returns True if all could be synced."""
        partitions = [log for log in self.logs.values() if log.topic != METADATA_TOPIC]
        went_well = close_all(
            self.files, [*partitions, *self.futures.values(), *self.left_futures.values()], run_all
        )
        metadata = [log for log in self.logs.values() if log.topic == METADATA_TOPIC]
        return close_all(self.files, metadata, run_all) and went_well


@told_to_clients
def _write_log_starts(future: PartitionLog, directory: LogDirectory) -> None:
    directory.offsets.write_log_starts_now()


def _sync_names(directory: LogDirectory) -> None:
    path, files = directory.path, directory.files
    # before the replaced folder is deleted
    directory.background(lambda: files.sync_directory(path), removal.log_failure, lane=Lane.DELETING)


# ---- closing many logs together: a disk syncs them faster together than one by one


def close_all(files: Files, logs: Sequence[PartitionLog], run_all: RunAll) -> bool:
    """Write what each log still has to write, then sync them. Returns True if all went well."""
    clean = True
    closing: list[tuple[PartitionLog, LastSync]] = []
    for log in logs:
        try:
            last_sync = log.begin_close()
        except Exception as failure:
            clean = _not_clean(log, failure)
            continue
        if last_sync is not None:
            closing.append((log, last_sync))
    failures = _sync(files, [last_sync for _log, last_sync in closing], run_all)
    for (log, _last_sync), failed in zip(closing, failures, strict=True):
        log.end_close(failed)
        if failed is not None:
            clean = _not_clean(log, failed)
    return clean and all(log.failure is None for log in logs)


def _sync(files: Files, closing: Sequence[LastSync], run_all: RunAll) -> list[Exception | None]:
    """Sync the logs, and return each one's failure. A parent directory of several new logs is synced once."""
    parents = [*dict.fromkeys(each.parent for each in closing if each.parent is not None)]
    of_parents = [partial(files.sync_directory, parent) for parent in parents]
    failures = run_all([*of_parents, *(each.work for each in closing)])
    failed = dict(zip(parents, failures, strict=False))
    return [
        failure if failure is not None or each.parent is None else failed[each.parent]
        for each, failure in zip(closing, failures[len(parents) :], strict=True)
    ]


def _not_clean(log: PartitionLog, failure: Exception) -> bool:
    logger.error("%s-%d couldn't be closed cleanly", log.topic, log.partition, exc_info=failure)
    return False
