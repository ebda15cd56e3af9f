"""Whether the files of the metadata log hold what was written: looked at before anything of them is changed.

A log's recovery cuts at the first bad byte. Of a partition that is a few records; of the metadata log it is every
topic that was made behind it, and their folders would be set aside as nobody's. So a torn end of what was being
written is cut, as in Kafka, and nothing else is: damage before that ends the start. Kafka cuts there, too.
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
    """Where a log that was whole is so no more."""

    path: str
    position: int
    offset: int
    """Of the first record that is lost."""
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: damaged at position {self.position}, offset {self.offset}: {self.reason}"


class FoundLog(NamedTuple):
    """What is to be known of a log before it is opened."""

    damage: LogDamage | None
    begins_at: int
    """Nothing below is needed, and something of it is missing: a snapshot has it. 0: nothing is."""


class _End(NamedTuple):
    position: int
    offset: int
    epoch: int


def find_damage(files: Files, directory: str, *, clean: bool) -> FoundLog:
    """What a recovery would cut that isn't a torn end. `clean`: the last run synced all and stopped.

    A loss of power amid the deletion of what lies below a snapshot may leave any of its segments: disks don't keep the
    order of names. That is no damage.

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
                return FoundLog(
                    LogDamage(path, end.position, end.offset, "what stands there is no whole batch"), 0
                )
            begun = _epoch_begun_behind(data, end)
            if begun >= 0:
                reason = f"whole batches follow, up to leader epoch {begun}"
                return FoundLog(LogDamage(path, end.position, end.offset, reason), 0)
        elif following is not None and end.offset < following:
            if newest is None:  # it is read whole, which few starts need
                newest = newest_whole_snapshot(files, directory)
            if newest < following:
                reason = f"the next segment begins at {following}"
                return FoundLog(LogDamage(path, end.position, end.offset, reason), 0)
            begins_at = following
    return FoundLog(None, begins_at)


def _valid_end(data: memoryview, end: _End) -> _End:
    """Behind the last of the batches in a row that hold."""
    while (size := _size_at(data, end.position)) and crc_is_valid(data, end.position, size):
        header = read_header(data, end.position)
        if header.base_offset < end.offset or header.last_offset_delta < 0:
            break
        end = _End(end.position + size, header.last_offset + 1, max(end.epoch, header.partition_leader_epoch))
    return end


def _size_at(data: memoryview, position: int) -> int:
    """Of the batch that seems to be there; 0 where none does."""
    if position < 0 or position + BATCH_OVERHEAD > len(data) or data[position + MAGIC_POS] != MAGIC:
        return 0
    size = read_header(data, position).batch_length + LOG_OVERHEAD
    return size if BATCH_OVERHEAD <= size <= len(data) - position else 0


def _epoch_begun_behind(data: memoryview, end: _End) -> int:
    """The latest leader epoch of the whole batches anywhere behind, if one of them begins an epoch, or they are of more
    than one; else -1.

    Who begins to lead has found whole what lies before, and synced it: then that was on the disk, and is damaged. A run
    that died before its own first batches were synced may have left any of them.
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
