"""The state of a partition's log: segments, epochs, producers and their snapshots, syncing, and offsets.

The other files of this folder work with it. `partition_log` is the front of them all.

    log start ≤ high watermark ≤ log end      last stable offset ≤ high watermark      recovery point ≤ log end

Nothing below the log start is read. Everything below the recovery point is on the disk, everything below the
high watermark is replicated, and below the last stable offset all transactions are decided, too.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from protocol.errors import Error, KafkaError, stops_the_broker
from protocol.records.batch import CorruptRecordError
from protocol.topic_partition import TopicPartition
from storage.background import Background, Lane, Then
from storage.cleaning.plan import CleanedSegment
from storage.files import OUT_OF_DESCRIPTORS, FileRange, Files, TornWriteError
from storage.log.leader_epochs import LeaderEpochs
from storage.log.log_config import LogConfig
from storage.log.segment import Segments
from storage.producer_snapshot import Snapshots
from storage.producer_state import ProducerStates

logger = logging.getLogger(__name__)

# ---- inputs and results ---------------------------------------------------------------------------------------

new_tuple = tuple.__new__  # for the results of appends and reads: a call of the class is twice as slow


class AppendOrigin(Enum):
    """The origin of an append. It decides which checks are made, and who assigns offsets. Source:
    AppendOrigin of Kafka."""

    CLIENT = "client"
    """A produce request: all checks are made, the log assigns the offset."""
    COORDINATOR = "coordinator"
    """A group or transaction coordinator, or a transaction marker: epochs are checked, sequences aren't."""
    RAFT_LEADER = "raft leader"
    """The metadata log of the controller: the log assigns the offset, nothing is checked. A roll waits for
    the disk."""
    REPLICATION = "replication"
    """Batches that another log has accepted: they keep their offset and leader epoch, nothing is refused."""


CLIENT, COORDINATOR, RAFT_LEADER, REPLICATION = AppendOrigin
# Module constants, because each append uses them: in Python 3.11 `AppendOrigin.CLIENT` is a call.


class AppendResult(NamedTuple):
    """The place of an appended batch. For a duplicate these are the offsets of the original."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 with CreateTime. For a duplicate it is the stored batch's largest timestamp, whatever the type."""
    log_start_offset: int
    duplicate: bool = False
    flushing: bool = False
    """`flush.messages` was reached: the batch is synced once `PartitionLog.when_flushed` reports it."""


class ReadResult(NamedTuple):
    """The result of a read at an offset."""

    records: bytes
    """Whole batches as they are in the segment; the last one may be cut short."""
    first_batch_incomplete: bool = False
    """There is data, but its first batch is larger than was asked for. Then `records` is empty."""
    segment_base_offset: int = -1
    position: int = -1
    """The position in the segment at which `records` begin, in bytes; -1 if nothing was read."""
    rest: FileRange | None = None
    """The data after `records` that was left in the file, if not everything was to be read at once."""

    @property
    def size_bytes(self) -> int:
        """The bytes of everything found."""
        return len(self.records) if self.rest is None else len(self.records) + len(self.rest)


class AbortedTransaction(NamedTuple):
    """Records that a reader of committed records skips: the producer's records from there to its next marker."""

    producer_id: int
    first_offset: int


class TimestampOffset(NamedTuple):
    """The result of a look-up by time: the first record at or after it."""

    timestamp_ms: int
    offset: int
    leader_epoch: int
    """-1 if the batch has none."""


# ---- how far a log is synced, and who waits for more ---------------------------------------------------------


