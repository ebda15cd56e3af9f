"""Records by kafka-python: its compressions, and the records of a Fetch answer. Part of the adapter (see `wire`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafka import codec
from kafka.record.memory_records import MemoryRecords

GZIP_LEVEL = 6
PACKAGES = {"snappy": "python-snappy", "lz4": "lz4", "zstd": "zstandard"}
"""What kafka-python compresses with, beside Python itself."""


class Record(NamedTuple):
    """With the producer id and epoch of its batch, -1 where it has none."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int = -1
    epoch: int = -1


def compress(name: str, data: bytes) -> bytes:
    """As Kafka's clients read it: snappy in xerial's frame, lz4 with independent blocks.

    Raises ImportError where this Python has no library for it, of which kafka-python says no more than that it failed.
    """
    if not getattr(codec, f"has_{name}")():
        raise ImportError(f"compression={name!r} needs the package {PACKAGES[name]}")
    return bytes(_ENCODERS[name](data))


_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: codec.gzip_encode(data, compresslevel=GZIP_LEVEL),
    "snappy": codec.snappy_encode,
    "lz4": codec.lz4_encode,
    "zstd": codec.zstd_encode,
}


def committed(data: bytes, aborted: list[tuple[int, int]], offset: int) -> tuple[list[Record], int]:
    """Records outside of aborted transactions, as Java's consumer tells them; and the offset behind the last one."""
    records: list[Record] = []
    open_aborts: set[int] = set()
    batches = MemoryRecords(data)
    while (batch := batches.next_batch()) is not None:
        while aborted and aborted[0][0] <= batch.last_offset:
            open_aborts.add(aborted.pop(0)[1])
        if batch.is_control_batch:
            if all(marker.abort for marker in batch):
                open_aborts.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in open_aborts):
            producer = (batch.producer_id, batch.producer_epoch)
            records += [
                Record(one.offset, one.key, one.value, *producer) for one in batch if one.offset >= offset
            ]
        offset = max(offset, batch.last_offset + 1)
    return records, offset
