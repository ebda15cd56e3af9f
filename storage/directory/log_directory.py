"""A log directory: its lock, its checkpoints, the folders of its partitions, the mark of a clean stop.

    .lock  meta.properties  .kafka_cleanshutdown  recovery-point-offset-checkpoint
    log-start-offset-checkpoint  replication-offset-checkpoint  cleaner-offset-checkpoint  <topic>-<partition>/
    <topic>-<partition>.<unique>-delete/  <topic>-<partition>.<unique>-future/

A `-future` folder is that of a partition which is being moved here from another log directory. The mark is taken away
by the start that goes on with the directory, and written last of all. Source: kafka.log.LogManager.
"""

import logging

from protocol.errors import KafkaError
from protocol.topic_partition import TopicPartition
from storage import checkpoints
from storage.background import Background, RunAll, run_in_turn
from storage.directory import future_logs
from storage.directory.closing import close_all
from storage.directory.directory_state import METADATA_TOPIC, DirectoryState
from storage.directory.partition_folders import FUTURE_DIRECTORY_SUFFIX, PartitionFolder, find
from storage.files import Files
from storage.log import removal
from storage.log.log_config import LogConfig
from storage.log.log_state import Jitter
from storage.log.partition_log import PartitionLog

__all__ = ["METADATA_TOPIC", "LogDirectory", "PartitionFolder"]

LOCK_FILE = ".lock"

logger = logging.getLogger(__name__)


class LogDirectory(DirectoryState):
    """Made by `LogDirectory.open`, or by `read` and `begin`; holds the lock until `close`. `logs` are those that
    `open_log` opened, `futures` those of partitions that are being moved here; no partition is in both."""

    def __init__(self, path: str, files: Files, background: Background) -> None:
        """For `read` alone."""
        super().__init__(path, files, background)
        self.broker_epoch: int | None = None
        """That of the run which stopped cleanly; None after any other stop, -1 where the mark doesn't say."""
        self.meta_properties: dict[str, str] | None = None
        self.was_formatted = False
        """Whether it had a `meta.properties` when it was read."""
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

    @property
    def has_unopened(self) -> bool:
        """Whether there are partitions' folders whose log nobody opened in this run yet."""
        return bool(self.unopened or self.unopened_futures)

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
            future_logs.forget_unopened(self, (folder.topic, folder.partition))
        else:
            self.forget((folder.topic, folder.partition))
        return stray

    # ---- moves

    def open_future(
        self, present: PartitionLog, unique: str, *, now_ms: int, jitter: Jitter = lambda limit: 0
    ) -> PartitionLog:
        """The log that is going to take the place of the present one, which is in another directory: what an earlier
        run left of it, or else a new one. `unique` is 32 hex digits. Raises as `open_log` and
        `future_log_copying.begin`."""
        return future_logs.open_future(self, present, unique, now_ms=now_ms, jitter=jitter)

    def leave_future(self, log: PartitionLog) -> None:
        """The move can't go on in this run, the partition being offline: its folder waits for a start."""
        future_logs.leave_future(self, log)

    def unopened_future_sizes(self) -> dict[TopicPartition, int]:
        """Of the moves that can't go on in this run, the bytes of their `.log` files, as `PartitionLog.size`."""
        return future_logs.unopened_future_sizes(self)

    def delete_future(self, log: PartitionLog, unique: str) -> None:
        """Gives up moving a partition here. Raises as `delete_log`; the next start then goes on with the move."""
        future_logs.delete_future(self, log, unique)

    def discard_future(self, folder: PartitionFolder, unique: str) -> None:
        """Deletes the folder of a move that is not to go on. Raises `OSError`, of which the directory is told."""
        future_logs.discard_future(self, folder, unique)

    def promote_folder(self, folder: PartitionFolder) -> None:
        """A folder of a move becomes the partition's, of which there is no other: a crash came in between."""
        future_logs.promote_folder(self, folder)

    def promote(
        self, future: PartitionLog, present: PartitionLog, source: DirectoryState, unique: str
    ) -> None:
        """The future log, caught up, takes the place of the present one, which is deleted.
        See `future_log_copying.take_over`."""
        future_logs.promote(self, future, present, source, unique)

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
