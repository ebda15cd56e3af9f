"""Makes logs and batches for tests of storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.records.batch import (
    ABORT,
    COMMIT,
    BatchHeader,
    build_batch,
    build_end_txn_marker,
    read_header,
    read_marker,
    read_records,
    walk_batches,
)
from storage.background import Background, Lane, Then, Work
from storage.files import Files, file_path
from storage.log.log_config import LogConfig
from storage.log.partition_log import AppendOrigin, AppendResult, PartitionLog
from tests.support.disk import files
from tests.support.immediate_background import run_at_once

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
NOW_MS = 1_700_000_000_000


def open_log(
    directory: Path,
    *,
    clean: bool = True,
    now_ms: int = NOW_MS,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    compacted_up_to: int = 0,
    background: Background = run_at_once,
    jitter: Callable[[int], int] = lambda limit: 0,
    topic_id: str | None = TOPIC_ID,
    disk: Files = files,
    **config: Any,
) -> PartitionLog:
    """Open the log `orders-0` below `directory`, which is created if needed. Further arguments are those of
    `LogConfig`."""
    directory.mkdir(parents=True, exist_ok=True)
    return PartitionLog.open(
        str(directory / "orders-0"),
        "orders",
        0,
        LogConfig(**config),
        now_ms=now_ms,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        compacted_up_to=compacted_up_to,
        files=disk,
        background=background,
        jitter=jitter,
        topic_id=topic_id,
    )


def batch(
    count: int = 1,
    *,
    timestamp: int = NOW_MS,
    value_bytes: int = 10,
    timestamps: list[int] | None = None,
    values: list[bytes] | None = None,
    **options: Any,
) -> bytearray:
    """Return a batch of `count` records. Further arguments are those of `build_batch`."""
    times = timestamps if timestamps is not None else [timestamp] * count
    payloads = values if values is not None else [b"v" * value_bytes] * len(times)
    records = [(at, b"k", value, ()) for at, value in zip(times, payloads, strict=True)]
    return build_batch(records, **options)


def batch_of_bytes(size: int, **options: Any) -> bytearray:
    """Return a batch of one record with exactly this size."""
    for value_bytes in range(max(0, size - 80), size):
        built = batch(value_bytes=value_bytes, **options)
        if len(built) == size:
            return built
    raise ValueError(f"no batch of {size} bytes")


def produced(
    sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, **options: Any
) -> bytearray:
    """Return a batch of an idempotent producer."""
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)


def transactional(sequence: int, count: int = 1, **options: Any) -> bytearray:
    """Return the same within a transaction."""
    return produced(sequence, count, transactional=True, **options)


def marker(
    commit: bool, *, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0, timestamp: int = NOW_MS
) -> bytearray:
    return build_end_txn_marker(
        COMMIT if commit else ABORT,
        coordinator_epoch=coordinator_epoch,
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp=timestamp,
    )


def append(
    log: PartitionLog,
    data: bytearray,
    *,
    leader_epoch: int = 0,
    now_ms: int = NOW_MS,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    **options: Any,
) -> AppendResult:
    """Append, and move the high watermark to the end, as the only replica does."""
    result = log.append(data, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin, **options)
    log.update_high_watermark(log.log_end_offset)
    return result


def end_transaction(
    log: PartitionLog, commit: bool, *, transaction_version: int = 0, **options: Any
) -> AppendResult:
    data = marker(commit, **options)
    written = read_marker(data)
    assert written is not None
    return append(
        log,
        data,
        origin=AppendOrigin.COORDINATOR,
        marker=written._replace(transaction_version=transaction_version),
    )


def file(log: PartitionLog, offset: int, suffix: str) -> Path:
    """Return the path of one of its files: `file(log, 0, ".index")`."""
    return Path(file_path(log.directory, offset, suffix))


def names(log: PartitionLog) -> list[str]:
    """Return the names of the files in its directory, sorted."""
    return sorted(path.name for path in Path(log.directory).iterdir())


def batches(
    log: PartitionLog, *, upper_bound: int | None = None, max_bytes: int = 1 << 20
) -> Iterator[bytes]:
    """Yield all batches, fetched like a consumer that begins at the log start."""
    bound = log.log_end_offset if upper_bound is None else upper_bound
    offset = log.log_start_offset
    while offset < bound:
        records = log.read(offset, max_bytes, upper_bound=bound, min_one_batch=True).records
        if not records:
            return
        for position, header in walk_batches(records):
            yield records[position : position + header.size_bytes]
            offset = header.last_offset + 1


def headers(log: PartitionLog) -> list[BatchHeader]:
    return [read_header(data) for data in batches(log)]


def values(log: PartitionLog) -> list[bytes | None]:
    """Return the values of all data records, in order."""
    return [
        record.value
        for data in batches(log)
        if not read_header(data).is_control
        for record in read_records(data)
    ]


def ints(data: bytes, sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Decode a file of fixed-width big-endian entries: `ints(data, (8, 4))` for a time index."""
    entries = []
    for start in range(0, len(data), sum(sizes)):
        entry, at = [], start
        for size in sizes:
            entry.append(int.from_bytes(data[at : at + size], "big", signed=True))
            at += size
        entries.append(tuple(entry))
    return entries


@dataclass
class HeldBackground:
    """A `Background` that does nothing until told to, one piece of work at a time."""

    waiting: list[tuple[Work, Then, Lane, int]] = field(default_factory=list)

    def __call__(self, work: Work, then: Then, /, *, lane: Lane, delay_ms: int = 0) -> None:
        self.waiting.append((work, then, lane, delay_ms))

    def run_one(self) -> None:
        work, then, lane, _delay_ms = self.waiting.pop(0)
        run_at_once(work, then, lane=lane)

    def run_all(self) -> None:
        while self.waiting:
            self.run_one()

    @property
    def delays_ms(self) -> list[int]:
        return [delay_ms for _work, _then, _lane, delay_ms in self.waiting]
