"""The checkpoints of a log directory: their content for its partitions, and writing them so that the newest
always wins."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Mapping

from protocol.topic_partition import TopicPartition
from storage import checkpoints
from storage.background import Background, Lane
from storage.checkpoints import CheckpointError
from storage.files import Files
from storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

BACKGROUND_SUFFIX = ".background.tmp"
REST_MS = 100
"""The pause between two writes of a file by `write_soon`, since encoding takes longer the more partitions
there are."""


class CheckpointWriter:
    """Writes checkpoints in the background, one at a time for each file, or at once. Nothing older is written
    after that."""

    def __init__(
        self, path: str, files: Files, background: Background, report: Callable[[OSError], object]
    ) -> None:
        self._path = path
        self._files = files
        self._background = background
        self._report = report
        self._writing: set[str] = set()
        self._waiting: dict[str, Callable[[], bytes]] = {}
        self._said: dict[str, bytes] = {}
        """By file, what this run wrote last, so that it isn't written again without a change. A file that may
        have changed since has no entry."""
        self._syncing: dict[str, bytes] = {}
        """By file, the content that it already has while its directory is being synced."""
        self._superseded: set[str] = set()
        """Files under way that have been superseded by newer content."""
        self._resting: dict[str, Callable[[], bytes] | None] = {}
        """Files that `write_soon` wrote lately, with the latest request since."""

    def write(self, name: str, encode: Callable[[], bytes]) -> None:
        """Begin to write the file in the background.

        Of the requests that come meanwhile, only the newest is encoded, and written afterwards: of a thousand
        changes in a turn, two are written. If there is too little memory to begin, the next call does it.
        """
        self._waiting[name] = encode
        if name in self._writing:
            return
        data = encode()
        if self._said.get(name) == data:
            del self._waiting[name]
            return
        files = self._files
        path = f"{self._path}/{name}"
        temporary = path + BACKGROUND_SUFFIX

        def work() -> None:
            files.write_whole(temporary, data)
            files.sync(temporary)

        def then(failure: Exception | None) -> None:
            goes_on = False
            try:
                if name in self._superseded:
                    pass
                elif failure is not None:
                    self._failed(path, failure)
                # on the loop, not in the background, so that it doesn't replace newer content written in the
                # meantime
                elif self._put_in_place(name, temporary, data):
                    self._sync_name(name, data)
                    goes_on = True
            finally:
                if not goes_on:
                    self._ended(name)

        self._writing.add(name)
        del self._waiting[name]
        try:
            self._background(work, then, lane=Lane.WRITING)
        except MemoryError:
            self._writing.discard(name)
            self._waiting[name] = encode
            raise

    def write_soon(self, name: str, encode: Callable[[], bytes]) -> None:
        """Do the same as `write`, for changes that clients may cause at any rate. It writes at once, or if it
        did a moment ago, once for all requests since then."""
        if name in self._resting:
            self._resting[name] = encode
            return
        self._resting[name] = None
        try:
            self._background(lambda: None, lambda _: self._rested(name), lane=Lane.WRITING, delay_ms=REST_MS)
        except MemoryError:
            del self._resting[name]
            raise
        self.write(name, encode)

    def _rested(self, name: str) -> None:
        encode = self._resting.pop(name, None)
        if encode is not None:
            self.write_soon(name, encode)

    def _put_in_place(self, name: str, temporary: str, data: bytes) -> bool:
        path = f"{self._path}/{name}"
        self._said.pop(name, None)
        try:
            self._files.rename(temporary, path)
        except OSError as failure:
            self._failed(path, failure)
            return False
        self._syncing[name] = data
        return True

    def _sync_name(self, name: str, data: bytes) -> None:
        directory, files = self._path, self._files

        def synced(failure: Exception | None) -> None:
            try:
                if name in self._superseded:
                    pass
                elif failure is not None:
                    # Kafka's `CheckpointFile.write` syncs the directory too, and fails if that does
                    self._failed(f"{directory}/{name}", failure)
                elif self._syncing.get(name) is data:
                    self._said[name] = data
            finally:
                self._ended(name)

        self._background(lambda: files.sync_directory(directory), synced, lane=Lane.WRITING)

    def _ended(self, name: str) -> None:
        self._writing.discard(name)
        self._superseded.discard(name)
        self._syncing.pop(name, None)
        waiting = self._waiting.get(name)
        if waiting is not None:
            self.write(name, waiting)

    def _failed(self, path: str, failure: Exception) -> None:
        logger.error("%s can't be written: %s", path, failure)
        if isinstance(failure, OSError):
            self._report(failure)

    def has_written(self, name: str, data: bytes) -> bool:
        """True if the file has this content even after a power loss, and nothing else is under way."""
        return self._said.get(name) == data and name not in self._writing and name not in self._waiting

    def write_now(self, name: str, data: bytes) -> None:
        """Write the file before returning. Nothing that was to be written before it comes after it. Raises
        `OSError`."""
        # the rename may have happened before a failure
        self._said.pop(name, None)
        self._syncing.pop(name, None)
        self._files.replace_whole(f"{self._path}/{name}", data)
        self._said[name] = data
        self._waiting.pop(name, None)
        if name in self._writing:
            self._superseded.add(name)

    def stop(self) -> None:
        """Stop writing. From now on only the next holder of the directory's lock may write."""
        self._waiting.clear()
        self._resting.clear()
        self._superseded |= self._writing


