"""What a partition's folder on a disk says: while a compacted segment takes the place of others, two things at most."""

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
    """The records of a folder with these names, once a start has finished its swaps (Kafka: `LogLoader`); `sure`: of
    each file only what was synced."""
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
        if base >= end:  # else one that a compacted segment has replaced, though the disk names it still
            found += logs[base]
            end = _end(logs[base])
    return found


def contents(folder: Directory, *, sure: bool = False) -> list[bytes]:
    """What may be there after a power loss, as far as names say: the disk has the first few of their changes.

    `sure`: how a swap changes what was synced.
    """
    names = dict(folder.sure)
    if sure:
        # of a segment that was begun since, the bytes may be sure before the name is
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
    """The batches that end below the offset."""
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
    """Without what a power loss has left torn, and a start is about to cut off."""
    return below(data, 1 << 62)


@dataclass
class View:
    """What a log says to who reads committed records of it, and to its partition."""

    last: dict[bytes, tuple[int, bytes | None]] = field(default_factory=dict)
    """By key (offset, value) of the last record that is committed; a tombstone's value is None."""
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By id (epoch, last sequence) of those whose last word was a record."""
    open_transactions: dict[int, int] = field(default_factory=dict)
    """By producer id, the first offset."""

    @property
    def values(self) -> dict[bytes, tuple[int, bytes | None]]:
        """A tombstone says no more than that there is no record, and may go."""
        return {key: record for key, record in self.last.items() if record[1] is not None}


def view(data: bytes) -> View:
    """Of whole batches."""
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
        # a transaction may end behind a later record: by key the last record counts, not the last marker
        if known is None or known[0] < record.offset:
            found.last[key] = record.offset, None if record.value is None else bytes(record.value)


def _of(names: dict[str, Directory | Inode], suffix: str, *, sure: bool = False) -> dict[int, bytes]:
    """By base offset, the bytes of the files of a kind."""
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
