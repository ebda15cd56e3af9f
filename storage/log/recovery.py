"""Opening a log. After a clean stop its side files are trusted, otherwise they are rebuilt from the batches.

After an unclean stop, every segment from the one that holds the recovery point is read again. The log ends
before the first batch that isn't whole or whose CRC doesn't match (`segment_recovery.recover` finds it), and
later segments are dropped. Even after a clean stop, a missing or contradictory side file is noticed, and its
segment read again. Kafka trusts the absence of a snapshot or a transaction index, and then serves records that
it shouldn't. Source: org.apache.kafka.storage LogLoader.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from protocol.errors import KafkaError
from protocol.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    BatchHeader,
    CorruptRecordError,
    crc_is_valid,
    read_marker,
)
from storage import checkpoints
from storage.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    File,
    Files,
    offset_of,
)
from storage.log import removal, replaced_segments, segment_recovery, syncing
from storage.log.log_state import LogState, MisplacedSegmentError
from storage.log.segment import Segment
from storage.producer_state import ProducerStates

logger = logging.getLogger(__name__)


class InconsistentTopicIdError(Exception):
    """The directory belongs to an earlier topic of the same name."""


def open_log(
    log: LogState,
    *,
    now_ms: int,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    compacted_up_to: int,
    found_topic_id: str | None,
) -> None:
    """Fill in a log that was just made. See `PartitionLog.open`. If this raises, all files of the log are closed."""
    try:
        _open(log, now_ms, clean, recovery_point, log_start_offset, found_topic_id)
        if not clean:
            _find_hole(log, recovery_point, log_start_offset, compacted_up_to)
    except BaseException:
        log.segments.close()
        raise


def _find_hole(log: LogState, recovery_point: int, log_start_offset: int, compacted_up_to: int) -> None:
    """Find out whether a power loss took records from the middle of the log, if nobody has compacted it there.

    It may have taken the end of a segment that wasn't synced, although the next one is there, or everything
    before the first segment that is left. (Kafka goes on with what is there.)
    """
    bases = log.segments.base_offsets
    if bases[0] > max(log_start_offset, recovery_point, compacted_up_to):
        log.hole = log_start_offset
        return
    for slot in range(log.segments.slot_of(recovery_point), len(bases) - 1):
        end_offset = log.segments[slot].next_offset()
        if end_offset < bases[slot + 1] and compacted_up_to < bases[slot + 1]:
            log.hole = end_offset
            return


def _open(
    log: LogState,
    now_ms: int,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    found_topic_id: str | None,
) -> None:
    log.flushing.want(0, now_ms)
    try:
        names = set(log.files.list_directory(log.directory))
    except FileNotFoundError:
        names = set()
    _check_topic_id(log, names, found_topic_id, clean=clean)
    if not names:
        tell_end(log, log_start_offset, recovery_point)
        _start_empty(log, log_start_offset, now_ms)
        return
    going: set[str] = set()
    found = FoundFiles(names)
    unfinished = found.unfinished
    if unfinished:
        going = {name.removesuffix(DELETED_SUFFIX) for name in names if name.endswith(DELETED_SUFFIX)}
        names = replaced_segments.settle(log.files, log.directory, names)
        found = FoundFiles(names)
    base_offsets = found.base_offsets
    log.snapshots.offsets = found.snapshots
    _remove_orphans(log.files, log.directory, found, going=set() if clean else going)
    if not base_offsets:
        tell_end(log, log_start_offset, recovery_point)
        _start_empty(log, log_start_offset, now_ms)
        return
    log.become_ready()
    log.log_start_offset = max(log_start_offset, base_offsets[0])
    for base_offset in base_offsets:
        segment = syncing.new_segment(log, base_offset, now_ms)
        segment.size = log.files.size_of(segment.log)
        log.segments.add(segment)
    _drop_leftovers(log, overlaps=unfinished or not clean)
    epochs_known = checkpoints.LEADER_EPOCH_FILE in names and _load_leader_epochs(log)
    _load(
        log,
        names,
        now_ms=now_ms,
        clean=clean,
        recovery_point=recovery_point,
        checkpointed_start=log_start_offset,
    )
    tell_end(log, log.log_end_offset, recovery_point)
    if clean and log.log_end_offset < log_start_offset:
        # impossible after a clean stop: one of the two is damaged, and the records are there
        logger.warning(
            "%s ends at %d, and its log start is given as %d, which is ignored",
            log.directory,
            log.log_end_offset,
            log_start_offset,
        )
        log.log_start_offset = base_offsets[0]
    elif log.log_end_offset < log_start_offset:
        logger.warning(
            "%s ends at %d, before its log start %d: starting over there",
            log.directory,
            log.log_end_offset,
            log_start_offset,
        )
        _begin_anew(log, log_start_offset, now_ms)
    if not epochs_known:
        rebuild_leader_epochs(log)
    log.leader_epochs.truncate_from_end(log.log_end_offset)
    log.leader_epochs.truncate_from_start(log.log_start_offset)
    log.high_watermark = log.log_start_offset
    log.segments.active.check_full()
    log.update_first_unstable_offset()
    if log.flush_is_due:
        # Perhaps they are only in the page cache. A producer that sends one again gets its answer once the
        # disk has it.
        syncing.flush_to(log, log.log_end_offset, now_ms)


def create_directory(log: LogState, now_ms: int) -> None:
    """Make the directory with everything that a log needs before its first batch."""
    log.files.make_directory(log.directory)
    _write_partition_metadata(log)
    log.leader_epochs.start_writing()
    log.segments.active.created_ms = now_ms
    log.segments.active.create()
    log.become_ready()


def _write_partition_metadata(log: LogState, *, synced: bool = False) -> None:
    """Write partition.metadata. Without it Kafka would take the directory for a stray one.

    Unless `synced`, the disk has it along with the first records.
    """
    if log.topic_id is not None:
        path = log.directory + "/" + checkpoints.PARTITION_METADATA_FILE
        log.files.replace_whole(path, checkpoints.encode_partition_metadata(log.topic_id), synced=synced)


def _check_topic_id(log: LogState, names: set[str], found: str | None, *, clean: bool) -> None:
    if found is None and checkpoints.PARTITION_METADATA_FILE in names:
        path = f"{log.directory}/{checkpoints.PARTITION_METADATA_FILE}"
        try:
            found = checkpoints.read_partition_metadata(log.files, path)
        except checkpoints.TornCheckpointError as failure:
            if log.topic_id is None:
                raise
            if clean and _has_bytes(log, names):
                raise _to_mend(failure, log.topic_id) from failure
            logger.warning("Rebuilding the partition's metadata: %s", failure)
        except checkpoints.CheckpointError as failure:
            if log.topic_id is None:
                raise
            raise _to_mend(failure, log.topic_id) from failure
    if found is None:
        if names:
            _write_partition_metadata(log, synced=True)
    elif log.topic_id is None:
        log.topic_id = found
    elif log.topic_id != found:
        raise InconsistentTopicIdError(f"{log.directory} has topic id {found}, not {log.topic_id}")


def _to_mend(failure: checkpoints.CheckpointError, topic_id: str) -> checkpoints.CheckpointError:
    return checkpoints.CheckpointError(f"{failure}; {checkpoints.partition_metadata_todo(topic_id)}")


def _has_bytes(log: LogState, names: set[str]) -> bool:
    """True if any segment has data. If not, there is nothing to sync, not even for a clean close."""
    return any(
        log.files.size_of(File(f"{log.directory}/{name}")) for name in names if name.endswith(LOG_SUFFIX)
    )


def _remove_orphans(files: Files, directory: str, found: FoundFiles, *, going: set[str]) -> None:
    """Remove indexes without a `.log`, and report them. `going`: names that a kill has left of segments that
    were being deleted, whose indexes may be left."""
    bases = set(found.base_offsets)
    orphans = [name for offset, name in found.indexes if offset not in bases]
    if not orphans:
        return
    tell_orphans(directory, [name for name in orphans if f"{name[:END_OF_OFFSET]}.log" not in going])
    for name in sorted(orphans):
        files.remove(f"{directory}/{name}")


def _start_empty(log: LogState, offset: int, now_ms: int) -> None:
    segment = syncing.new_segment(log, offset, now_ms)
    segment.max_timestamp_ms = -1
    log.segments.begin_with(segment)
    if log.snapshots.offsets:
        log.snapshots.remove_all()
    log.producers.map_end_offset = offset
    log.begin_at(offset)
    log.flushing.begin_at(offset)


def _begin_anew(log: LogState, offset: int, now_ms: int) -> None:
    removal.drop_segments(log, log.segments.newest_first())
    log.segments.begin_with(syncing.new_segment(log, offset, now_ms))
    log.segments.active.create()
    log.snapshots.remove_all()
    log.producers.reset((), offset)
    log.leader_epochs.clear()
    log.begin_at(offset)
    log.flushing.begin_at(min(log.flushing.recovery_point, offset))


def _drop_leftovers(log: LogState, *, overlaps: bool) -> None:
    """Drop segments whose base offset the segment before them already holds.

    These are empty ones that a failed roll left behind. Also, compaction may have replaced several segments
    by one, and a power loss come when the disk had its name, but not yet the removal of the others. Then
    those go, even if the topic isn't compacted any more.
    """
    leftovers = []
    if len(log.segments.row) == 1:
        return
    before = log.segments[0]
    for segment in log.segments.row[1:]:
        if (segment.size == 0 or overlaps) and _reaches(before, segment.base_offset):
            leftovers.append(segment)
        else:
            before = segment
    for segment in leftovers:
        logger.warning("%s begins within the segment before it, and is dropped", segment.log.path)
    removal.drop_segments(log, leftovers)


def _reaches(segment: Segment, offset: int) -> bool:
    """True if a valid batch ends at or after the offset. The index isn't checked yet, so it is only a hint."""
    try:
        position = segment.offset_index.lookup(offset)
        found = segment.find(offset, position if 0 <= position < segment.size else 0)
        if found is None or _holds(segment, *found):
            return found is not None
    except (FileNotFoundError, KafkaError):
        pass
    try:
        found = segment.find(offset, 0)
        return found is not None and _holds(segment, *found)
    except KafkaError:
        return False