class Flushing:
    """How far a log is synced. If more is wanted while a flush runs, one more flush runs after it.

    Each waiter is called exactly once, whatever another one does. A broken invariant of one is raised after
    the last of them.
    """

    __slots__ = (
        "_claimed",
        "_truncations",
        "_waiters",
        "lane",
        "last_ms",
        "made_anew",
        "recovery_point",
        "under_way",
        "wanted_to",
    )

    def __init__(self) -> None:
        self.lane = Lane.FLUSHING
        """The lane of its flushes."""
        self.recovery_point = 0
        """Everything before this offset is on the disk."""
        self.made_anew = False
        """True if this start rebuilt indexes or a snapshot. A clean close then syncs them, even beside synced
        records."""
        self.under_way = 0
        """The number of flushes under way."""
        self.wanted_to = 0
        self.last_ms = 0
        """The time when a flush was last wanted."""
        self._waiters: list[tuple[int, Then]] | None = None  # most logs never have any
        self._claimed = 0
        """The offset up to which the checkpoint may say that the log is synced. If it has to go back, the
        checkpoint is written in the background."""
        self._truncations = 0
        """Counts truncations: what was being synced before one isn't what is there after it."""

    @property
    def running(self) -> bool:
        """True if a flush is under way."""
        return self.under_way > 0

    @property
    def has_waiters(self) -> bool:
        """True if anybody waits for a flush."""
        return bool(self._waiters)

    def want(self, offset: int, now_ms: int) -> None:
        """Note that everything below the offset is to be synced."""
        self.last_ms = now_ms
        if offset > self.wanted_to:
            self.wanted_to = offset

    def start(self) -> int:
        """Note the start of a flush. Returns a value for `end`, by which it notices a truncation in between."""
        self.under_way += 1
        return self._truncations

    def begin_at(self, offset: int) -> None:
        """Note that there is nothing to sync below the offset."""
        self._claimed = max(self._claimed, self.recovery_point)
        self.recovery_point = offset

    def begin_segment(self, base_offset: int) -> None:
        """Note a new segment after a roll. The previous one's indexes and snapshot aren't synced, though its
        records may be.

        Until they are, a start recovers that segment.
        """
        self.recovery_point = min(self.recovery_point, base_offset - 1)

    def may_be_claimed(self, offset: int) -> bool:
        """True if a start may believe that everything below the offset is synced although it isn't."""
        return self.recovery_point < offset <= self._claimed

    def stop(self) -> None:
        """Note the end of a flush."""
        self.under_way -= 1

    def end(self, begun: int, target: int) -> None:
        """Handle the end of a flush that has synced everything below `target`, unless the log was truncated
        meanwhile."""
        if begun == self._truncations:
            self.synced_to(max(self.recovery_point, target))
        else:
            self.tell_synced()

    def synced_to(self, offset: int) -> None:
        """Everything below the offset is on the disk. Call those who waited for it."""
        self.recovery_point = offset
        self.tell_synced()

    def cut_at(self, offset: int) -> None:
        """The log now ends at the offset. Call `tell_lost` for those who wait for more."""
        self._claimed = max(self._claimed, self.recovery_point)
        self.recovery_point = min(self.recovery_point, offset)
        self.wanted_to = min(self.wanted_to, offset)
        self._truncations += 1

    def wait(self, offset: int, then: Then) -> None:
        """Call `then` once everything below the offset is synced, or with the failure that prevents it."""
        if self._waiters is None:
            self._waiters = []
        self._waiters.append((offset, then))

    def take_over(self, other: Flushing) -> None:
        """Take over the waiters of `other`. This log has no flush under way, and calls nobody yet."""
        self.last_ms = other.last_ms
        self._waiters, other._waiters = [*(self._waiters or ()), *(other._waiters or ())], None

    def tell_lost(self, failure: Exception, *, above: int = -1) -> None:
        """Call those who wait for an offset above the given one with the failure: it will never be synced."""
        waiters = self._waiters
        if not waiters:
            return
        lost = [then for offset, then in waiters if offset > above]
        self._waiters = [waiter for waiter in waiters if waiter[0] <= above]
        _tell(lost, failure)

    def tell_synced(self) -> None:
        """Call those who wait for offsets that are synced."""
        if not self._waiters:
            return
        point = self.recovery_point
        due = [then for offset, then in self._waiters if offset <= point]
        self._waiters = [waiter for waiter in self._waiters if waiter[0] > point]
        _tell(due, None)


def _tell(waiters: Sequence[Then], failure: Exception | None) -> None:
    broken: Exception | None = None
    for then in waiters:
        try:
            then(failure)
        except Exception as error:
            with suppress(MemoryError):  # go on with the others
                logger.exception("A request that waited for a flush failed")
            if broken is None and stops_the_broker(error):
                broken = error
    if broken is not None:
        raise broken


# ---- where readers will continue, so that their next `read` needs no search

REMEMBERED_POSITIONS = 16
"""Per log: this many consumers continue to read without a search."""


ReadPositions = dict[int, tuple[int, int]]
"""offset → (the segment's base offset, the position in it), for offsets that are likely to be read next."""

# ---- the log

Report = Callable[[OSError], object]


def _to_nobody(failure: OSError) -> None:
    """Used if only the log cares about a failure of the disk."""


