"""Snapshots of the metadata: `<20-digit end offset>-<10-digit epoch>.checkpoint` (KIP-630), as files and over
time.

A snapshot's batches are those of a log that begins at offset 0: a control batch with the header (and the
quorum's voters), the records of the image, a control batch with the footer. The first records of a new
cluster have the same form. The node reads snapshots at its start, writes them now and then, and deletes them
together with the log below them, by the same settings as Kafka. A log that begins above 0 needs a snapshot of
everything below.

Source: Snapshots, RecordsSnapshotWriter, BatchFileWriter; KafkaRaftLog, SnapshotGenerator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.broker_records import min_insync_replicas
from broker.controller.image import MetadataContradictionError
from broker.controller.metadata_versions import (
    BOOTSTRAP_IN_LOG_SINCE,
    ELR_VERSION,
    METADATA_VERSION,
    decode_metadata_record,
    encode_metadata_record,
    feature_levels,
    initial_levels,
    written_version,
)
from broker.controller.quorum_state import SNAPSHOT_FOOTER, SNAPSHOT_HEADER, Quorum, control_key
from protocol.errors import CodecError
from protocol.messages import metadata_records as records
from protocol.messages.raft import SnapshotFooterRecord, SnapshotHeaderRecord
from protocol.records.batch import (
    CorruptRecordError,
    Record,
    build_batch,
    crc_is_valid,
    read_control_type,
    read_records,
    walk_batches,
)
from protocol.waiting import Later, Pause, at_once, turn
from protocol.wire.codec import decode, encode
from protocol.wire.schema import Message
from storage.background import Lane
from storage.files import File, Files

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from storage.background import Background, Then
    from storage.log.partition_log import PartitionLog

log = logging.getLogger("barnabas.metadata")


SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
DELETED_SNAPSHOT_SUFFIX = ".checkpoint.deleted"
BOOTSTRAP_FILE = "bootstrap.checkpoint"

MAX_RECORDS_PER_BATCH = 1024  # SnapshotEmitter.DEFAULT_BATCH_SIZE
MAX_BATCH_BYTES = 1024 * 1024  # Kafka's readers accept up to 8 MiB

_OFFSET_DIGITS = 20
_EPOCH_DIGITS = 10
_STEM = _OFFSET_DIGITS + 1 + _EPOCH_DIGITS


class SnapshotId(NamedTuple):
    """Where a snapshot ends. Ids are ordered by epoch first (Kafka: `OffsetAndEpoch`)."""

    epoch: int
    offset: int
    """The snapshot holds all of the log below it."""

    @property
    def name(self) -> str:
        return f"{self.offset:0{_OFFSET_DIGITS}d}-{self.epoch:0{_EPOCH_DIGITS}d}"


BOOTSTRAP_ID = SnapshotId(0, 0)
"""The id of a new cluster's first records and voters. It isn't a snapshot of a log, and isn't offered to
others."""


class SnapshotError(Exception):
    """A snapshot is incomplete or corrupt."""


class Snapshot(NamedTuple):
    """The contents of a snapshot."""

    records: list[Message]
    quorum: Quorum
    last_contained_log_timestamp_ms: int


def parse_name(name: str) -> tuple[SnapshotId, str] | None:
    """Return the id and the suffix in a file's name, or None for any other file."""
    stem, suffix = name[:_STEM], name[_STEM:]
    offset, dash, epoch = stem.partition("-")
    if (
        suffix.startswith(SUFFIX)
        or (suffix.startswith("-") and suffix.endswith(PART_SUFFIX))  # Kafka's temporary files
    ) and (
        dash and len(offset) == _OFFSET_DIGITS and offset.isdigit() and epoch.isdigit() and stem.isascii()
    ):
        return SnapshotId(int(epoch), int(offset)), suffix
    return None


def newest_whole_snapshot(files: Files, directory: str) -> int:
    """Return the offset at which the newest whole snapshot ends, or -1. Changes nothing. Raises OSError."""
    parsed = [parse_name(name) for name in files.list_directory(directory)]
    for snapshot_id in sorted((found[0] for found in parsed if found and found[1] == SUFFIX), reverse=True):
        with suppress(SnapshotError, CodecError):
            read_snapshot(files, f"{directory}/{snapshot_id.name}{SUFFIX}")
            return snapshot_id.offset
    return -1


