"""Reading and acquiring records for one ShareFetch (Kafka: `DelayedShareFetch`, `ShareFetchUtils`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from broker.network.turns import PER_TURN, in_line
from broker.replicas.fetch_sessions import FetchTarget
from broker.replicas.fetching import CONSUMER, FetchParameters, Reading, bytes_to_read
from coordinator.share_partition.ports import AbortedFrom, AcquiredRecords, FetchedBatch
from protocol.errors import Error, KafkaError
from protocol.messages import share_fetch
from protocol.messages.fetch import FetchPartition, PartitionData
from protocol.messages.share_fetch import FetchedPartition
from protocol.records.batch import (
    ABORT,
    BATCH_LENGTH_POS,
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptRecordError,
    read_control_type,
    read_header,
    read_records,
)
from protocol.waiting import Later, at_once, turn
from storage.files import FileRange

if TYPE_CHECKING:
    from broker.environment.scheduler import Chance, Scheduler
    from broker.network.turns import Lines, Turns
    from broker.replicas.partitions import Partitions
    from broker.shares.share_partition_manager import LedSharePartition, SharePartitionManager
    from broker.shares.share_session_cache import ShareKey
    from coordinator.share_partition.states import AcquireMode


# --------------------------------------------------------------------------------------------------------------
# The batches in what was read, some in memory and the rest in its file, without reading the records.
#
# Only after this is it known which batches are acquired. So the part to send is cut out afterwards (Kafka:
# `ShareFetchUtils.maybeSliceFetchRecords`).

Chunks = list[bytes | FileRange]

WINDOW_BYTES = 8 * 1024
"""How much of a file to read at once while walking over batches."""


class FetchedRecords:
    """What was read from one partition."""

    __slots__ = ("_size", "_window", "_window_at", "chunks")

    def __init__(self, records: bytes | Sequence[bytes | FileRange] | None) -> None:
        self.chunks: Chunks = [records] if isinstance(records, bytes) else [*(records or ())]
        self._size = sum(map(len, self.chunks))
        self._window = b""
        self._window_at = 0

    def batches(
        self, most_reached: Callable[[int], int], *, with_markers: bool
    ) -> tuple[list[FetchedBatch], list[int]]:
        """Return the batches and their positions. A torn batch at the end doesn't count.

        `most_reached(base offset of the first)` returns an offset: the first batch behind it is the last one
        returned. With `with_markers`, abort markers are told apart. Raises CorruptRecordError, OSError.
        """
        found: list[FetchedBatch] = []
        positions: list[int] = []
        bound: int | None = None
        for position, header in self._walk():
            is_marker = with_markers and header.is_control and self._is_abort(position, header)
            found.append(
                FetchedBatch(
                    header.base_offset,
                    header.last_offset,
                    header.producer_id,
                    header.is_transactional,
                    is_marker,
                )
            )
            positions.append(position)
            if bound is None:
                bound = most_reached(header.base_offset)
            if header.base_offset > bound:
                break
        return found, positions

    def cut(
        self, batches: Sequence[FetchedBatch], positions: Sequence[int], acquired: Sequence[AcquiredRecords]
    ) -> Chunks:
        """Return what to send: the batches from the first acquired offset to the last. With a single batch it
        is everything that was read, as in Kafka."""
        if len(batches) < 2:
            return self.chunks
        first_offset, last_offset = acquired[0].first_offset, acquired[-1].last_offset
        first = 0
        while first + 1 < len(batches) and batches[first + 1].base_offset <= first_offset:
            first += 1
        behind = first + 1
        while behind < len(batches) and batches[behind].base_offset <= last_offset:
            behind += 1
        end = positions[behind] if behind < len(batches) else self._end_of(positions[-1])
        return self._between(positions[first], end)

    def _end_of(self, position: int) -> int:
        return position + read_header(self._bytes(position, BATCH_OVERHEAD)).size_bytes

    def _between(self, start: int, end: int) -> Chunks:
        left: Chunks = []
        at = 0
        for chunk in self.chunks:
            size = len(chunk)
            first, behind = max(start - at, 0), min(end - at, size)
            if first < behind:
                if behind - first == size:
                    left.append(chunk)
                elif isinstance(chunk, FileRange):
                    left.append(chunk.part(first, behind - first))
                else:
                    left.append(chunk[first:behind])
            at += size
        return left

    def _walk(self) -> Iterator[tuple[int, BatchHeader]]:
        position = 0
        while self._size - position >= BATCH_OVERHEAD:
            head = self._bytes(position, BATCH_OVERHEAD)
            size = int.from_bytes(head[BATCH_LENGTH_POS : BATCH_LENGTH_POS + 4], "big") + LOG_OVERHEAD
            if size < BATCH_OVERHEAD:
                raise CorruptRecordError(f"a batch of {size} bytes at position {position}")
            if self._size - position < size:
                return
            yield position, read_header(head)
            position += size

    def _is_abort(self, position: int, header: BatchHeader) -> bool:
        records = read_records(self._bytes(position, header.size_bytes))
        return bool(records) and read_control_type(records[0].key) == ABORT

    def _bytes(self, position: int, size: int) -> bytes:
        """Return some of what was read. It has to be there."""
        at = position - self._window_at
        if at < 0 or at + size > len(self._window):
            self._window = self._read(position, max(size, WINDOW_BYTES))
            self._window_at = position
            at = 0
        return self._window[at : at + size]

    def _read(self, position: int, size: int) -> bytes:
        found = b""
        at = 0
        for chunk in self.chunks:
            first = position + len(found) - at
            if 0 <= first < len(chunk):
                wanted = min(size - len(found), len(chunk) - first)
                found += (
                    chunk.read(first, wanted)
                    if isinstance(chunk, FileRange)
                    else chunk[first : first + wanted]
                )
                if len(found) == size:
                    break
            at += len(chunk)
        return found


# --------------------------------------------------------------------------------------------------------------

log = logging.getLogger("barnabas.shares")

MOST_ACQUIRED_IN_PASSING = 200
"""The share partitions to read and acquire in one turn of the loop, at some 50 µs each."""

_VERSION = 17
"""Of Fetch: this version names partitions by topic ids."""

Answers = dict["ShareKey", FetchedPartition]
Acquirable = list[tuple["LedSharePartition", FetchTarget]]


class ShareFetchParameters:
    """What one member asks for."""

    __slots__ = (
        "batch_size",
        "group_id",
        "max_bytes",
        "max_records",
        "max_wait_ms",
        "member_id",
        "mode",
        "read_committed",
        "reading",
    )

    def __init__(
        self,
        *,
        group_id: str,
        member_id: str,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        max_records: int,
        batch_size: int,
        mode: AcquireMode,
        read_committed: bool,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.max_wait_ms = max_wait_ms
        self.max_bytes = max_bytes
        self.max_records = max_records
        self.batch_size = batch_size
        self.mode = mode
        self.read_committed = read_committed
        self.reading = FetchParameters(
            api_version=_VERSION,
            replica_id=CONSUMER,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            read_committed=read_committed,
        )
        self.reading.only_leader = True  # only the leader has the share partition


class ShareReading:
    """One pass over share partitions: find those with something to acquire, check if that is enough, and
    acquire it. With many, it takes several turns.

    While it holds a share partition, no other fetch reads for that one. Acknowledgements and expiring locks
    don't wait: the acquisition goes by the state at that time. Fetches that wanted to read meanwhile are
    woken when it lets go. The answer always includes `errors`.
    """

    def __init__(
        self,
        partitions: Partitions,
        shares: SharePartitionManager,
        chance: Chance,
        parameters: ShareFetchParameters,
    ) -> None:
        self.parameters = parameters
        self.wanted: list[LedSharePartition] = []
        self.errors: dict[ShareKey, KafkaError] = {}
        self.is_letting_go = False
        self._partitions = partitions
        self._shares = shares
        self._chance = chance

    async def want(self, keys: Sequence[ShareKey], turns: Turns) -> None:
        """Find or create the share partitions. Creating one reads its durable state."""
        for key in keys:
            try:
                led = self._shares.get(self.parameters.group_id, key)
            except KafkaError as error:
                self.errors[key] = error.as_value()
                continue
            self.wanted.append(led)
            if not led.share.is_active:
                self._shares.carry_out(self._initialize(key, led))
            if turns.is_over:
                await turn()

    async def _initialize(self, key: ShareKey, led: LedSharePartition) -> None:
        error = await led.share.initialize()
        if error is None:
            self._shares.wake(led)
        elif error.error is not Error.LEADER_NOT_AVAILABLE:
            self.errors[key] = error
            self._shares.drop(led)  # this wakes waiters, too

    @property
    def is_hopeless(self) -> bool:
        """True if nothing can be acquired any more, however long it waits."""
        return not any(led.is_led and not led.share.is_over for led in self.wanted)

    async def is_enough(self) -> Acquirable | None:
        """Return what can be acquired, and hold it, if that is enough in total or if reading fails. None
        otherwise."""
        acquirable = await self.hold()
        if not acquirable:
            return None
        try:
            if await self._is_readable(acquirable):
                return acquirable
        except BaseException:
            self.let_go(acquirable)
            raise
        self.let_go(acquirable)
        return None

    async def _is_readable(self, acquirable: Acquirable) -> bool:
        parameters = self.parameters.reading
        readable = 0
        try:
            for number, (led, target) in enumerate(acquirable, 1):
                if number % PER_TURN == 0:
                    await turn()
                if target.fetch_offset < led.partition.log.log_start_offset:
                    return True
                # An unclean election or a power loss has left the log shorter than the state. In Kafka, each
                # fetch is then answered at once, with nothing, and the client asks again at once.
                if target.fetch_offset > led.partition.log.log_end_offset:
                    continue
                readable += bytes_to_read(parameters, target, led.partition)
        except (KafkaError, OSError, CorruptRecordError):
            return True  # reading finds the same error, and reports it with its partition
        return readable >= parameters.min_bytes

    async def hold(self) -> Acquirable:
        """Hold the share partitions with something to acquire. Returns each with its offset and how many
        bytes to read."""
        held: list[LedSharePartition] = []
        acquirable: Acquirable = []
        try:
            for number, led in enumerate(self.wanted, 1):
                if number % PER_TURN == 0:
                    await turn()
                if led.share.begin_fetch(self):
                    held.append(led)
            for led, size in zip(held, self._sizes(len(held)), strict=True):
                acquirable.append((led, _target(led, size)))
                if len(acquirable) % PER_TURN == 0:
                    await turn()
        except BaseException:
            self._let_go(held)
            raise
        return acquirable

    def _sizes(self, count: int) -> list[int]:
        """Divide the bytes into equal parts; a random one gets the rest. If there are too few, they go to
        single ones in a row, one byte each, from a random one on (Kafka: `PartitionMaxBytesStrategy`)."""
        if not count:
            return []
        whole, over = divmod(self.parameters.max_bytes, count)
        sizes = [whole] * count
        if over:
            place = self._chance.randrange(count)
            if whole:
                sizes[place] += over
            else:
                for step in range(over):
                    sizes[(place + step) % count] = 1
        return sizes

    def let_go(self, held: Acquirable) -> None:
        """Let others read for these."""
        self._let_go([led for led, _ in held])

    def _let_go(self, held: Iterable[LedSharePartition]) -> None:
        refusing = [led for led in held if led.share.end_fetch(self)]
        self.is_letting_go = True
        for led in refusing:
            self._shares.wake(led)
        self.is_letting_go = False

    async def acquire(self, held: Acquirable) -> Answers:
        """Read and acquire what is held, then let go of it."""
        answers: Answers = {}
        try:
            shares = {(led.share.topic_id, led.share.partition): led for led, _ in held}
            left = self.parameters.max_records
            reading = Reading(self._partitions, self.parameters.reading)
            for start in range(0, len(held), MOST_ACQUIRED_IN_PASSING):
                if start:
                    await turn()
                before = len(reading.answers)
                reading.read([target for _, target in held[start : start + MOST_ACQUIRED_IN_PASSING]])
                for target, read in reading.answers[before:]:
                    key: ShareKey = (target.topic, target.index)  # type: ignore[assignment]
                    answers[key], count = self._answer_of(shares[key], target, read, left)
                    left -= count
            for target, read in reading.unknown_ids + reading.refused:
                key = (target.topic, target.index)  # type: ignore[assignment]
                answers[key], _ = self._answer_of(shares[key], target, read, left)
        finally:
            self.let_go(held)
        for led, _ in held:
            self._shares.wake(led)
        return answers

    def _answer_of(
        self, led: LedSharePartition, target: FetchTarget, read: PartitionData, left: int
    ) -> tuple[FetchedPartition, int]:
        """Return the answer for a partition, and how many offsets were acquired."""
        answer = FetchedPartition(partition_index=target.index, records=b"")
        if read.error_code == Error.OFFSET_OUT_OF_RANGE:
            led.share.begin_at(led.partition.log.log_start_offset)
            return answer, 0
        if read.error_code:
            answer.error_code = read.error_code
            return answer, 0
        try:
            records, acquired = self._acquired(led, target, read, left)
        except (CorruptRecordError, OSError) as error:
            log.error("can't read %s-%d: %s", led.partition.topic.name, target.index, error)
            is_corrupt = isinstance(error, CorruptRecordError)
            answer.error_code = Error.CORRUPT_MESSAGE if is_corrupt else Error.KAFKA_STORAGE_ERROR
            return answer, 0
        answer.records = records
        answer.acquired_records = [
            share_fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in acquired
        ]
        return answer, sum(each.size for each in acquired)

    def _acquired(
        self, led: LedSharePartition, target: FetchTarget, read: PartitionData, left: int
    ) -> tuple[bytes | list[object], list[AcquiredRecords]]:
        parameters, share = self.parameters, led.share
        if left <= 0 or not read.records:
            return b"", []
        aborted = [
            AbortedFrom(each.producer_id, each.first_offset) for each in read.aborted_transactions or ()
        ]
        records = FetchedRecords(read.records)  # type: ignore[arg-type]
        batches, positions = records.batches(
            lambda base_offset: share.most_reached(base_offset, left), with_markers=bool(aborted)
        )
        acquired = share.acquire(
            parameters.member_id,
            batches,
            fetch_offset=target.fetch_offset,
            most_records=left,
            batch_size=parameters.batch_size,
            mode=parameters.mode,
            aborted=aborted,
        )
        if not acquired:
            return b"", []
        return [*records.cut(batches, positions, acquired)], acquired


def _target(led: LedSharePartition, max_bytes: int) -> FetchTarget:
    return FetchTarget(
        led.share.topic_id,
        FetchPartition(
            partition=led.share.partition,
            fetch_offset=led.share.next_fetch_offset(),
            partition_max_bytes=max_bytes,
        ),
    )


# --- A ShareFetch that waits (Kafka: `DelayedShareFetch`) ---------------------------------------------------
# It waits at the partitions, whose appends and commits wake it, and at the share partitions. These wake it
# when their state is loaded, a lock expires, records are released, the start moves, or another fetch has
# read. They only wake it; it looks in a turn of its own. As in Kafka, it acquires only once there is as much
# as it asks for, or its time is up.
#
# A fetch of many share partitions looks and acquires in several turns of the loop, and others are served in
# between. If something moves meanwhile, it looks again. In each group, one such fetch looks at a time.
# Otherwise two that hold what the other one wants would make each other look again and again.


class DelayedShareFetch:
    """A ShareFetch that waits."""

    __slots__ = ("_has_moved", "_is_time_over", "_reading", "_told")

    def __init__(self, reading: ShareReading) -> None:
        self._reading = reading
        self._has_moved = False
        self._is_time_over = reading.parameters.max_wait_ms <= 0
        self._told: Later[None] | None = None

    async def answers(self, scheduler: Scheduler, lines: Lines[str]) -> Answers:
        """Return what is acquired, once there is enough or the time is up. `lines` holds, by group, the
        fetches that look one after the other. If the client hangs up, others may acquire what this one
        holds."""
        reading = self._reading
        is_long = len(reading.wanted) > MOST_ACQUIRED_IN_PASSING
        found = None if is_long else at_once(self._look())
        if found is not None:
            return found
        timer = None
        if not self._is_time_over:
            timer = scheduler.call_later(reading.parameters.max_wait_ms / 1000, self._time_over)
        try:
            for led in reading.wanted:
                led.waiting.add(self, 0)
                led.partition.waiting.add(self, 0)
            if is_long:
                await turn()
                found = await in_line(lines, reading.parameters.group_id, self._look())
            while found is None:
                if not self._has_moved:
                    self._told = Later()
                    await self._told
                if is_long:
                    found = await in_line(lines, reading.parameters.group_id, self._look())
                else:
                    found = at_once(self._look())
            return found
        finally:
            if timer is not None:
                timer.cancel()
            for led in reading.wanted:
                led.waiting.discard(self)
                led.partition.waiting.discard(self)

    async def _look(self) -> Answers | None:
        """Return the answers if there is enough, or whatever there is if the time is up. Otherwise None."""
        reading = self._reading
        self._has_moved = False
        held: Acquirable | None = []
        if not reading.is_hopeless:
            held = await (reading.hold() if self._is_time_over else reading.is_enough())
        if held is None:
            return None
        return await reading.acquire(held) if held else {}

    def recheck(self, place: int = 0) -> None:
        """Note that something moved. What this fetch itself wakes when it lets go doesn't count: it could
        look for ever."""
        if not self._reading.is_letting_go:
            self._wake()

    def _time_over(self) -> None:
        self._is_time_over = True
        self._wake()

    def _wake(self) -> None:
        self._has_moved = True
        told, self._told = self._told, None
        if told is not None:
            told.reply(None)
