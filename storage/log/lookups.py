"""Finding offsets by time. Source: org.apache.kafka.storage UnifiedLog.fetchOffsetByTimestamp, LogSegment.

A search may be long: it awaits each batch that has to be searched, and a turn once in a while on its way over many
headers. To search one batch may be all of a turn, too: whoever carries a search out on the loop looks into one between
two of them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeAlias, cast

from protocol.errors import Error, KafkaError
from protocol.records import compression
from protocol.records.batch import BATCH_OVERHEAD, BatchHeader, CorruptRecordError
from protocol.records.compression import CodecUnavailableError, DecompressionError
from protocol.records.records import parse_stretch
from protocol.records.validation_budget import ANY, Effort, TooMuchEffortError
from protocol.waiting import Waiting, turn
from protocol.wire.primitives import Bytes, VarintTooLongError
from storage.log.log_state import LogState
from storage.log.results import TimestampOffset
from storage.log.segment import Segment

HEADERS_PER_STEP = 2_000
"""Batches that one step of a search passes over: a few milliseconds."""
_HEADERS_PER_SEGMENT = 20
"""A segment counts as so many: what its time index says is read from a file."""


class BatchSearch(NamedTuple):
    """What finds the first record of a batch at or after a time, from an offset on. It looks at nothing else.

    Who awaits it is given what `find` returned, called by whoever carries the search out.
    """

    batch: Bytes
    header: BatchHeader
    timestamp_ms: int
    start_offset: int
    place: str

    def __await__(self) -> Generator[BatchSearch, TimestampOffset | None, TimestampOffset | None]:
        return (yield self)

    def find(self, effort: Effort = ANY) -> TimestampOffset | None:
        """Raises KafkaError (CORRUPT_MESSAGE); TooMuchEffortError."""
        header = self.header
        if header.records_count > effort.records:
            raise TooMuchEffortError
        payload: Bytes = memoryview(self.batch)[BATCH_OVERHEAD : header.size_bytes]
        try:
            if header.compression != compression.NONE:
                payload = compression.decompress(header.compression, payload, effort)
            # of a view nothing is copied: a record's value may be all of the batch
            data = cast("bytes", memoryview(payload))
            for record in parse_stretch(header, data, 0, header.records_count):
                if record.timestamp >= self.timestamp_ms and record.offset >= self.start_offset:
                    return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        except CodecUnavailableError:
            # the batch is as near as we come without its codec; a consumer then reads some records too early
            return TimestampOffset(header.max_timestamp, header.base_offset, header.partition_leader_epoch)
        except (CorruptRecordError, DecompressionError, VarintTooLongError, IndexError) as failure:
            raise KafkaError(Error.CORRUPT_MESSAGE, f"{self.place}: {failure}") from failure
        return None


Search: TypeAlias = Waiting["TimestampOffset | None"]


def carried_out(search: Search, effort: Effort = ANY) -> TimestampOffset | None:
    """What the search finds. Raises what it raises, and TooMuchEffortError where it takes more than the effort, which
    is that of one step and one batch."""
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
    """What a search has passed since its last pause, over all segments."""

    __slots__ = ("_headers",)

    def __init__(self) -> None:
        self._headers = 0

    def must_pause(self, headers: int = 1) -> bool:
        """Whether a step ends here, with so many more that were passed."""
        self._headers += headers
        if self._headers < HEADERS_PER_STEP:
            return False
        self._headers = 0
        return True


async def search_for_timestamp(log: LogState, timestamp_ms: int) -> TimestampOffset | None:
    """The first record, in log order and from the log start on, whose timestamp is at or after the given one.

    Only the first segment that reaches that time is searched, as in Kafka. Cleaning leaves batches that have a
    timestamp and no record: where they alone reach it the search goes on, whereas Kafka finds nothing.

    Raises KafkaError: CORRUPT_MESSAGE, and NOT_LEADER_OR_FOLLOWER, upon which clients ask again, where the segment
    went between two steps.
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
            offset = await _search_of(segment, (position, header), timestamp_ms, start_offset)
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
    """The first record that has the log's largest timestamp; possibly below the log start, as in Kafka.

    Kafka finds nothing where the batch that has it was emptied by cleaning. Raises as `search_for_timestamp`.
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
    # the one with the largest timestamp first, of equal ones the earliest
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
    return await _search_of(segment, (position, header), header.max_timestamp, 0)


async def _latest_batch(log: LogState, segment: Segment, passed: _Passed) -> tuple[int, BatchHeader] | None:
    """Position and header of the first batch that has the largest timestamp of the segment's records; None without
    one."""
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
    """Between two steps of a search a segment may be compacted or deleted, and a log closed."""
    if log.closed or not log.segments.holds(segment):
        raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)


def _search_of(
    segment: Segment, found: tuple[int, BatchHeader], timestamp_ms: int, start_offset: int
) -> BatchSearch:
    position, header = found
    batch = segment.files.read(segment.log, header.size_bytes, position)
    return BatchSearch(batch, header, timestamp_ms, start_offset, f"{segment.log.path} at {position}")
