"""What a partition's log is made of: segments, epochs, producers and their snapshots, how far it is synced, and the
offsets. What is done with it is done by the other files of this room, and `partition_log` is the front of them all.

    log start ≤ high watermark ≤ log end      last stable offset ≤ high watermark      recovery point ≤ log end

Below the log start nothing is read, below the recovery point all is on the disk, below the high watermark all is
replicated, and below the last stable offset all transactions are decided too.
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

# ---- what a log takes and hands back

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


# ---- how far a log is synced, and who waits for more


class Flushing:
    """While a flush of a log runs, what is wanted is served by one more behind it.

    Who waits is told exactly once, whatever another one does with it; a broken invariant of one is raised behind the
    last of them.
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
        """Where it is synced."""
        self.recovery_point = 0
        """All before it is on the disk."""
        self.made_anew = False
        """Whether this start made indexes or a snapshot anew: a clean end syncs them, even beside synced records."""
        self.under_way = 0
        """How many flushes were begun and have not ended."""
        self.wanted_to = 0
        self.last_ms = 0
        """When a flush was last wanted."""
        self._waiters: list[tuple[int, Then]] | None = None  # most logs have none, ever
        self._claimed = 0
        """How far the checkpoint may say that it is synced: where that goes back, it is told in the background."""
        self._truncations = 0
        """How often the end was cut back: what was being synced then isn't what is there now."""

    @property
    def running(self) -> bool:
        """Whether a flush is under way."""
        return self.under_way > 0

    @property
    def has_waiters(self) -> bool:
        """Whether anybody waits for a flush."""
        return bool(self._waiters)

    def want(self, offset: int, now_ms: int) -> None:
        """All below the offset is to be synced."""
        self.last_ms = now_ms
        if offset > self.wanted_to:
            self.wanted_to = offset

    def start(self) -> int:
        """A flush runs. Returns what `end` is told, by which it knows of a truncation in between."""
        self.under_way += 1
        return self._truncations

    def begin_at(self, offset: int) -> None:
        """There is nothing below the offset to sync."""
        self._claimed = max(self._claimed, self.recovery_point)
        self.recovery_point = offset

    def begin_segment(self, base_offset: int) -> None:
        """The indexes and the snapshot of the segment before aren't synced, though all of its records may be: a start
        recovers it until they are."""
        self.recovery_point = min(self.recovery_point, base_offset - 1)

    def may_be_claimed(self, offset: int) -> bool:
        """Whether a start may take all below the offset for synced that isn't."""
        return self.recovery_point < offset <= self._claimed

    def stop(self) -> None:
        """A flush has ended."""
        self.under_way -= 1

    def end(self, begun: int, target: int) -> None:
        """A flush that has ended has synced all below `target`, unless the log was truncated meanwhile."""
        if begun == self._truncations:
            self.synced_to(max(self.recovery_point, target))
        else:
            self.tell_synced()

    def synced_to(self, offset: int) -> None:
        """All below the offset is on the disk; those who waited for it are told."""
        self.recovery_point = offset
        self.tell_synced()

    def cut_at(self, offset: int) -> None:
        """The log ends at the offset now. Who waits for more is to be told, with `tell_lost`."""
        self._claimed = max(self._claimed, self.recovery_point)
        self.recovery_point = min(self.recovery_point, offset)
        self.wanted_to = min(self.wanted_to, offset)
        self._truncations += 1

    def wait(self, offset: int, then: Then) -> None:
        """`then` is called once all below the offset is synced, or with the failure that prevents it."""
        if self._waiters is None:
            self._waiters = []
        self._waiters.append((offset, then))

    def take_over(self, other: Flushing) -> None:
        """Those who wait for the other one, wait for this one; it isn't under way, and tells nobody yet."""
        self.last_ms = other.last_ms
        self._waiters, other._waiters = [*(self._waiters or ()), *(other._waiters or ())], None

    def tell_lost(self, failure: Exception, *, above: int = -1) -> None:
        """Tells those who wait for an offset above the given one that it is never going to be synced."""
        waiters = self._waiters
        if not waiters:
            return
        lost = [then for offset, then in waiters if offset > above]
        self._waiters = [waiter for waiter in waiters if waiter[0] <= above]
        _tell(lost, failure)

    def tell_synced(self) -> None:
        """Tells those who wait for what is synced."""
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
            with suppress(MemoryError):  # the others are told
                logger.exception("Somebody who waited for a flush can't be told")
            if broken is None and stops_the_broker(error):
                broken = error
    if broken is not None:
        raise broken


