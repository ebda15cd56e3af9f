"""One partition's log: what is appended, where it ends, what may be read of it.

A log is a row of segments, of which the last is appended to. It belongs to one thread, the loop's; what must
wait for the disk goes through the `Background` port. No clock and no chance in here: `now_ms` and `jitter`
come in. Source: org.apache.kafka.storage UnifiedLog, LocalLog.
"""

from collections.abc import Iterator

from protocol.records.batch import (
    CONTROL_BIT,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    patch_offset_and_epoch,
    read_header,
)
from protocol.records.records import EndTransactionMarker, read_marker
from protocol.records.validation_budget import ANY, Effort
from storage.background import Background, Then
from storage.cleaning.plan import CleanedSegment, CleaningPlan
from storage.files import Files
from storage.log import (
    appending,
    closing,
    log_to_clean,
    lookups,
    reads,
    recovery,
    removal,
    replacing,
    results,
    retention,
    rolling,
    syncing,
    truncation,
)
from storage.log.log_config import LONG_MAX, LogConfig
from storage.log.log_state import Jitter, LogPorts, LogState
from storage.log.reads import ALL
from storage.log.results import AbortedTransaction, AppendOrigin, AppendResult, ReadResult, TimestampOffset
from storage.log.storage_errors import storage_error, told_to_clients
from storage.log.syncing import LastSync
from storage.producers.verification_guards import VerificationGuard

__all__ = [
    "AbortedTransaction",
    "AppendOrigin",
    "AppendResult",
    "PartitionLog",
    "ReadResult",
    "TimestampOffset",
]


