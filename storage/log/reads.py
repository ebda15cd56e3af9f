"""Reading a log's batches by Kafka's size rules, the aborted transactions in them, and finding offsets by time.

The end of a read is remembered. So the next read of the same consumer begins with one `pread` and needs no index.
Source: org.apache.kafka.storage LocalLog.read, LogSegment.read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterable, Iterator
from itertools import repeat
from struct import Struct
from typing import NamedTuple, TypeAlias, cast

from protocol.errors import Error, KafkaError
from protocol.records import compression
from protocol.records.batch import (
    BATCH_LENGTH_POS,
    BATCH_OVERHEAD,
    LAST_OFFSET_DELTA_POS,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POS,
    BatchHeader,
    CorruptRecordError,
    parse_stretch,
    walk_batches,
)
from protocol.records.checks import sizes_of_bodies
from protocol.records.compression import CodecUnavailableError, DecompressionError
from protocol.records.validation_budget import ANY, Effort, TooMuchEffortError
from protocol.waiting import Waiting, turn
from protocol.wire.primitives import Bytes, VarintTooLongError
from storage.files import FileRange
from storage.log.aborted import MOST_PROVEN_AT_ONCE, prove
from storage.log.log_config import LONG_MAX
from storage.log.log_state import (
    REMEMBERED_POSITIONS,
    AbortedTransaction,
    LogState,
    ReadResult,
    TimestampOffset,
    new_tuple,
    storage_error,
)
from storage.log.segment import Segment

ENOUGH_BYTES = 2**31 - 1
"""The available bytes from an offset in an earlier segment than the bound: a Fetch from there never waits."""
ALL = 2**31 - 1
"""For `at_once`: leave nothing in the file."""
FIRST_READ_BYTES = 32 * 1024
"""How much of a long read to read at once: enough for the answer's first write."""
_HEADER_BYTES = 512
_WALKED_BYTES = 8192
_TO_LAST_OFFSET_DELTA = LAST_OFFSET_DELTA_POS + 4
_REPLAYED_BYTES = 1024 * 1024
_INT32 = Struct(">i")
_OFFSET_AND_LENGTH = Struct(">qi")
_NOTHING = ReadResult(b"")


def read(
    log: LogState,
    offset: int,
    max_bytes: int,
    upper_bound: int,
    min_one_batch: bool,
    at_once: int = ALL,
) -> ReadResult:
    """See `PartitionLog.read`."""
    if offset < log.log_start_offset or offset > log.log_end_offset:
        raise KafkaError(
            Error.OFFSET_OUT_OF_RANGE,
            f"{offset} isn't in {log.log_start_offset} to {log.log_end_offset} of {log.topic}-{log.partition}",
        )
    if offset >= upper_bound:
        return _NOTHING
    located = _locate(log, offset)
    if located is None:
        return _NOTHING
    slot, segment, position = located
    limit = _position_of_bound(log, slot, segment, upper_bound)
    wanted = limit - position
    if wanted <= 0:
        return _NOTHING
    if wanted > max_bytes:
        wanted = max_bytes
    first = wanted if wanted <= at_once else _first_bytes(wanted, at_once)
    data = segment.files.read(segment.log, first if first > LOG_OVERHEAD else LOG_OVERHEAD, position)
    size = len(data)
    if size < LOG_OVERHEAD:
        raise KafkaError(
            Error.KAFKA_STORAGE_ERROR, f"{segment.log.path} ends at {position + size}, not at {segment.size}"
        )
    first_size = _INT32.unpack_from(data, BATCH_LENGTH_POS)[0] + LOG_OVERHEAD
    if first_size < BATCH_OVERHEAD or (size > MAGIC_POS and data[MAGIC_POS] != MAGIC):
        raise KafkaError(Error.CORRUPT_MESSAGE, f"{segment.log.path} at position {position}")
    if first_size > wanted:
        if not min_one_batch:
            _remember(log, offset, segment.base_offset, position)
            return ReadResult(b"", True, segment.base_offset, position)
        wanted = min(first_size, limit - position)
        first = wanted if wanted <= at_once else _first_bytes(wanted, at_once)
        data = segment.files.read(segment.log, first, position)
        size = len(data)
    if size < wanted and size == first:
        return _in_part(log, located, limit, upper_bound, wanted, data)
    if position + size == limit:
        _remember_limit(log, slot, segment, limit, upper_bound)
    else:
        _remember_torn(log, segment, position, data)
    return new_tuple(ReadResult, (data, False, segment.base_offset, position, None))


