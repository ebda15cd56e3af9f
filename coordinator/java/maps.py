"""Hash tables that are walked in the order of Java's, given the same history.

The order in which Kafka walks its maps is the order of assignments, of answers and of records; who gets which
partition depends on it. `JavaMap` is a java.util.HashMap, `JavaSet` a java.util.HashSet, `TimelineTable` Kafka's
`TimelineHashMap` (`BaseHashTable`), which holds what a coordinator knows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

from coordinator.java.hashes import java_hash, string_hash
from coordinator.java.trees import TreeBin

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

INITIAL_CAPACITY = 16
_TREEIFY_THRESHOLD = 8
_MIN_TREEIFY_CAPACITY = 64


class _Bin(Protocol):
    """The keys of one bucket: a list, or the tree that Java makes of a long one."""

    def append(self, key: Any, /) -> None: ...

    def remove(self, key: Any, /) -> None: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


def table_size(expected: int) -> int:
    """The smallest power of two that isn't below `expected` (HashMap.tableSizeFor)."""
    return 1 if expected <= 1 else 1 << (expected - 1).bit_length()


class JavaMap(Generic[K, V]):
    """`capacity` is what a constructor of HashMap is given. Keys: str, int, the 16 bytes of a uuid, or tuples of them.

    Buckets by `(h ^ h >>> 16) & (capacity - 1)`, inside a bucket in the order of insertion; the table doubles past
    three quarters and never shrinks. The ninth key of a bucket makes a small table double and turns the bucket of
    a larger one into a tree.
    """

    __slots__ = ("_buckets", "_capacity", "_entries")

    def __init__(self, capacity: int = INITIAL_CAPACITY) -> None:
        self._capacity = table_size(capacity)
        self._entries: dict[K, tuple[int, V]] = {}  # spread hash and value
        self._buckets: dict[int, _Bin] = {}

    @classmethod
    def copy_of(cls, other: JavaMap[K, V]) -> JavaMap[K, V]:
        """`new HashMap<>(map)`."""
        made: JavaMap[K, V] = JavaMap(int(len(other) / 0.75 + 1.0) if len(other) else INITIAL_CAPACITY)
        for key, value in other.items():
            made[key] = value
        return made

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        buckets = self._buckets
        return chain.from_iterable(map(buckets.__getitem__, sorted(buckets)))

    def __getitem__(self, key: K) -> V:
        return self._entries[key][1]

    def __setitem__(self, key: K, value: V) -> None:
        found = self._entries.get(key)
        if found is not None:
            self._entries[key] = (found[0], value)
            return
        hashed = java_hash(key) & 0xFFFFFFFF
        hashed ^= hashed >> 16
        self._entries[key] = (hashed, value)
        self._append(key, hashed & self._capacity - 1)
        if len(self._entries) > self._capacity * 3 // 4:
            self._resize()

    def _append(self, key: K, index: int) -> None:
        bucket = self._buckets.get(index)
        if bucket is None:
            self._buckets[index] = [key]
            return
        bucket.append(key)
        if len(bucket) > _TREEIFY_THRESHOLD and isinstance(bucket, list):
            self._treeify(bucket, index)

    def _treeify(self, keys: list[K], index: int) -> None:
        if self._capacity < _MIN_TREEIFY_CAPACITY:
            self._resize()
        else:
            self._buckets[index] = TreeBin(keys, self._hash_of)

    def _hash_of(self, key: K) -> int:
        hashed = self._entries[key][0]
        return hashed - (1 << 32) if hashed & 0x80000000 else hashed

    def _resize(self) -> None:
        """Double the table. Each bucket splits into two, in its order; a tree whose part is short becomes a list."""
        old = self._buckets
        self._capacity *= 2
        mask = self._capacity - 1
        self._buckets = {}
        for index in sorted(old):
            parts: dict[int, list[K]] = {}
            for key in old[index]:
                parts.setdefault(self._entries[key][0] & mask, []).append(key)
            for new_index, keys in parts.items():
                bucket = old[index]
                if isinstance(bucket, TreeBin):
                    self._buckets[new_index] = bucket.part(keys)
                else:
                    self._buckets[new_index] = keys

    def put_all(self, other: JavaMap[K, V]) -> None:
        """`HashMap.putAll` of a map that has had entries: the table grows for all of them first, even for those that
        are there already."""
        while len(other) > self._capacity * 3 // 4:
            self._resize()
        for key, value in other.items():
            self[key] = value

    def __delitem__(self, key: K) -> None:
        self.pop(key)

    def pop(self, key: K) -> V | None:
        """The value that was there, or None."""
        found = self._entries.get(key)
        if found is None:
            return None
        index = found[0] & self._capacity - 1
        bucket = self._buckets[index]
        bucket.remove(key)
        if isinstance(bucket, TreeBin) and bucket.is_too_small:
            self._buckets[index] = [*bucket]
        if not len(bucket):
            del self._buckets[index]
        del self._entries[key]
        return found[1]

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        return None if found is None else found[1]

    def compute_if_absent(self, key: K, value: V) -> V:
        """`HashMap.computeIfAbsent`: what was there, or `value` from here on.

        As by `compute` and `merge`, and other than by `put`, a new key goes to the beginning of its bucket, and the
        table is looked at before it grows, not after.
        """
        if len(self._entries) > self._capacity * 3 // 4:
            self._resize()
        found = self._entries.get(key)
        if found is not None:
            return found[1]
        hashed = java_hash(key) & 0xFFFFFFFF
        hashed ^= hashed >> 16
        self._entries[key] = (hashed, value)
        index = hashed & self._capacity - 1
        bucket = self._buckets.get(index)
        if isinstance(bucket, TreeBin):
            bucket.append(key)
            return value
        keys = self._buckets[index] = [key, *(bucket or ())]
        if len(keys) >= _TREEIFY_THRESHOLD:
            self._treeify(keys, index)
        return value

    def keys(self) -> list[K]:
        """In Java's order."""
        return [*self]

    def values(self) -> list[V]:
        return [self._entries[key][1] for key in self]

    def items(self) -> list[tuple[K, V]]:
        return [(key, self._entries[key][1]) for key in self]

    def compute(self, key: K, change: Callable[[V | None], V | None]) -> None:
        """`HashMap.compute`: None takes the key away."""
        value = change(self.get(key))
        if value is None:
            self.pop(key)
        elif key in self._entries:
            self[key] = value
        else:
            self.compute_if_absent(key, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JavaMap):
            return NotImplemented
        return len(self) == len(other) and all(
            key in other and other[key] == entry[1] for key, entry in self._entries.items()
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{key!r}: {value!r}' for key, value in self.items())}}}"


class JavaHashMap(JavaMap[str, V]):
    """A JavaMap from strings."""

    __slots__ = ()


class JavaSet(Generic[T]):
    """A java.util.HashSet."""

    __slots__ = ("_map",)

    def __init__(self, capacity: int = INITIAL_CAPACITY) -> None:
        self._map: JavaMap[T, None] = JavaMap(capacity)

    @classmethod
    def of(cls, items: Collection[T], size: int | None = None) -> JavaSet[T]:
        """`new HashSet<>(collection)`; `size` is what the collection says its size is, where that isn't so."""
        made: JavaSet[T] = JavaSet(
            max(int((len(items) if size is None else size) / 0.75) + 1, INITIAL_CAPACITY)
        )
        made.update(items)
        return made

    def __len__(self) -> int:
        return len(self._map)

    def __contains__(self, item: object) -> bool:
        return item in self._map

    def __iter__(self) -> Iterator[T]:
        return iter(self._map)

    def add(self, item: T) -> None:
        self._map[item] = None

    def update(self, items: Iterable[T]) -> None:
        for item in items:
            self._map[item] = None

    def discard(self, item: T) -> None:
        self._map.pop(item)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, JavaSet):
            return NotImplemented
        return self._map == other._map

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self))}}}"


