"""Where Kafka's behaviour depends on Java: the hash of a string and the order in which a HashMap is walked."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Generic, TypeVar

V = TypeVar("V")

_INITIAL_CAPACITY = 16
_unpackers: dict[int, Struct] = {}


def string_hash(text: str) -> int:
    """java.lang.String.hashCode: signed 32 bits over UTF-16 units."""
    units = text.encode("utf-16-le", "surrogatepass")
    count = len(units) // 2
    unpack = _unpackers.get(count)
    if unpack is None:
        unpack = Struct(f"<{count}H")
        if count < 256:
            _unpackers[count] = unpack
    hashed = 0
    for unit in unpack.unpack(units):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed & 0x80000000 else hashed


def partition_of_key(key: str, partitions: int) -> int:
    """The partition of an internal topic that looks after a key (Kafka: `Utils.abs(key.hashCode) % partitions`)."""
    hashed = string_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions


class JavaHashMap(Generic[V]):
    """A map from strings that is walked in the order of a java.util.HashMap with the same history.

    Buckets by `(h ^ h >>> 16) & (capacity - 1)`, inside a bucket in the order of insertion; the capacity doubles past
    three quarters and never shrinks. (Java's trees, from 8 keys in a bucket on, are left out.)
    """

    __slots__ = ("_capacity", "_entries", "_keys")

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, V]] = {}  # in the order of insertion; with the spread hash
        self._capacity = _INITIAL_CAPACITY
        self._keys: list[str] | None = None  # in Java's order, until something is added or removed

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, key: str) -> V:
        return self._entries[key][1]

    def __setitem__(self, key: str, value: V) -> None:
        found = self._entries.get(key)
        if found is not None:
            self._entries[key] = (found[0], value)
            return
        hashed = string_hash(key) & 0xFFFFFFFF
        self._entries[key] = (hashed ^ hashed >> 16, value)
        self._keys = None
        if len(self._entries) > self._capacity * 3 // 4:
            self._capacity *= 2

    def get(self, key: str) -> V | None:
        found = self._entries.get(key)
        return None if found is None else found[1]

    def pop(self, key: str) -> V | None:
        """The value that was there, or None."""
        found = self._entries.pop(key, None)
        if found is None:
            return None
        self._keys = None
        return found[1]

    def keys(self) -> list[str]:
        """In Java's order; not to be changed."""
        if self._keys is None:
            mask = self._capacity - 1
            entries = self._entries
            self._keys = sorted(entries, key=lambda key: entries[key][0] & mask)
        return self._keys

    def values(self) -> list[V]:
        """In Java's order."""
        return [self._entries[key][1] for key in self.keys()]