def _holds(segment: Segment, position: int, header: BatchHeader) -> bool:
    batch = segment.files.read(segment.log, header.size_bytes, position)
    return len(batch) == header.size_bytes and crc_is_valid(batch, 0, len(batch))


def _load_leader_epochs(log: LogState) -> bool:
    """Load the leader epochs. Returns False if the file has none, or makes no sense."""
    try:
        log.leader_epochs.load()
    except checkpoints.CheckpointError as failure:
        logger.warning("Rebuilding the leader epochs from the batches: %s", failure)
        return False
    return bool(log.leader_epochs.entries)


def _load(
    log: LogState,
    names: set[str],
    *,
    now_ms: int,
    clean: bool,
    recovery_point: int,
    checkpointed_start: int,
) -> None:
    """Bring segments, side files and the producers' state into agreement. Sets the end and the recovery point."""
    states: ProducerStates | None = None
    cut = False
    end_offset = log.segments.base_offsets[0]
    first_unflushed = len(log.segments) if clean else log.segments.slot_of(recovery_point)
    first_unsynced = None
    recovered_slot = -1
    slot = 0
    while slot < len(log.segments.row):
        segment = log.segments.row[slot]
        end = None if slot >= first_unflushed else trusted_end(log, slot, names)
        if end is not None:
            end_offset = end
        else:
            if states is None or recovered_slot != slot - 1:
                states = _states_at(log, slot, now_ms, checkpointed_start)
            elif states.map_end_offset != segment.base_offset:
                _go_on_behind_gap(log, states, segment.base_offset)
            recovered_slot = slot
            if slot < first_unflushed:
                logger.warning("%s: rebuilding its side files", segment.log.path)
            if slot < first_unflushed:
                segment_recovery.recover(log, segment, states, ())
            else:
                cut |= segment_recovery.recover(
                    log, segment, states, log.segments.newest_first(above=segment.base_offset)
                )
            end_offset = states.map_end_offset
            log.flushing.made_anew = True
            if first_unsynced is None and segment is not log.segments.active:
                first_unsynced = end_offset - 1
        next_base_offset = log.segments.next_base_offset(slot)
        if next_base_offset is not None:
            tell_gap(log, segment, end_offset if end is None else None, next_base_offset)
        slot += 1
    log.log_end_offset = end_offset
    synced = end_offset if clean else min(recovery_point, end_offset)
    # a closed segment's rebuilt files aren't on the disk yet, though its records may be
    log.flushing.begin_at(synced if first_unsynced is None else min(synced, first_unsynced))
    log.snapshots.remove_strays(log.segments.base_offsets)
    if states is not None and states.map_end_offset == end_offset:
        # Kafka reads its snapshot back, and so only knows each producer's last batch. These states have them
        # all, so a producer that resends what was in flight at the crash gets the same answer as without one.
        states.expire(now_ms, log.config.producer_id_expiration_ms)
        log.producers = states
        log.snapshots.remove_outside(log.log_start_offset, end_offset)
        log.snapshots.take(states)
    else:
        segment_recovery.rebuild(log, end_offset, now_ms)
    if cut:
        logger.warning("%s was cut at offset %d", log.directory, end_offset)


