"""The checkpoints of a log directory: what they say of its partitions, and writing them so that the newest one always
wins."""

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
"""Between two that `write_soon` begins of a file: what each encodes grows with the partitions of the directory."""


class CheckpointWriter:
    """In the background, one at a time of each file; or at once, in which case nothing older comes after it."""

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
        """By file, what this run wrote last: it isn't written again while nothing changes. Nothing of a file that may
        say something else by now."""
        self._syncing: dict[str, bytes] = {}
        """By file, what it says already while the directory is synced for it."""
        self._superseded: set[str] = set()
        """Of the files being written: those that meanwhile say something newer."""
        self._resting: dict[str, Callable[[], bytes] | None] = {}
        """Files of which `write_soon` began one lately, with what it is asked for since."""

    def write(self, name: str, encode: Callable[[], bytes]) -> None:
        """Begins to write the file. Of what comes while it is being written only the newest is written after it, and
        nothing else of it is encoded: of a thousand changes in a turn two are. What too little memory keeps from being
        begun waits for the next call."""
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
                # on the loop, not in the background: so what was written in the meantime isn't replaced by older news
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
        """As `write`, for what clients may ask for as often as they like: at once, unless it was asked for a moment
        ago, and then once for all that ask meanwhile."""
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
                    # Kafka's `CheckpointFile.write` syncs the directory too, and its failure is that of the write
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
        """Whether this is what the file says, even after a power loss, and nothing else is on its way there."""
        return self._said.get(name) == data and name not in self._writing and name not in self._waiting

    def write_now(self, name: str, data: bytes) -> None:
        """The file says this once the call returns, and nothing that was to be written before it comes after. Raises
        `OSError`."""
        # a failure may come after the rename
        self._said.pop(name, None)
        self._syncing.pop(name, None)
        self._files.replace_whole(f"{self._path}/{name}", data)
        self._said[name] = data
        self._waiting.pop(name, None)
        if name in self._writing:
            self._superseded.add(name)

    def stop(self) -> None:
        """Whoever holds the directory's lock next is alone to write."""
        self._waiting.clear()
        self._resting.clear()
        self._superseded |= self._writing


# ---- what the checkpoints say: recovery points, log starts, high watermarks


class OffsetCheckpoints:
    """Of an open log its offsets are written down; of one that nobody opened yet, what the last run wrote."""

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
        """Partitions of which the file of recovery points may say that something is synced."""
        self._written_log_starts: dict[TopicPartition, int] = {}
        """The latest ones that the file may say."""
        self._unforgotten: set[TopicPartition] = set()
        """Partitions that the file of log starts may speak of though they are gone."""
        self._last_log_starts = b""
        """What was encoded of these last; nothing where one was forgotten since."""

    def load(self, files: Files, path: str, here: Collection[TopicPartition]) -> None:
        """Takes what the last run wrote; a log start only of partitions that are here. A new one of the name begins at
        0, as in Kafka (`LogManager.getOrCreateLog`): the run may have been killed before the file could say that the
        one before it was deleted. Raises `OSError`."""
        self._recovery_points = _read(files, f"{path}/{checkpoints.RECOVERY_POINT_FILE}")
        self._claimed = {key for key, offset in self._recovery_points.items() if offset}
        log_starts = _read(files, f"{path}/{checkpoints.LOG_START_FILE}")
        self._log_starts = {key: offset for key, offset in log_starts.items() if key in here}
        self._written_log_starts = log_starts
        self._unforgotten = log_starts.keys() - self._log_starts.keys()
        self._high_watermarks = _read(files, f"{path}/{checkpoints.HIGH_WATERMARK_FILE}")

    # ---- logs that aren't open

    def of_unopened(self, key: TopicPartition) -> tuple[int, int, int]:
        """(recovery point, log start offset, high watermark); 0 where it isn't known. Once it is opened, that is told
        with `opened`."""
        return (
            self._recovery_points.get(key, 0),
            self._log_starts.get(key, 0),
            self._high_watermarks.get(key, 0),
        )

    def name_is_free(self, key: TopicPartition) -> None:
        """A log of this name is about to be made: nothing that the files say of an earlier one counts for it, even
        after a power loss, or it would begin there and drop what lies below, or take for synced what isn't. Raises
        `OSError`."""
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
        """Its log says from here on how far it is."""
        self._recovery_points.pop(key, None)
        self._log_starts.pop(key, None)
        self._high_watermarks.pop(key, None)

    def closed(self, key: TopicPartition, log: PartitionLog) -> None:
        """The log, whose folder stays, goes no further in this run."""
        self._recovery_points[key] = log.checkpointed_recovery_point
        if log.log_start_offset > log.base_offsets[0]:
            self._log_starts[key] = log.log_start_offset
        self._high_watermarks[key] = log.high_watermark

    def says_later_start(self, key: TopicPartition, log: PartitionLog) -> bool:
        """Whether by the file it may begin behind where it does."""
        return self._written_log_starts.get(key, 0) > log.log_start_offset

    def forget(self, key: TopicPartition) -> None:
        """The partition is here no more. The files follow in the background, once for all that go in a turn: what needs
        them to is a new partition of the name, and `name_is_free` sees to that. Kafka writes them once for all that one
        request deletes (`LogManager.asyncDelete`)."""
        self.opened(key)
        if key in self._written_log_starts:
            if self._unforgotten and self._has_written_log_starts:
                self._forgotten()  # those before this one
            # first, since too little memory may keep it from being encoded: what was written last still speaks of it
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
        """In the background, as the next two."""
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
        """At the end of a run, when all is synced. Raises `OSError`."""
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
        logger.warning("A checkpoint is read as empty: %s", failure)
        return {}


