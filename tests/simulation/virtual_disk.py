"""A disk in memory. When its machine loses power, it keeps only what was synced, and a random part of the rest.

- A file's bytes are sure after `sync`. Of what was appended since, a random part remains, perhaps with holes. A file
that was rewritten or cut may still be the old one.

- Names (created, renamed, removed) are sure after `sync_directory`. Of the changes since, the first few remain, or any
of them, separately for each directory: no file system promises their order.

- A killed process loses nothing.
"""

from __future__ import annotations

import errno
import os
import random

from protocol.wire.primitives import Bytes

SECTOR_BYTES = 512
VOLUME_BYTES = 1 << 40


class Inode:
    """A file's bytes. `old` is what the disk has for sure if its bytes were changed since."""

    __slots__ = ("data", "modified_ms", "old", "synced_bytes")

    def __init__(self) -> None:
        self.data = bytearray()
        self.synced_bytes = 0  # how many of the first bytes of `data` the disk has
        self.old: bytes | None = None
        self.modified_ms = 0

    @property
    def sure(self) -> bytes:
        """What surely survives a power loss."""
        return bytes(self.data[: self.synced_bytes]) if self.old is None else self.old

    def cut(self, size: int) -> None:
        if size < self.synced_bytes:
            if self.old is None:
                self.old = bytes(self.data[: self.synced_bytes])
            self.synced_bytes = size
        if size <= len(self.data):
            del self.data[size:]
        else:
            self.data += bytes(size - len(self.data))

    def write(self, data: Bytes, position: int) -> None:
        if position < len(self.data):
            tail = bytes(self.data[position + len(data) :])
            self.cut(position)
            self.data += data
            self.data += tail
        else:
            self.data += bytes(position - len(self.data))
            self.data += data

    def sync(self) -> None:
        self.synced_bytes = len(self.data)
        self.old = None

    @property
    def used_bytes(self) -> int:
        return len(self.data)

    def keep_all(self) -> None:
        self.sync()

    def lose(self, luck: random.Random) -> None:
        if self.old is not None and luck.random() < 0.5:
            self.data = bytearray(self.old)
        else:
            kept = luck.choice(
                (self.synced_bytes, len(self.data), luck.randint(self.synced_bytes, len(self.data)))
            )
            del self.data[kept:]
            if luck.random() < 0.3:
                for start in range(self.synced_bytes // SECTOR_BYTES * SECTOR_BYTES, kept, SECTOR_BYTES):
                    if luck.random() < 0.3:
                        begin, end = max(start, self.synced_bytes), min(start + SECTOR_BYTES, kept)
                        self.data[begin:end] = bytes(end - begin)
        self.old = None
        self.synced_bytes = len(self.data)


class Directory:
    """Names. `sure` are those on the disk, `changes` are the later changes, in order."""

    __slots__ = ("changes", "names", "sure")

    def __init__(self) -> None:
        self.names: dict[str, Directory | Inode] = {}
        self.sure: dict[str, Directory | Inode] = {}
        self.changes: list[dict[str, Directory | Inode | None]] = []

    def change(self, names: dict[str, Directory | Inode | None]) -> None:
        """Change several names at once; None removes one."""
        _apply(self.names, names)
        self.changes.append(names)

    def sync(self) -> None:
        self.sure = dict(self.names)
        self.changes.clear()

    @property
    def used_bytes(self) -> int:
        return sum(node.used_bytes for node in self.names.values())

    def keep_all(self) -> None:
        self.sync()
        for node in self.names.values():
            node.keep_all()

    def lose(self, luck: random.Random) -> None:
        kept = luck.choice((0, len(self.changes), luck.randint(0, len(self.changes))))
        reorders = len(self.changes) > 1 and luck.random() < 0.3
        for number, change in enumerate(self.changes):
            if luck.random() < 0.5 if reorders else number < kept:
                _apply(self.sure, change)
        self.names = self.sure
        self.sync()
        for node in self.names.values():
            node.lose(luck)


def _apply(names: dict[str, Directory | Inode], change: dict[str, Directory | Inode | None]) -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class VirtualDisk:
    """The contents of the machine's disk, whoever runs on it."""

    def __init__(self) -> None:
        self.root = Directory()
        self.locked: set[str] = set()

    def lose_power(self, luck: random.Random) -> None:
        self.root.lose(luck)
        self.locked.clear()

    @property
    def used_bytes(self) -> int:
        """Out of `VOLUME_BYTES`. Names take no space."""
        return self.root.used_bytes

    def keep_all(self) -> None:
        """Make everything sure."""
        self.root.keep_all()

    def find(self, path: str) -> Directory | Inode | None:
        node: Directory | Inode | None = self.root
        for name in parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.names.get(name)
        return node

    def directory(self, path: str) -> Directory:
        """Return the directory. Raises FileNotFoundError."""
        node = self.find(path)
        if not isinstance(node, Directory):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def inode(self, path: str) -> Inode:
        """Return the file. Raises FileNotFoundError."""
        node = self.find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(self.directory(path).names)

    def bytes_of(self, path: str) -> bytes:
        return bytes(self.inode(path).data)

    def forget(self, path: str) -> None:
        """Remove the file for sure."""
        directory = self.directory(os.path.dirname(path))
        directory.names.pop(os.path.basename(path), None)
        directory.sync()


def parts(path: str) -> list[str]:
    return [name for name in path.split("/") if name]
