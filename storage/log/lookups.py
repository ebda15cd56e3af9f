"""Finding offsets by time. Source: org.apache.kafka.storage UnifiedLog.fetchOffsetByTimestamp, LogSegment."""

from protocol.errors import Error, KafkaError
from protocol.records.batch import BatchHeader, CorruptRecordError
from protocol.records.compression import CodecUnavailableError, DecompressionError
from protocol.records.records import read_records
from storage.log.log_state import LogState
from storage.log.results import TimestampOffset
from storage.log.segment import Segment


def offset_for_timestamp(log: LogState, timestamp_ms: int) -> TimestampOffset | None:
    """The first record, in log order and from the log start on, whose timestamp is at or after the given one.

    Only the first segment that reaches that time is searched, as in Kafka. Cleaning leaves batches that have a
    timestamp and no record: where they alone reach it the search goes on, whereas Kafka finds nothing.
    """
    if not log.created:
        return None
    start_offset = log.log_start_offset
    for segment in log.segments:
        if segment.load_max_timestamp() >= timestamp_ms:
            _time, indexed_offset = segment.time_index.lookup(timestamp_ms)
            position = segment.offset_index.lookup(max(indexed_offset, start_offset))
            for at, header in segment.batches(position):
                if header.max_timestamp >= timestamp_ms:
                    found = _first_record(segment, at, header, timestamp_ms, start_offset)
                    if found is not None:
                        return found
            if any(
                header.records_count and header.max_timestamp >= timestamp_ms
                for _at, header in segment.batches()
            ):
                return None  # below the log start
    return None


def offset_of_max_timestamp(log: LogState) -> TimestampOffset | None:
    """The first record that has the log's largest timestamp; possibly below the log start, as in Kafka.

    Kafka finds nothing where the batch that has it was emptied by cleaning.
    """
    if not log.created:
        return None
    best: tuple[Segment, int, BatchHeader] | None = None
    # the one with the largest timestamp first, of equal ones the earliest
    for segment in sorted(log.segments, key=lambda segment: -segment.load_max_timestamp()):
        if best is not None and segment.load_max_timestamp() <= best[2].max_timestamp:
            break
        found = _latest_batch(segment)
        if found is not None and (best is None or found[1].max_timestamp > best[2].max_timestamp):
            best = segment, *found
    if best is None:
        return None
    segment, position, header = best
    return _first_record(segment, position, header, header.max_timestamp, 0)


def _latest_batch(segment: Segment) -> tuple[int, BatchHeader] | None:
    """Position and header of the first batch that has the largest timestamp of the segment's records; None without
    one."""
    max_timestamp_ms = segment.load_max_timestamp()
    for at, header in segment.batches(segment.offset_index.lookup(segment.max_timestamp_offset)):
        if header.max_timestamp == max_timestamp_ms:
            if header.records_count:
                return at, header
            break
    latest = None
    for at, header in segment.batches():
        if header.records_count and (latest is None or header.max_timestamp > latest[1].max_timestamp):
            latest = at, header
    return latest


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    batch = segment.files.read(segment.log, header.size_bytes, position)
    try:
        records = read_records(batch)
    except CodecUnavailableError:
        # the batch is as near as we come without its codec; a consumer then reads some records too early
        return TimestampOffset(header.max_timestamp, header.base_offset, header.partition_leader_epoch)
    except (CorruptRecordError, DecompressionError) as failure:
        raise KafkaError(Error.CORRUPT_MESSAGE, f"{segment.log.path} at {position}: {failure}") from failure
    for record in records:
        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
            return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
    return None