# ---- the content of checkpoints: recovery points, log starts, high watermarks


class OffsetCheckpoints:
    """The offsets of the partitions: those of an open log, and for a log that isn't open yet, those from the
    last run."""

    def __init__(
        self,
        writer: CheckpointWriter,
        opened: Callable[[], Mapping[TopicPartition, PartitionLog]],
    ) -> None:
        self._writer = writer
        self._opened = opened
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._claimed: set[TopicPartition] = set()
        """Partitions that may be marked as synced in the file of recovery points."""
        self._written_log_starts: dict[TopicPartition, int] = {}
        """The latest log starts that the file may have."""
        self._unforgotten: set[TopicPartition] = set()
        """Deleted partitions that may still be in the file of log starts."""
        self._last_log_starts = b""
        """The log starts encoded last; empty if one was forgotten since."""

    def load(self, files: Files, path: str, here: Collection[TopicPartition]) -> None:
        """Load what the last run wrote; log starts only for partitions that are here.

        A new partition of the same name begins at 0, as in Kafka (`LogManager.getOrCreateLog`). The run may
        have been killed before the file showed that the old one was deleted. Raises `OSError`.
        """
        self._recovery_points = _read(files, f"{path}/{checkpoints.RECOVERY_POINT_FILE}")
        self._claimed = {key for key, offset in self._recovery_points.items() if offset}
        log_starts = _read(files, f"{path}/{checkpoints.LOG_START_FILE}")
        self._log_starts = {key: offset for key, offset in log_starts.items() if key in here}
        self._written_log_starts = log_starts
        self._unforgotten = log_starts.keys() - self._log_starts.keys()
        self._high_watermarks = _read(files, f"{path}/{checkpoints.HIGH_WATERMARK_FILE}")

    # ---- logs that aren't open

    def of_unopened(self, key: TopicPartition) -> tuple[int, int, int]:
        """(recovery point, log start offset, high watermark) of a log that isn't open; 0 if unknown.

        After opening the log, call `opened`.
        """
        return (
            self._recovery_points.get(key, 0),
            self._log_starts.get(key, 0),
            self._high_watermarks.get(key, 0),
        )

    def name_is_free(self, key: TopicPartition) -> None:
        """Forget everything in the files about earlier partitions of this name, before a log of this name is made.

        Otherwise, after a power loss, it could begin at the old log start and drop what lies below, or count
        as synced without being so. Raises `OSError`.
        """
        if key in self._claimed and key not in self._recovery_points:
            before, self._claimed = self._claimed, set()
            data = self._encode_checkpointed_recovery_points()
            try:
                self._writer.write_now(checkpoints.RECOVERY_POINT_FILE, data)
            except OSError:
                self._claimed |= before
                raise
        if key in self._unforgotten:
            if not self._has_written_log_starts:
                self.write_log_starts_now()
            self._forgotten()

    def opened(self, key: TopicPartition) -> None:
        """Use the open log's own offsets from now on."""
        self._recovery_points.pop(key, None)
        self._log_starts.pop(key, None)
        self._high_watermarks.pop(key, None)

    def closed(self, key: TopicPartition, log: PartitionLog) -> None:
        """Keep the last offsets of a log that was closed in this run, and whose folder stays."""
        self._recovery_points[key] = log.checkpointed_recovery_point
        if log.log_start_offset > log.base_offsets[0]:
            self._log_starts[key] = log.log_start_offset
        self._high_watermarks[key] = log.high_watermark

    def says_later_start(self, key: TopicPartition, log: PartitionLog) -> bool:
        """True if the file may have a later log start than the log."""
        return self._written_log_starts.get(key, 0) > log.log_start_offset

    def forget(self, key: TopicPartition) -> None:
        """Forget a partition that isn't here any more.

        The files follow in the background, once for all partitions that go in one turn. They only have to
        before a new partition of the same name, and `name_is_free` takes care of that. Kafka writes them once
        for all that one request deletes (`LogManager.asyncDelete`).
        """
        self.opened(key)
        if key in self._written_log_starts:
            if self._unforgotten and self._has_written_log_starts:
                self._forgotten()  # those before this one
            # first, as encoding may fail for lack of memory: the last content still has the partition
            self._last_log_starts = b""
            self._unforgotten.add(key)
            self.write_log_starts()

    @property
    def _has_written_log_starts(self) -> bool:
        return self._writer.has_written(checkpoints.LOG_START_FILE, self._last_log_starts)

    def _forgotten(self) -> None:
        for key in self._unforgotten:
            self._written_log_starts.pop(key, None)
        self._unforgotten.clear()

    # ---- writing

    def write_recovery_points(self) -> None:
        """Write in the background, as the next two methods do."""
        self._writer.write(checkpoints.RECOVERY_POINT_FILE, self._encode_checkpointed_recovery_points)

    def write_high_watermarks(self) -> None:
        self._writer.write(checkpoints.HIGH_WATERMARK_FILE, self._encode_high_watermarks)

    def write_log_starts(self) -> None:
        self._writer.write(checkpoints.LOG_START_FILE, self._encode_log_starts)

    def write_log_starts_soon(self) -> None:
        """See `CheckpointWriter.write_soon`."""
        self._writer.write_soon(checkpoints.LOG_START_FILE, self._encode_log_starts)

    def write_log_starts_now(self) -> None:
        """Raises `OSError`."""
        self._writer.write_now(checkpoints.LOG_START_FILE, self._encode_log_starts())
        for key, log in self._opened().items():
            if key in self._written_log_starts:
                self._written_log_starts[key] = log.log_start_offset

    def write_all_now(self) -> None:
        """Write all at the end of a run, when everything is synced. Raises `OSError`."""
        closed = {
            key: log.recovery_point if log.open_hole is None else log.checkpointed_recovery_point
            for key, log in self._opened().items()
        }
        self._writer.write_now(checkpoints.RECOVERY_POINT_FILE, self._encode_recovery_points(closed))
        self.write_log_starts_now()
        self._writer.write_now(checkpoints.HIGH_WATERMARK_FILE, self._encode_high_watermarks())

    def _encode_checkpointed_recovery_points(self) -> bytes:
        return self._encode_recovery_points(
            {key: log.checkpointed_recovery_point for key, log in self._opened().items()}
        )

    def _encode_recovery_points(self, opened: Mapping[TopicPartition, int]) -> bytes:
        offsets = {**self._recovery_points, **opened}
        self._claimed.update(key for key, offset in offsets.items() if offset)
        return checkpoints.encode_offsets(offsets)

    def _encode_high_watermarks(self) -> bytes:
        opened = {key: log.high_watermark for key, log in self._opened().items()}
        return checkpoints.encode_offsets(self._high_watermarks | opened)

    def _encode_log_starts(self) -> bytes:
        offsets = self._log_starts.copy()
        for key, log in self._opened().items():
            offset = log.log_start_offset
            if offset and offset > log.base_offsets[0]:
                offsets[key] = offset
        written = self._written_log_starts
        for key, offset in offsets.items():
            if offset > written.get(key, 0):
                written[key] = offset
        self._last_log_starts = checkpoints.encode_offsets(offsets)
        return self._last_log_starts


