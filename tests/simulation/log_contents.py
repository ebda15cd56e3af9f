"""What a partition's folder says: two things at most while a compacted segment replaces others."""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol.records.batch import (
    CorruptRecordError,
    increment_sequence,
    read_marker,
    read_records,
    walk_batches,
)
from storage.files import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX
from tests.simulation.virtual_disk import Directory, Inode

_DIGITS = 20


def content(names: dict[str, Directory | Inode], *, sure: bool = False) -> bytes:
    """Return the records of a folder with these names, once a start has finished its swaps (Kafka: `LogLoader`).
    `sure`: use only what was synced of each file."""
    logs = _of(names, LOG_SUFFIX, sure=sure)
    swaps = _of(names, LOG_SUFFIX + SWAP_SUFFIX, sure=sure)
    split_at = min(_of(names, LOG_SUFFIX + CLEANED_SUFFIX), default=None)
    if split_at is not None:
        swaps = {base: data for base, data in swaps.items() if base < split_at}
    if swaps:
        end = max(max(_end(data), base + 1) for base, data in swaps.items())
        logs = {base: data for base, data in logs.items() if not min(swaps) <= base < end} | swaps
    found = b""
    end = -1
    for base in sorted(logs):
        if base >= end:  # skip one that a compacted segment has replaced, although the disk still names it
            found += logs[base]
            end = _end(logs[base])
    return found


def contents(folder: Directory, *, sure: bool = False) -> list[bytes]:
    """Return what may be there after a power loss, judging by names: the disk has the first few of their changes.

    `sure`: how a swap changes what was synced.
    """
    names = dict(folder.sure)
    if sure:
        # the bytes of a newer segment may be sure before its name is
        for change in folder.changes:
            [(name, node), *more] = change.items()
            if name.endswith(LOG_SUFFIX) and node is not None and not more:
                names[name] = node
    found = [content(names, sure=sure)]
    for change in folder.changes:
        for name, node in change.items():
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node
        if (now := content(names, sure=sure)) not in found:
            found.append(now)
    return found


def below(data: bytes, offset: int) -> bytes:
    """Return the batches that end below the offset."""
    size = 0
    try:
        for position, header in walk_batches(data):
            if header.last_offset >= offset:
                break
            size = position + header.size_bytes
    except CorruptRecordError:
        pass
    return data[:size]


def whole(data: bytes) -> bytes:
    """Leave out what a power loss has torn and a start is about to cut off."""
    return below(data, 1 << 62)


@dataclass
class View:
    """What a log says to readers of committed records, and to its partition."""

    last: dict[bytes, tuple[int, bytes | None]] = field(default_factory=dict)
    """(offset, value) of each key's last committed record. A tombstone's value is None."""
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """(epoch, last sequence) by id, of producers whose last word was a record."""
    open_transactions: dict[int, int] = field(default_factory=dict)
    """The first offset by producer id."""

    @property
    def values(self) -> dict[bytes, tuple[int, bytes | None]]:
        """The values without tombstones: these only say that there is no record, and may be removed."""
        return {key: record for key, record in self.last.items() if record[1] is not None}


def view(data: bytes) -> View:
    """Return the view of whole batches."""
    found = View()
    pending: dict[int, list[bytes]] = {}
    for position, header in walk_batches(data):
        batch = data[position : position + header.size_bytes]
        if header.is_control:
            marker = read_marker(batch)
            if marker is None:
                continue
            found.open_transactions.pop(header.producer_id, None)
            known = found.producers.get(header.producer_id)
            if known is not None and known[0] < header.producer_epoch:
                del found.producers[header.producer_id]
            for held in pending.pop(header.producer_id, []):
                if marker.commit:
                    _put(found, held)
            continue
        if header.producer_id >= 0:
            last = increment_sequence(header.base_sequence, header.last_offset_delta)
            found.producers[header.producer_id] = (header.producer_epoch, last)
        if header.is_transactional:
            if header.records_count:
                found.open_transactions.setdefault(header.producer_id, header.base_offset)
            pending.setdefault(header.producer_id, []).append(batch)
        else:
            _put(found, batch)
    return found


def _put(found: View, batch: bytes) -> None:
    for record in read_records(batch):
        assert record.key is not None
        key = bytes(record.key)
        known = found.last.get(key)
        # A transaction may end after a later record: for a key the last record counts, not the last marker.
        if known is None or known[0] < record.offset:
            found.last[key] = record.offset, None if record.value is None else bytes(record.value)


def _of(names: dict[str, Directory | Inode], suffix: str, *, sure: bool = False) -> dict[int, bytes]:
    """Return the bytes of one kind of files, by base offset."""
    return {
        int(name[:_DIGITS]): node.sure if sure else bytes(node.data)
        for name, node in names.items()
        if name[_DIGITS:] == suffix and isinstance(node, Inode)
    }


def _end(data: bytes) -> int:
    end = 0
    try:
        for _, header in walk_batches(data):
            end = header.last_offset + 1
    except CorruptRecordError:
        pass
    return end