def _nobody_cares(partition: TopicPartition, active_base_offset: int) -> None:
    """Used if no checkpoint covers the log."""


Jitter = Callable[[int], int]
"""Returns a random number from 0 to below the given one."""


RestOfCut = Callable[["LogState", int], None]
"""Takes the log, and the current time in ms."""


class LogPorts(NamedTuple):
    """The outside world as a log needs it."""

    files: Files
    background: Background
    jitter: Jitter = lambda limit: 0


class LogState:
    """The parts of a log, each of which changes itself, and the state between them.

    Others set these from outside:

    - the high watermark: code that knows that all transactions are replicated; others use `update_high_watermark`;
    - up to where the producers are known (`producers.map_end_offset`): appends, rolls and cuts;
    - the settings, and whom to tell of losses: the partition and the directory that have the log;
    - `cleaning`, `replacement`, `out_of_use`, `created`, `directory` on deletion, `flushing.lane`: the cleaner,
      a move, or the disk.

    The state between the parts changes here: `append` moves the log end; truncation changes the offsets, by
    `begin_at` and `end_at`, and `rest_of_cut`; `move_log_start` moves the log start. Recovery sets everything
    before anybody else has the log. Truncation or the log start ends a `hole`. A log that takes over from
    this one has the same hole.
    """

    __slots__ = (
        "background",
        "cleaning",
        "closed",
        "config",
        "created",
        "cut",
        "directory",
        "failure",
        "files",
        "first_unstable_offset",
        "flushing",
        "goes_on_with_hole",
        "high_watermark",
        "hole",
        "jitter",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "logged_failures",
        "lowest_cut",
        "out_of_use",
        "partition",
        "producers",
        "read_positions",
        "ready",
        "replacement",
        "report",
        "rest_of_cut",
        "segments",
        "snapshots",
        "topic",
        "topic_id",
        "truncated",
        "verifies_transactions",
    )

    def __init__(
        self, directory: str, topic: str, partition: int, config: LogConfig, *, ports: LogPorts
    ) -> None:
        """Only `PartitionLog.open` calls this."""
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.config = config
        self.files, self.background, self.jitter = ports
        self.topic_id: str | None = None
        """In text form, 22 characters."""
        self.created = False
        """True if the directory and its files exist."""
        self.closed = False
        self.ready = False
        """True if it can be appended to: it is `usable`, and the disk has the cut, if its end was cut off."""
        self.cut: object | None = None
        """Set after the end was cut off, until the disk has the cut. A power loss before that might bring
        back some of it, amid what was appended in its place."""
        self.rest_of_cut: RestOfCut | None = None
        """Set if the second half of a cut failed: brings leader epochs and producers in line with the cut. It
        is retried before anything is appended."""
        self.lowest_cut: int | None = None
        """The lowest offset at which the end was cut off since the future log that copies this one was cut
        off there as well. None if it wasn't cut."""
        self.failure: OSError | None = None
        """Why nothing is appended any more: a write that couldn't be undone, or a sync that failed."""
        self.logged_failures: tuple[int | None, ...] = ()
        """The errnos of failures that were logged already."""
        self.report: Report = _to_nobody
        """Called with each failure of the disk."""
        self.cleaning: Callable[[], object] | None = None
        """Ends the cleaner's pass over the log's segments; None if there is none."""
        self.truncated: Callable[[TopicPartition, int], object] = _nobody_cares
        """Called with the partition and the active segment's base if segments of the log's end were dropped."""
        self.hole: int | None = None
        """The offset from which records are missing that a power loss took, while later ones stayed. A
        replica that can get them elsewhere starts over from here. A start after an unclean stop finds it."""
        self.goes_on_with_hole = False
        """Nobody is known to have the missing records, so the log goes on without them (`accept_hole`)."""
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.first_unstable_offset = -1
        """The first offset of the earliest undecided or unreplicated transaction; -1 without one. If it began
        below the log start, this is the base offset of the batch in which the log starts, as in Kafka."""
        self.segments = Segments()
        self.flushing = Flushing()
        self.leader_epochs = LeaderEpochs(self.files, directory)
        self.producers = ProducerStates(f"{topic}-{partition}")
        self.snapshots = Snapshots(self.files, directory)
        self.read_positions: ReadPositions | None = None
        """None until something is read: most partitions of a node are idle."""
        self.replacement: tuple[CleanedSegment, Then] | None = None
        """The cleaned segment that is about to replace others, and who waits for it (`replaced_segments`)."""
        self.out_of_use: Sequence[str] = ()
        """Paths of replaced files that couldn't be deleted for lack of memory."""
        self.verifies_transactions = False
        """True if a transactional batch that opens a transaction needs a guard (`start_verification`)."""

    # ---- whether it can be used

    def become_ready(self) -> None:
        """Note that the directory and its files exist."""
        self.created = self.ready = True

    @property
    def usable(self) -> bool:
        """It is created, not closed, and hasn't failed."""
        return self.created and not self.closed and self.failure is None

    def end_cleaning(self) -> None:
        """Abandon the pass over its segments that is under way, because they are about to change."""
        if self.cleaning is not None:
            self.cleaning()

    def close_down(self) -> None:
        """Stop all appends. Those who wait for a flush keep waiting, since one may still come."""
        self.end_cleaning()
        self.closed = True
        self.ready = False

    def take_out_of_use(self) -> None:
        """Stop all appends, and call those who wait."""
        self.close_down()
        self.flushing.tell_lost(self.closed_error())
        try:
            self.segments.close()
        except OSError as failure:  # none of it has to be kept
            logger.warning("%s: %s", self.directory, failure)

    def give_up(self, failure: OSError) -> None:
        """Stop all appends for good: the files may differ from what is believed to be written (as in Kafka)."""
        logger.error("%s takes no more records: %s", self.directory, failure)
        if self.failure is None:
            self.failure = failure
        self.ready = False
        self.report(failure)
        self.flushing.tell_lost(failure)

    def say_once(self, failure: OSError) -> None:
        """Log each kind of failure once per log: clients retry many times a second."""
        if failure.errno not in self.logged_failures:
            self.logged_failures = (*self.logged_failures, failure.errno)
            logger.error("%s: %s", self.directory, failure)

    def descriptors_are_back(self) -> None:
        """Have the next lack of descriptors logged again."""
        if self.logged_failures:
            self.logged_failures = tuple(
                each for each in self.logged_failures if each not in OUT_OF_DESCRIPTORS
            )

    @property
    def awaits_flush(self) -> bool:
        """True if `PartitionLog.go_on_flushing` may find anything to do."""
        flushing = self.flushing
        return flushing.wanted_to > flushing.recovery_point or flushing.has_waiters or bool(self.out_of_use)

    def closed_error(self) -> OSError:
        """The error for those who use a closed log, or wait for it."""
        return OSError(errno.EBADF, f"{self.directory} is closed")

    def relocate(self, directory: str) -> None:
        """Note that the log's directory was renamed."""
        self.directory = directory
        self.leader_epochs.relocate(directory)
        self.snapshots.relocate(directory)
        self.segments.relocate(directory)

    # ---- offsets

    @property
    def checkpointed_recovery_point(self) -> int:
        """The recovery point to write to a checkpoint while the log is open.

        At the end of the active segment, whose indexes aren't synced, it is one less. Otherwise a roll could
        come there, and then a crash before the next checkpoint. A start would trust those indexes, since the
        next segment begins at the recovery point. It is never beyond an open hole, so that the next start
        finds that, too.
        """
        point = self.flushing.recovery_point
        hole = self.open_hole
        if hole is not None and hole < point:
            return hole
        return point - 1 if self.segments.active.base_offset < point == self.log_end_offset else point

    def begin_at(self, offset: int) -> None:
        """Note that the log is empty, and begins and ends at the offset."""
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset

    def end_at(self, offset: int) -> None:
        """Note that the log's end was cut off at the offset. The caller also calls `tell_truncated`, once the
        rest is done."""
        self.log_start_offset = min(offset, self.log_start_offset)
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.flushing.cut_at(offset)
        if self.lowest_cut is None or offset < self.lowest_cut:
            self.lowest_cut = offset
        self.read_positions = None
        if self.usable:
            self.cut = object()
            self.ready = False

    def cuts_are_followed(self) -> None:
        """Note that the future log has nothing that was cut off here."""
        self.lowest_cut = None

    def cut_is_synced(self, cut: object | None) -> None:
        """Note that the disk has this cut. There may have been another one since."""
        if self.cut is cut:
            self.cut = None
            self.ready = self.usable and self.rest_of_cut is None

    def cut_is_followed(self) -> None:
        """Note that all state of the log matches its new end."""
        self.rest_of_cut = None
        self.ready = self.usable and self.cut is None

    def tell_truncated(self) -> None:
        """Call those who wait for the flush of what was cut off."""
        offset = self.log_end_offset
        self.flushing.tell_lost(OSError(f"{self.directory} was truncated to {offset}"), above=offset)

    def move_log_start(self, offset: int) -> None:
        """Let the log begin at the offset, unless it already begins after it. All other offsets follow."""
        if offset <= self.log_start_offset:
            return
        # first, because only this may fail: then nothing has moved
        self.leader_epochs.truncate_from_start(offset)
        self.log_start_offset = offset
        self._move_hole()
        self.high_watermark = max(self.high_watermark, offset)
        self.flushing.begin_at(max(self.flushing.recovery_point, offset))
        self.producers.on_high_watermark(offset)
        self.producers.map_end_offset = max(self.producers.map_end_offset, offset)
        self.snapshots.on_log_start(offset)
        self.update_first_unstable_offset()

    # ---- a hole

    @property
    def open_hole(self) -> int | None:
        """The hole as long as somebody may have the missing records.

        Until then no stop is clean, and the log isn't compacted: the next start wouldn't see the hole.
        """
        return None if self.goes_on_with_hole else self.hole

    def accept_hole(self) -> None:
        """Go on with the hole, as others follow this log now. If it ever follows another log in this run, it
        begins at the hole."""
        self.goes_on_with_hole = True

    def _move_hole(self) -> None:
        """Forget a hole below the log start."""
        hole = self.hole
        if hole is None or hole >= self.log_start_offset:
            return
        behind = next((base for base in self.segments.base_offsets if base > hole), self.log_end_offset)
        self.hole = self.log_start_offset if self.log_start_offset < behind else None

    @property
    def flush_is_due(self) -> bool:
        """True if so many records aren't on the disk yet that `flush.messages` is reached."""
        return self.log_end_offset - self.flushing.recovery_point >= self.config.flush_messages

    def update_high_watermark(self, offset: int) -> None:
        """Set the offset below which everything is replicated, limited to between log start and log end."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset < self.log_start_offset:
            offset = self.log_start_offset
        self.high_watermark = offset
        if self.producers.unreplicated:
            self.producers.on_high_watermark(offset)
            self.update_first_unstable_offset()

    def update_first_unstable_offset(self) -> None:
        """Compute the first unstable offset again, after a change of the transactions or the log start."""
        first = self.producers.first_unstable_offset
        if first is not None and first < self.log_start_offset:
            first = self.base_offset_of(self.log_start_offset)
        self.first_unstable_offset = -1 if first is None else first

    def base_offset_of(self, offset: int) -> int:
        """The base offset of the batch that holds the offset, or the offset itself if it can't be read."""
        try:
            return self.segments.base_offset_of(offset)
        except (OSError, KafkaError, CorruptRecordError):
            return offset