def _read(files: Files, path: str) -> dict[TopicPartition, int]:
    try:
        return checkpoints.read_offsets(files, path)
    except CheckpointError as failure:
        logger.warning("Ignoring the content of a checkpoint: %s", failure)
        return {}


# ---- how far each partition has been compacted: `cleaner-offset-checkpoint`
#
# Source: kafka LogCleanerManager (updateCheckpoints, alterCheckpointDir, maybeTruncateCheckpoint).


class CleanerCheckpoint:
    """By partition, the first offset that isn't compacted yet, where the next pass begins.

    The file follows in the background. It may lag behind: then a pass repeats some work. It must not have an
    entry for an earlier partition of the same name: `name_is_free` takes care of that.
    """

    def __init__(self, writer: CheckpointWriter) -> None:
        self._writer = writer
        self._offsets: dict[TopicPartition, int] = {}
        self._in_file: set[TopicPartition] = set()
        """Deleted partitions that may still be in the file."""
        self._last = b""
        """The content encoded last; empty if a partition was forgotten since."""
        self._changed = False

    def load(self, files: Files, path: str, here: Container[TopicPartition]) -> None:
        """Load what the last run wrote about the partitions that are here. Raises `OSError`."""
        try:
            found = checkpoints.read_offsets(files, f"{path}/{checkpoints.CLEANER_OFFSET_FILE}")
        except CheckpointError as failure:
            logger.warning("Ignoring the content of a checkpoint: %s", failure)
            found = {}
        self._offsets = {key: offset for key, offset in found.items() if key in here}
        self._in_file = found.keys() - self._offsets.keys()

    def get(self, key: TopicPartition) -> int | None:
        """The first offset to compact next; None if nothing ever was."""
        return self._offsets.get(key)

    def set(self, key: TopicPartition, offset: int) -> None:
        """Set the offset at which a pass has ended, or at which the log begins."""
        self._offsets[key] = offset
        self._write()

    def lower(self, key: TopicPartition, offset: int) -> None:
        """Lower the offset after the log was truncated, or cut by recovery: everything after it is new."""
        if self._offsets.get(key, 0) > offset:
            self.set(key, offset)

    def forget(self, key: TopicPartition) -> None:
        """Forget a partition that isn't here any more."""
        if self._offsets.pop(key, None) is not None:
            if self._has_written:
                self._in_file.clear()
            # first, as encoding may fail for lack of memory: the last content still has the partition
            self._last = b""
            self._in_file.add(key)
            self._write()

    def move(self, key: TopicPartition, target: CleanerCheckpoint) -> None:
        """Move the offset along with the partition to another directory."""
        offset = self._offsets.get(key)
        if offset is not None:
            target.set(key, offset)
            self.forget(key)

    def name_is_free(self, key: TopicPartition) -> None:
        """Forget everything in the file about earlier partitions of this name, before a log of this name is opened.

        Raises `OSError`.
        """
        if key in self._in_file:
            if self._has_written:
                self._in_file.clear()
            else:
                self.write_now()

    @property
    def _has_written(self) -> bool:
        return self._writer.has_written(checkpoints.CLEANER_OFFSET_FILE, self._last)

    def write_now(self) -> None:
        """Write at the end of a run, and whenever old entries must not be found later. Raises `OSError`."""
        if self._changed or self._in_file:
            self._writer.write_now(checkpoints.CLEANER_OFFSET_FILE, self._encode())
            self._changed = False
            self._in_file.clear()

    def _write(self) -> None:
        self._changed = True
        self._writer.write(checkpoints.CLEANER_OFFSET_FILE, self._encode)

    def _encode(self) -> bytes:
        self._last = checkpoints.encode_offsets(self._offsets)
        return self._last
