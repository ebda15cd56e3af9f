"""The steps of appending a batch to a log: `PartitionLog.append` takes them in turn.

Source: org.apache.kafka.storage UnifiedLog.append, analyzeAndValidateProducerState, maybeRoll.
"""

from contextlib import suppress

from protocol.errors import Error, KafkaError, cannot_apply
from protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from protocol.records.records import EndTransactionMarker
from storage.indexes.transaction_index import AbortedTxn
from storage.log import recovery, syncing, truncation
from storage.log.log_state import LogState
from storage.log.results import CLIENT, REPLICATION, AppendOrigin, AppendResult
from storage.producers.producer import CachedBatch
from storage.producers.verification_guards import VerificationGuard


def offset_of_replicated(log: LogState, header: BatchHeader) -> int:
    """A replicated batch keeps its offset, which is at the log end or behind it."""
    if header.base_offset < log.log_end_offset:
        raise ValueError(f"offset {header.base_offset} appended at log end {log.log_end_offset}")
    return header.base_offset


def too_large(log: LogState, size: int) -> KafkaError:
    """RECORD_LIST_TOO_LARGE, for a batch that no segment has room for."""
    return KafkaError(
        Error.RECORD_LIST_TOO_LARGE, f"batch of {size} bytes, segment.bytes={log.config.segment_bytes}"
    )


def make_ready(log: LogState, now_ms: int) -> None:
    """Makes the directory at the first append; behind a cut does what it left to be done, and waits for the disk where
    that may still have the end that was cut off. Raises `OSError` where the log is closed or has failed."""
    if log.failure is not None:
        raise OSError(log.failure.errno, f"{log.directory} failed before: {log.failure}")
    if log.closed:
        raise log.closed_error()
    if log.created:
        truncation.finish_cut(log, now_ms)
        syncing.sync_cut(log)
    else:
        recovery.create_directory(log, now_ms)


def check_data(
    log: LogState, header: BatchHeader, origin: AppendOrigin, guard: VerificationGuard | None
) -> CachedBatch | None:
    """Refuses a producer's batch that may not follow what is known of it. Returns the batch that a client's repeats.

    Raises `KafkaError`: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
    """
    if origin is REPLICATION:
        return None
    producers = log.producers
    of_client = origin is CLIENT
    if of_client:
        duplicate = producers.find_duplicate(header)
        if duplicate is not None:
            return duplicate
    if log.verifies_transactions and header.attributes & TRANSACTIONAL_BIT:
        producers.check_verified(header, guard)
    producers.check_data(header, log.log_end_offset, checks_sequence=of_client)
    return None


def result_of_duplicate(log: LogState, duplicate: CachedBatch) -> AppendResult:
    """Where the batch stands that was appended before."""
    flushing = log.flushing
    return AppendResult(
        duplicate.first_offset,
        duplicate.last_offset,
        duplicate.timestamp_ms,
        log.log_start_offset,
        duplicate=True,
        flushing=log.flush_is_due and flushing.recovery_point <= duplicate.last_offset < flushing.wanted_to,
    )


def check_marker(
    log: LogState, header: BatchHeader, origin: AppendOrigin, marker: EndTransactionMarker
) -> AbortedTxn | None:
    """Refuses a marker that may not end the producer's transaction. Returns what the transaction index must say of it.

    Raises `KafkaError`: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
    """
    if origin is REPLICATION:
        return log.producers.aborted_by(header, marker, header.base_offset)
    log.producers.check_marker(header, marker)
    return log.producers.aborted_by(header, marker, log.log_end_offset)


def apply(log: LogState, header: BatchHeader, marker: EndTransactionMarker | None, base_offset: int) -> None:
    """What a producer's batch says, which is written. Raises `BrokenInvariantError`: what is known of the producer
    isn't what the log says, and its next batch might be taken for another one."""
    producers = log.producers
    try:
        if marker is not None:
            producers.apply_marker(header, marker, base_offset)
        elif not header.attributes & CONTROL_BIT:
            producers.apply_data(header, base_offset)
        if header.attributes & TRANSACTIONAL_BIT:
            log.update_first_unstable_offset()
    except Exception as error:
        raise cannot_apply(error) from error


def begin_flush(log: LogState, end_offset: int, now_ms: int) -> None:
    """`flush.messages` is reached. Where there is too little memory it is begun later (`PartitionLog.go_on_flushing`):
    what is written may not be told to have failed for that."""
    with suppress(MemoryError):
        syncing.flush_to(log, end_offset, now_ms)
