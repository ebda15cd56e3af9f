"""What a partition's log takes and hands back."""

from enum import Enum
from typing import NamedTuple

from storage.file_range import FileRange

new_tuple = tuple.__new__  # of what each append and each read makes: a call of the class is twice as slow


class AppendOrigin(Enum):
    """Who appends, which decides the checks and who assigns offsets. Source: AppendOrigin of Kafka."""

    CLIENT = "client"
    """A produce request: all checks, the log assigns the offset."""
    COORDINATOR = "coordinator"
    """A group or transaction coordinator, transaction markers: epochs are checked, sequences aren't."""
    RAFT_LEADER = "raft leader"
    """The metadata log of the controller: the log assigns the offset; nothing is checked. A roll waits for the disk."""
    REPLICATION = "replication"
    """Batches that another log has accepted: they keep their offset and leader epoch, nothing is refused."""


CLIENT, COORDINATOR, RAFT_LEADER, REPLICATION = AppendOrigin
# By themselves for what each append asks: to Python 3.11 `AppendOrigin.CLIENT` is a call.


class AppendResult(NamedTuple):
    """Where a batch stands. Offsets of the old one for a duplicate."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 with CreateTime; a duplicate has the stored batch's largest timestamp, whatever the type."""
    log_start_offset: int
    duplicate: bool = False
    flushing: bool = False
    """`flush.messages` was reached: the batch is synced once `PartitionLog.when_flushed` says so."""


class ReadResult(NamedTuple):
    """What a read at an offset found."""

    records: bytes
    """Whole batches as they stand in the segment; the last one may be cut short."""
    first_batch_incomplete: bool = False
    """There is data, though the first batch of it is larger than was asked for: then `records` is empty."""
    segment_base_offset: int = -1
    position: int = -1
    """Where in the segment `records` begin, in bytes; -1 where nothing was read."""
    rest: FileRange | None = None
    """What follows `records` and is left in the file, where not all was to be read at once."""

    @property
    def size_bytes(self) -> int:
        """Of all that was found."""
        return len(self.records) if self.rest is None else len(self.records) + len(self.rest)


class AbortedTransaction(NamedTuple):
    """What a reader of committed records passes over: the producer's records from there to its next marker."""

    producer_id: int
    first_offset: int


class TimestampOffset(NamedTuple):
    """What a look-up by time found: the first record at or after it."""

    timestamp_ms: int
    offset: int
    leader_epoch: int
    """-1 where the batch carries none."""
