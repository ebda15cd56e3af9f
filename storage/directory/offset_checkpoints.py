"""What a log directory's checkpoints say of its partitions: recovery points, log starts, high watermarks."""

import logging
from collections.abc import Callable, Collection, Mapping

from protocol.topic_partition import TopicPartition
from storage import checkpoints
from storage.checkpoints import CheckpointError
from storage.directory.checkpoint_writer import CheckpointWriter
from storage.files import Files
from storage.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


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
