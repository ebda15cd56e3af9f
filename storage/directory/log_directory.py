"""A log directory: its lock, its checkpoints, the folders of its partitions, the mark of a clean stop.

    .lock  meta.properties  .kafka_cleanshutdown  recovery-point-offset-checkpoint
    log-start-offset-checkpoint  replication-offset-checkpoint  cleaner-offset-checkpoint  <topic>-<partition>/
    <topic>-<partition>.<unique>-delete/  <topic>-<partition>.<unique>-future/

A `-future` folder is that of a partition which is being moved here from another log directory. The mark is taken away
by the start that goes on with the directory, and written last of all. Source: kafka.log.LogManager.
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
    """Its text form; None where partition.metadata is missing or makes no sense."""


class FoundFolders(NamedTuple):
    """All that a log directory has, by what their names say."""

    partitions: dict[TopicPartition, PartitionFolder]
    futures: dict[TopicPartition, PartitionFolder]
    """Of partitions that are being moved here (`-future`)."""
    deleted: list[str]
    """The paths of those on their way out (`-delete`)."""


def find(files: Files, path: str) -> FoundFolders:
    """What is in the directory; strays aren't looked at. Raises `OSError`."""
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
        logger.warning("%s is no partition's folder, and is left alone", path)
        return
    try:
        topic_id = checkpoints.read_partition_metadata(files, f"{path}/{checkpoints.PARTITION_METADATA_FILE}")
    except (CheckpointError, IsADirectoryError):  # told where the partition is opened
        topic_id = None
    partition = int(number)
    among[topic, partition] = PartitionFolder(topic, partition, path, topic_id)


