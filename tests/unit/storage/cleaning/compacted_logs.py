"""Small compacted logs, and functions that return what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from protocol.records.batch import BatchHeader, Record, build_batch, crc_is_valid, read_header, read_records
from storage.log.partition_log import AppendResult, PartitionLog
from tests.support.disk import files
from tests.support.partition_logs import NOW_MS, append, open_log

RETENTION_MS = 1000
COMPACT: dict[str, Any] = {
    "cleanup_policy": frozenset({"compact"}),
    "delete_retention_ms": RETENTION_MS,
    "segment_bytes": 10_000,
    "retention_ms": -1,
}


def compacted_log(directory: Path, **config: Any) -> PartitionLog:
    return open_log(directory, **{**COMPACT, **config})


def put(log: PartitionLog, *pairs: str, timestamp: int = NOW_MS, **options: Any) -> AppendResult:
    """Append a batch of "key=value". "key" alone is a tombstone, and "=value" has no key."""
    records = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        records.append((timestamp, key.encode() or None, value.encode() if equals else None, ()))
    return append(log, build_batch(records, **options))


def closed(log: PartitionLog) -> PartitionLog:
    """Roll the log, so that its active segment is empty and everything in it may be cleaned."""
    log.roll(NOW_MS)
    return log


def stored(log: PartitionLog) -> list[tuple[BatchHeader, list[Record]]]:
    """Return every batch of every segment, wherever the log starts."""
    found = []
    for segment in log.segments:
        for position, header in segment.batches():
            batch = files.read(segment.log, header.size_bytes, position)
            assert crc_is_valid(batch, 0, len(batch))
            found.append((read_header(batch), read_records(batch)))
    return found


def offsets(log: PartitionLog) -> list[int]:
    """Return the offsets of all records."""
    return [record.offset for _header, records in stored(log) for record in records]


def header_at(log: PartitionLog, offset: int) -> BatchHeader:
    [header] = [
        header for header, _records in stored(log) if header.base_offset <= offset <= header.last_offset
    ]
    return header
