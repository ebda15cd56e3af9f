"""One partition's log: what is appended, where it ends, what may be read of it.

A log is a row of segments, of which the last is appended to. It belongs to one thread, the loop's; what must
wait for the disk goes through the `Background` port. No clock and no chance in here: `now_ms` and `jitter`
come in. Source: org.apache.kafka.storage UnifiedLog, LocalLog.
"""

from collections.abc import Callable

from storage.background import Background, Then
from storage.files import Files
from storage.log import appending, flushing, lookups, reads, recovery, removal, retention, rolling, truncation
from storage.log.leader_epochs import LeaderEpochs
from storage.log.log_config import LogConfig
from storage.log.results import AbortedTransaction, AppendOrigin, AppendResult, ReadResult, TimestampOffset
from storage.log.segment import Segment
from storage.producers.producer_snapshot import Snapshots
from storage.producers.producer_state import ProducerStates

__all__ = [
    "AbortedTransaction",
    "AppendOrigin",
    "AppendResult",
    "PartitionLog",
    "ReadResult",
    "TimestampOffset",
]

Report = Callable[[OSError], object]


def _to_nobody(failure: OSError) -> None:
    """Where a failure of the disk concerns the log alone."""


Jitter = Callable[[int], int]
"""A random number from 0 to below the one given."""


class PartitionLog:
    """Made by `PartitionLog.open`. Offsets are ints; every call that touches files may raise
    `KafkaError` (KAFKA_STORAGE_ERROR), after which `failure` says whether the log is lost for good.

    A partition that was never appended to may have no directory: it is made at the first append.
    """

    __slots__ = (
        "active",
        "background",
        "base_offsets",
        "closed",
        "config",
        "created",
        "directory",
        "failure",
        "files",
        "first_unstable_offset",
        "flush_running",
        "flush_waiters",
        "flush_wanted_to",
        "high_watermark",
        "jitter",
        "last_flush_ms",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "logged_failures",
        "partition",
        "positions",
        "producers",
        "ready",
        "recovery_point",
        "report",
        "segments",
        "snapshots",
        "topic",
        "topic_id",
        "truncations",
        "verifies_transactions",
    )

    def __init__(
        self,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        files: Files,
        background: Background,
        jitter: Jitter,
        topic_id: str | None,
    ) -> None:
        """For `recovery.open_log` alone."""
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.config = config
        self.files = files
        self.background = background
        self.jitter = jitter
        self.topic_id = topic_id
        """Its text form, 22 characters."""
        self.created = False
        """Whether the directory and its files are there."""
        self.closed = False
        self.ready = False
        """Whether it may be appended to as it is: created, not closed, not failed."""
        self.failure: OSError | None = None
        """Why nothing is appended any more: a write that couldn't be taken back, or a sync that failed."""
        self.logged_failures: tuple[int | None, ...] = ()
        """The errnos of those that the program's log tells of already."""
        self.report: Report = _to_nobody
        """Told of each failure of the disk."""
        self.segments: list[Segment] = []
        self.base_offsets: list[int] = []
        self.active: Segment
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.first_unstable_offset = -1
        """Of the earliest undecided or unreplicated transaction; -1 without one. Where it began below the log start,
        that of the batch in which the log starts, as Kafka has it."""
        self.recovery_point = 0
        """All before it is on the disk."""
        self.flush_running = False
        self.flush_wanted_to = 0
        self.flush_waiters: list[tuple[int, Then]] = []
        self.last_flush_ms = 0
        self.truncations = 0
        """How often the end was cut back: what was being synced then isn't what is there now."""
        self.leader_epochs = LeaderEpochs(files, directory)
        self.producers = ProducerStates(f"{topic}-{partition}")
        self.snapshots = Snapshots(files, directory)
        self.verifies_transactions = False
        """Whether a transactional batch that opens a transaction must show a guard (`start_verification`)."""
        self.positions: dict[int, tuple[int, int]] | None = None
        """offset -> (segment's base offset, position), of offsets likely to be read next (`reads`)."""

    @classmethod
    def open(
        cls,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        now_ms: int,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        files: Files,
        background: Background,
        jitter: Jitter = lambda limit: 0,
        topic_id: str | None = None,
        found_topic_id: str | None = None,
    ) -> "PartitionLog":
        """The log in the directory, recovered unless the last stop was `clean`; an empty one without it.

        `recovery_point` and `log_start_offset` are the checkpoints'; `found_topic_id` is partition.metadata's,
        where the caller has read it. The high watermark is the log start until the caller says otherwise.
        Raises `recovery.InconsistentTopicIdError` where partition.metadata says another topic id,
        `recovery.UnsupportedFormatError` for batches of Kafka's formats 0 and 1, `OSError`.
        """
        log = cls(
            directory,
            topic,
            partition,
            config,
            files=files,
            background=background,
            jitter=jitter,
            topic_id=topic_id,
        )
        recovery.open_log(
            log,
            now_ms=now_ms,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            found_topic_id=found_topic_id,
        )
        return log

    # ---- what it does, each verb in its own room

    append = appending.append
    start_verification = appending.start_verification

    read = reads.read
    batches = reads.batches
    available_bytes = reads.available_bytes
    aborted_transactions = reads.aborted_transactions
    offset_for_timestamp = lookups.offset_for_timestamp
    offset_of_max_timestamp = lookups.offset_of_max_timestamp

    flush = flushing.flush
    flush_if_due = flushing.flush_if_due
    when_flushed = flushing.when_flushed
    roll = rolling.roll
    truncate_to = truncation.truncate_to
    truncate_fully_and_start_at = truncation.truncate_fully_and_start_at
    delete_records_before = retention.delete_records_before
    apply_retention = retention.apply_retention
    close = flushing.close
    begin_close = flushing.begin_close
    end_close = flushing.end_close
    delete = removal.delete

    # ---- offsets

    @property
    def last_stable_offset(self) -> int:
        """All below it is decided and replicated: the first unstable offset, or else the high watermark."""
        first_unstable, high_watermark = self.first_unstable_offset, self.high_watermark
        return first_unstable if 0 <= first_unstable < high_watermark else high_watermark

    @property
    def size(self) -> int:
        """Bytes of its `.log` files."""
        return sum(segment.size for segment in self.segments)

    def update_high_watermark(self, offset: int) -> None:
        """The offset below which all is replicated, held between log start and log end."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset < self.log_start_offset:
            offset = self.log_start_offset
        self.high_watermark = offset
        if self.producers.has_unreplicated:
            self.producers.on_high_watermark(offset)
            self.update_first_unstable_offset()

    def update_first_unstable_offset(self) -> None:
        first = self.producers.first_unstable_offset
        if first is not None and first < self.log_start_offset:
            first = reads.base_offset_of(self, self.log_start_offset)
        self.first_unstable_offset = -1 if first is None else first

    def assign_leader_epoch(self, epoch: int) -> None:
        """This node leads from here on: the epoch begins at the log end, before any record."""
        self.leader_epochs.begin(epoch, self.log_end_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) for an epoch above all known, or -1."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def expire_producers(self, now_ms: int) -> int:
        """Forgets producers not heard of for `producer.id.expiration.ms`. Returns how many."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)
