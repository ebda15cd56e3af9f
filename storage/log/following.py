"""Appending what a leader's log has, as its follower (Kafka: `UnifiedLog.appendAsFollower`)."""

from contextlib import suppress

from protocol.records.batch import CorruptRecordError, crc_is_valid, walk_batches
from protocol.wire.primitives import Bytes
from storage.background import Then
from storage.log import syncing
from storage.log.partition_log import PartitionLog
from storage.log.results import AppendOrigin


def sync_cut(log: PartitionLog, then: Then) -> bool:
    """Where the log's end was cut off and the disk may not have that yet: `then` is told once it has, and with the
    failure where it refuses. Returns whether that is so. What is appended sooner waits for the disk."""
    if log.cut is None:
        return False
    with suppress(MemoryError):
        syncing.sync_cut_beside(log, then)
        return True
    return False


def append_as_follower(
    log: PartitionLog,
    records: Bytes,
    *,
    leader_epoch: int,
    now_ms: int,
    has_gaps: bool,
    leader_start: int = 0,
) -> None:
    """The batches that were fetched, as they are. `has_gaps`: offsets may be missing, since the leader's was compacted.

    The leader's log may begin amid a batch, where records were deleted: a log that has nothing yet begins with that
    batch then (Kafka: `Partition.appendRecordsToFollowerOrFutureReplica`). Its log start follows as any other.

    `leader_start` is where the leader's log begins; 0 where this log is known to be the leader's up to its end. Where
    the leader's begins right behind this one, with a later epoch, nobody knows whether what isn't known to be committed
    here was the leader's before he deleted it: then all of it goes, and with it what is known of producers.

    What is of a later epoch than that of the leader, and all behind it, is left out: there is another leader, whom the
    next answer tells of (KAFKA-18723).

    Raises CorruptRecordError for one that makes no sense, or doesn't follow; KafkaError as `PartitionLog.append`. What
    came before it is in the log.
    """
    for pos, header in walk_batches(records):
        if header.partition_leader_epoch > leader_epoch:
            return
        if not crc_is_valid(records, pos, header.size_bytes):
            raise CorruptRecordError(f"the CRC of the batch at offset {header.base_offset} doesn't match")
        if header.last_offset_delta < 0:
            raise CorruptRecordError(f"the batch at offset {header.base_offset} ends before it begins")
        end_offset = log.log_end_offset
        if header.base_offset < end_offset == log.log_start_offset <= header.last_offset:
            log.truncate_fully_and_start_at(header.base_offset, now_ms)
            end_offset = header.base_offset
        elif (
            log.log_start_offset < leader_start == end_offset > log.high_watermark
            and log.leader_epochs.latest < header.partition_leader_epoch
        ):
            log.truncate_fully_and_start_at(leader_start, now_ms)
        if header.base_offset < end_offset or (header.base_offset > end_offset and not has_gaps):
            raise CorruptRecordError(
                f"a batch begins at offset {header.base_offset}, and the log ends at {end_offset}"
            )
        log.append(
            bytearray(records[pos : pos + header.size_bytes]),
            leader_epoch=header.partition_leader_epoch,
            now_ms=now_ms,
            origin=AppendOrigin.REPLICATION,
            header=header,
        )
