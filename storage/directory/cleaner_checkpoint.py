"""How far each partition of a log directory has been compacted: `cleaner-offset-checkpoint`.

Source: kafka LogCleanerManager (updateCheckpoints, alterCheckpointDir, maybeTruncateCheckpoint).
"""

import logging
from collections.abc import Container

from protocol.topic_partition import TopicPartition
from storage import checkpoints
from storage.checkpoints import CheckpointError
from storage.directory.checkpoint_writer import CheckpointWriter
from storage.files import Files

logger = logging.getLogger(__name__)


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

    def move(self, key: TopicPartition, target: "CleanerCheckpoint") -> None:
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