def _go_on_behind_gap(log: LogState, states: ProducerStates, base_offset: int) -> None:
    """Take a new snapshot after a segment that ends before the next one begins.

    Compaction has removed its end, or a power loss took it from the disk. An existing snapshot at the next
    base may contain what was lost, such as a transaction whose marker never comes, so it is rebuilt from what
    is there. Kafka trusts it.
    """
    states.map_end_offset = base_offset
    log.snapshots.take(states)


def _states_at(log: LogState, slot: int, now_ms: int, checkpointed_start: int) -> ProducerStates:
    """The producers at the segment's base, as far as a snapshot and the segments before it show them.

    A snapshot after the *checkpointed* log start counts. Segments may have been deleted since, and then only
    the snapshot at the base of the first remaining one knows the producers that wrote to them (Kafka:
    `LogLoader`).
    """
    base_offset = log.segments.base_offsets[slot]
    states = ProducerStates(log.producers.topic_partition)
    log.snapshots.load_newest(
        states, checkpointed_start, base_offset, now_ms, log.config.producer_id_expiration_ms
    )
    for before in range(slot):
        if log.segments.base_offsets[before + 1] > states.map_end_offset:
            segment_recovery.replay(log.segments[before], states, base_offset)
    states.map_end_offset = base_offset
    return states


