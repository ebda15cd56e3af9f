"""Checking the files of the metadata log, before anything in them is changed.

A log's recovery cuts at the first bad byte. In an ordinary partition that costs a few records. In the
metadata log it would cost every topic created after that point, and their folders would be set aside as
stray. So, as in Kafka, only the torn end of an unfinished write is cut. Damage before that stops the start;
Kafka cuts there, too.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.controller.quorum_state import LEADER_CHANGE, control_key
from broker.controller.snapshots import newest_whole_snapshot
from protocol.records.batch import (
    BATCH_OVERHEAD,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POS,
    BatchHeader,
    crc_is_valid,
    read_header,
    read_records,
)
from storage.files import LOG_SUFFIX, Files, offset_of


class LogDamage(NamedTuple):
    """Where a log was damaged."""

    path: str
    position: int
    offset: int
    """The offset of the first lost record."""
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: damaged at position {self.position}, offset {self.offset}: {self.reason}"


class FoundLog(NamedTuple):
    """Facts about a log before it is opened."""

    damage: LogDamage | None
    begins_at: int
    """The offset at which the log begins. A snapshot covers everything before it, and part of that is
    missing. 0: nothing is missing."""


class _End(NamedTuple):
    position: int
    offset: int
    epoch: int


def find_damage(files: Files, directory: str, *, clean: bool) -> FoundLog:
    """Find what a recovery would cut, unless that is a torn end. `clean` means that the last run synced all
    and stopped.

    A power loss may interrupt the deletion of segments below a snapshot. Disks don't keep the order of
    deletions, so any of these segments may be left. That isn't damage.

    Raises `OSError`.
    """
    if not files.exists(directory):
        return FoundLog(None, 0)
    begins_at, newest = 0, None
    names = [name for name in files.list_directory(directory) if name.endswith(LOG_SUFFIX)]
    bases = sorted(base for name in names if (base := offset_of(name)) is not None)
    epoch = -1
    for index, base in enumerate(bases):
        path = f"{directory}/{base:020d}{LOG_SUFFIX}"
        data = memoryview(files.read_whole(path))
        end = _valid_end(data, _End(0, base, epoch))
        epoch = end.epoch
        following = bases[index + 1] if index + 1 < len(bases) else None
        if end.position < len(data):
            if clean or following is not None:
                return FoundLog(LogDamage(path, end.position, end.offset, "there is no whole batch"), 0)
            begun = _epoch_begun_behind(data, end)
            if begun >= 0:
                reason = f"whole batches follow, up to leader epoch {begun}"
                return FoundLog(LogDamage(path, end.position, end.offset, reason), 0)
        elif following is not None and end.offset < following:
            if newest is None:  # Rarely needed: it reads the whole snapshot.
                newest = newest_whole_snapshot(files, directory)
            if newest < following:
                reason = f"the next segment begins at {following}"
                return FoundLog(LogDamage(path, end.position, end.offset, reason), 0)
            begins_at = following
    return FoundLog(None, begins_at)


def _valid_end(data: memoryview, end: _End) -> _End:
    """Return the end of the run of valid batches."""
    while (size := _size_at(data, end.position)) and crc_is_valid(data, end.position, size):
        header = read_header(data, end.position)
        if header.base_offset < end.offset or header.last_offset_delta < 0:
            break
        end = _End(end.position + size, header.last_offset + 1, max(end.epoch, header.partition_leader_epoch))
    return end


def _size_at(data: memoryview, position: int) -> int:
    """The size of the batch that seems to be at the position; 0 if there is none."""
    if position < 0 or position + BATCH_OVERHEAD > len(data) or data[position + MAGIC_POS] != MAGIC:
        return 0
    size = read_header(data, position).batch_length + LOG_OVERHEAD
    return size if BATCH_OVERHEAD <= size <= len(data) - position else 0


def _epoch_begun_behind(data: memoryview, end: _End) -> int:
    """Return the latest leader epoch of the whole batches after `end`, or -1.

    It is -1 unless one of them begins an epoch, or they have several epochs. A new leader has read everything
    before its epoch and synced it. So that was on the disk, and is damaged now. If a run died before it
    synced its own first batches, any of these may be left.
    """
    epochs: set[int] = set()
    has_begun = False
    searched, sign = bytes(data), bytes([MAGIC])
    magic = searched.find(sign, end.position + MAGIC_POS + 1)
    while magic >= 0:
        position = magic - MAGIC_POS
        size = _size_at(data, position)
        if size and crc_is_valid(data, position, size):
            header = read_header(data, position)
            if header.base_offset >= end.offset:
                epochs.add(header.partition_leader_epoch)
                has_begun = has_begun or _begins_epoch(data[position : position + size], header)
            magic = searched.find(sign, position + size + MAGIC_POS)
        else:
            magic = searched.find(sign, magic + 1)
    return max(epochs) if has_begun or len(epochs) > 1 else -1


def _begins_epoch(batch: memoryview, header: BatchHeader) -> bool:
    return header.is_control and any(
        record.key == control_key(LEADER_CHANGE) for record in read_records(batch)
    )
