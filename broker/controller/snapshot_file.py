"""A snapshot of the metadata: `<20-digit end offset>-<10-digit epoch>.checkpoint` (KIP-630).

Its batches are those of a log that begins at offset 0: a control batch with the header (and the quorum's voters),
the records of the image, a control batch with the footer. `bootstrap.checkpoint`, what a new cluster begins with, has
the same form. Source: Snapshots, RecordsSnapshotWriter, BatchFileWriter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from broker.controller.pause import Pause
from broker.controller.quorum_state import SNAPSHOT_FOOTER, SNAPSHOT_HEADER, Quorum, control_key
from broker.controller.record_serde import decode_metadata_record
from protocol.errors import CodecError
from protocol.messages.raft import SnapshotFooterRecord, SnapshotHeaderRecord
from protocol.records.batch import CorruptRecordError, crc_is_valid, walk_batches
from protocol.records.records import Record, build_batch, read_control_type, read_records
from protocol.waiting import turn
from protocol.wire.codec import decode, encode
from protocol.wire.schema import Message
from storage.files import Files

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
DELETED_SNAPSHOT_SUFFIX = ".checkpoint.deleted"
BOOTSTRAP_FILE = "bootstrap.checkpoint"

MAX_RECORDS_PER_BATCH = 1024  # SnapshotEmitter.DEFAULT_BATCH_SIZE
MAX_BATCH_BYTES = 1024 * 1024  # Kafka's readers take up to 8 MiB

_OFFSET_DIGITS = 20
_EPOCH_DIGITS = 10
_STEM = _OFFSET_DIGITS + 1 + _EPOCH_DIGITS


class SnapshotId(NamedTuple):
    """What a snapshot ends with; they are ordered by epoch first (Kafka: `OffsetAndEpoch`)."""

    epoch: int
    offset: int
    """All of the log below it is in the snapshot."""

    @property
    def name(self) -> str:
        return f"{self.offset:0{_OFFSET_DIGITS}d}-{self.epoch:0{_EPOCH_DIGITS}d}"


class SnapshotError(Exception):
    """A snapshot that isn't whole."""


class Snapshot(NamedTuple):
    """What is in one."""

    records: list[Message]
    quorum: Quorum
    last_contained_log_timestamp_ms: int


def parse_name(name: str) -> tuple[SnapshotId, str] | None:
    """The id and the suffix that a file's name says; None for a file of another kind."""
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
    """The offset that it ends at; -1 where there is none. Nothing is changed. Raises OSError."""
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
    """The whole file. `values` are framed metadata records, `record_serde.encode_metadata_record`."""
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
    """All of a snapshot. Raises SnapshotError where it isn't whole, CodecError for records that nobody knows,
    FileNotFoundError.
    """
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
    """What the header says, the rest not being looked at. Raises SnapshotError, FileNotFoundError."""
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