# ---- failures of the disk as errors for clients

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Log = TypeVar("_Log", bound=LogState)


def storage_error(log: LogState, failure: OSError) -> KafkaError:
    """Turn a failure into KAFKA_STORAGE_ERROR. One that left the files in disorder ends all appends to the log."""
    if isinstance(failure, TornWriteError):
        log.give_up(failure)
        return KafkaError(Error.KAFKA_STORAGE_ERROR, str(failure))
    if not log.closed:
        log.report(failure)
    log.say_once(failure)
    return KafkaError(Error.KAFKA_STORAGE_ERROR, str(failure))


def told_to_clients(function: Callable[Concatenate[_Log, _P], _R]) -> Callable[Concatenate[_Log, _P], _R]:
    """Turn `OSError` from the function into a `KafkaError` (KAFKA_STORAGE_ERROR)."""

    @wraps(function)
    def guarded(log: _Log, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(log, *args, **kwargs)
        except OSError as failure:
            raise storage_error(log, failure) from failure

    return guarded


class MisplacedSegmentError(KafkaError):
    """A segment's file begins with a whole batch that belongs elsewhere in the log.

    The file was renamed, or restored from a copy of another one. Kafka serves it, or cuts all of it.
    """

    def __init__(self, path: str, offset: int) -> None:
        super().__init__(
            Error.CORRUPT_MESSAGE, f"{path} begins with offset {offset}, which belongs to another segment"
        )
