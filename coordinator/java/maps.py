"""Java's hashes, and hash tables and queues in Java's order. Kafka's answers depend on them.

The iteration order of Kafka's maps is visible in assignments, answers and records, and even decides who gets
which partition. `JavaMap` is a java.util.HashMap, `JavaSet` a java.util.HashSet, `TimelineTable` Kafka's
`TimelineHashMap` (`BaseHashTable`), which holds a coordinator's state. With the same history they iterate in
the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Generic, TypeVar

# --- blank strings in Java ------------------------------------------------------------------------------------

_BLANKS = "".join(map(chr, range(0x21)))


def is_blank(text: str) -> bool:
    """True if `String.trim` leaves nothing: all characters up to the space are blank."""
    return not text.strip(_BLANKS)


# --- hashes of strings, numbers and uuids ---------------------------------------------------------------------

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


@lru_cache(1024)  # every request of a group or a transaction needs it, mostly for the same few
def partition_of_key(key: str, partitions: int) -> int:
    """The partition of an internal topic that is responsible for a key (Kafka: `Utils.abs(key.hashCode) %
    partitions`)."""
    hashed = string_hash(key)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partitions


def uuid_hash(uuid: bytes) -> int:
    """org.apache.kafka.common.Uuid.hashCode of 16 bytes: signed 32 bits."""
    both = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    hashed = (both >> 32 ^ both) & 0xFFFFFFFF
    return hashed - (1 << 32) if hashed & 0x80000000 else hashed


def java_hash(key: object) -> int:
    """hashCode of a string, a number of 32 bits, a uuid as its 16 bytes, or a record of some of these."""
    if isinstance(key, int):
        return key
    if isinstance(key, bytes):
        return uuid_hash(key)
    if isinstance(key, tuple):
        hashed = 0
        for part in key:
            hashed = (31 * hashed + java_hash(part)) & 0xFFFFFFFF
        return hashed - (1 << 32) if hashed & 0x80000000 else hashed
    assert isinstance(key, str), f"no hash for {key!r}"
    return string_hash(key)


# --- hash tables ----------------------------------------------------------------------------------------------

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

INITIAL_CAPACITY = 16
_TREEIFY_THRESHOLD = 8
_MIN_TREEIFY_CAPACITY = 64


def table_size(expected: int) -> int:
    """The smallest power of two that isn't below `expected` (HashMap.tableSizeFor)."""
    return 1 if expected <= 1 else 1 << (expected - 1).bit_length()


class JavaMap(Generic[K, V]):
    """A java.util.HashMap. `capacity` is the argument of its constructor. Keys: str, int, the 16 bytes of a
    uuid, or tuples of them.

    Buckets are by `(h ^ h >>> 16) & (capacity - 1)`, each in the order of insertion. The table doubles beyond three
    quarters, and never shrinks. The ninth key of a bucket makes a small table double. In a larger one Java turns
    such a bucket into a tree, whose order is unspecified; it hardly ever occurs, so here it stays a list.
    """

    __slots__ = ("_buckets", "_capacity", "_entries")

    def __init__(self, capacity: int = INITIAL_CAPACITY) -> None:
        self._capacity = table_size(capacity)
        self._entries: dict[K, tuple[int, V]] = {}  # spread hash and value
        self._buckets: dict[int, list[K]] = {}

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
        if len(bucket) > _TREEIFY_THRESHOLD and self._capacity < _MIN_TREEIFY_CAPACITY:
            self._resize()

    def _resize(self) -> None:
        """Double the table. Each bucket splits into two, in its order."""
        old = self._buckets
        self._capacity *= 2
        mask = self._capacity - 1
        self._buckets = {}
        for index in sorted(old):
            for key in old[index]:
                self._buckets.setdefault(self._entries[key][0] & mask, []).append(key)

    def put_all(self, other: JavaMap[K, V]) -> None:
        """`HashMap.putAll` of a map that has had entries. The table first grows for all of them, even for
        those that are in it already."""
        while len(other) > self._capacity * 3 // 4:
            self._resize()
        for key, value in other.items():
            self[key] = value

    def __delitem__(self, key: K) -> None:
        self.pop(key)

    def pop(self, key: K) -> V | None:
        """Remove the key. Returns its value, or None."""
        found = self._entries.get(key)
        if found is None:
            return None
        index = found[0] & self._capacity - 1
        bucket = self._buckets[index]
        bucket.remove(key)
        if not bucket:
            del self._buckets[index]
        del self._entries[key]
        return found[1]

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        return None if found is None else found[1]

    def compute_if_absent(self, key: K, value: V) -> V:
        """`HashMap.computeIfAbsent`: return the existing value, or put `value`.

        As in `compute` and `merge`, but not in `put`, a new key goes to the beginning of its bucket, and the
        table is checked before it grows, not after.
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
        keys = self._buckets.setdefault(index, [])
        keys.insert(0, key)
        if len(keys) >= _TREEIFY_THRESHOLD and self._capacity < _MIN_TREEIFY_CAPACITY:
            self._resize()
        return value

    def keys(self) -> list[K]:
        """In Java's order."""
        return [*self]

    def values(self) -> list[V]:
        return [self._entries[key][1] for key in self]

    def items(self) -> list[tuple[K, V]]:
        return [(key, self._entries[key][1]) for key in self]

    def compute(self, key: K, change: Callable[[V | None], V | None]) -> None:
        """`HashMap.compute`. None removes the key."""
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
        """`new HashSet<>(collection)`. `size` is the collection's reported size, if that is wrong."""
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
    """A map from strings with the order of Kafka's TimelineHashMap.

    It has 2^k slots. A key's slot is the highest k bits of its hash times a constant. The table doubles
    before there are more keys than three quarters of the slots. It iterates over the slots upwards, and
    within a slot from the newest key on.
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


# --- a java.util.PriorityQueue: among entries of equal weight, the order is Java's ----------------------------


class JavaPriorityQueue(Generic[T]):
    """A binary heap by `weight`. Python's own sifts differently, and returns equal entries in another order."""

    __slots__ = ("_heap", "_weight")

    def __init__(self, weight: Callable[[T], float]) -> None:
        self._weight = weight
        self._heap: list[T] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, item: T) -> None:
        heap, weight = self._heap, self._weight
        heap.append(item)
        index, weighs = len(heap) - 1, weight(item)
        while index:
            parent = index - 1 >> 1
            if weighs >= weight(heap[parent]):
                break
            heap[index] = heap[parent]
            index = parent
        heap[index] = item

    def poll(self) -> T | None:
        """Remove and return the lightest; None if it is empty."""
        heap, weight = self._heap, self._weight
        if not heap:
            return None
        first, last = heap[0], heap.pop()
        count = len(heap)
        if not count:
            return first
        index, weighs = 0, weight(last)
        while index < count >> 1:
            child = 2 * index + 1
            if child + 1 < count and weight(heap[child]) > weight(heap[child + 1]):
                child += 1
            if weighs <= weight(heap[child]):
                break
            heap[index] = heap[child]
            index = child
        heap[index] = last
        return first
