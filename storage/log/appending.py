"""Appending a batch to a log. Source: org.apache.kafka.storage UnifiedLog.append, maybeRoll."""

import errno
from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError
from protocol.records.batch import (
    CONTROL_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    patch_offset_and_epoch,
    read_header,
)
from storage.log import flushing, recovery, rolling
from storage.log.results import AppendOrigin, AppendResult
from storage.log.segment import MAX_RELATIVE_OFFSET
from storage.log.storage_errors import storage_error
from storage.producers.announcements import Verification
from storage.producers.producer_state import Marker
from storage.producers.txn_markers import read_marker

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog


def append(
    log: "PartitionLog",
    batch: bytearray | memoryview,
    *,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    header: BatchHeader | None = None,
    guard: Verification | None = None,
    marker: Marker | None = None,
    transaction_version: int = 0,
) -> AppendResult:
    """Appends one batch of format 2, patching its base offset and leader epoch in place.

    The batch was checked before (CRC, records, times); `header` is what `read_header` says of it *after*
    those checks, if the caller has it. `guard` is what `start_verification` gave for a transactional
    batch; `marker` is what `read_marker` says of a control batch, if the caller has it, and
    `transaction_version` that of its WriteTxnMarkers. Where anything is raised nothing
    is changed, except that the log may have rolled, as in Kafka. The high watermark is the caller's to
    move.

    Raises `KafkaError`: RECORD_LIST_TOO_LARGE, INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER,
    INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
    """
    if header is None:
        header = read_header(batch)
    size = len(batch)
    config = log.config
    if origin is AppendOrigin.REPLICATION:
        base_offset, leader_epoch = header.base_offset, header.partition_leader_epoch
        if base_offset < log.log_end_offset:
            raise ValueError(f"offset {base_offset} appended at log end {log.log_end_offset}")
    else:
        base_offset = log.log_end_offset
    last_offset = base_offset + header.last_offset_delta
    max_timestamp_ms = header.max_timestamp
    if size > config.segment_bytes and origin is not AppendOrigin.REPLICATION:
        raise KafkaError(
            Error.RECORD_LIST_TOO_LARGE, f"batch of {size} bytes, segment.bytes={config.segment_bytes}"
        )
    produced = header.producer_id >= 0
    aborted = None
    try:
        if not log.ready:
            _make_ready(log, now_ms)
        if leader_epoch != log.leader_epochs.latest and leader_epoch >= 0:
            log.leader_epochs.assign(leader_epoch, base_offset)
        segment = log.active
        if (
            segment.size > config.segment_bytes - size
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            or (
                segment.size
                and (
                    segment.is_full
                    or segment.waited_ms(now_ms, max_timestamp_ms) > config.roll_ms - segment.jitter_ms
                )
            )
        ):
            segment = rolling.roll_at(log, base_offset, now_ms)
        if produced:
            if origin is AppendOrigin.CLIENT:
                duplicate = log.producers.find_duplicate(header)
                if duplicate is not None:
                    return AppendResult(
                        duplicate.first_offset,
                        duplicate.last_offset,
                        duplicate.timestamp_ms,
                        log.log_start_offset,
                        True,
                    )
            if header.attributes & CONTROL_BIT:
                if marker is None:
                    marker = read_marker(batch)
                if marker is not None:
                    if origin is not AppendOrigin.REPLICATION:
                        log.producers.check_marker(header, marker, transaction_version)
                    aborted = log.producers.aborted_by(header, marker, base_offset)
            elif origin is not AppendOrigin.REPLICATION:
                if log.verifies_transactions and header.attributes & TRANSACTIONAL_BIT:
                    log.producers.check_verified(header, guard)
                log.producers.check_data(header, origin, base_offset)
        patch_offset_and_epoch(batch, 0, base_offset, leader_epoch)
        segment.append(batch, last_offset, max_timestamp_ms, config.index_interval_bytes, aborted)
    except OSError as failure:
        raise storage_error(log, failure) from failure
    log.log_end_offset = log.producers.map_end_offset = end = last_offset + 1
    if produced:
        if marker is not None:
            log.producers.apply_marker(header, marker, base_offset)
        elif not header.attributes & CONTROL_BIT:
            log.producers.apply_data(header, base_offset)
        if header.attributes & TRANSACTIONAL_BIT:
            log.update_first_unstable_offset()
    flush_due = end - log.recovery_point >= config.flush_messages
    if flush_due:
        flushing.flush_to(log, end, now_ms)
    return AppendResult(
        base_offset,
        last_offset,
        max_timestamp_ms if header.attributes & TIMESTAMP_TYPE_BIT else -1,
        log.log_start_offset,
        False,
        flush_due,
    )


def start_verification(
    log: "PartitionLog", producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
) -> Verification | None:
    """Announces a transactional append, of which the coordinator is then asked; what comes back is the
    append's `guard`. None where the transaction is open here already, so that nobody need be asked
    (KIP-890).

    Raises `KafkaError` (INVALID_PRODUCER_EPOCH).
    """
    producers = log.producers
    producers.check_epoch(producer_id, epoch)
    if producers.has_ongoing_transaction(producer_id, epoch):
        return None
    return producers.verifications.start(producer_id, sequence, epoch, supports_epoch_bump, now_ms)


def _make_ready(log: "PartitionLog", now_ms: int) -> None:
    if log.failure is not None:
        raise OSError(log.failure.errno, f"{log.directory} failed before: {log.failure}")
    if log.closed:
        raise OSError(errno.EBADF, f"{log.directory} is closed")
    recovery.create_directory(log, now_ms)
