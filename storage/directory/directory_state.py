"""What a log directory is made of: the logs and folders in it, and what its checkpoints say of them."""

from collections.abc import Callable
from typing import Any

from protocol.topic_partition import TopicPartition
from storage.background import Background
from storage.checkpoints import META_PROPERTIES_FILE
from storage.directory.checkpoint_writer import CheckpointWriter
from storage.directory.cleaner_checkpoint import CleanerCheckpoint
from storage.directory.offset_checkpoints import OffsetCheckpoints
from storage.directory.partition_folders import PartitionFolder
from storage.files import Files
from storage.log.partition_log import PartitionLog
from storage.producers.producer_memory import ProducerMemory

METADATA_TOPIC = "__cluster_metadata"


class DirectoryState:
    """`logs` are those that are open, `futures` those of partitions that are being moved here; no partition is in
    both."""

    def __init__(self, path: str, files: Files, background: Background) -> None:
        """For `LogDirectory.read` alone."""
        self.path = path
        self.files = files
        self.background = background
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        self.on_failure: Callable[[Any, OSError], bool] | None = None
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
