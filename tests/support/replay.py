"""Compares what a log knows about itself with a walk over the bytes of its files: it must know no more and no less."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.records.batch import ABORT, BatchHeader, read_control_type, read_records, walk_batches

if TYPE_CHECKING:
    from storage.log.log_config import LogConfig
    from storage.log.partition_log import PartitionLog
    from storage.producer_state import Producer

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED_ENTRY = struct.Struct(">hqqqq")

Batches = list[tuple[int, BatchHeader]]
Aborted = tuple[int, int, int]
"""Producer id, first offset, marker offset."""


@dataclass(slots=True)
class Replayed:
    """What the batches say, from the first existing one on."""

    ongoing: dict[int, list[BatchHeader]] = field(default_factory=dict)
    """The batches of each open transaction, by producer id."""
    aborted: list[Aborted] = field(default_factory=list)
    last: dict[int, BatchHeader] = field(default_factory=dict)
    """The last batch, by producer id."""
    last_data: dict[int, BatchHeader] = field(default_factory=dict)
    """The last data batch in the epoch of the last batch, by producer id."""

    def take(self, header: BatchHeader, data: memoryview) -> None:
        producer_id = header.producer_id
        if producer_id < 0:
            return
        known = self.last.get(producer_id)
        self.last[producer_id] = header
        if header.is_control:
            if known is None or known.producer_epoch != header.producer_epoch:
                self.last_data.pop(producer_id, None)
            if header.records_count:  # otherwise compaction has left only its header
                self._end(producer_id, header, next(iter(read_records(data))).key)
            return
        self.last_data[producer_id] = header
        if header.is_transactional:
            self.ongoing.setdefault(producer_id, []).append(header)

    def _end(self, producer_id: int, header: BatchHeader, key: memoryview | bytes | None) -> None:
        batches = self.ongoing.pop(producer_id, None)
        if batches is not None and read_control_type(key) == ABORT:
            self.aborted.append((producer_id, batches[0].base_offset, header.last_offset))


def check_log(log: PartitionLog, now_ms: int, opened: int = 0) -> None:
    """Check that indexes, producers and last stable offset follow from the batches. Reads nothing through `storage`.

    `opened` is how often it was opened with batches in it: each time the count of bytes to the next index entry began
    again, as in Kafka.
    """
    folder = Path(log.directory)
    segments = sorted(folder.glob("*.log"))
    replayed = Replayed()
    aborted: list[Aborted] = []
    missing = 0
    for path in segments:
        data = memoryview(path.read_bytes())
        batches = [*walk_batches(data)]
        for position, header in batches:
            replayed.take(header, data[position : position + header.size_bytes])
        missing += _check_offset_index(path, batches, log.config)
        _check_time_index(path, batches, log.config, is_closed=path is not segments[-1])
        aborted += _aborted(path)
    assert missing <= opened, (
        f"{folder.name}: {missing} entries are missing, and it was opened {opened} times"
    )
    told = f"{folder.name}: what the log knows is not what its batches say"
    begins = int(segments[0].stem) if segments else log.log_start_offset
    _check_aborted(aborted, replayed, begins, told)
    _check_ongoing(log, replayed, begins, told)
    assert begins or log.producers.producers.keys() <= replayed.last.keys(), told
    for producer_id in replayed.last:
        _check_producer(log, replayed, producer_id, now_ms, told)


def _check_aborted(aborted: list[Aborted], replayed: Replayed, begins: int, told: str) -> None:
    """If a transaction began in a segment that is gone, the batches only show its end."""
    assert sorted(each for each in aborted if each[1] >= begins) == sorted(
        (producer_id, first, last)
        for producer_id, first, last in replayed.aborted
        if not any(
            entry[0] == producer_id and entry[2] == last and entry[1] < begins <= first for entry in aborted
        )
    ), told


def _check_ongoing(log: PartitionLog, replayed: Replayed, begins: int, told: str) -> None:
    """The log may forget what is below the log start: a start reads the log from there on."""
    known = {p.producer_id: p.txn_first_offset for p in log.producers.producers.values()}
    for producer_id, batches in replayed.ongoing.items():
        readable = [header for header in batches if header.last_offset >= log.log_start_offset]
        first = known.get(producer_id, -1)
        if readable or first >= 0:
            firsts = {batches[0].base_offset, *(header.base_offset for header in readable[:1])}
            assert first in firsts or 0 <= first < begins, told
    for producer_id, first in known.items():
        assert first < begins or producer_id in replayed.ongoing, told
    if not log.producers.unreplicated and log.log_start_offset == 0:
        firsts = {batches[0].base_offset for batches in replayed.ongoing.values()}
        assert log.last_stable_offset == min([*firsts, log.high_watermark]), told


def _check_producer(log: PartitionLog, replayed: Replayed, producer_id: int, now_ms: int, told: str) -> None:
    """The log may forget a producer that has been silent long enough to expire, and what is below the log start: a
    start reads the log from there on."""

    def may_be_forgotten(header: BatchHeader) -> bool:
        is_silent = now_ms - header.max_timestamp >= log.config.producer_id_expiration_ms
        return is_silent or header.last_offset < log.log_start_offset

    producer: Producer | None = log.producers.producers.get(producer_id)
    if producer is None:
        assert may_be_forgotten(replayed.last[producer_id]), f"{told}: producer {producer_id} is not known"
        return
    assert producer.epoch == replayed.last[producer_id].producer_epoch, told
    data = replayed.last_data.get(producer_id)
    if data is not None and not (producer.last_sequence == -1 and may_be_forgotten(data)):
        assert producer.last_sequence == data.last_sequence, told
        assert producer.last_data_offset == data.last_offset, told


def _check_offset_index(path: Path, batches: Batches, config: LogConfig) -> int:
    """Check that each entry leads to an existing batch. Return how many are missing at least, by `index.interval.bytes`
    since the previous one. Each missing entry restarts the count."""
    base_offset = int(path.stem)
    at = dict(batches)
    entries = _entries(path.with_suffix(".index"), _OFFSET_ENTRY)
    for relative, position in entries:
        assert position in at, f"{path}: no batch at {position}"
        assert at[position].last_offset == base_offset + relative, f"{path}: another batch at {position}"
    if len(entries) >= config.segment_index_bytes // _OFFSET_ENTRY.size:
        return 0  # full
    there = {position for _, position in entries}
    missing = counted_from = 0
    for position, _ in batches:
        is_due = position - counted_from > config.index_interval_bytes
        missing += is_due and position not in there
        if is_due or position in there:
            counted_from = position
    return missing


def _check_time_index(path: Path, batches: Batches, config: LogConfig, *, is_closed: bool) -> None:
    """Check that it has the largest timestamp up to each batch in the offset index, and of all that is closed."""
    base_offset = int(path.stem)
    entries = _entries(path.with_suffix(".timeindex"), _TIME_ENTRY)
    for timestamp_ms, relative in entries:
        before = [header for _, header in batches if header.base_offset <= base_offset + relative]
        latest_ms = max((header.max_timestamp for header in before), default=-1)
        assert timestamp_ms <= latest_ms, f"{path}: no record is as late as {timestamp_ms}"
    said = {timestamp_ms for timestamp_ms, _ in entries}
    is_full = len(entries) >= config.segment_index_bytes // _TIME_ENTRY.size - 1
    indexed = {position for _, position in _entries(path.with_suffix(".index"), _OFFSET_ENTRY)}
    latest_ms = -1
    for position, header in batches:
        latest_ms = max(latest_ms, header.max_timestamp)
        if position in indexed and latest_ms >= 0 and not is_full:
            assert latest_ms in said, f"{path}: it doesn't say {latest_ms}, of the batch at {position}"
    if is_closed and latest_ms >= 0:
        assert latest_ms in said, f"{path}: it doesn't say the largest timestamp, {latest_ms}"


def _aborted(path: Path) -> list[Aborted]:
    """Return the entries of the transaction index."""
    return [
        (producer_id, first, last)
        for _, producer_id, first, last, _ in _entries(path.with_suffix(".txnindex"), _ABORTED_ENTRY)
    ]


def _entries(path: Path, entry: struct.Struct) -> list[tuple[int, ...]]:
    if not path.exists():
        return []
    data = path.read_bytes()
    return [*entry.iter_unpack(data[: len(data) - len(data) % entry.size])]