# ---- how far each partition has been compacted: `cleaner-offset-checkpoint`
#
# Source: kafka LogCleanerManager (updateCheckpoints, alterCheckpointDir, maybeTruncateCheckpoint).


class CleanerCheckpoint:
    """By partition, the first offset that was not compacted yet: where the next pass begins.

    The file follows in the background. It may say less than is true, which costs a pass that does again what was done.
    It must not speak of an earlier partition of the same name: `name_is_free` sees to that.
    """

    def __init__(self, writer: CheckpointWriter) -> None:
        self._writer = writer
        self._offsets: dict[TopicPartition, int] = {}
        self._in_file: set[TopicPartition] = set()
        """Partitions that the file may speak of though they are gone."""
        self._last = b""
        """What was encoded to be written last; nothing where a partition was forgotten since."""
        self._changed = False

    def load(self, files: Files, path: str, here: Container[TopicPartition]) -> None:
        """Takes what the last run wrote of the partitions that are here. Raises `OSError`."""
        try:
            found = checkpoints.read_offsets(files, f"{path}/{checkpoints.CLEANER_OFFSET_FILE}")
        except CheckpointError as failure:
            logger.warning("A checkpoint is read as empty: %s", failure)
            found = {}
        self._offsets = {key: offset for key, offset in found.items() if key in here}
        self._in_file = found.keys() - self._offsets.keys()

    def get(self, key: TopicPartition) -> int | None:
        """The first offset that is to be compacted next; None where nothing ever was."""
        return self._offsets.get(key)

    def set(self, key: TopicPartition, offset: int) -> None:
        """A pass has ended there, or the log begins there."""
        self._offsets[key] = offset
        self._write()

    def lower(self, key: TopicPartition, offset: int) -> None:
        """The log was truncated, or cut by recovery: what comes behind the offset now is new."""
        if self._offsets.get(key, 0) > offset:
            self.set(key, offset)

    def forget(self, key: TopicPartition) -> None:
        """The partition is here no more."""
        if self._offsets.pop(key, None) is not None:
            if self._has_written:
                self._in_file.clear()
            # first, since too little memory may keep it from being encoded: what was written last still speaks of it
            self._last = b""
            self._in_file.add(key)
            self._write()

    def move(self, key: TopicPartition, target: CleanerCheckpoint) -> None:
        """The partition goes to another directory, compacted as far as it is."""
        offset = self._offsets.get(key)
        if offset is not None:
            target.set(key, offset)
            self.forget(key)

    def name_is_free(self, key: TopicPartition) -> None:
        """A log of this name is about to be opened: nothing that the file says of an earlier one counts for it after
        a crash. Raises `OSError`."""
        if key in self._in_file:
            if self._has_written:
                self._in_file.clear()
            else:
                self.write_now()

    @property
    def _has_written(self) -> bool:
        return self._writer.has_written(checkpoints.CLEANER_OFFSET_FILE, self._last)

    def write_now(self) -> None:
        """At the end of a run, and where nothing old may be found later. Raises `OSError`."""
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
