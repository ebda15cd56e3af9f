"""What Kafka's answers depend on and Java has built in: hashes, and hash tables and queues in the order of Java's.

The order in which Kafka walks its maps is the order of assignments, of answers and of records; who gets which
partition depends on it. `JavaMap` is a java.util.HashMap, `JavaSet` a java.util.HashSet, `TimelineTable` Kafka's
`TimelineHashMap` (`BaseHashTable`), which holds what a coordinator knows. Given the same history they are walked in
the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Any, Generic, Protocol, TypeVar

# --- what Java takes for blank --------------------------------------------------------------------------------

_BLANKS = "".join(map(chr, range(0x21)))


def is_blank(text: str) -> bool:
    """Whether `String.trim` leaves nothing: all up to the space counts as blank."""
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


@lru_cache(1024)  # every request of a group or a transaction asks, and mostly for the same few
def partition_of_key(key: str, partitions: int) -> int:
    """The partition of an internal topic that looks after a key (Kafka: `Utils.abs(key.hashCode) % partitions`)."""
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


# --- the tree of a bucket of more than 8 keys -----------------------------------------------------------------
#
# It is red-black, by hash and then by the keys themselves. It is walked not by the tree but by a chain
# through its nodes: a new node comes after its parent in the tree, and whichever node is the root comes
# first. So the chain's order depends on the tree's shape, which is kept here as the textbook (and
# HashMap.TreeNode) keeps it.

UNTREEIFY_THRESHOLD = 6


class _Node:
    __slots__ = ("key", "left", "order", "parent", "red", "right")

    def __init__(self, key: Any, order: tuple[int, Any]) -> None:
        self.key = key
        self.order = order
        self.parent: _Node | None = None
        self.left: _Node | None = None
        self.right: _Node | None = None
        self.red = True


def _comparable(key: Any) -> Any:
    """What `compareTo` goes by: UTF-16 units of strings, the two signed longs of uuids, numbers themselves, the parts
    of a record."""
    if isinstance(key, str):
        return key.encode("utf-16-be", "surrogatepass")
    if isinstance(key, bytes):
        return (int.from_bytes(key[:8], "big", signed=True), int.from_bytes(key[8:], "big", signed=True))
    if isinstance(key, tuple):
        return tuple(map(_comparable, key))
    return key


class TreeBin:
    """`hash_of` gives a key's spread hash, signed."""

    __slots__ = ("_chain", "_hash_of", "_nodes", "_root", "is_too_small")

    def __init__(self, keys: Iterable[Any], hash_of: Callable[[Any], int]) -> None:
        self._hash_of = hash_of
        self._chain = [*keys]
        self._nodes: dict[Any, _Node] = {}
        self._root: _Node | None = None
        self.is_too_small = False
        """Whether the last removal made a list of it again."""
        for key in self._chain:
            self._insert(key)
        self._root_to_front()

    def __len__(self) -> int:
        return len(self._chain)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._chain)

    def append(self, key: Any) -> None:
        """Add a key that isn't there."""
        parent = self._insert(key)
        self._chain.insert(self._chain.index(parent) + 1, key)
        self._root_to_front()

    def part(self, keys: list[Any]) -> TreeBin | list[Any]:
        """What becomes of these keys of it as the table doubles, in their order."""
        if len(keys) <= UNTREEIFY_THRESHOLD:
            return keys
        return self if len(keys) == len(self._chain) else TreeBin(keys, self._hash_of)

    def remove(self, key: Any) -> None:
        self._chain.remove(key)
        root = self._root
        if root is None or root.right is None or root.left is None or root.left.left is None:
            self.is_too_small = True
            return
        self._take_out(self._nodes.pop(key))
        self._root_to_front()

    def _root_to_front(self) -> None:
        if self._root is not None and self._chain[0] != self._root.key:
            self._chain.remove(self._root.key)
            self._chain.insert(0, self._root.key)

    def _insert(self, key: Any) -> Any:
        """Add a leaf; the key of the node above it at that moment."""
        node = _Node(key, (self._hash_of(key), _comparable(key)))
        self._nodes[key] = node
        above = None
        below = self._root
        while below is not None:
            above = below
            below = below.left if node.order < below.order else below.right
        node.parent = above
        if above is None:
            node.red = False
            self._root = node
            return None
        if node.order < above.order:
            above.left = node
        else:
            above.right = node
        self._balance_insertion(node)
        return above.key

    def _rotate(self, node: _Node, to_left: bool) -> None:
        child = node.right if to_left else node.left
        assert child is not None
        inner = child.left if to_left else child.right
        if to_left:
            node.right, child.left = inner, node
        else:
            node.left, child.right = inner, node
        if inner is not None:
            inner.parent = node
        self._replace(node, child)
        node.parent = child

    def _replace(self, node: _Node, by: _Node | None) -> None:
        above = node.parent
        if by is not None:
            by.parent = above
        if above is None:
            self._root = by
        elif above.left is node:
            above.left = by
        else:
            above.right = by

    def _balance_insertion(self, node: _Node) -> None:
        while (above := node.parent) is not None and above.red:
            top = above.parent
            assert top is not None
            on_left = above is top.left
            uncle = top.right if on_left else top.left
            if uncle is not None and uncle.red:
                above.red = uncle.red = False
                top.red = True
                node = top
                continue
            if node is (above.right if on_left else above.left):
                self._rotate(above, on_left)
                node, above = above, node
            above.red = False
            top.red = True
            self._rotate(top, not on_left)
        assert self._root is not None
        self._root.red = False

    def _take_out(self, node: _Node) -> None:
        if node.left is not None and node.right is not None:
            self._swap_with_successor(node)
        child = node.left if node.left is not None else node.right
        if child is not None:
            self._replace(node, child)
            if not node.red:
                self._balance_deletion(child)
        else:
            if not node.red:
                self._balance_deletion(node)
            self._replace(node, None)

    def _swap_with_successor(self, node: _Node) -> None:
        after = node.right
        assert after is not None
        while after.left is not None:
            after = after.left
        node.red, after.red = after.red, node.red
        above, right = after.parent, after.right
        left, node_right = node.left, node.right
        self._replace(node, after)
        after.left = left
        assert left is not None
        left.parent = after
        if above is node:
            after.right = node
            node.parent = after
        else:
            after.right = node_right
            assert node_right is not None
            assert above is not None
            node_right.parent = after
            above.left = node
            node.parent = above
        node.left, node.right = None, right
        if right is not None:
            right.parent = node

    def _balance_deletion(self, node: _Node) -> None:
        while node is not self._root and not node.red:
            above = node.parent
            assert above is not None
            on_left = node is above.left
            other = above.right if on_left else above.left
            assert other is not None
            if other.red:
                other.red = False
                above.red = True
                self._rotate(above, on_left)
                other = above.right if on_left else above.left
                assert other is not None
            near, far = (other.left, other.right) if on_left else (other.right, other.left)
            if not (near is not None and near.red) and not (far is not None and far.red):
                other.red = True
                node = above
                continue
            if far is None or not far.red:
                assert near is not None
                near.red = False
                other.red = True
                self._rotate(other, not on_left)
                other, far = near, other
            other.red = above.red
            if far is not None:
                far.red = False
            above.red = False
            self._rotate(above, on_left)
            break
        else:
            node.red = False
            return


# --- hash tables ----------------------------------------------------------------------------------------------

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


# --- a java.util.PriorityQueue: of entries that weigh the same the one that Java would give comes first -------


class JavaPriorityQueue(Generic[T]):
    """A binary heap by `weight`; Python's own sifts another way, and gives equal ones in another order."""

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
        """The lightest, taken out; None where there is none."""
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
