"""One partition's log: appending, its end, and reading.

A log is a row of segments. Appends go to the last one, the active segment. A written batch can't be taken back.
So every check that may refuse a batch comes before the write, and every consequence after it:

    ready? → epoch → roll → producer's checks → write, with index entries → log end → producers → flush.messages

If the write fails, the segment is as before. A failure that can't be undone ends all appending (`failure`),
and one after the write stops the broker. Appends don't wait for the disk, except where a power loss could
cost more than was promised: at a roll of the metadata log, and at the first append and roll after a cut.
Syncing goes through the `Background` port, in the log's lane, and moves the recovery point when it is done.

`truncate_to` cuts off the end in two halves: first the files, then the state that depends on them (epochs,
producers, checkpoint). If the second half fails, it is retried before anything is appended.

The log belongs to one thread, the loop's. It has no clock and no randomness of its own: `now_ms` and `jitter`
come from outside.
Source: org.apache.kafka.storage UnifiedLog, LocalLog.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress

from protocol.errors import Error, KafkaError, cannot_apply
from protocol.records.batch import (
    BASE_OFFSET_POS,
    CONTROL_BIT,
    INT32,
    INT64,
    PARTITION_LEADER_EPOCH_POS,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    CorruptRecordError,
    EndTransactionMarker,
    crc_is_valid,
    read_header,
    read_marker,
    walk_batches,
)
from protocol.records.validation_budget import ANY, Effort
from protocol.wire.primitives import Bytes
from storage.background import Background, Then
from storage.cleaning.plan import CleanedSegment, CleaningPlan
from storage.files import Files, TornWriteError
from storage.indexes import AbortedTxn
from storage.log import reads, recovery, removal, replaced_segments, segment_recovery, syncing
from storage.log.log_config import LONG_MAX, LogConfig
from storage.log.log_state import (
    CLIENT,
    RAFT_LEADER,
    REPLICATION,
    AbortedTransaction,
    AppendOrigin,
    AppendResult,
    Jitter,
    LogPorts,
    LogState,
    ReadResult,
    RestOfCut,
    TimestampOffset,
    new_tuple,
    storage_error,
    told_to_clients,
)
from storage.log.reads import ALL
from storage.log.syncing import LastSync
from storage.producer_state import CachedBatch, VerificationGuard

__all__ = [
    "AbortedTransaction",
    "AppendOrigin",
    "AppendResult",
    "PartitionLog",
    "ReadResult",
    "TimestampOffset",
]


class PartitionLog(LogState):
    """A partition's log, made by `PartitionLog.open`.

    Offsets are ints. Every call that touches files may raise `KafkaError` (KAFKA_STORAGE_ERROR). Then
    `failure` says whether the log is lost for good. A log that begins at 0 and has never had a record may
    have no directory: the first append makes it.
    """

    __slots__ = ()

    @classmethod
    def open(
        cls,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        now_ms: int,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        compacted_up_to: int = 0,
        files: Files,
        background: Background,
        jitter: Jitter = lambda limit: 0,
        topic_id: str | None = None,
        found_topic_id: str | None = None,
    ) -> PartitionLog:
        """Open the log in the directory. It is recovered unless the last stop was `clean`. Without a
        directory it is empty.

        `recovery_point` and `log_start_offset` come from the checkpoints. Below `compacted_up_to` offsets may
        be missing. `found_topic_id` is that of partition.metadata, if the caller has read it. The high
        watermark is the log start until the caller sets another. Raises `recovery.InconsistentTopicIdError`
        if partition.metadata has another topic id, `segment_recovery.UnsupportedFormatError` for batches of
        Kafka's formats 0 and 1, and `OSError`.
        """
        log = cls(directory, topic, partition, config, ports=LogPorts(files, background, jitter))
        log.topic_id = topic_id
        recovery.open_log(
            log,
            now_ms=now_ms,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            compacted_up_to=compacted_up_to,
            found_topic_id=found_topic_id,
        )
        return log

    # ---- appending

    def append(
        self,
        batch: bytearray | memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        header: BatchHeader | None = None,
        guard: VerificationGuard | None = None,
        marker: EndTransactionMarker | None = None,
    ) -> AppendResult:
        """Append one batch of format 2, patching its base offset and leader epoch in place.

        The caller has checked the batch (CRC, records, times). `header` is what `read_header` returns *after*
        those checks, if the caller has it, and `marker` the content of a control batch. `guard` is what
        `start_verification` returned for a transactional batch. The caller moves the high watermark. An
        exception other than BrokenInvariantError leaves everything unchanged, except that the log may have
        rolled, and the leader epoch begun, as in Kafka.

        Raises `KafkaError`: RECORD_LIST_TOO_LARGE, INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR. `BrokenInvariantError` if the
        batch is written and can't be applied.
        """
        # 1. Find its place.
        if header is None:
            header = read_header(batch)
        if origin is REPLICATION:
            leader_epoch = header.partition_leader_epoch
            base_offset = _offset_of_replicated(self, header)
        else:
            base_offset = self.log_end_offset
            if len(batch) > self.config.segment_bytes:
                raise _too_large(self, len(batch))
        last_offset = base_offset + header.last_offset_delta
        attributes = header.attributes
        produced = header.producer_id >= 0
        aborted = None
        try:
            # 2. Get the log ready: it needs a directory, the epoch, and a segment with room.
            if not self.ready:
                _make_ready(self, now_ms)
            if leader_epoch != self.leader_epochs.latest and leader_epoch >= 0:
                self.leader_epochs.assign(leader_epoch, base_offset)
            segment = self.segments.active
            if segment.must_roll_for(header, base_offset, now_ms, self.config):
                segment = syncing.roll_at(self, base_offset, now_ms, synced=origin is RAFT_LEADER)
            # 3. Check that its producer may write it.
            if produced:
                if attributes & CONTROL_BIT:
                    if marker is None:
                        marker = read_marker(batch)
                    if marker is not None:
                        aborted = _check_marker(self, header, origin, marker)
                else:
                    duplicate = _check_data(self, header, origin, guard)
                    if duplicate is not None:
                        return _result_of_duplicate(self, duplicate)
            # 4. Write it.
            INT64.pack_into(batch, BASE_OFFSET_POS, base_offset)
            INT32.pack_into(batch, PARTITION_LEADER_EPOCH_POS, leader_epoch)
            interval = self.config.index_interval_bytes  # positional arguments, since keywords cost 2 %
            segment.append(batch, last_offset, header.max_timestamp, aborted, interval)
        except OSError as failure:
            raise storage_error(self, failure) from failure
        # 5. Apply the consequences.
        self.log_end_offset = self.producers.map_end_offset = end = last_offset + 1
        if produced:
            _apply(self, header, marker, base_offset)
        time_ms = header.max_timestamp if attributes & TIMESTAMP_TYPE_BIT else -1
        flushing = end - self.flushing.recovery_point >= self.config.flush_messages
        if flushing:
            _begin_flush(self, end, now_ms)
        fields = (base_offset, last_offset, time_ms, self.log_start_offset, False, flushing)
        return new_tuple(AppendResult, fields)

    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Begin to verify a transactional append with the coordinator, and return the `guard` for the append.

        Returns None if the transaction is already open here, so that no verification is needed (KIP-890).

        Raises `KafkaError` (INVALID_PRODUCER_EPOCH).
        """
        producers = self.producers
        producers.check_epoch(producer_id, epoch)
        if producers.has_ongoing_transaction(producer_id, epoch):
            return None
        return producers.start_verification(producer_id, sequence, epoch, supports_epoch_bump, now_ms)

    # ---- reading

    def read(
        self, offset: int, max_bytes: int, upper_bound: int, min_one_batch: bool = False, at_once: int = ALL
    ) -> ReadResult:
        """Read batches of one segment, from the one that holds `offset`, below the offset `upper_bound`.

        Returns at most `max_bytes`; the last batch may be cut short. With `min_one_batch` the first batch is
        always whole, otherwise nothing is returned if it doesn't fit. If there are more than `at_once` bytes,
        most stay in the file. Raises `KafkaError`: OFFSET_OUT_OF_RANGE (outside the log),
        KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE.
        """
        try:
            return reads.read(self, offset, max_bytes, upper_bound, min_one_batch, at_once)
        except OSError as failure:
            raise storage_error(self, failure) from failure

    def batches(self, offset: int, *, upper_bound: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Iterate over the batches of all segments, from the one that holds `offset`, below the offset
        `upper_bound`. Replays use it.

        Raises `KafkaError` as `read` does, and KAFKA_STORAGE_ERROR if no whole batch is left; `CorruptRecordError`.
        """
        return reads.batches(self, offset, upper_bound=upper_bound)

    def header_at(self, offset: int) -> BatchHeader | None:
        """The header of the batch that holds `offset`; None if the offset is outside the log.

        Raises `KafkaError` (KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE).
        """
        if not self.log_start_offset <= offset < self.log_end_offset:
            return None
        segments = self.segments
        try:
            found = segments.row[segments.slot_of(offset)].find_by_index(offset)
        except OSError as failure:
            raise storage_error(self, failure) from failure
        return None if found is None else found[1]

    @told_to_clients
    def available_bytes(self, offset: int, upper_bound: int) -> int:
        """Return the number of bytes from the batch that holds `offset` to `upper_bound`.

        A waiting Fetch adds these up to compare them with its minimum. If the offset is in an earlier segment
        than the bound, this is `reads.ENOUGH_BYTES`: such a Fetch never waits. It is 0 for an offset outside
        the log; reading it raises.
        """
        return reads.available_bytes(self, offset, upper_bound)

    def has_aborted_behind(self, offset: int) -> bool:
        """True if a reader of committed records, from this offset on, may come across the marker of an abort."""
        segments = self.segments
        active = segments.active
        try:
            for segment in (
                (active,) if offset >= active.base_offset else segments.row[segments.slot_of(offset) :]
            ):
                if segment.txn_index.count:
                    return True
        except OSError as failure:
            raise storage_error(self, failure) from failure
        return False

    @told_to_clients
    def bound_by_aborted(self, offset: int, most: int) -> int:
        """See `reads.bound_by_aborted`."""
        return reads.bound_by_aborted(self, offset, most)

    @told_to_clients
    def aborted_transactions(
        self, fetch_offset: int, result: ReadResult, upper_bound: int = LONG_MAX
    ) -> list[AbortedTransaction]:
        """See `reads.aborted_transactions`."""
        return reads.aborted_transactions(self, fetch_offset, result, upper_bound)

    @told_to_clients
    def offset_for_timestamp(self, timestamp_ms: int, effort: Effort = ANY) -> TimestampOffset | None:
        """Return the first record, from the log start on, whose timestamp is at or after the given one."""
        return reads.carried_out(reads.search_for_timestamp(self, timestamp_ms), effort)

    @told_to_clients
    def offset_of_max_timestamp(self, effort: Effort = ANY) -> TimestampOffset | None:
        """Return the first record with the log's largest timestamp. It may be below the log start, as in Kafka."""
        return reads.carried_out(reads.search_for_max_timestamp(self), effort)

    # ---- syncing

    @property
    def recovery_point(self) -> int:
        """Everything before this offset is on the disk."""
        return self.flushing.recovery_point

    def flush(self, now_ms: int, *, at_once: bool = False) -> None:
        """Begin to sync everything that was appended. `recovery_point` follows once it is done.

        `at_once`: go ahead of all logs' later flushes, even if a flush of this log is under way.
        """
        syncing.flush_to(self, self.log_end_offset, now_ms, at_once=at_once)

    def go_on_flushing(self) -> None:
        """See `syncing.go_on`, `replaced_segments.go_on`."""
        syncing.go_on(self)
        replaced_segments.go_on(self)

    def flush_if_due(self, now_ms: int) -> None:
        """Begin a flush if the last one was `flush.ms` ago."""
        if (
            now_ms - self.flushing.last_ms >= self.config.flush_ms
            and self.recovery_point < self.log_end_offset
        ):
            self.flush(now_ms)

    @property
    def flush_wanted(self) -> bool:
        """True if a flush is under way, or waits for one that is."""
        return self.flushing.wanted_to > self.flushing.recovery_point

    def when_flushed(self, offset: int, then: Then) -> None:
        """See `syncing.when_flushed`."""
        syncing.when_flushed(self, offset, then)

    def tell_flushed(self) -> None:
        """Answer the waits for a flush of the log that this one has replaced, up to the offset that is synced here."""
        self.flushing.tell_synced()

    @told_to_clients
    def sync(self) -> None:
        """Wait until everything that was appended is on the disk. No flush of this log may be under way."""
        syncing.sync_now(self)

    # ---- segments

    @property
    def base_offsets(self) -> list[int]:
        """The base offsets of its segments, ascending."""
        return self.segments.base_offsets

    @property
    def size(self) -> int:
        """The bytes of its `.log` files."""
        return self.segments.size

    @told_to_clients
    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end, unless the active one is empty."""
        if self.created and not self.closed:
            syncing.roll_at(self, self.log_end_offset, now_ms)

    @told_to_clients
    def create(self, now_ms: int) -> None:
        """Make its directory. Otherwise the first append does."""
        recovery.create_directory(self, now_ms)

    @told_to_clients
    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop all batches from the one that holds the offset. Returns True if there were any."""
        if offset < 0:
            raise ValueError(f"can't truncate to {offset}")
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            _finish_cut(self, now_ms)
            return False
        if offset < self.segments.base_offsets[0]:
            _begin_anew(self, offset, now_ms)
            return True
        if offset < self.segments.active.base_offset:
            _end_pass(self)
        try:
            removal.drop_segments(self, self.segments.newest_first(above=offset))
            self.segments.active.truncate_to(offset, now_ms)
        except _CUT_SHORT as failure:
            raise _half_done(failure) from failure
        self.end_at(offset)
        if self.hole is not None and offset <= self.hole:
            self.hole = None
        _follow_cut(self, _behind_what_is_left, now_ms)
        return True

    @told_to_clients
    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drop everything. The log begins and ends at the offset from now on, as the name of its first file says."""
        _begin_anew(self, offset, now_ms)
        if offset and not self.created:
            recovery.create_directory(self, now_ms)

    @told_to_clients
    def delete_records_before(self, offset: int) -> int:
        """Move the log start to the offset, and return the log start. The next retention pass deletes the
        segments below.

        Raises `KafkaError` (OFFSET_OUT_OF_RANGE) for an offset above the high watermark.
        """
        return removal.delete_records_before(self, offset)

    @told_to_clients
    def apply_retention(self, now_ms: int, most: int = ALL) -> int:
        """Delete at most `most` segments that lie below the log start, or that retention.ms or
        retention.bytes give up.

        Returns how many. Files are renamed with `.deleted` at once, and unlinked after `file.delete.delay.ms`.
        """
        return removal.apply_retention(self, now_ms, most)

    # ---- cleaning

    @told_to_clients
    def cleaning_plan(
        self, *, first_dirty_offset: int, first_uncleanable_offset: int, now_ms: int, max_keys: int
    ) -> CleaningPlan:
        """Plan a pass of `cleaner.clean` over the current log. Until it ends, neither retention nor recovery
        may run.

        The first uncleanable offset is rounded down to the base of its segment. `max_keys` is the capacity of
        the offset map (`offset_map.keys_for`).
        """
        return replaced_segments.cleaning_plan(
            self,
            first_dirty_offset=first_dirty_offset,
            first_uncleanable_offset=first_uncleanable_offset,
            now_ms=now_ms,
            max_keys=max_keys,
        )

    def replace_segments(self, cleaned: CleanedSegment, then: Then) -> None:
        """Replace segments by the cleaned one that was made from them. Only one replacement may be under way.

        `then` is called once that is on the disk, or with the failure: `OSError`, or `ReplacedMeanwhileError`
        if the log has changed meanwhile.
        """
        replaced_segments.replace_segments(self, cleaned, then)

    # ---- ending

    @told_to_clients
    def close(self, *, clean: bool = True) -> None:
        """Close the log. A clean close writes and syncs everything, and leaves the snapshot that the next
        start trusts.

        It waits for the disk, without the background. Those who wait for a flush that won't come now get an error.
        """
        last_sync = self._begin_close(clean)
        if last_sync is None:
            return
        try:
            last_sync.work()
            if last_sync.parent is not None:
                self.files.sync_directory(last_sync.parent)
        except OSError as failure:
            self.end_close(failure)
            raise
        self.end_close(None)

    @told_to_clients
    def begin_close(self) -> LastSync | None:
        """Do the first half of a clean `close`: write everything.

        Any thread may do the sync that is returned, and then `end_close` is called with the outcome. Returns
        None if nothing needs a sync; then the log is closed.
        """
        return self._begin_close(clean=True)

    def _begin_close(self, clean: bool) -> LastSync | None:
        if self.closed:
            return None
        was_usable = self.usable
        self.close_down()
        last_sync = None
        try:
            if clean and was_usable:
                self.segments.active.become_inactive()
                syncing.keep_txn_index(self)
                last_sync = syncing.last_sync(self, self.snapshots.take(self.producers))
        finally:
            if last_sync is None:
                self.flushing.tell_lost(self.closed_error())
            try:
                self.segments.close()
            except OSError:  # written data may be lost, so nothing is synced
                self.flushing.tell_lost(self.closed_error())
                raise
        return last_sync

    def end_close(self, failure: Exception | None) -> None:
        """Do the second half of a clean `close`, with the failure of the sync, if any."""
        if failure is None:
            self.flushing.synced_to(self.log_end_offset)
        self.flushing.tell_lost(self.closed_error())

    @told_to_clients
    def delete(self, unique: str) -> str | None:
        """Take the log out of use and rename its directory to `<topic>-<partition>.<unique>-delete`.

        `unique` is 32 hex digits. The directory is deleted after `file.delete.delay.ms`. Returns its new
        path, or None if there was none.
        """
        return removal.delete(self, unique)

    # ---- offsets

    @property
    def last_stable_offset(self) -> int:
        """Everything below is decided and replicated: the first unstable offset, or else the high watermark."""
        first_unstable, high_watermark = self.first_unstable_offset, self.high_watermark
        return first_unstable if 0 <= first_unstable < high_watermark else high_watermark

    def assign_leader_epoch(self, epoch: int) -> None:
        """Begin an epoch at the log end, before any record: this node is the leader from now on."""
        self.leader_epochs.begin(epoch, self.log_end_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The (epoch, end offset) that OffsetForLeaderEpoch answers; (-1, -1) for an epoch above all known
        ones, or -1."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that have been silent for `producer.id.expiration.ms`. Returns how many."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)


# ---- the steps of appending, in the order of `PartitionLog.append`. Source: UnifiedLog.append,
# analyzeAndValidateProducerState, maybeRoll


def _offset_of_replicated(log: LogState, header: BatchHeader) -> int:
    """A replicated batch keeps its offset, which is at the log end or after it."""
    if header.base_offset < log.log_end_offset:
        raise ValueError(f"offset {header.base_offset} appended at log end {log.log_end_offset}")
    return header.base_offset


def _too_large(log: LogState, size: int) -> KafkaError:
    """RECORD_LIST_TOO_LARGE, for a batch that no segment has room for."""
    return KafkaError(
        Error.RECORD_LIST_TOO_LARGE, f"batch of {size} bytes, segment.bytes={log.config.segment_bytes}"
    )


def _make_ready(log: LogState, now_ms: int) -> None:
    """Make the directory at the first append. After a cut, finish it, and wait until the disk has it.

    Raises `OSError` if the log is closed or has failed.
    """
    if log.failure is not None:
        raise OSError(log.failure.errno, f"{log.directory} failed before: {log.failure}")
    if log.closed:
        raise log.closed_error()
    if log.created:
        _finish_cut(log, now_ms)
        syncing.sync_cut(log)
    else:
        recovery.create_directory(log, now_ms)


def _check_data(
    log: LogState, header: BatchHeader, origin: AppendOrigin, guard: VerificationGuard | None
) -> CachedBatch | None:
    """Refuse a producer's batch that may not follow its last one. Returns the stored batch if a client repeats it.

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


def _result_of_duplicate(log: LogState, duplicate: CachedBatch) -> AppendResult:
    """The result of the original append of this batch."""
    flushing = log.flushing
    return AppendResult(
        duplicate.first_offset,
        duplicate.last_offset,
        duplicate.timestamp_ms,
        log.log_start_offset,
        duplicate=True,
        flushing=log.flush_is_due and flushing.recovery_point <= duplicate.last_offset < flushing.wanted_to,
    )


def _check_marker(
    log: LogState, header: BatchHeader, origin: AppendOrigin, marker: EndTransactionMarker
) -> AbortedTxn | None:
    """Refuse a marker that may not end the producer's transaction. Returns its entry for the transaction index.

    Raises `KafkaError`: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
    """
    if origin is REPLICATION:
        return log.producers.aborted_by(header, marker, header.base_offset)
    log.producers.check_marker(header, marker)
    return log.producers.aborted_by(header, marker, log.log_end_offset)


def _apply(log: LogState, header: BatchHeader, marker: EndTransactionMarker | None, base_offset: int) -> None:
    """Apply a producer's batch after it was written.

    Raises `BrokenInvariantError`: the producer's state would differ from the log, and its next batch might be
    mistaken for another one.
    """
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


def _begin_flush(log: LogState, end_offset: int, now_ms: int) -> None:
    """Begin a flush, as `flush.messages` is reached.

    If there is too little memory, `PartitionLog.go_on_flushing` begins it later: a written batch must not be
    reported as failed for that.
    """
    with suppress(MemoryError):
        syncing.flush_to(log, end_offset, now_ms)


# ---- dropping a log's end, as a replica does if it has records that its leader lacks. Source:
# UnifiedLog.truncateTo, truncateFullyAndStartAt


_CUT_SHORT = (OSError, MemoryError, KafkaError, CorruptRecordError)
"""The exceptions that may end a cut after some of the files have gone."""


def _begin_anew(log: LogState, offset: int, now_ms: int) -> None:
    """Do `PartitionLog.truncate_fully_and_start_at`, except for making a missing directory."""
    created = log.created
    _end_pass(log)
    try:
        removal.drop_segments(log, log.segments.newest_first() if created else [])
        log.segments.begin_with(syncing.new_segment(log, offset, now_ms))
        if created:
            log.segments.active.create()
    except _CUT_SHORT as failure:
        raise _half_done(failure) from failure
    log.begin_at(offset)
    log.end_at(offset)
    log.hole = None
    _follow_cut(log, _behind_nothing, now_ms)


def _finish_cut(log: LogState, now_ms: int) -> None:
    """Finish a cut whose second half failed. Nothing is appended before that. Raises `OSError`."""
    rest = log.rest_of_cut
    if rest is not None:
        rest(log, now_ms)
        log.cut_is_followed()


def _follow_cut(log: LogState, rest: RestOfCut, now_ms: int) -> None:
    log.rest_of_cut = rest
    try:
        _finish_cut(log, now_ms)
    finally:
        log.tell_truncated()  # last: the callbacks may look at the log, or append to it


def _behind_what_is_left(log: LogState, now_ms: int) -> None:
    offset = log.log_end_offset
    log.truncated((log.topic, log.partition), log.segments.active.base_offset)
    log.leader_epochs.truncate_from_end(offset)
    segment_recovery.rebuild(log, offset, now_ms)
    log.producers.on_high_watermark(log.high_watermark)
    log.update_first_unstable_offset()


def _behind_nothing(log: LogState, now_ms: int) -> None:
    offset = log.log_end_offset
    log.truncated((log.topic, log.partition), offset)
    log.leader_epochs.clear()
    log.snapshots.remove_all()
    log.producers.reset((), offset)
    log.update_first_unstable_offset()


def _end_pass(log: LogState) -> None:
    """End the cleaner's pass before segments are dropped, so that the pass counts as ended and not as failed."""
    log.end_cleaning()
    replaced_segments.give_up(log)


def _half_done(failure: Exception) -> TornWriteError:
    """The error for a log whose end is no longer known for sure: nothing may be appended."""
    code = failure.errno if isinstance(failure, OSError) else errno.EIO
    return TornWriteError(code, f"only partly truncated: {failure!r}")


# ---- appending a leader's records as its follower. Source: UnifiedLog.appendAsFollower


def sync_cut(log: PartitionLog, then: Then) -> bool:
    """If the log's end was cut off and the disk may not have that yet, sync it in the background and return True.

    `then` is called once the disk has it, or with the failure. An append before that waits for the disk.
    """
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
    """Append fetched batches as they are. `has_gaps`: offsets may be missing, since the leader's log was compacted.

    If records were deleted, the leader's log may begin in the middle of a batch. An empty log then begins
    with that batch (Kafka: `Partition.appendRecordsToFollowerOrFutureReplica`). Its log start follows like
    any other.

    `leader_start` is where the leader's log begins, or 0 if this log is known to match the leader's up to its
    end. If the leader's log begins right after this one, with a later epoch, the uncommitted records here may
    never have been in the leader's log before it deleted its own. Then everything is dropped, with the state
    of producers.

    Batches of a later epoch than that of the leader, and everything after them, are left out: there is
    another leader, and the next answer names it (KAFKA-18723).

    Raises CorruptRecordError for a batch that makes no sense or doesn't follow; KafkaError as
    `PartitionLog.append`. The batches before it are in the log.
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