_FIBONACCI = -7046029254386353131
_MIN_SLOTS = 2


class TimelineTable(Generic[V]):
    """A map from strings in the order of Kafka's TimelineHashMap.

    2^k slots, a key's slot being the highest k bits of its hash times a constant; the table doubles before three
    quarters of the keys would be more than there are slots. Slots are walked upward, inside a slot the newest first.
    """

    __slots__ = ("_entries", "_slots")

    def __init__(self) -> None:
        self._entries: dict[str, V] = {}
        self._slots: list[list[str]] = [[] for _ in range(_MIN_SLOTS)]

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        for slot in self._slots:
            yield from reversed(slot)

    def __getitem__(self, key: str) -> V:
        return self._entries[key]

    def __setitem__(self, key: str, value: V) -> None:
        if (len(self._entries) + 1) * 0.75 > len(self._slots):
            self._rehash()
        if key not in self._entries:
            self._slots[self._slot_of(key)].append(key)
        self._entries[key] = value

    def copy(self) -> TimelineTable[V]:
        made: TimelineTable[V] = TimelineTable()
        made._entries = dict(self._entries)
        made._slots = [[*slot] for slot in self._slots]
        return made

    def _slot_of(self, key: str) -> int:
        bits = len(self._slots).bit_length() - 1
        product: int = string_hash(key) * _FIBONACCI & 0xFFFFFFFFFFFFFFFF
        return product >> 64 - bits

    def _rehash(self) -> None:
        old = self._slots
        self._slots = [[] for _ in range(2 * len(old))]
        for slot in old:
            for key in slot:
                self._slots[self._slot_of(key)].append(key)

    def get(self, key: str) -> V | None:
        return self._entries.get(key)

    def pop(self, key: str) -> V | None:
        if key not in self._entries:
            return None
        self._slots[self._slot_of(key)].remove(key)
        return self._entries.pop(key)

    def values(self) -> list[V]:
        return [self._entries[key] for key in self]

    def items(self) -> list[tuple[str, V]]:
        return [(key, self._entries[key]) for key in self]