class LogDirectory:
    """Made by `LogDirectory.open`, or by `read` and `begin`; holds the lock until `close`. `logs` are those that
    `open_log` opened, `futures` those of partitions that are being moved here; no partition is in both."""

    def __init__(self, path: str, files: Files, background: Background) -> None:
        """For `read` alone."""
        self.path = path
        self.files = files
        self.background = background
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self.on_failure: Callable[[LogDirectory, OSError], bool] | None = None
        """Told of this directory and each failure of its disk: whether the directory goes offline for it."""
        self.producer_memory = ProducerMemory()
        """That of its node."""
        self.clean = False
        """Whether the last run stopped cleanly."""
        self.unopened: dict[TopicPartition, PartitionFolder] = {}
        """Those whose log nobody opened in this run: not recovered where the last stop wasn't clean."""
        self.unopened_futures: dict[TopicPartition, PartitionFolder] = {}
        self.left_futures: dict[TopicPartition, PartitionLog] = {}
        """Of these, the logs that this run had open and has left: synced at its end with the others."""
        self.writer = CheckpointWriter(path, files, background, self.report)
        self.offsets = OffsetCheckpoints(self.writer, self._checkpointed)
        self.cleaner_offsets = CleanerCheckpoint(self.writer)
        # Once for all logs: each would have bound methods of its own.
        self._told_by_logs = (self.report, self._truncated)
        self.broker_epoch: int | None = None
        """That of the run which stopped cleanly; None after any other stop, -1 where the mark doesn't say."""
        self.meta_properties: dict[str, str] | None = None
        self.was_formatted = False
        """Whether it had a `meta.properties` when it was read."""
        self._deleted: list[str] = []
        """Folders of deleted partitions, which `begin` has go."""

    @classmethod
    def open(cls, path: str, *, files: Files, background: Background) -> LogDirectory:
        """`read` and `begin`. Raises as they do."""
        directory = cls.read(path, files=files, background=background)
        try:
            directory.begin()
        except BaseException:
            directory.close(clean=False)
            raise
        return directory

    @classmethod
    def read(cls, path: str, *, files: Files, background: Background) -> LogDirectory:
        """Locks the directory, made if need be, and reads all but the logs; nothing in it is changed.

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
        """This run goes on with the directory: the mark goes, and the folders of deleted partitions do so in the
        background. Raises `OSError`."""
        if self.clean:
            # a crash from here on is no clean stop any more (KAFKA-10471)
            self.files.remove(self.path_of(checkpoints.CLEAN_SHUTDOWN_FILE))
            self.files.sync_directory(self.path)
        for path in self._deleted:
            removal.remove_directory_later(self.files, path, self.background, 0)
        self._deleted.clear()

    def write_meta_properties(self, *, cluster_id: str, node_id: int, directory_id: str) -> None:
        """Makes the directory that of a node; ids in their text form."""
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
        """The partitions that were found with a folder, by name, and whose log nobody opened in this run yet:
        those on their way out aren't among them."""
        return list(self.unopened.values())

    def has_unopened_folder(self, topic: str, partition: int) -> bool:
        """Whether one of these is the partition's."""
        return (topic, partition) in self.unopened

    def future_folders(self) -> list[PartitionFolder]:
        """Of the partitions that were being moved here, as `folders`."""
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
        """Opens the partition's log, recovered where the last stop wasn't clean. See `PartitionLog.open`. What was
        known to be replicated at the last checkpoint is, as far as the log has it. `begins_at`: where the metadata log
        begins, of which no checkpoint says it.

        Raises `OSError` too where what the checkpoints say of a deleted partition of that name can't be forgotten.
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
            # nobody checkpoints the metadata log, and all hangs on it: it is always read again
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
        # where recovery has cut it, what comes behind the cut is new
        self.cleaner_offsets.lower(key, log.log_end_offset)
        self.logs[key] = log
        self.unopened.pop(key, None)
        return log

    def delete_log(self, log: PartitionLog, unique: str) -> None:
        """Deletes a partition: `PartitionLog.delete`, and the checkpoints forget it."""
        key = (log.topic, log.partition)
        log.delete(unique)
        self.logs.pop(key, None)
        self.forget(key)

    def set_aside(self, folder: PartitionFolder, unique: str) -> str:
        """Renames a folder that is no topic's any more with `-stray`, as Kafka does. Returns its new path."""
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
        """The log that is going to take the place of the present one, which is in another directory: what an earlier
        run left of it, or else a new one. `unique` is 32 hex digits. Raises as `open_log` and
        `future_log_copying.begin`; the directory is told what the disk refused, as it is by all that is done with the
        log."""
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
            with suppress(MemoryError):  # the next writing comes by the clock
                self.offsets.write_recovery_points()
                self.offsets.write_log_starts()
        return future

    def leave_future(self, log: PartitionLog) -> None:
        """The move can't go on in this run, the partition being offline: its folder waits for a start, as one that was
        found and not opened. As in Kafka it is kept open, and no more is done with it: what it lacks to be synced is so
        at the end of the run, with that of the others."""
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
        """Of the moves that can't go on in this run, the bytes of their `.log` files, as `PartitionLog.size`."""
        sizes = {}
        for key, folder in self.unopened_futures.items():
            try:
                names = [name for name in self.files.list_directory(folder.path) if name.endswith(LOG_SUFFIX)]
                sizes[key] = sum(self.files.size_of(File(f"{folder.path}/{name}")) for name in names)
            except OSError as failure:
                self.report(failure)
        return sizes

    def delete_future(self, log: PartitionLog, unique: str) -> None:
        """Gives up moving a partition here. Raises as `delete_log`; the next start then goes on with the move."""
        key = (log.topic, log.partition)
        self.futures.pop(key, None)
        try:
            log.delete(unique)
        finally:
            self.forget(key)

    def discard_future(self, folder: PartitionFolder, unique: str) -> None:
        """Deletes the folder of a move that is not to go on. Raises `OSError`, of which the directory is told."""
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
        """The folder of a move has gone. The checkpoints forget it, which else would count for a new partition of that
        name; where the partition itself is in the directory they are of that."""
        self.unopened_futures.pop(key, None)
        left = self.left_futures.pop(key, None)
        if left is not None:
            left.take_out_of_use()
        if key not in self.logs and key not in self.unopened:
            self.forget(key)

    def promote_folder(self, folder: PartitionFolder) -> None:
        """A folder of a move becomes the partition's, of which there is no other: a crash came in between."""
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
        """The future log, caught up, takes the place of the present one, which is deleted.
        See `future_log_copying.take_over`.

        Raises `KafkaError` (KAFKA_STORAGE_ERROR), the directory that refused being told, as Kafka's
        `UnifiedLog.renameDir` does.
        """
        key = (future.topic, future.partition)
        doomed = removal.out_of_use_path(
            present.directory, present.topic, present.partition, unique, removal.DELETE_DIRECTORY_SUFFIX
        )
        has_folder = future_log_copying.folder_exists(present)
        if future.log_start_offset > future.base_offsets[0] or self.offsets.says_later_start(key, future):
            # else a crash would bring back what was deleted: the present one's directory forgets it
            _write_log_starts(future, self)
        future_log_copying.take_over(
            future, present, self.path_of(f"{future.topic}-{future.partition}"), doomed
        )
        self.logs[key] = self.futures.pop(key)
        self.attach(future)
        source.logs.pop(key, None)
        source.cleaner_offsets.move(key, self.cleaner_offsets)
        source.forget(key)
        with suppress(MemoryError):  # the places have changed; what is out of use the next start finds
            for changed in (self, source):
                _sync_names(changed)
            if has_folder:
                removal.remove_directory_later(
                    source.files, doomed, source.background, present.config.file_delete_delay_ms
                )

    # ---- what concerns all logs in it

    def path_of(self, name: str) -> str:
        """Of a file or folder in the directory."""
        return f"{self.path}/{name}"

    @property
    def was_deleted(self) -> bool:
        """Whether somebody has deleted or moved it while it is in use: what says whose it is has gone. Files that are
        open take appends all the same, which nobody will ever read."""
        return not self.files.exists(self.path_of(META_PROPERTIES_FILE))

    def report(self, failure: OSError) -> bool:
        """The disk refused. Whether the directory goes offline for it, which needs another one to go on with."""
        return self.on_failure is not None and self.on_failure(self, failure)

    def _truncated(self, key: TopicPartition, base_offset: int) -> None:
        """A log's end was cut off: what comes in its place isn't synced, whatever the checkpoint says of what was there
        (Kafka: `LogManager.truncateTo`). Where it was cut off below its start, it begins there: nothing comes in its
        place before the file says so, or after a crash it would be hidden. Raises `OSError`."""
        log = self.futures.get(key) if key in self.futures else self.logs.get(key)
        if log is not None and self.offsets.says_later_start(key, log):
            self.offsets.write_log_starts_now()
        self.cleaner_offsets.lower(key, base_offset)
        self.offsets.write_recovery_points()

    def attach(self, log: PartitionLog) -> None:
        """The log is the partition's from here on: what happens to it concerns the directory."""
        log.report, log.truncated = self._told_by_logs
        log.producers.count_in(self.producer_memory)

    def name_is_free(self, key: TopicPartition) -> None:
        """A log of this name is about to be made or opened: nothing that the checkpoints say of an earlier one counts
        for it after a crash. Raises `OSError`."""
        self.cleaner_offsets.name_is_free(key)
        self.offsets.name_is_free(key)

    def forget(self, key: TopicPartition) -> None:
        """The partition's folder has gone."""
        self.unopened.pop(key, None)
        try:
            self.offsets.forget(key)
        finally:
            # though there was too little memory to write the others: what it says isn't to be a new partition's
            self.cleaner_offsets.forget(key)

    def _checkpointed(self) -> dict[TopicPartition, PartitionLog]:
        # the metadata log's offsets are in no checkpoint: it is always read again
        return {key: log for key, log in (self.futures | self.logs).items() if key[0] != METADATA_TOPIC}

    # ---- checkpoints

    def checkpoint_recovery_points(self) -> None:
        """Writes down how far each log is synced, in the background."""
        self.offsets.write_recovery_points()

    def checkpoint_high_watermarks(self) -> None:
        """Writes down how far each log is replicated, in the background."""
        self.offsets.write_high_watermarks()

    def checkpoint_log_starts(self) -> None:
        """Writes down where each log begins, where that isn't its first segment's base, in the background."""
        self.offsets.write_log_starts()

    def log_start_moved(self) -> None:
        """A client had records deleted: `checkpoint_log_starts`, at once, or where that was a moment ago, soon."""
        self.offsets.write_log_starts_soon()

    # ---- end

    def close(self, *, broker_epoch: int = -1, clean: bool = True, run_all: RunAll = run_in_turn) -> bool:
        """Ends all logs, the metadata log last, then writes the checkpoints, then the mark if all went well.

        It waits for the disk, which syncs many files together, through `run_all`, sooner than one by one. With
        `clean` false it only lets go of everything, as a crash would. Returns whether it went as was asked: what is
        open is synced, or wasn't to be.
        """
        went_well = not clean or self._close_logs(run_all)
        for log in (*self.logs.values(), *self.futures.values(), *self.left_futures.values()):
            try:
                log.close(clean=False)
            except KafkaError as failure:
                logger.error("%s can't be closed: %s", log.directory, failure)
                went_well = not clean  # what was written to it may be lost
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
        """Whether all that is in the directory is as a clean stop leaves it, once what is open is."""
        return self.clean or not (self.unopened or self.unopened_futures.keys() - self.left_futures)

    def _has_open_hole(self) -> bool:
        """Whether the next start is to look for one again, which it doesn't behind the mark; the metadata log, which is
        always read again, has none then."""
        for log in self.logs.values():
            if log.open_hole is not None and log.topic != METADATA_TOPIC:
                logger.warning(
                    "%s lacks records from offset %d on, and hasn't heard of its leader: the stop isn't a clean one",
                    log.directory,
                    log.open_hole,
                )
                return True
        return False

    def _close_logs(self, run_all: RunAll) -> bool:
        """Whether all could be synced."""
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
    # before what it replaces is deleted
    directory.background(lambda: files.sync_directory(path), removal.log_failure, lane=Lane.DELETING)


# ---- ending many logs together: a disk syncs them together sooner than one by one


def close_all(files: Files, logs: Sequence[PartitionLog], run_all: RunAll) -> bool:
    """Writes what each log has left to write, then syncs them. Whether all went well."""
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
    """What each failed with; a directory that new logs have in common is synced once for them all."""
    parents = [*dict.fromkeys(each.parent for each in closing if each.parent is not None)]
    of_parents = [partial(files.sync_directory, parent) for parent in parents]
    failures = run_all([*of_parents, *(each.work for each in closing)])
    failed = dict(zip(parents, failures, strict=False))
    return [
        failure if failure is not None or each.parent is None else failed[each.parent]
        for each, failure in zip(closing, failures[len(parents) :], strict=True)
    ]


def _not_clean(log: PartitionLog, failure: Exception) -> bool:
    logger.error("%s-%d didn't close cleanly", log.topic, log.partition, exc_info=failure)
    return False