# ---- where its readers will go on: their next `read` then needs no search

REMEMBERED_POSITIONS = 16
"""Per log: so many consumers read on from where they were without a search."""


ReadPositions = dict[int, tuple[int, int]]
"""offset -> (segment's base offset, position in it), of offsets that are likely to be read next."""

# ---- the log

Report = Callable[[OSError], object]


def _to_nobody(failure: OSError) -> None:
    """Where a failure of the disk concerns the log alone."""


def _nobody_cares(partition: TopicPartition, active_base_offset: int) -> None:
    """Where no checkpoint speaks of the log."""


Jitter = Callable[[int], int]
"""A random number from 0 to below the one given."""


RestOfCut = Callable[["LogState", int], None]
"""Of the log, and the present in ms."""


class LogPorts(NamedTuple):
    """What a log needs of the world."""

    files: Files
    background: Background
    jitter: Jitter = lambda limit: 0


class LogState:
    """The parts of a log, each of which changes itself, and what belongs to none of them.

    From outside are set: the high watermark, by who knows that no transaction is unreplicated (else by
    `update_high_watermark`); up to where the producers are known (`producers.map_end_offset`), by who appends, rolls
    or cuts off; settings, and who is told of what it loses, by the partition and the directory that have it; what the
    cleaner, a move or the disk does with it (`cleaning`, `replacement`, `out_of_use`, `created`, `directory` as it is
    deleted, `flushing.lane`). Who changes what belongs to none: `append` the log end; truncation the offsets, by
    `begin_at` and `end_at`, and `rest_of_cut`; `move_log_start` the log start. Recovery sets all of it, before the log
    is anybody else's. A `hole` ends by truncation or by the log start; a log that takes over from this one has it, too.
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
        """For `PartitionLog.open` alone."""
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.config = config
        self.files, self.background, self.jitter = ports
        self.topic_id: str | None = None
        """Its text form, 22 characters."""
        self.created = False
        """Whether the directory and its files are there."""
        self.closed = False
        self.ready = False
        """Whether it may be appended to as it is: `usable`, and the disk has no end of it that was cut off."""
        self.cut: object | None = None
        """Stands for an end that was cut off, until the disk has the cut. A power loss before might bring some of it
        back, amid what was appended in its place."""
        self.rest_of_cut: RestOfCut | None = None
        """Makes the leader epochs and the producers follow from a cut: that failed, and is tried again before anything
        is appended."""
        self.lowest_cut: int | None = None
        """The lowest offset at which the end was cut off since the future log that is filled from this one was cut off
        there as well; None where it wasn't."""
        self.failure: OSError | None = None
        """Why nothing is appended any more: a write that couldn't be taken back, or a sync that failed."""
        self.logged_failures: tuple[int | None, ...] = ()
        """The errnos of those that the program's log tells of already."""
        self.report: Report = _to_nobody
        """Told of each failure of the disk."""
        self.cleaning: Callable[[], object] | None = None
        """Ends the pass of the cleaner over the log's segments; None where there is none."""
        self.truncated: Callable[[TopicPartition, int], object] = _nobody_cares
        """Told of the partition and the active segment's base where segments of the log's end were dropped."""
        self.hole: int | None = None
        """Where records are missing that a power loss took, while later ones stayed: who has them elsewhere begins
        there again. Found by a start that isn't clean."""
        self.goes_on_with_hole = False
        """Nobody is known to have what is missing: the log is what it is (`accept_hole`)."""
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.first_unstable_offset = -1
        """Of the earliest undecided or unreplicated transaction; -1 without one. Where it began below the log start,
        that of the batch in which the log starts, as Kafka has it."""
        self.segments = Segments()
        self.flushing = Flushing()
        self.leader_epochs = LeaderEpochs(self.files, directory)
        self.producers = ProducerStates(f"{topic}-{partition}")
        self.snapshots = Snapshots(self.files, directory)
        self.read_positions: ReadPositions | None = None
        """None until something is read: most partitions of a node are idle."""
        self.replacement: tuple[CleanedSegment, Then] | None = None
        """The cleaned segment that is about to take others' place, and who waits for it (`replaced_segments`)."""
        self.out_of_use: Sequence[str] = ()
        """Paths of files that were replaced, and that there was too little memory to delete."""
        self.verifies_transactions = False
        """Whether a transactional batch that opens a transaction must show a guard (`start_verification`)."""

    # ---- what it can be used for

    def become_ready(self) -> None:
        """The directory and its files are there."""
        self.created = self.ready = True

    @property
    def usable(self) -> bool:
        """It is created, not closed, and has not failed."""
        return self.created and not self.closed and self.failure is None

    def end_cleaning(self) -> None:
        """The pass over its segments that is under way comes to nothing: they are about to be others."""
        if self.cleaning is not None:
            self.cleaning()

    def close_down(self) -> None:
        """Nothing is appended to it any more. Who waits for a flush stays, since one may still come."""
        self.end_cleaning()
        self.closed = True
        self.ready = False

    def take_out_of_use(self) -> None:
        """Nothing is appended to it any more, and nobody waits for it."""
        self.close_down()
        self.flushing.tell_lost(self.closed_error())
        try:
            self.segments.close()
        except OSError as failure:  # nothing of it is to be kept
            logger.warning("%s: %s", self.directory, failure)

    def give_up(self, failure: OSError) -> None:
        """The log takes nothing more: what is written and what is believed to be may differ (as in Kafka)."""
        logger.error("%s is not appended to any more: %s", self.directory, failure)
        if self.failure is None:
            self.failure = failure
        self.ready = False
        self.report(failure)
        self.flushing.tell_lost(failure)

    def say_once(self, failure: OSError) -> None:
        """Each kind of failure of a log is logged once: clients try again many times a second."""
        if failure.errno not in self.logged_failures:
            self.logged_failures = (*self.logged_failures, failure.errno)
            logger.error("%s: %s", self.directory, failure)

    def descriptors_are_back(self) -> None:
        """The next lack of them is told again."""
        if self.logged_failures:
            self.logged_failures = tuple(
                each for each in self.logged_failures if each not in OUT_OF_DESCRIPTORS
            )

    @property
    def awaits_flush(self) -> bool:
        """Whether `PartitionLog.go_on_flushing` may find anything to do."""
        flushing = self.flushing
        return flushing.wanted_to > flushing.recovery_point or flushing.has_waiters or bool(self.out_of_use)

    def closed_error(self) -> OSError:
        """What is told to those who come to a closed log, or wait for it."""
        return OSError(errno.EBADF, f"{self.directory} is closed")

    def relocate(self, directory: str) -> None:
        """The log's directory was renamed."""
        self.directory = directory
        self.leader_epochs.relocate(directory)
        self.snapshots.relocate(directory)
        self.segments.relocate(directory)

    # ---- offsets

    @property
    def checkpointed_recovery_point(self) -> int:
        """The recovery point as a checkpoint may have it while the log is open.

        At the end of the active segment, whose indexes aren't synced, it is one less: a roll may come there, and a
        crash before the next checkpoint. A start would trust those indexes, since the next segment begins at the
        recovery point. It isn't beyond an open hole, for the next start to find that, too.
        """
        point = self.flushing.recovery_point
        hole = self.open_hole
        if hole is not None and hole < point:
            return hole
        return point - 1 if self.segments.active.base_offset < point == self.log_end_offset else point

    def begin_at(self, offset: int) -> None:
        """The log is empty, and begins and ends at the offset."""
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset

    def end_at(self, offset: int) -> None:
        """The log's end was cut off at the offset. Whoever cut it calls `tell_truncated` once the rest has followed."""
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
        """The future log has nothing that was cut off here."""
        self.lowest_cut = None

    def cut_is_synced(self, cut: object | None) -> None:
        """The disk has this cut; perhaps there was another one since."""
        if self.cut is cut:
            self.cut = None
            self.ready = self.usable and self.rest_of_cut is None

    def cut_is_followed(self) -> None:
        """All that is known of the log is what its new end says."""
        self.rest_of_cut = None
        self.ready = self.usable and self.cut is None

    def tell_truncated(self) -> None:
        """Tells who waits for the flush of what was cut off."""
        offset = self.log_end_offset
        self.flushing.tell_lost(OSError(f"{self.directory} was truncated to {offset}"), above=offset)

    def move_log_start(self, offset: int) -> None:
        """The log begins at the offset, unless it began behind it already; all other offsets follow."""
        if offset <= self.log_start_offset:
            return
        # first, since it alone may fail: then nothing has moved
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
        """The hole while it isn't known whether anybody has what is missing. Until then no stop is a clean one, and
        the log isn't compacted: the next start would see no hole."""
        return None if self.goes_on_with_hole else self.hole

    def accept_hole(self) -> None:
        """Others follow this log now. Should it follow another one day in this run, it begins at the hole."""
        self.goes_on_with_hole = True

    def _move_hole(self) -> None:
        """What was missing below the log start is no more."""
        hole = self.hole
        if hole is None or hole >= self.log_start_offset:
            return
        behind = next((base for base in self.segments.base_offsets if base > hole), self.log_end_offset)
        self.hole = self.log_start_offset if self.log_start_offset < behind else None

    @property
    def flush_is_due(self) -> bool:
        """Whether so many records aren't on the disk that `flush.messages` is reached."""
        return self.log_end_offset - self.flushing.recovery_point >= self.config.flush_messages

    def update_high_watermark(self, offset: int) -> None:
        """The offset below which all is replicated, held between log start and log end."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset < self.log_start_offset:
            offset = self.log_start_offset
        self.high_watermark = offset
        if self.producers.unreplicated:
            self.producers.on_high_watermark(offset)
            self.update_first_unstable_offset()

    def update_first_unstable_offset(self) -> None:
        """Something was learnt of the transactions, or of the log start."""
        first = self.producers.first_unstable_offset
        if first is not None and first < self.log_start_offset:
            first = self.base_offset_of(self.log_start_offset)
        self.first_unstable_offset = -1 if first is None else first

    def base_offset_of(self, offset: int) -> int:
        """Of the batch that holds the offset; the offset itself where it can't be read."""
        try:
            return self.segments.base_offset_of(offset)
        except (OSError, KafkaError, CorruptRecordError):
            return offset


