"""What a log knows of itself, held against a walk over the bytes of its files."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

from protocol.records.batch import BatchHeader, walk_batches
from protocol.records.records import ABORT, read_control_type, read_records
from storage.log.partition_log import PartitionLog

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED_ENTRY = struct.Struct(">hqqqq")

Aborted = tuple[int, int, int]
"""Producer id, first offset, the marker's offset."""


@dataclass(slots=True)
class Replayed:
    """What the batches say, from the first one that is there."""

    ongoing: dict[int, int] = field(default_factory=dict)
    """By first offset, the producer id."""
    aborted: list[Aborted] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    last_sequences: dict[int, int] = field(default_factory=dict)

    def take(self, header: BatchHeader, data: memoryview) -> None:
        producer_id = header.producer_id
        if producer_id < 0:
            return
        known = self.epochs.get(producer_id)
        self.epochs[producer_id] = header.producer_epoch
        if header.is_control:
            if known != header.producer_epoch:
                self.last_sequences.pop(producer_id, None)
            if header.records_count:  # else compaction has left its header alone
                self._end(producer_id, header, next(iter(read_records(data))).key)
            return
        self.last_sequences[producer_id] = (header.base_sequence + header.last_offset_delta) % 2**31
        if header.is_transactional and producer_id not in self.ongoing.values():
            self.ongoing[header.base_offset] = producer_id

    def _end(self, producer_id: int, header: BatchHeader, key: memoryview | bytes | None) -> None:
        first = next((offset for offset, owner in self.ongoing.items() if owner == producer_id), None)
        if first is not None:
            del self.ongoing[first]
            if read_control_type(key) == ABORT:
                self.aborted.append((producer_id, first, header.last_offset))


def check_log(log: PartitionLog) -> None:
    """Its indexes, producers and last stable offset are those of its batches. Reads nothing through `storage`."""
    folder = Path(log.directory)
    segments = sorted(folder.glob("*.log"))
    is_whole = bool(segments) and int(segments[0].stem) == 0 and log.log_start_offset == 0
    replayed = Replayed()
    aborted: list[Aborted] = []
    for path in segments:
        batches = [*walk_batches(memoryview(path.read_bytes()))]
        data = memoryview(path.read_bytes())
        for position, header in batches:
            replayed.take(header, data[position : position + header.size_bytes])
        aborted += _check_indexes(path, batches)
    if not is_whole:
        return
    producers = log.producers
    told = f"{folder.name}: what the log knows is not what its batches say"
    ongoing = {
        p.txn_first_offset: p.producer_id for p in producers.producers.values() if p.txn_first_offset >= 0
    }
    assert ongoing == replayed.ongoing, told
    assert sorted(aborted) == sorted(replayed.aborted), told
    for producer_id, producer in producers.producers.items():
        assert producer.epoch == replayed.epochs.get(producer_id), told
        assert producer.last_sequence in (-1, replayed.last_sequences.get(producer_id, -1)), told
    if not producers.unreplicated:
        assert log.last_stable_offset == min([*replayed.ongoing, log.high_watermark]), told


def _check_indexes(path: Path, batches: list[tuple[int, BatchHeader]]) -> list[Aborted]:
    """Each entry leads to a batch that there is. Returns what the transaction index holds."""
    base_offset = int(path.stem)
    at = dict(batches)
    for relative, position in _entries(path.with_suffix(".index"), _OFFSET_ENTRY):
        assert position in at, f"{path}: no batch at {position}"
        assert at[position].last_offset == base_offset + relative, f"{path}: another batch at {position}"
    for timestamp_ms, relative in _entries(path.with_suffix(".timeindex"), _TIME_ENTRY):
        before = [header for _, header in batches if header.base_offset <= base_offset + relative]
        latest_ms = max((header.max_timestamp for header in before), default=-1)
        assert timestamp_ms <= latest_ms, f"{path}: no record is as late as {timestamp_ms}"
    return [
        (producer_id, first, last)
        for _, producer_id, first, last, _ in _entries(path.with_suffix(".txnindex"), _ABORTED_ENTRY)
    ]


def _entries(path: Path, entry: struct.Struct) -> list[tuple[int, ...]]:
    if not path.exists():
        return []
    data = path.read_bytes()
    return [*entry.iter_unpack(data[: len(data) - len(data) % entry.size])]
