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

    Only the first segment that reaches that time is searched, as in Kafka.
    """
    if not log.created:
        return None
    start_offset = log.log_start_offset
    for segment in log.segments:
        # Kafka takes the file's time for a segment without timestamps, to find nothing in it and end there
        if segment.load_max_timestamp() >= timestamp_ms:
            _time, indexed_offset = segment.time_index.lookup(timestamp_ms)
            position = segment.offset_index.lookup(max(indexed_offset, start_offset))
            for at, header in segment.batches(position):
                if header.max_timestamp >= timestamp_ms:
                    found = _first_record(segment, at, header, timestamp_ms, start_offset)
                    if found is not None:
                        return found
            return None
    return None


def offset_of_max_timestamp(log: LogState) -> TimestampOffset | None:
    """The first record that has the log's largest timestamp; possibly below the log start, as in Kafka."""
    if not log.created:
        return None
    latest = None
    for segment in log.segments:
        if latest is None or segment.load_max_timestamp() > latest.load_max_timestamp():
            latest = segment
    assert latest is not None
    max_timestamp_ms = latest.load_max_timestamp()
    for at, header in latest.batches(latest.offset_index.lookup(latest.max_timestamp_offset)):
        if header.max_timestamp == max_timestamp_ms:
            return _first_record(latest, at, header, max_timestamp_ms, 0)
    return None


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
