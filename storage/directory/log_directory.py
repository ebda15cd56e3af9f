"""A log directory: its lock, its checkpoints, the folders of its partitions, the mark of a clean stop.

    .lock  meta.properties  .kafka_cleanshutdown  recovery-point-offset-checkpoint
    log-start-offset-checkpoint replication-offset-checkpoint  <topic>-<partition>/
    <topic>-<partition>.<unique>-delete/  <topic>-<partition>.<unique>-future/

A `-future` folder is that of a partition which is being moved here from another log directory. The mark is taken away
by the start that goes on with the directory, and written last of all. Source: kafka.log.LogManager.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from storage import checkpoints
from storage.background import Background, Lane, RunAll, Work, run_in_turn
from storage.checkpoints import CheckpointError, TopicPartition
from storage.directory import future_logs
from storage.directory.future_logs import FUTURE_DIRECTORY_SUFFIX
from storage.directory.partition_folder import PartitionFolder
from storage.files import Files
from storage.log import removal
from storage.log.log_config import LogConfig
from storage.log.log_state import Jitter
from storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"
METADATA_TOPIC = "__cluster_metadata"
BACKGROUND_SUFFIX = ".background.tmp"


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
        """Told of each failure of the disk: whether the directory goes offline for it."""
        self.clean = False
        """Whether the last run stopped cleanly."""
        self.broker_epoch: int | None = None
        """That of the run which stopped cleanly; None after any other stop, -1 where the mark doesn't say."""
        self.meta_properties: dict[str, str] | None = None
        self.high_watermarks: dict[TopicPartition, int] = {}
        """As they were checkpointed by the last run."""
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._written_log_starts: set[TopicPartition] = set()
        self._unopened: dict[TopicPartition, PartitionFolder] = {}
        """Those whose log nobody opened in this run: not recovered where the last stop wasn't clean."""
        self._unopened_futures: dict[TopicPartition, PartitionFolder] = {}
        self._left_futures: dict[TopicPartition, PartitionLog] = {}
        """Of these, the logs that this run had open and has left: synced at its end with the others."""
        self._writing: set[str] = set()
        self._waiting: dict[str, bytes] = {}
        self._said: dict[str, bytes] = {}
        """By file, what this run wrote last: it isn't written again while nothing changes."""
        self._superseded: set[str] = set()
        """Of the files being written: those that meanwhile say something newer."""
        self._unforgotten: set[TopicPartition] = set()
        """Deleted partitions whose log start is in the checkpoint still, since it couldn't be written."""
        self._deleted: list[str] = []
        """Folders of deleted partitions, which `begin` has go."""

    @classmethod
    def open(cls, path: str, *, files: Files, background: Background) -> "LogDirectory":
        """`read` and `begin`. Raises as they do."""
        directory = cls.read(path, files=files, background=background)
        try:
            directory.begin()
        except BaseException:
            directory.close(clean=False)
            raise
        return directory

    @classmethod
    def read(cls, path: str, *, files: Files, background: Background) -> "LogDirectory":
        """Locks the directory, made if need be, and reads all but the logs; nothing in it is changed.

        Raises `LockedError`, `OSError`.
        """
        directory = cls(path, files, background)
        files.make_directory(path)
        files.lock(directory._path(LOCK_FILE))
        try:
            directory._load()
        except BaseException:
            files.unlock(directory._path(LOCK_FILE))
            raise
        return directory

    def _path(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _load(self) -> None:
        self.meta_properties = checkpoints.read_meta_properties(
            self.files, self._path(checkpoints.META_PROPERTIES_FILE)
        )
        mark = self._path(checkpoints.CLEAN_SHUTDOWN_FILE)
        self.broker_epoch = checkpoints.read_clean_shutdown(self.files, mark)
        self.clean = self.broker_epoch is not None
        self._recovery_points = self._read_offsets(checkpoints.RECOVERY_POINT_FILE)
        self._log_starts = self._read_offsets(checkpoints.LOG_START_FILE)
        self._written_log_starts = set(self._log_starts)
        self.high_watermarks = self._read_offsets(checkpoints.HIGH_WATERMARK_FILE)
        for name in self.files.list_subdirectories(self.path):
            if name.endswith(removal.DELETE_DIRECTORY_SUFFIX):
                self._deleted.append(self._path(name))
            elif name.endswith(FUTURE_DIRECTORY_SUFFIX):
                stem = name.removesuffix(FUTURE_DIRECTORY_SUFFIX).rpartition(".")[0]
                self._found(name, stem, self._unopened_futures)
            elif not name.endswith(removal.STRAY_DIRECTORY_SUFFIX):
                self._found(name, name, self._unopened)

    def begin(self) -> None:
        """This run goes on with the directory: the mark goes, and the folders of deleted partitions do so in the
        background. Raises `OSError`."""
        if self.clean:
            # a crash from here on is no clean stop any more (KAFKA-10471)
            self.files.remove(self._path(checkpoints.CLEAN_SHUTDOWN_FILE))
            self.files.sync_directory(self.path)
        for path in self._deleted:
            removal.remove_directory_later(self.files, path, self.background, 0)
        self._deleted.clear()

    def _found(self, name: str, stem: str, among: dict[TopicPartition, PartitionFolder]) -> None:
        topic, _dash, number = stem.rpartition("-")
        if not topic or not (number.isascii() and number.isdigit()):
            logger.warning("%s/%s is no partition's folder, and is left alone", self.path, name)
            return
        path = self._path(name)
        try:
            topic_id = checkpoints.read_partition_metadata(
                self.files, f"{path}/{checkpoints.PARTITION_METADATA_FILE}"
            )
        except CheckpointError:
            topic_id = None
        partition = int(number)
        among[topic, partition] = PartitionFolder(topic, partition, path, topic_id)

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        try:
            return checkpoints.read_offsets(self.files, self._path(name))
        except CheckpointError as failure:
            logger.warning("A checkpoint is read as empty: %s", failure)
            return {}

    def write_meta_properties(self, *, cluster_id: str, node_id: int, directory_id: str) -> None:
        """Makes the directory that of a node; ids in their text form."""
        properties = {
            "node.id": str(node_id),
            "directory.id": directory_id,
            "version": "1",
            "cluster.id": cluster_id,
        }
        self.files.replace_whole(
            self._path(checkpoints.META_PROPERTIES_FILE), checkpoints.encode_properties(properties)
        )
        self.meta_properties = properties

    def report(self, failure: OSError) -> bool:
        """The disk refused. Whether the directory goes offline for it, which needs another one to go on with."""
        return self.on_failure is not None and self.on_failure(self, failure)

    # ---- partitions

    @property
    def has_unopened(self) -> bool:
        """Whether there are partitions' folders whose log nobody opened in this run yet."""
        return bool(self._unopened or self._unopened_futures)

    def folders(self) -> list[PartitionFolder]:
        """The partitions that were found with a folder, by name, and whose log nobody opened in this run yet:
        those on their way out aren't among them."""
        return list(self._unopened.values())

    def future_folders(self) -> list[PartitionFolder]:
        """Of the partitions that were being moved here, as `folders`."""
        return list(self._unopened_futures.values())

    def open_log(
        self,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        now_ms: int,
        topic_id: str | None,
        jitter: Jitter = lambda limit: 0,
    ) -> PartitionLog:
        """Opens the partition's log, recovered where the last stop wasn't clean. See `PartitionLog.open`.

        Raises `OSError` too where the log start of a deleted partition of that name can't be forgotten.
        """
        key = (topic, partition)
        assert key not in self.futures, f"{topic}-{partition} is being moved to where it is"
        if key in self._unforgotten:
            self._forget_log_starts()
        metadata = topic == METADATA_TOPIC
        folder = self._unopened.get(key)
        log = PartitionLog.open(
            self._path(f"{topic}-{partition}"),
            topic,
            partition,
            config,
            now_ms=now_ms,
            # nobody checkpoints the metadata log, and all hangs on it: it is always read again
            clean=self.clean and not metadata,
            recovery_point=0 if metadata else self._recovery_points.pop(key, 0),
            log_start_offset=0 if metadata else self._log_starts.pop(key, 0),
            files=self.files,
            background=self.background,
            jitter=jitter,
            topic_id=topic_id,
            found_topic_id=None if folder is None else folder.topic_id,
        )
        log.report = self.report
        self.logs[key] = log
        self._unopened.pop(key, None)
        return log

    def delete_log(self, log: PartitionLog, unique: str) -> None:
        """Deletes a partition: `PartitionLog.delete`, and the checkpoints forget it."""
        key = (log.topic, log.partition)
        log.delete(unique)
        self.logs.pop(key, None)
        self._forget(key)

    # ---- moves, each verb in a room of its own

    open_future = future_logs.open_future
    leave_future = future_logs.leave_future
    unopened_future_sizes = future_logs.unopened_future_sizes
    delete_future = future_logs.delete_future
    discard_future = future_logs.discard_future
    promote_folder = future_logs.promote_folder
    promote = future_logs.promote

    def set_aside(self, folder: PartitionFolder, unique: str) -> str:
        """Renames a folder that is no topic's any more with `-stray`, as Kafka does. Returns its new path."""
        stray = removal.out_of_use_path(
            folder.path, folder.topic, folder.partition, unique, removal.STRAY_DIRECTORY_SUFFIX
        )
        self.files.rename(folder.path, stray)
        if folder.path.endswith(FUTURE_DIRECTORY_SUFFIX):
            future_logs.forget_unopened(self, (folder.topic, folder.partition))
        else:
            self._forget((folder.topic, folder.partition))
        return stray

    def _forget(self, key: TopicPartition) -> None:
        self._recovery_points.pop(key, None)
        self._log_starts.pop(key, None)
        self._unopened.pop(key, None)
        if key in self._written_log_starts:
            # else a new topic of that name would begin at the old one's log start, dropping what lies below
            self._unforgotten.add(key)
            try:
                self._forget_log_starts()
            except OSError as failure:
                logger.error("%s can't be written: %s", self._path(checkpoints.LOG_START_FILE), failure)
                self.report(failure)

    def _forget_log_starts(self) -> None:
        self._write_now(checkpoints.LOG_START_FILE, self._encode_log_starts())
        self._written_log_starts -= self._unforgotten
        self._unforgotten.clear()

    # ---- checkpoints

    def checkpoint_recovery_points(self) -> None:
        """Writes down how far each log is synced, in the background."""
        self._write(checkpoints.RECOVERY_POINT_FILE, self._encode_recovery_points())

    def checkpoint_high_watermarks(self) -> None:
        self._write(checkpoints.HIGH_WATERMARK_FILE, self._encode_high_watermarks())

    def checkpoint_log_starts(self) -> None:
        self._write(checkpoints.LOG_START_FILE, self._encode_log_starts())

    def _checkpointed(self) -> Iterable[tuple[TopicPartition, PartitionLog]]:
        return (item for item in (self.futures | self.logs).items() if item[0][0] != METADATA_TOPIC)

    def _encode_recovery_points(self) -> bytes:
        opened = {key: log.recovery_point for key, log in self._checkpointed()}
        return checkpoints.encode_offsets(self._recovery_points | opened)

    def _encode_high_watermarks(self) -> bytes:
        offsets = {key: log.high_watermark for key, log in self._checkpointed()}
        return checkpoints.encode_offsets(offsets)

    def _encode_log_starts(self) -> bytes:
        opened = {
            key: log.log_start_offset
            for key, log in self._checkpointed()
            if log.log_start_offset > log.base_offsets[0]
        }
        offsets = self._log_starts | opened
        self._written_log_starts |= set(offsets)
        return checkpoints.encode_offsets(offsets)

    def _write(self, name: str, data: bytes) -> None:
        if name in self._writing:
            self._waiting[name] = data
            return
        if self._said.get(name) == data:
            return
        self._writing.add(name)
        path = self._path(name)
        temporary = path + BACKGROUND_SUFFIX
        files = self.files

        def work() -> None:
            files.write_whole(temporary, data)
            files.sync(temporary)

        def then(failure: Exception | None) -> None:
            self._writing.discard(name)
            if name in self._superseded:
                self._superseded.discard(name)
            elif failure is None:
                if self._put_in_place(temporary, path):
                    self._said[name] = data
            else:
                logger.error("%s can't be written: %s", path, failure)
                if isinstance(failure, OSError):
                    self.report(failure)
            waiting = self._waiting.pop(name, None)
            if waiting is not None:
                self._write(name, waiting)

        self.background(work, then, lane=Lane.WRITING)

    def _put_in_place(self, temporary: str, path: str) -> bool:
        # on the loop, not in the background: so what was written in the meantime isn't replaced by older news
        try:
            self.files.rename(temporary, path)
        except OSError as failure:
            logger.error("%s can't be written: %s", path, failure)
            self.report(failure)
            return False
        path, files = self.path, self.files
        self.background(lambda: files.sync_directory(path), removal.log_failure, lane=Lane.WRITING)
        return True

    def _write_now(self, name: str, data: bytes) -> None:
        """The file says this once the call returns, and nothing that was to be written before it comes after."""
        self.files.replace_whole(self._path(name), data)
        self._said[name] = data
        self._waiting.pop(name, None)
        if name in self._writing:
            self._superseded.add(name)

    # ---- end

    def close(self, *, broker_epoch: int = -1, clean: bool = True, run_all: RunAll = run_in_turn) -> None:
        """Ends all logs, the metadata log last, then writes the checkpoints, then the mark if all went well.

        It waits for the disk, which syncs many files together, through `run_all`, sooner than one by one. With
        `clean` false it only lets go of everything, as a crash would.
        """
        if clean:
            clean = self._close_logs(run_all)
        for log in (*self.logs.values(), *self.futures.values(), *self._left_futures.values()):
            log.close(clean=False)
        if clean:
            self._write_now(checkpoints.RECOVERY_POINT_FILE, self._encode_recovery_points())
            self._write_now(checkpoints.LOG_START_FILE, self._encode_log_starts())
            self._write_now(checkpoints.HIGH_WATERMARK_FILE, self._encode_high_watermarks())
            self.files.replace_whole(
                self._path(checkpoints.CLEAN_SHUTDOWN_FILE), checkpoints.encode_clean_shutdown(broker_epoch)
            )
        # whoever holds the lock next is alone to write
        self._waiting.clear()
        self._superseded |= self._writing
        self.files.unlock(self._path(LOCK_FILE))

    def _close_logs(self, run_all: RunAll) -> bool:
        """Whether all could be synced, and all that is in the directory is as a clean stop leaves it."""
        clean = self.clean or not (self._unopened or self._unopened_futures.keys() - self._left_futures)
        partitions = [log for log in self.logs.values() if log.topic != METADATA_TOPIC]
        clean &= _close_all([*partitions, *self.futures.values(), *self._left_futures.values()], run_all)
        clean &= _close_all([log for log in self.logs.values() if log.topic == METADATA_TOPIC], run_all)
        return clean


def _close_all(logs: Sequence[PartitionLog], run_all: RunAll) -> bool:
    """Writes what each log has left to write, then syncs them. Whether all went well."""
    clean = True
    closing: list[tuple[PartitionLog, Work]] = []
    for log in logs:
        try:
            work = log.begin_close()
        except Exception as failure:
            clean = _not_clean(log, failure)
            continue
        if work is not None:
            closing.append((log, work))
    failures = run_all([work for _log, work in closing])
    for (log, _work), failed in zip(closing, failures, strict=True):
        log.end_close(failed)
        if failed is not None:
            clean = _not_clean(log, failed)
    return clean and all(log.failure is None for log in logs)


def _not_clean(log: PartitionLog, failure: Exception) -> bool:
    logger.error("%s-%d didn't close cleanly", log.topic, log.partition, exc_info=failure)
    return False