async def encode_snapshot(
    values: Iterable[bytes],
    quorum: Quorum,
    *,
    epoch: int,
    last_contained_log_timestamp_ms: int,
    now_ms: int,
) -> bytes:
    """Return the file's contents. `values` are framed metadata records,
    `metadata_versions.encode_metadata_record`."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_log_timestamp_ms)
    data = bytearray(_control_batch([(SNAPSHOT_HEADER, header), *quorum.control_records()], 0, epoch, now_ms))
    offset = 1 + len(quorum.control_records())
    held: list[bytes] = []
    held_bytes = 0
    pause = Pause()
    for value in values:
        if len(held) >= MAX_RECORDS_PER_BATCH or (held and held_bytes + len(value) > MAX_BATCH_BYTES):
            data += _batch(held, offset, epoch, now_ms)
            offset += len(held)
            held, held_bytes = [], 0
        held.append(value)
        held_bytes += len(value)
        if pause.is_due():
            await turn()
    if held:
        data += _batch(held, offset, epoch, now_ms)
        offset += len(held)
    data += _control_batch([(SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0))], offset, epoch, now_ms)
    return bytes(data)


def _batch(values: Sequence[bytes], base_offset: int, epoch: int, now_ms: int) -> bytearray:
    return build_batch(
        [(now_ms, None, value, ()) for value in values], base_offset=base_offset, leader_epoch=epoch
    )


def _control_batch(
    messages: Sequence[tuple[int, Message]], base_offset: int, epoch: int, now_ms: int
) -> bytearray:
    return build_batch(
        [(now_ms, control_key(control_type), encode(message, 0), ()) for control_type, message in messages],
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )


def read_snapshot(files: Files, path: str) -> Snapshot:
    """Read a snapshot. Raises SnapshotError if it isn't whole, CodecError for unknown records,
    FileNotFoundError."""
    data = files.read_whole(path)
    found: list[Message] = []
    quorum = Quorum()
    timestamp_ms: int | None = None
    complete = False
    end = 0
    try:
        for pos, header in walk_batches(data):
            if not crc_is_valid(data, pos, header.size_bytes):
                raise SnapshotError(f"{path}: the CRC of the batch at position {pos} doesn't match")
            batch = read_records(memoryview(data)[pos : pos + header.size_bytes])
            for record in batch:
                if header.is_control:
                    control_type = read_control_type(record.key)
                    if control_type == SNAPSHOT_HEADER:
                        timestamp_ms = _header_timestamp_ms(record)
                    complete = control_type == SNAPSHOT_FOOTER
                    quorum.apply(record)
                elif record.value is None:
                    raise CodecError(f"{path}: a null record at offset {record.offset}")
                else:
                    found.append(decode_metadata_record(bytes(record.value)))
            end = pos + header.size_bytes
    except CorruptRecordError as error:
        raise SnapshotError(f"{path}: {error}") from error
    if timestamp_ms is None or not complete or end != len(data):
        raise SnapshotError(f"{path}: it has no header, or no footer at its end")
    return Snapshot(found, quorum, timestamp_ms)


def read_last_contained_log_timestamp_ms(files: Files, path: str) -> int:
    """Read the timestamp in the header and nothing else. Raises SnapshotError, FileNotFoundError."""
    data = files.read_whole(path)
    try:
        for pos, header in walk_batches(data):
            for record in read_records(memoryview(data)[pos : pos + header.size_bytes]):
                if header.is_control and read_control_type(record.key) == SNAPSHOT_HEADER:
                    return _header_timestamp_ms(record)
            break
    except CorruptRecordError as error:
        raise SnapshotError(f"{path}: {error}") from error
    raise SnapshotError(f"{path}: it has no header")


def _header_timestamp_ms(record: Record) -> int:
    return decode(SnapshotHeaderRecord, 0, record.value or b"").last_contained_log_timestamp


# --- The first records of a new cluster, as Kafka's format step leaves them in the folder -------------------
# They are read if the metadata log is still empty: a folder made by Kafka's `storage format` starts with the
# levels and credentials given to it. Otherwise they are written before the log. If we stop before we begin
# the log, Kafka then starts that folder with our levels.
#
# Kafka 4.4 keeps them in the log's own directory, in the form of a snapshot of nothing (`BOOTSTRAP_ID`). That
# isn't a state of the cluster: its records still have to be appended. Kafka up to 4.3 keeps
# `bootstrap.checkpoint` in the folder above, and takes a snapshot 0-0 for the state. A folder at a level of
# 4.3 is written that way, since 4.4 reads both. Source: KafkaRaftClient.maybeFireHandleSnapshot,
# BootstrapMetadata, Formatter, ActivationRecordsGenerator.


def bootstrap_records(
    files: Files, log_directory: str, metadata_version: int, least_insync_replicas: int, now_ms: int
) -> list[Message]:
    """Return the first records of the cluster. If the folder has none, write those of the level
    `metadata_version`.

    Raises MetadataContradictionError, CodecError, OSError if a file can't be used.
    """
    in_log = f"{log_directory}/{BOOTSTRAP_ID.name}{SUFFIX}"
    above = f"{log_directory.rpartition('/')[0]}/{BOOTSTRAP_FILE}"
    found: list[Message] = []
    path = ""
    for path in (in_log, above):
        try:
            found = read_snapshot(files, path).records
        except FileNotFoundError:
            continue
        except SnapshotError as error:
            raise MetadataContradictionError(str(error)) from error
        if found:
            break
    else:
        found = feature_levels(initial_levels(metadata_version, {}))
        write_bootstrap(files, log_directory, found, metadata_version, Quorum(), now_ms)
    levels = {
        record.name: record.feature_level
        for record in found
        if isinstance(record, records.FeatureLevelRecord)
    }
    if METADATA_VERSION not in levels:
        raise MetadataContradictionError(f"{path} has no level of {METADATA_VERSION}")
    if levels.get(ELR_VERSION, 0) > 0:
        # With eligible leader replicas, min.insync.replicas is a dynamic config of the cluster (KIP-966).
        found = [*found, min_insync_replicas(least_insync_replicas)]
    return found


def write_bootstrap(
    files: Files,
    log_directory: str,
    beginning: Sequence[Message],
    metadata_version: int,
    quorum: Quorum,
    now_ms: int,
) -> None:
    """Write the first records of a new cluster where the Kafka of this level looks for them.

    Voters, if there are any, go to the log's directory, as with Kafka 4.3.
    """
    values = [
        encode_metadata_record(record, written_version(type(record), metadata_version))
        for record in beginning
    ]
    in_log = metadata_version >= BOOTSTRAP_IN_LOG_SINCE
    if not in_log:
        above = f"{log_directory.rpartition('/')[0]}/{BOOTSTRAP_FILE}"
        files.replace_whole(above, _bootstrap(values, Quorum(), 0, now_ms))
        values = []
    if in_log or quorum.kraft_version:
        files.make_directories(log_directory)
        path = f"{log_directory}/{BOOTSTRAP_ID.name}{SUFFIX}"
        files.replace_whole(path, _bootstrap(values, quorum, now_ms, now_ms))


def _bootstrap(values: Sequence[bytes], quorum: Quorum, contained_ms: int, now_ms: int) -> bytes:
    return at_once(
        encode_snapshot(values, quorum, epoch=0, last_contained_log_timestamp_ms=contained_ms, now_ms=now_ms)
    )


# --- All snapshots of a folder ------------------------------------------------------------------------------


class SnapshotPolicy(NamedTuple):
    """When to write snapshots, and how long to keep them."""

    max_bytes_between: int = 20 * 1024 * 1024
    """metadata.log.max.record.bytes.between.snapshots"""
    max_interval_ms: int = 3_600_000
    """metadata.log.max.snapshot.interval.ms; 0: not by time"""
    retention_bytes: int = 100 * 1024 * 1024
    """metadata.max.retention.bytes, for log and snapshots together; negative: no limit"""
    retention_ms: int = 604_800_000
    """metadata.max.retention.ms; negative: no limit"""

    @staticmethod
    def of(config: BrokerConfig) -> SnapshotPolicy:
        return SnapshotPolicy(
            config.get_int("metadata.log.max.record.bytes.between.snapshots"),
            config.get_int("metadata.log.max.snapshot.interval.ms"),
            config.get_int("metadata.max.retention.bytes"),
            config.get_int("metadata.max.retention.ms"),
        )


class MetadataSnapshots:
    """The snapshots beside a metadata log."""

    def __init__(self, of_log: PartitionLog, policy: SnapshotPolicy, background: Background) -> None:
        self.ids: list[SnapshotId] = []
        """The ids of those on the disk, ascending."""
        self._log = of_log
        self._files = of_log.files
        self._policy = policy
        self._background = background
        self.is_writing = False
        self._bytes_since = 0
        self._last_ms: int | None = None
        self._kept: dict[SnapshotId, tuple[int, int]] = {}  # size and last timestamp, read once

    # --- start ----------------------------------------------------------------------------------------------

    def load(self, now_ms: int) -> Snapshot | None:
        """Return the newest whole snapshot, or None. Deletes snapshots that aren't needed any more.

        If the log ends before the snapshot (a follower of Kafka's fetched it), the log begins anew at its
        end. Raises MetadataContradictionError if the log begins above 0 without a snapshot of what is below.
        """
        log_start_offset = self._log.log_start_offset
        directory = self._log.directory
        names = self._files.list_directory(directory) if self._files.exists(directory) else []
        for name in names:
            parsed = parse_name(name)
            if parsed is None:
                continue
            snapshot_id, suffix = parsed
            if suffix != SUFFIX or snapshot_id.offset < log_start_offset:
                self._files.remove(f"{directory}/{name}")
            else:
                self.ids.append(snapshot_id)
        self.ids.sort()
        found = self._newest_whole()
        if log_start_offset > 0 and found is None:
            raise MetadataContradictionError(
                f"the metadata log begins at offset {log_start_offset}, and there is no snapshot of what is below"
            )
        self._last_ms = now_ms
        if found is not None:
            newest = self.ids[-1]
            if newest.offset > self._log.log_end_offset or newest.epoch > max(
                self._log.leader_epochs.latest, 0
            ):
                self._log.truncate_fully_and_start_at(newest.offset, now_ms)
                self._remove(self.ids[:-1])
        return found

    def _newest_whole(self) -> Snapshot | None:
        while self.ids:
            path = self._path(self.ids[-1])
            try:
                return read_snapshot(self._files, path)
            except SnapshotError as error:
                if self.ids[-1] == BOOTSTRAP_ID and self._log.log_end_offset == 0:
                    raise MetadataContradictionError(str(error)) from error  # there is nothing else
                log.warning("ignoring a snapshot of the metadata: %s", error)
                # Moved aside: Kafka would take it for the newest one, and end.
                self._files.rename(path, path.removesuffix(SUFFIX) + PART_SUFFIX)
                self.ids.pop()
        return None

    @property
    def newest(self) -> SnapshotId | None:
        return self.ids[-1] if self.ids else None

    @property
    def path_of_newest(self) -> str:
        """The path of the newest snapshot. There has to be one."""
        return self._path(self.ids[-1])

    # --- reading for other nodes ----------------------------------------------------------------------------

    def size_of(self, snapshot_id: SnapshotId) -> int:
        """The size in bytes of an existing snapshot."""
        return self._size_and_timestamp(snapshot_id)[0]

    def read(self, snapshot_id: SnapshotId, position: int, size: int) -> bytes:
        """Read a piece of an existing snapshot."""
        file = File(self._path(snapshot_id))
        try:
            return self._files.read(file, size, position)
        finally:
            self._files.close(file)

    # --- writing --------------------------------------------------------------------------------------------

    def count(self, size: int) -> None:
        """Count bytes of the log behind the newest snapshot."""
        self._bytes_since += size

    def is_due(self, now_ms: int) -> bool:
        """True if it is time for a snapshot, given that records were appended since the last one."""
        if self.is_writing:
            return False
        if self._bytes_since >= self._policy.max_bytes_between:
            return True
        interval_ms = self._policy.max_interval_ms
        return interval_ms > 0 and self._last_ms is not None and now_ms - self._last_ms >= interval_ms

    async def write(self, values: Iterable[bytes], quorum: Quorum, end_offset: int, now_ms: int) -> None:
        """Begin to write a snapshot of everything below `end_offset`, where a batch ends. `values` are its
        records."""
        epoch = self._log.leader_epochs.epoch_for(end_offset - 1)
        snapshot_id = SnapshotId(epoch, end_offset)
        self._bytes_since = 0
        self._last_ms = now_ms
        if snapshot_id in self.ids:
            return
        self.is_writing = True
        path = self._path(snapshot_id)

        def then(size: int, failure: Exception | None) -> None:
            if failure is not None:
                log.error("can't write the snapshot %s of the metadata: %s", path, failure)
                return
            log.info("wrote the snapshot %s of the metadata, %d bytes", path, size)
            if end_offset < self._log.log_start_offset:
                return  # the log has begun anew behind a fetched snapshot: the next start deletes this one
            self.ids.append(snapshot_id)
            self._kept[snapshot_id] = (size, now_ms)

        try:
            data = await encode_snapshot(
                values,
                quorum,
                epoch=epoch,
                # about when the last committed record was appended
                last_contained_log_timestamp_ms=now_ms,
                now_ms=now_ms,
            )
            self._put(path, data, lambda part: None, partial(then, len(data)))
        except BaseException as error:
            self.is_writing = False  # otherwise no snapshot would ever be written again
            if not isinstance(error, MemoryError):
                raise
            log.error("there is too little memory for the snapshot %s of the metadata", path)

    def take(self, snapshot_id: SnapshotId, data: bytes) -> Later[Snapshot]:
        """Write a fetched snapshot, and return its contents once it is on the disk.

        The Later fails if that can't be done, with SnapshotError or CodecError if the snapshot is corrupt.
        Then it isn't kept.
        """
        taken: Later[Snapshot] = Later()
        found: list[Snapshot] = []

        def read(part: str) -> None:
            found.append(read_snapshot(self._files, part))

        def written(failure: Exception | None) -> None:
            if failure is not None:
                taken.fail(failure)
                return
            self._kept.pop(snapshot_id, None)
            if snapshot_id not in self.ids:
                self.ids.append(snapshot_id)
                self.ids.sort()
            taken.reply(found[0])

        self._put(self._path(snapshot_id), data, read, written)
        return taken

    def _put(self, path: str, data: bytes, check: Callable[[str], None], then: Then) -> None:
        """Write a snapshot in the background, and call `then`. The file's name ends in PART_SUFFIX until it is
        whole and passes `check`."""
        part = path.removesuffix(SUFFIX) + PART_SUFFIX
        directory, files = self._log.directory, self._files

        def work() -> None:
            if not files.exists(directory):  # a log without a batch so far
                files.make_directory(directory)
            files.write_whole(part, data)
            check(part)
            files.sync(part)
            files.rename(part, path)
            files.sync_directory(directory)

        def written(failure: Exception | None) -> None:
            self.is_writing = False
            then(failure)

        self.is_writing = True
        try:
            self._background(work, written, lane=Lane.WRITING)
        except MemoryError:
            self.is_writing = False
            raise

    def begin_with(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """Begin the log anew where this snapshot ends, and remove all others. Raises KafkaError if the disk
        fails."""
        self._log.truncate_fully_and_start_at(snapshot_id.offset, now_ms)
        self._remove([each for each in self.ids if each != snapshot_id])
        self._bytes_since, self._last_ms = 0, now_ms

    # --- deleting -------------------------------------------------------------------------------------------

    def clean(self, now_ms: int) -> None:
        """Delete the oldest snapshots, and the log below those that stay, by size and by age. The newest
        stays (Kafka: `KafkaRaftLog.maybeClean`, every minute)."""
        limit_bytes, limit_ms = self._policy.retention_bytes, self._policy.retention_ms
        if limit_bytes >= 0:
            total = sum(self._size_and_timestamp(snapshot_id)[0] for snapshot_id in self.ids)
            while len(self.ids) > 1 and self._log.size + total > limit_bytes:
                total -= self._size_and_timestamp(self.ids[0])[0]
                self._begin_at(self.ids[1], now_ms)
        if limit_ms >= 0:
            while len(self.ids) > 1 and now_ms - self._size_and_timestamp(self.ids[0])[1] > limit_ms:
                self._begin_at(self.ids[1], now_ms)

    def _begin_at(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """Delete older snapshots, and segments that lie wholly below this one."""
        self._log.delete_records_before(snapshot_id.offset)
        self._log.apply_retention(now_ms)
        self._remove([older for older in self.ids if older < snapshot_id])

    def _remove(self, snapshot_ids: list[SnapshotId]) -> None:
        marked = []
        for snapshot_id in snapshot_ids:
            path = self._path(snapshot_id)
            deleted = path.removesuffix(SUFFIX) + DELETED_SNAPSHOT_SUFFIX
            self._files.rename(path, deleted)
            marked.append(deleted)
            self.ids.remove(snapshot_id)
            self._kept.pop(snapshot_id, None)
            log.info("deleting the snapshot %s of the metadata", path)

        files = self._files

        def work() -> None:
            for path in marked:
                files.remove(path)

        def then(failure: Exception | None) -> None:
            if failure is not None:
                log.warning("can't delete old snapshots of the metadata: %s", failure)

        if marked:
            self._background(work, then, lane=Lane.DELETING, delay_ms=self._log.config.file_delete_delay_ms)

    def _size_and_timestamp(self, snapshot_id: SnapshotId) -> tuple[int, int]:
        known = self._kept.get(snapshot_id)
        if known is None:
            path = self._path(snapshot_id)
            try:
                timestamp_ms = read_last_contained_log_timestamp_ms(self._files, path)
            except SnapshotError:
                timestamp_ms = 0
            known = self._kept[snapshot_id] = (self._files.size_of(File(path)), timestamp_ms)
        return known

    def _path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._log.directory}/{snapshot_id.name}{SUFFIX}"
