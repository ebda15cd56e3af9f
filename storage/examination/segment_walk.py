"""One segment walked from its first byte to the last batch that holds."""

from protocol.errors import CodecError, KafkaError
from protocol.records.batch import BatchHeader, CorruptRecordError
from protocol.records.compression import CodecUnavailableError, DecompressionError
from protocol.records.records import read_marker
from storage.examination.index_files import Walked
from storage.files import Files
from storage.log.segment import Segment
from storage.log.segment_recovery import UnsupportedFormatError, valid_batches

READ_FAILURES = (
    OSError,
    KafkaError,
    CorruptRecordError,
    CodecError,
    DecompressionError,
    UnsupportedFormatError,
)
"""Of what a disk says."""
UNREADABLE_RECORDS = (CodecError, CorruptRecordError, DecompressionError, ValueError, IndexError)
"""Of a batch whose checksum is right, and whose records are none. (A codec that isn't installed says nothing of it.)"""


def walk_segment(
    files: Files, directory: str, base: int, begun: dict[int, int], *, is_open: bool
) -> tuple[Walked, int]:
    """What its batches say, and the size of the file. `begun`: where each open transaction has its first batch, by
    producer id, which is brought from the begin of the segment to its end. Raises `READ_FAILURES`."""
    segment = Segment(files, directory, base, created_ms=0, jitter_ms=0, max_index_bytes=0)
    walk = _Walk(base, begun)
    try:
        segment.size = files.size_of(segment.log)
        for position, header, batch in valid_batches(segment):
            walk.take(position, header, batch)
    finally:
        segment.close()
    return walk.walked(is_open), segment.size


class _Walk:
    def __init__(self, base: int, begun: dict[int, int]) -> None:
        self.last_offsets: dict[int, int] = {}
        self.markers: dict[int, tuple[int, int]] = {}
        self.begun = begun
        self.aborted = 0
        self.gap: tuple[int, int, int] | None = None
        self.epochs: list[tuple[int, int]] = []
        self.max_timestamp_ms = -1
        self.first_offset = self.end_offset = base
        self.end = 0

    def take(self, position: int, header: BatchHeader, batch: memoryview) -> None:
        offset = header.base_offset
        if not position:
            self.first_offset = offset
        if offset != self.end_offset and self.gap is None:
            self.gap = (position, self.end_offset, offset)
        self.last_offsets[position] = header.last_offset
        self.max_timestamp_ms = max(self.max_timestamp_ms, header.max_timestamp)
        if not self.epochs or self.epochs[-1][0] != header.partition_leader_epoch:
            self.epochs.append((header.partition_leader_epoch, offset))
        if header.is_control:
            self._mark(header, batch)
        elif header.is_transactional:
            self.begun.setdefault(header.producer_id, offset)
        self.end_offset, self.end = header.last_offset + 1, position + len(batch)

    def _mark(self, header: BatchHeader, batch: memoryview) -> None:
        began = self.begun.pop(header.producer_id, -1)
        self.markers[header.last_offset] = (header.producer_id, began)
        try:
            marker = read_marker(batch)
        except CodecUnavailableError:
            return
        if marker is not None and not marker.commit:
            self.aborted += began >= 0

    def walked(self, is_open: bool) -> Walked:
        return Walked(
            self.last_offsets,
            self.markers,
            self.aborted,
            self.gap,
            len(self.last_offsets),
            self.epochs,
            is_open,
            self.max_timestamp_ms,
            self.first_offset,
            self.end_offset,
            self.end,
        )


def told_of(failure: Exception) -> str:
    """In one line."""
    if isinstance(failure, OSError):
        return failure.strerror or str(failure)
    return str(failure) or type(failure).__name__