# ---- the files in a log's directory when it is opened

_UNFINISHED_SUFFIXES = (CLEANED_SUFFIX, DELETED_SUFFIX, SWAP_SUFFIX)
END_OF_OFFSET = 20


class FoundFiles:
    """The found files, by their names, in one walk: a start does this for each partition."""

    __slots__ = ("base_offsets", "indexes", "snapshots", "unfinished")

    def __init__(self, names: Iterable[str]) -> None:
        self.base_offsets: list[int] = []
        self.snapshots: list[int] = []
        self.indexes: list[tuple[int, str]] = []
        self.unfinished = False
        """True if a file was being added or removed when the broker stopped."""
        for name in names:
            offset = offset_of(name)
            if offset is None:
                self.unfinished = self.unfinished or name.endswith(_UNFINISHED_SUFFIXES)
                continue
            suffix = name[END_OF_OFFSET:]
            if suffix in INDEX_SUFFIXES:
                self.indexes.append((offset, name))
            elif suffix == LOG_SUFFIX:
                self.base_offsets.append(offset)
            elif suffix == SNAPSHOT_SUFFIX:
                self.snapshots.append(offset)
            else:
                self.unfinished = self.unfinished or suffix.endswith(_UNFINISHED_SUFFIXES)
        self.base_offsets.sort()
        self.snapshots.sort()


# ---- whether a segment's side files can be trusted, and rebuilding them
#
# Kafka checks that a segment has an offset index, and trusts the rest. Here a segment is read again if any of
# its indexes is missing or contradicts the `.log`.


def trusted_end(log: LogState, slot: int, names: set[str]) -> int | None:
    """The offset at which the segment ends, or None if it has to be read again.

    `names` are those in the log's directory. Zeros that Kafka left after its index entries are cut off.
    """
    segment = log.segments[slot]
    stem = f"{segment.base_offset:020d}"
    if stem + INDEX_SUFFIX not in names or stem + TIME_INDEX_SUFFIX not in names:
        return None  # reading all of it checks whether it is the right file
    next_base_offset = log.segments.next_base_offset(slot)
    _check_place(segment, next_base_offset)
    segment.offset_index.trim()
    segment.time_index.trim()
    try:
        if not _indexes_agree(segment, next_base_offset):
            return None
        end_offset = _whole_end(segment) if next_base_offset is None else next_base_offset
        if end_offset is None or not _keeps_txn_index(
            log, segment, end_offset, stem + TXN_INDEX_SUFFIX in names
        ):
            return None
    except MisplacedSegmentError:
        raise
    except (KafkaError, CorruptRecordError):
        return None
    return end_offset


def _check_place(segment: Segment, next_base_offset: int | None) -> None:
    """Raises `MisplacedSegmentError`. `_whole_end` checks the active segment."""
    if next_base_offset is None:
        return
    try:
        first = next((header.base_offset for _position, header in segment.batches()), segment.base_offset)
    except KafkaError:
        return  # reading it again reports that
    if not segment.base_offset <= first < next_base_offset:
        raise MisplacedSegmentError(segment.log.path, first)


