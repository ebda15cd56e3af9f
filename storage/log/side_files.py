"""Whether what stands beside a `.log` can be believed, and making it anew where nothing was cut.

Kafka checks that a segment has an offset index, and trusts the rest. Here a segment is read again where any
of its indexes is missing or contradicts the `.log`.
"""

from protocol.errors import KafkaError
from protocol.records.batch import CONTROL_BIT, DELETE_HORIZON_BIT, CorruptRecordError
from protocol.records.records import read_marker
from storage.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from storage.log.log_state import LogState
from storage.log.segment import Segment
from storage.log.storage_errors import MisplacedSegmentError


def trusted_end(log: LogState, slot: int, names: set[str]) -> int | None:
    """The offset at which the segment ends, None where it must be read again.

    `names` are those in the log's directory. Zeros that Kafka left behind its index entries are cut.
    """
    segment = log.segments[slot]
    stem = f"{segment.base_offset:020d}"
    if stem + INDEX_SUFFIX not in names or stem + TIME_INDEX_SUFFIX not in names:
        return None  # whoever reads all of it sees whether it is this one
    next_base_offset = log.segments.next_base_offset(slot)
    _check_place(segment, next_base_offset)
    segment.offset_index.trim()
    segment.time_index.trim()
    try:
        if not _indexes_agree(segment, next_base_offset):
            return None
        end_offset = _whole_end(segment) if next_base_offset is None else next_base_offset
        if end_offset is None or not _keeps_txn_index(
            log, segment, end_offset, stem + TXN_INDEX_SUFFIX in names
        ):
            return None
    except MisplacedSegmentError:
        raise
    except (KafkaError, CorruptRecordError):
        return None
    return end_offset


def _check_place(segment: Segment, next_base_offset: int | None) -> None:
    """Raises `MisplacedSegmentError`. Of the active one `_whole_end` sees it."""
    if next_base_offset is None:
        return
    try:
        first = next((header.base_offset for _position, header in segment.batches()), segment.base_offset)
    except KafkaError:
        return  # whoever reads there is told
    if not segment.base_offset <= first < next_base_offset:
        raise MisplacedSegmentError(segment.log.path, first)


def _indexes_agree(segment: Segment, next_base_offset: int | None) -> bool:
    offset, position = segment.offset_index.last_entry()
    timestamp_ms, timestamp_offset = segment.time_index.last_entry()
    if position < 0 or (position > 0 and position >= segment.size):
        return False
    if not segment.size and (segment.offset_index.count or segment.time_index.count):
        return False
    if min(offset, timestamp_offset) < segment.base_offset:
        return False
    if next_base_offset is not None and max(offset, timestamp_offset) >= next_base_offset:
        return False
    return timestamp_ms >= 0 or segment.time_index.count > 0 or segment.first_timestamp_ms() < 0


def _whole_end(segment: Segment) -> int | None:
    """The offset after the last batch, where the walk from the last index entry ends where the file does."""
    end_offset, end = segment.walk_to_end()
    if end and end_offset <= segment.base_offset:
        raise MisplacedSegmentError(segment.log.path, end_offset - 1)
    return end_offset if end == segment.size else None


def _keeps_txn_index(log: LogState, segment: Segment, end_offset: int, is_there: bool) -> bool:
    if is_there:
        return segment.txn_index.is_sane(segment.base_offset, end_offset)
    return not _lost_txn_index(log, segment, end_offset)


def _lost_txn_index(log: LogState, segment: Segment, end: int) -> bool:
    """Whether a segment without a transaction index holds a marker that aborted something.

    Only where the snapshot at its end knows transactions, or is missing, need it be read. Where no abort is
    found an empty index is left, so that it isn't read again.
    """
    producers = log.snapshots.read(end)
    if producers is not None and not any(
        producer.coordinator_epoch >= 0 or producer.txn_first_offset >= 0 for producer in producers
    ):
        return False
    if end <= log.log_start_offset or segment.size == 0:
        return False
    for position, header in segment.batches():
        # one with a delete horizon was cleaned since: of its transaction no data is left, and no entry
        if header.producer_id >= 0 and header.attributes & (CONTROL_BIT | DELETE_HORIZON_BIT) == CONTROL_BIT:
            marker = read_marker(segment.files.read(segment.log, header.size_bytes, position))
            if marker is not None and not marker.commit:
                return True
    if producers is not None:
        segment.txn_index.create()
    return False


def rebuild_leader_epochs(log: LogState) -> None:
    """Makes the leader epochs anew from the batches. What recovered segments said is known already, and may hide an
    earlier segment's beginning of the same epoch."""
    log.leader_epochs.clear()
    for segment in log.segments:
        for _position, header in segment.batches():
            if header.partition_leader_epoch > log.leader_epochs.latest:
                log.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
    log.leader_epochs.start_writing()
