"""Filtering the records of a batch, and building a batch from those that stay.

Records are copied as they are, except that their timestamps may change, as they count from the batch's base
timestamp. Whether tombstones are due is up to the caller (`cleaner.py`).
Source: Cleaner.shouldRetainRecord, MemoryRecords.filterTo.
"""

from protocol.records.batch import (
    DELETE_HORIZON_BIT,
    KNOWN_ATTRIBUTES_MASK,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    CorruptRecordError,
    seal_batch,
)
from protocol.records.compression import CODEC_MASK
from protocol.wire.primitives import encode_varint, read_varint, read_varlong, to_int64
from storage.cleaning.offset_map import RECORDS_AT_ONCE, OffsetMap, read_keyed_records


class RecordFilter:
    """Finds the records of one batch that stay, some at a time."""

    __slots__ = (
        "_base_offset",
        "_left",
        "_map",
        "_pos",
        "_tombstones_go",
        "kept",
        "payload",
        "stays",
        "tombstones",
    )

    def __init__(
        self, header: BatchHeader, payload: bytes, offset_map: OffsetMap, tombstones_go: bool
    ) -> None:
        self._base_offset = header.base_offset
        self.payload = payload
        self._map = offset_map
        self._tombstones_go = tombstones_go
        self._pos = 0
        self._left = header.records_count
        self.kept = 0
        """The number of records that stay."""
        self.stays: list[tuple[int, int]] = []
        """The start and end of each stretch of the payload that stays, ascending and disjoint."""
        self.tombstones = 0
        """The number of records that stay with a null value."""

    def go_on(self) -> bool:
        """Look at the next records. Returns True after the last ones. Raises `CorruptRecordError`."""
        count = self._left if self._left < RECORDS_AT_ONCE else RECORDS_AT_ONCE
        payload, offset_map = self.payload, self._map
        latest, get = offset_map.latest, offset_map.get
        base_offset, tombstones_go = self._base_offset, self._tombstones_go
        start = stretch = self._pos
        kept = tombstones = 0
        for end, delta, key, is_tombstone in read_keyed_records(payload, start, count):
            offset = base_offset + delta
            if offset > latest or (
                key is not None and offset >= get(key) and not (is_tombstone and tombstones_go)
            ):
                kept += 1
                tombstones += is_tombstone
            else:
                if stretch < start:
                    self.stays.append((stretch, start))
                stretch = end
            start = end
        if stretch < start:
            self.stays.append((stretch, start))
        self._pos = start
        self.kept += kept
        self.tombstones += tombstones
        self._left -= count
        if self._left:
            return False
        if start != len(payload):
            raise CorruptRecordError(f"{len(payload) - start} bytes after the last record")
        return True


class BatchRebuild:
    """Builds a batch from the records that stay, some at a time."""

    __slots__ = (
        "_base_timestamp",
        "_header",
        "_horizon_ms",
        "_kept",
        "_max_timestamp",
        "_out",
        "_payload",
        "_stays",
    )

    def __init__(
        self,
        header: BatchHeader,
        payload: bytes,
        stays: list[tuple[int, int]],
        kept: int,
        horizon_ms: int | None,
    ) -> None:
        """`stays` are the stretches of the payload with `kept` records. `horizon_ms` is the batch's new
        delete horizon."""
        self._header = header
        self._payload = payload
        self._stays = stays[::-1]
        self._kept = kept
        self._horizon_ms = horizon_ms
        self._base_timestamp: int | None = horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._out = bytearray()

    def go_on(self) -> bool:
        """Copy the next records. Returns True after the last ones."""
        data, out = self._payload, self._out
        header = self._header
        old_base = header.base_timestamp
        appended_at = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
        base, max_timestamp = self._base_timestamp, self._max_timestamp
        left = RECORDS_AT_ONCE
        while self._stays and left:
            pos, stop = self._stays.pop()
            while pos < stop and left:
                left -= 1
                size, fields = read_varint(data, pos)
                end = fields + size
                delta, offset_at = read_varlong(data, fields + 1)
                timestamp = to_int64(old_base + delta) if appended_at is None else appended_at
                if timestamp > max_timestamp:
                    max_timestamp = timestamp
                if base is None:
                    base = timestamp
                new_delta = to_int64(timestamp - base)
                if new_delta == delta and not data[fields]:
                    out += data[pos:end]
                else:
                    # nothing uses the attributes of a record, and they become 0
                    start = b"\0" + encode_varint(new_delta)
                    out += encode_varint(len(start) + end - offset_at)
                    out += start
                    out += data[offset_at:end]
                pos = end
            if pos < stop:
                self._stays.append((pos, stop))
        self._base_timestamp, self._max_timestamp = base, max_timestamp
        return not self._stays

    def sealed(self) -> bytearray:
        """The finished batch. Offsets, producer, sequence and flags are as before, and so is the codec, at
        its default level."""
        header = self._header
        assert self._base_timestamp is not None  # there is a record
        attributes = header.attributes & KNOWN_ATTRIBUTES_MASK & ~DELETE_HORIZON_BIT
        if self._horizon_ms is not None:
            attributes |= DELETE_HORIZON_BIT
        rebuilt = header._replace(
            attributes=attributes,
            base_timestamp=self._base_timestamp,
            max_timestamp=header.max_timestamp if attributes & TIMESTAMP_TYPE_BIT else self._max_timestamp,
            records_count=self._kept,
        )
        return seal_batch(rebuilt, self._out, None)


def empty_batch(header: BatchHeader) -> bytearray:
    """The 61 bytes that remain of a batch whose records are all gone. A delete horizon is lost, as in Kafka.

    Source: DefaultRecordBatch.writeEmptyHeader.
    """
    attributes = header.attributes & KNOWN_ATTRIBUTES_MASK & ~DELETE_HORIZON_BIT & ~CODEC_MASK
    return seal_batch(
        header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, records_count=0), b"", None
    )