def _indexes_agree(segment: Segment, next_base_offset: int | None) -> bool:
    offset, position = segment.offset_index.last_entry()
    timestamp_ms, timestamp_offset = segment.time_index.last_entry()
    if position < 0 or (position > 0 and position >= segment.size):
        return False
    if not segment.size and (segment.offset_index.count or segment.time_index.count):
        return False
    if min(offset, timestamp_offset) < segment.base_offset:
        return False
    if next_base_offset is not None and max(offset, timestamp_offset) >= next_base_offset:
        return False
    return timestamp_ms >= 0 or segment.time_index.count > 0 or segment.first_timestamp_ms() < 0


def _whole_end(segment: Segment) -> int | None:
    """The offset after the last batch, if the walk from the last index entry ends at the end of the file,
    else None."""
    end_offset, end = segment.walk_to_end()
    if end and end_offset <= segment.base_offset:
        raise MisplacedSegmentError(segment.log.path, end_offset - 1)
    return end_offset if end == segment.size else None


def _keeps_txn_index(log: LogState, segment: Segment, end_offset: int, is_there: bool) -> bool:
    if is_there:
        return segment.txn_index.is_sane(segment.base_offset, end_offset)
    return not _lost_txn_index(log, segment, end_offset)


def _lost_txn_index(log: LogState, segment: Segment, end: int) -> bool:
    """True if a segment without a transaction index holds the marker of an abort.

    It only has to be read if the snapshot at its end knows transactions, or is missing. If there is no abort,
    an empty index is created, so that it isn't read again.
    """
    producers = log.snapshots.read(end)
    if producers is not None and not any(
        producer.coordinator_epoch >= 0 or producer.txn_first_offset >= 0 for producer in producers
    ):
        return False
    if end <= log.log_start_offset or segment.size == 0:
        return False
    for position, header in segment.batches():
        # One with a delete horizon has been cleaned since: neither data nor an entry of its transaction is left.
        if header.producer_id >= 0 and header.attributes & (CONTROL_BIT | DELETE_HORIZON_BIT) == CONTROL_BIT:
            marker = read_marker(segment.files.read(segment.log, header.size_bytes, position))
            if marker is not None and not marker.commit:
                return True
    if producers is not None:
        segment.txn_index.create()
    return False


def rebuild_leader_epochs(log: LogState) -> None:
    """Rebuild the leader epochs from the batches. The epochs known from recovered segments go first: they may
    hide that an epoch began in an earlier segment."""
    log.leader_epochs.clear()
    for segment in log.segments:
        for _position, header in segment.batches():
            if header.partition_leader_epoch > log.leader_epochs.latest:
                log.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
    log.leader_epochs.start_writing()


# ---- losses of a log, reported when it is opened: it goes on with what is there, and nobody would notice
#
# Kafka reports none of this. Nothing is reported if it isn't certain: compaction leaves gaps, so these are no
# proof.


def tell_end(log: LogState, end_offset: int, recovery_point: int) -> None:
    """Report that the log ends before the offset up to which it was synced."""
    if end_offset < recovery_point:
        logger.warning(
            "%s ends at offset %d, but was synced up to %d: the records in between are lost",
            log.directory,
            end_offset,
            recovery_point,
        )


def tell_orphans(directory: str, names: Sequence[str]) -> None:
    """Report indexes without a segment."""
    for base_offset in sorted({offset for name in names if (offset := offset_of(name)) is not None}):
        logger.warning(
            "%s/%020d%s is missing beside its indexes: its records are lost",
            directory,
            base_offset,
            LOG_SUFFIX,
        )


def tell_gap(log: LogState, segment: Segment, end_offset: int | None, next_base_offset: int) -> None:
    """Report a segment that ends before the next one begins. Without `end_offset` its last batches are read."""
    if end_offset is None:
        try:
            end_offset = segment.next_offset()
        except KafkaError as failure:
            logger.warning("%s: %s", segment.log.path, failure)
            return
    if "compact" in log.config.cleanup_policy:  # which leaves gaps
        known = max(segment.offset_index.last_entry()[0], segment.time_index.last_entry()[1])
        if end_offset <= known and segment.time_index.count:
            logger.warning(
                "%s ends at offset %d, but its indexes go up to %d", segment.log.path, end_offset, known
            )
        return
    if end_offset < next_base_offset:
        logger.warning(
            "%s ends at offset %d, and the next segment begins at %d: the records in between are lost",
            segment.log.path,
            end_offset,
            next_base_offset,
        )