class PartitionLog(LogState):
    """Made by `PartitionLog.open`. Offsets are ints; every call that touches files may raise `KafkaError`
    (KAFKA_STORAGE_ERROR), after which `failure` says whether the log is lost for good. A log that begins at 0 and was
    never appended to may have no directory: it is made at the first append."""

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
    ) -> "PartitionLog":
        """The log in the directory, recovered unless the last stop was `clean`; an empty one without it.

        `recovery_point` and `log_start_offset` are the checkpoints'; below `compacted_up_to` offsets may be missing;
        `found_topic_id` is partition.metadata's, where the caller has read it. The high watermark is the log start
        until the caller says otherwise. Raises `recovery.InconsistentTopicIdError` where partition.metadata says
        another topic id, `segment_recovery.UnsupportedFormatError` for batches of Kafka's formats 0 and 1, `OSError`.
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
        """Appends one batch of format 2, patching its base offset and leader epoch in place.

        The batch was checked before (CRC, records, times); `header` is what `read_header` says of it *after* those
        checks, if the caller has it, and `marker` what a control batch says. `guard` is what `start_verification` gave
        for a transactional batch. Where anything else than BrokenInvariantError is raised nothing is changed, except
        that the log may have rolled, and the leader epoch begun, as in Kafka. The high watermark is the caller's.

        Raises `KafkaError`: RECORD_LIST_TOO_LARGE, INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR. `BrokenInvariantError` where the batch
        is written and can't be applied.
        """
        if header is None:
            header = read_header(batch)
        if origin is results.REPLICATION:
            leader_epoch = header.partition_leader_epoch
            base_offset = appending.offset_of_replicated(self, header)
        else:
            base_offset = self.log_end_offset
            if len(batch) > self.config.segment_bytes:
                raise appending.too_large(self, len(batch))
        last_offset = base_offset + header.last_offset_delta
        attributes = header.attributes
        produced = header.producer_id >= 0
        aborted = None
        try:
            if not self.ready:
                appending.make_ready(self, now_ms)
            if leader_epoch != self.leader_epochs.latest and leader_epoch >= 0:
                self.leader_epochs.assign(leader_epoch, base_offset)
            segment = self.segments.active
            if segment.must_roll_for(header, base_offset, now_ms, self.config):
                segment = rolling.roll_at(self, base_offset, now_ms, synced=origin is results.RAFT_LEADER)
            if produced:
                if attributes & CONTROL_BIT:
                    if marker is None:
                        marker = read_marker(batch)
                    if marker is not None:
                        aborted = appending.check_marker(self, header, origin, marker)
                else:
                    duplicate = appending.check_data(self, header, origin, guard)
                    if duplicate is not None:
                        return appending.result_of_duplicate(self, duplicate)
            patch_offset_and_epoch(batch, 0, base_offset, leader_epoch)
            interval = self.config.index_interval_bytes  # by position, since keywords cost 2 %
            segment.append(batch, last_offset, header.max_timestamp, aborted, interval)
        except OSError as failure:
            raise storage_error(self, failure) from failure
        self.log_end_offset = self.producers.map_end_offset = end = last_offset + 1
        if produced:
            appending.apply(self, header, marker, base_offset)
        time_ms = header.max_timestamp if attributes & TIMESTAMP_TYPE_BIT else -1
        flushing = end - self.flushing.recovery_point >= self.config.flush_messages
        if flushing:
            appending.begin_flush(self, end, now_ms)
        fields = (base_offset, last_offset, time_ms, self.log_start_offset, False, flushing)
        return results.new_tuple(AppendResult, fields)

    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Begins to verify a transactional append with the coordinator; what comes back is the append's `guard`.
        None where the transaction is open here already, so that nobody need be asked (KIP-890).

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
        """Batches from the one that holds `offset`, below the offset `upper_bound`, of one segment.

        At most `max_bytes`, the last batch possibly torn; with `min_one_batch` the first one whole, else nothing where
        it doesn't fit. Of more than `at_once` bytes most are left in the file. Raises `KafkaError`: OFFSET_OUT_OF_RANGE
        (outside of the log), KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE."""
        try:
            return reads.read(self, offset, max_bytes, upper_bound, min_one_batch, at_once)
        except OSError as failure:
            raise storage_error(self, failure) from failure

    def batches(self, offset: int, *, upper_bound: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Each batch from the one that holds `offset`, below the offset `upper_bound`, of all segments: for who
        replays.

        Raises `KafkaError` as `read` does, KAFKA_STORAGE_ERROR too where no whole batch is left; `CorruptRecordError`.
        """
        return reads.batches(self, offset, upper_bound=upper_bound)

    @told_to_clients
    def available_bytes(self, offset: int, upper_bound: int) -> int:
        """Bytes from the batch that holds `offset` to `upper_bound`: a waiting Fetch sums up its minimum of them.

        `reads.ENOUGH_BYTES` where the offset lies in an earlier segment than the bound: such a Fetch never waits. 0
        for an offset outside of the log: reading it will say so.
        """
        return reads.available_bytes(self, offset, upper_bound)

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
        """The first record, in log order and from the log start on, whose timestamp is at or after the given one."""
        return lookups.carried_out(lookups.search_for_timestamp(self, timestamp_ms), effort)

    @told_to_clients
    def offset_of_max_timestamp(self, effort: Effort = ANY) -> TimestampOffset | None:
        """The first record that has the log's largest timestamp; possibly below the log start, as in Kafka."""
        return lookups.carried_out(lookups.search_for_max_timestamp(self), effort)

    # ---- syncing

    @property
    def recovery_point(self) -> int:
        """All before it is on the disk."""
        return self.flushing.recovery_point

    def flush(self, now_ms: int, *, at_once: bool = False) -> None:
        """Begins to sync all that was appended; `recovery_point` follows once it is done. `at_once`: ahead of all logs'
        flushes that are wanted later, though one of this log is under way."""
        syncing.flush_to(self, self.log_end_offset, now_ms, at_once=at_once)

    def go_on_flushing(self) -> None:
        """See `syncing.go_on`, `replacing.go_on`."""
        syncing.go_on(self)
        replacing.go_on(self)

    def flush_if_due(self, now_ms: int) -> None:
        """Flushes where the last flush was `flush.ms` ago."""
        if (
            now_ms - self.flushing.last_ms >= self.config.flush_ms
            and self.recovery_point < self.log_end_offset
        ):
            self.flush(now_ms)

    @property
    def flush_wanted(self) -> bool:
        """Whether a flush is under way, or waits for one that is."""
        return self.flushing.wanted_to > self.flushing.recovery_point

    def when_flushed(self, offset: int, then: Then) -> None:
        """See `syncing.when_flushed`."""
        syncing.when_flushed(self, offset, then)

    def tell_flushed(self) -> None:
        """Tells those who came with the log whose place this one took, and wait for what is synced here."""
        self.flushing.tell_synced()

    @told_to_clients
    def sync(self) -> None:
        """Waits until all that was appended is on the disk. No flush of it may run."""
        syncing.sync_now(self)

    # ---- segments

    @property
    def base_offsets(self) -> list[int]:
        """Of its segments, ascending."""
        return self.segments.base_offsets

    @property
    def size(self) -> int:
        """Bytes of its `.log` files."""
        return self.segments.size

    @told_to_clients
    def roll(self, now_ms: int) -> None:
        """Begins a new segment at the log end, unless the active one is empty."""
        if self.created and not self.closed:
            rolling.roll_at(self, self.log_end_offset, now_ms)

    @told_to_clients
    def create(self, now_ms: int) -> None:
        """Makes its directory, which otherwise comes with the first append."""
        recovery.create_directory(self, now_ms)

    @told_to_clients
    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drops all batches from the one that holds the offset. Returns whether there were any."""
        return truncation.truncate_to(self, offset, now_ms)

    @told_to_clients
    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drops everything; the log begins and ends at the offset. The name of its first file says so from now on."""
        truncation.truncate_fully_and_start_at(self, offset, now_ms)
        if offset and not self.created:
            recovery.create_directory(self, now_ms)

    @told_to_clients
    def delete_records_before(self, offset: int) -> int:
        """Moves the log start to the offset; the segments below go at the next retention pass. Returns the log start.
        Raises `KafkaError` (OFFSET_OUT_OF_RANGE) for an offset above the high watermark."""
        return retention.delete_records_before(self, offset)

    @told_to_clients
    def apply_retention(self, now_ms: int, most: int = ALL) -> int:
        """Deletes the segments that lie below the log start, or that retention.ms or retention.bytes give up, `most`
        of them.

        Returns how many. Files are renamed with `.deleted` at once, and unlinked after `file.delete.delay.ms`.
        """
        return retention.apply_retention(self, now_ms, most)

    # ---- cleaning

    @told_to_clients
    def cleaning_plan(
        self, *, first_dirty_offset: int, first_uncleanable_offset: int, now_ms: int, max_keys: int
    ) -> CleaningPlan:
        """A pass over the log as it is now, for `cleaner.clean`. Until it has ended neither retention nor truncation
        may run. The first uncleanable offset is rounded down to the base of its segment; `max_keys` is what the offset
        map takes (`offset_map.keys_for`)."""
        return log_to_clean.cleaning_plan(
            self,
            first_dirty_offset=first_dirty_offset,
            first_uncleanable_offset=first_uncleanable_offset,
            now_ms=now_ms,
            max_keys=max_keys,
        )

    def replace_segments(self, cleaned: CleanedSegment, then: Then) -> None:
        """Puts a cleaned segment in the place of those that it was made from, one at a time. `then` is called once that
        is on the disk, or with the failure: `OSError`, `ReplacedMeanwhileError` where the log is another one by now."""
        replacing.replace_segments(self, cleaned, then)

    # ---- ending

    @told_to_clients
    def close(self, *, clean: bool = True) -> None:
        """Ends the log. A clean end syncs all, and leaves the snapshot that the next start trusts.

        It waits for the disk, without the background. Whoever waits for a flush that now won't be is told so.
        """
        closing.close(self, clean)

    @told_to_clients
    def begin_close(self) -> LastSync | None:
        """The first half of a clean `close`: all is written. What remains to be synced may be so in any thread, and
        `end_close` is told; None where nothing remains, the log being closed then."""
        return closing.begin_close(self, clean=True)

    def end_close(self, failure: Exception | None) -> None:
        """The second half of a clean `close`: all is synced, or isn't."""
        closing.end_close(self, failure)

    @told_to_clients
    def delete(self, unique: str) -> str | None:
        """Takes the log out of use and renames its directory to `<topic>-<partition>.<unique>-delete`, `unique` being
        32 hex digits. The directory goes after `file.delete.delay.ms`. Returns its new path, None
        where there was none.
        """
        return removal.delete(self, unique)

    # ---- offsets

    @property
    def last_stable_offset(self) -> int:
        """All below it is decided and replicated: the first unstable offset, or else the high watermark."""
        first_unstable, high_watermark = self.first_unstable_offset, self.high_watermark
        return first_unstable if 0 <= first_unstable < high_watermark else high_watermark

    def assign_leader_epoch(self, epoch: int) -> None:
        """This node leads from here on: the epoch begins at the log end, before any record."""
        self.leader_epochs.begin(epoch, self.log_end_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) for an epoch above all known, or -1."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def expire_producers(self, now_ms: int) -> int:
        """Forgets producers not heard of for `producer.id.expiration.ms`. Returns how many."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)