def _first_bytes(wanted: int, at_once: int) -> int:
    """How much of a long read to read at once. No more than is wanted, as this reader must not get what follows."""
    return min(wanted, FIRST_READ_BYTES, max(at_once, _HEADER_BYTES))


def _in_part(
    log: LogState,
    located: tuple[int, Segment, int],
    limit: int,
    upper_bound: int,
    wanted: int,
    data: bytes,
) -> ReadResult:
    """Return `data`, the first bytes of the read, and leave the rest in the file."""
    slot, segment, position = located
    rest = FileRange(segment.files, segment.log, position + len(data), wanted - len(data))
    if position + wanted == limit:
        _remember_limit(log, slot, segment, limit, upper_bound)
    else:
        _remember_torn_in_file(log, segment, position, position + wanted)
    return ReadResult(data, False, segment.base_offset, position, rest)


def batches(log: LogState, offset: int, *, upper_bound: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """See `PartitionLog.batches`."""
    while offset < upper_bound:
        try:
            found = read(log, offset, _REPLAYED_BYTES, upper_bound, min_one_batch=True)
        except OSError as failure:
            raise storage_error(log, failure) from failure
        data = memoryview(found.records)
        following = offset
        for position, header in walk_batches(data):
            yield header, data[position : position + header.size_bytes]
            following = header.last_offset + 1
        if following == offset:
            if _locate(log, offset) is None:
                # The log ends after its last batch. A power loss may have taken the records of later segments
                # and left the names.
                return
            raise KafkaError(
                Error.KAFKA_STORAGE_ERROR,
                f"nothing can be read at offset {offset} of {log.topic}-{log.partition}",
            )
        offset = following


def available_bytes(log: LogState, offset: int, upper_bound: int) -> int:
    """See `PartitionLog.available_bytes`."""
    if not log.log_start_offset <= offset < min(upper_bound, log.log_end_offset):
        return 0
    segments = log.segments
    following = bisect_right(segments.base_offsets, offset)
    if following < len(segments.row) and upper_bound >= segments.base_offsets[following]:
        return ENOUGH_BYTES
    located = _locate(log, offset)
    if located is None:
        return 0
    slot, segment, position = located
    _remember(log, offset, segment.base_offset, position)
    return max(0, _position_of_bound(log, slot, segment, upper_bound) - position)


def _locate(log: LogState, offset: int) -> tuple[int, Segment, int] | None:
    """Number, segment and position of the first batch that ends at or after the offset; None if there is none."""
    segments = log.segments
    base_offsets = segments.base_offsets
    known = log.read_positions.pop(offset, None) if log.read_positions else None
    if known is not None:
        base_offset, position = known
        slot = len(base_offsets) - 1
        if base_offset != base_offsets[slot]:
            slot = bisect_left(base_offsets, base_offset)
        segment = segments.row[slot]
        if position < segment.size:
            return slot, segment, position
        return None if slot + 1 == len(base_offsets) else segments.locate(offset, slot + 1, 0)
    slot = bisect_right(base_offsets, offset) - 1
    if slot < 0:
        return None
    segment = segments.row[slot]
    if offset == segment.base_offset and segment.size:
        return slot, segment, 0  # no index needed
    return segments.locate_by_index(offset, slot)


def _position_of_bound(log: LogState, slot: int, segment: Segment, upper_bound: int) -> int:
    """The end of what may be read of the segment: its own end, unless the bound lies in it."""
    if upper_bound >= log.log_end_offset:
        return segment.size
    base_offsets = log.segments.base_offsets
    following = slot + 1
    if following < len(base_offsets) and upper_bound >= base_offsets[following]:
        return segment.size
    known = log.read_positions.get(upper_bound) if log.read_positions else None
    if known is not None and known[0] == segment.base_offset:
        return known[1]
    found = segment.find_by_index(upper_bound)
    if found is None:
        return segment.size
    _remember(log, upper_bound, segment.base_offset, found[0])
    return found[0]


def _remember(log: LogState, offset: int, base_offset: int, position: int) -> None:
    positions = log.read_positions
    if positions is None:
        positions = log.read_positions = {}
    positions[offset] = (base_offset, position)
    if len(positions) > REMEMBERED_POSITIONS:
        del positions[next(iter(positions))]  # the oldest one makes room


def _remember_limit(log: LogState, slot: int, segment: Segment, limit: int, upper_bound: int) -> None:
    """Everything up to the bound or the segment's end was read: the reader continues there."""
    if limit < segment.size:
        _remember(log, upper_bound, segment.base_offset, limit)
    elif segment is log.segments.active:
        _remember(log, log.log_end_offset, segment.base_offset, limit)
    else:
        next_base_offset = log.segments.base_offsets[slot + 1]
        _remember(log, next_base_offset, next_base_offset, 0)


def _remember_torn(log: LogState, segment: Segment, position: int, data: bytes) -> None:
    """The read was cut off by its size: the reader continues with the first batch that isn't whole."""
    end = len(data)
    at = 0
    if end > _WALKED_BYTES:
        at = max(0, segment.offset_index.entry_at_or_before(position + end)[1] - position)
    next_offset = -1
    while end - at >= LOG_OVERHEAD:
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(data, at)
        size = length + LOG_OVERHEAD
        if at + size > end:
            next_offset = base_offset
            break
        next_offset = base_offset + _INT32.unpack_from(data, at + LAST_OFFSET_DELTA_POS)[0] + 1
        at += size
    if next_offset >= 0:
        _remember(log, next_offset, segment.base_offset, position + at)


def _remember_torn_in_file(log: LogState, segment: Segment, position: int, end: int) -> None:
    """The same for a read that left the batches in the file."""
    at = max(position, segment.offset_index.entry_at_or_before(end - 1)[1])
    chunk, chunk_at = b"", at
    next_offset = -1
    while end - at >= LOG_OVERHEAD:
        if at + _TO_LAST_OFFSET_DELTA > chunk_at + len(chunk):
            chunk, chunk_at = segment.files.read(segment.log, min(_WALKED_BYTES, end - at), at), at
            if len(chunk) < LOG_OVERHEAD:
                return
        base_offset, length = _OFFSET_AND_LENGTH.unpack_from(chunk, at - chunk_at)
        size = length + LOG_OVERHEAD
        if at + size > end:
            next_offset = base_offset
            break
        next_offset = base_offset + _INT32.unpack_from(chunk, at - chunk_at + LAST_OFFSET_DELTA_POS)[0] + 1
        at += size
    if next_offset >= 0:
        _remember(log, next_offset, segment.base_offset, at)


def bound_by_aborted(log: LogState, offset: int, most: int) -> int:
    """Return an upper bound for a read of one segment from the offset on, with at most `most` markers of
    aborts below.

    LONG_MAX if there are no more than that.
    """
    slot = bisect_right(log.segments.base_offsets, offset) - 1
    if slot < 0:
        return LONG_MAX
    marker = log.segments.row[slot].txn_index.marker_behind(offset, most, MOST_PROVEN_AT_ONCE)
    return LONG_MAX if marker is None else marker + 1


def aborted_transactions(
    log: LogState, fetch_offset: int, result: ReadResult, upper_bound: int = LONG_MAX
) -> list[AbortedTransaction]:
    """The transactions that a read_committed consumer must drop from what was read, in the order of their markers.

    The bound is the first index entry after what was read, since the batches themselves aren't looked at. So
    transactions that began after the last returned record may be listed, as in Kafka, but none at or above
    `upper_bound`. Raises `IndexInTheMakingError` as long as the index is being rebuilt.
    """
    slot = bisect_left(log.segments.base_offsets, result.segment_base_offset)
    if result.position < 0 or slot == len(log.segments.row):
        return []
    bound = log.segments[slot].offset_index.offset_at_or_after(result.position + result.size_bytes)
    if bound is None:
        next_base_offset = log.segments.next_base_offset(slot)
        bound = log.log_end_offset if next_base_offset is None else next_base_offset
    bound = min(bound, upper_bound)
    aborted = []
    for number in range(slot, len(log.segments.row)):
        index = log.segments.row[number].txn_index
        found, complete, is_proven = index.collect_as_proven(fetch_offset, bound)
        if not is_proven:
            prove(log, number, fetch_offset, bound)
            found, complete = index.collect(fetch_offset, bound)
        aborted += [AbortedTransaction(txn.producer_id, txn.first_offset) for txn in found]
        if complete:
            break
    return aborted


# ---- finding offsets by time. Source: UnifiedLog.fetchOffsetByTimestamp, LogSegment
#
# A search may take long. It awaits each batch that has to be searched, and now and then a turn while it
# passes many headers. Searching a single batch may take a whole turn, too. On the loop, one batch is searched
# between two turns.

HEADERS_PER_STEP = 2_000
"""The batches that one step of a search passes: a few milliseconds."""
_HEADERS_PER_SEGMENT = 20
"""The cost of a segment in headers: reading its time index from a file."""


class BatchSearch(NamedTuple):
    """Finds the first record of a batch at or after a time, from an offset on. It needs nothing else.

    Whoever awaits it gets the result of `find`. The one who carries out the search calls `find`.
    """

    batch: Bytes
    header: BatchHeader
    timestamp_ms: int
    start_offset: int
    most_body_bytes: int
    """The limit for a record of a compressed batch: `max.decompressed.message.bytes`."""
    place: str

    def __await__(self) -> Generator[BatchSearch, TimestampOffset | None, TimestampOffset | None]:
        return (yield self)

    def find(self, effort: Effort = ANY) -> TimestampOffset | None:
        """Search the batch.

        Raises KafkaError (CORRUPT_MESSAGE; INVALID_RECORD for a record that exceeds the topic's current
        limit, but only up to the record found); TooMuchEffortError.
        """
        header = self.header
        if header.records_count > effort.records:
            raise TooMuchEffortError
        payload: Bytes = memoryview(self.batch)[BATCH_OVERHEAD : header.size_bytes]
        try:
            if header.compression != compression.NONE:
                payload = compression.decompress(header.compression, payload, effort)
            # a view, so that nothing is copied: a record's value may be all of the batch
            data = cast("bytes", memoryview(payload))
            count = header.records_count
            sizes: Iterable[int] = repeat(0)
            if header.compression != compression.NONE and len(data) > self.most_body_bytes:
                sizes = sizes_of_bodies(data, count)
            for size, record in zip(sizes, parse_stretch(header, data, 0, count), strict=False):
                if size > self.most_body_bytes:
                    raise KafkaError(Error.INVALID_RECORD)
                if record.timestamp >= self.timestamp_ms and record.offset >= self.start_offset:
                    return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        except CodecUnavailableError:
            # Without its codec, this batch is as close as we can get. A consumer then reads some records too early.
            return TimestampOffset(header.max_timestamp, header.base_offset, header.partition_leader_epoch)
        except (CorruptRecordError, DecompressionError, VarintTooLongError, IndexError) as failure:
            raise KafkaError(Error.CORRUPT_MESSAGE, f"{self.place}: {failure}") from failure
        return None


Search: TypeAlias = Waiting["TimestampOffset | None"]


def carried_out(search: Search, effort: Effort = ANY) -> TimestampOffset | None:
    """Carry out a search at once, and return its result.

    Raises what it raises, and TooMuchEffortError if it takes more than one step and one batch, or more than
    the effort.
    """
    found = None
    is_searched = False
    while True:
        try:
            wanted = search.send(found)
        except StopIteration as end:
            result: TimestampOffset | None = end.value
            return result
        if effort is not ANY and (wanted is None or is_searched):
            raise TooMuchEffortError
        if wanted is not None:
            is_searched = True
            found = wanted.find(effort)


class _Passed:
    """Counts what a search has passed since its last pause, across all segments."""

    __slots__ = ("_headers",)

    def __init__(self) -> None:
        self._headers = 0

    def must_pause(self, headers: int = 1) -> bool:
        """Add these headers. Returns True if the step ends here."""
        self._headers += headers
        if self._headers < HEADERS_PER_STEP:
            return False
        self._headers = 0
        return True


async def search_for_timestamp(log: LogState, timestamp_ms: int) -> TimestampOffset | None:
    """Find the first record, from the log start on, whose timestamp is at or after the given one.

    As in Kafka, only the first segment that reaches that time is searched. Cleaning leaves batches with a
    timestamp and without a record. If only such batches reach the time, the search goes on, whereas Kafka
    finds nothing.

    Raises KafkaError: CORRUPT_MESSAGE; NOT_LEADER_OR_FOLLOWER, after which clients retry, if the segment has
    gone between two steps.
    """
    if not log.created:
        return None
    start_offset = log.log_start_offset
    passed = _Passed()
    for segment in [*log.segments]:
        if passed.must_pause(_HEADERS_PER_SEGMENT):
            await turn()
        _check_is_there(log, segment)
        if segment.load_max_timestamp() < timestamp_ms:
            continue
        begin = segment.position_for(max(segment.offset_before_time(timestamp_ms), start_offset))
        is_reached = False
        for position, header in segment.batches(begin):
            if passed.must_pause():
                await turn()
                _check_is_there(log, segment)
            if header.max_timestamp < timestamp_ms or not header.records_count:
                continue
            is_reached = True
            if header.last_offset < start_offset:
                continue
            offset = await _search_of(log, segment, (position, header), timestamp_ms, start_offset)
            if offset is not None:
                return offset
            _check_is_there(log, segment)
        if is_reached:
            return None  # below the log start
        for _position, header in segment.batches(0, begin):
            if passed.must_pause():
                await turn()
                _check_is_there(log, segment)
            if header.max_timestamp >= timestamp_ms and header.records_count:
                return None
    return None


async def search_for_max_timestamp(log: LogState) -> TimestampOffset | None:
    """Find the first record with the log's largest timestamp. It may be below the log start, as in Kafka.

    If cleaning has emptied the batch with that timestamp, Kafka finds nothing. Raises as `search_for_timestamp`.
    """
    if not log.created:
        return None
    passed = _Passed()
    segments = [*log.segments]
    for segment in segments:
        if passed.must_pause(_HEADERS_PER_SEGMENT):
            await turn()
        _check_is_there(log, segment)
        segment.load_max_timestamp()
    best: tuple[Segment, int, BatchHeader] | None = None
    # the segment with the largest timestamp first; of equal ones the earliest
    for segment in sorted(segments, key=lambda segment: -segment.load_max_timestamp()):
        if best is not None and segment.load_max_timestamp() <= best[2].max_timestamp:
            break
        if passed.must_pause(_HEADERS_PER_SEGMENT):
            await turn()
        _check_is_there(log, segment)
        found = await _latest_batch(log, segment, passed)
        if found is not None and (best is None or found[1].max_timestamp > best[2].max_timestamp):
            best = segment, *found
    if best is None:
        return None
    segment, position, header = best
    _check_is_there(log, segment)
    return await _search_of(log, segment, (position, header), header.max_timestamp, 0)


async def _latest_batch(log: LogState, segment: Segment, passed: _Passed) -> tuple[int, BatchHeader] | None:
    """Position and header of the first batch with the largest timestamp of the segment's records; None if
    there is none."""
    max_timestamp_ms = segment.load_max_timestamp()
    for position, header in segment.batches(segment.position_for(segment.max_timestamp_offset)):
        if passed.must_pause():
            await turn()
            _check_is_there(log, segment)
        if header.max_timestamp == max_timestamp_ms:
            if header.records_count:
                return position, header
            break
    latest: tuple[int, BatchHeader] | None = None
    for position, header in segment.batches():
        if passed.must_pause():
            await turn()
            _check_is_there(log, segment)
        if header.records_count and (latest is None or header.max_timestamp > latest[1].max_timestamp):
            latest = position, header
    return latest


def _check_is_there(log: LogState, segment: Segment) -> None:
    """Check that the segment is still there: between two steps it may be compacted or deleted, and the log closed."""
    if log.closed or not log.segments.holds(segment):
        raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)


def _search_of(
    log: LogState,
    segment: Segment,
    found: tuple[int, BatchHeader],
    timestamp_ms: int,
    start_offset: int,
) -> BatchSearch:
    position, header = found
    batch = segment.files.read(segment.log, header.size_bytes, position)
    return BatchSearch(
        batch,
        header,
        timestamp_ms,
        start_offset,
        log.config.max_decompressed_message_bytes,
        f"{segment.log.path} at {position}",
    )