# ---- what a client is told of a failure of the disk

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Log = TypeVar("_Log", bound=LogState)


def storage_error(log: LogState, failure: OSError) -> KafkaError:
    """KAFKA_STORAGE_ERROR; a failure that left the files in disorder ends all appending to the log."""
    if isinstance(failure, TornWriteError):
        log.give_up(failure)
        return KafkaError(Error.KAFKA_STORAGE_ERROR, str(failure))
    if not log.closed:
        log.report(failure)
    log.say_once(failure)
    return KafkaError(Error.KAFKA_STORAGE_ERROR, str(failure))


def told_to_clients(function: Callable[Concatenate[_Log, _P], _R]) -> Callable[Concatenate[_Log, _P], _R]:
    """Makes `OSError` in the function a `KafkaError` (KAFKA_STORAGE_ERROR)."""

    @wraps(function)
    def guarded(log: _Log, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(log, *args, **kwargs)
        except OSError as failure:
            raise storage_error(log, failure) from failure

    return guarded


class MisplacedSegmentError(KafkaError):
    """A segment's file begins with a whole batch of another place in the log: it was renamed, or put back from a copy
    of another one. Kafka serves it, or cuts all of it."""

    def __init__(self, path: str, offset: int) -> None:
        super().__init__(Error.CORRUPT_MESSAGE, f"{path} begins with offset {offset}: it is another's file")
