"""For each key of a log's dirty part the offset of its latest record.

Keys are known by their MD5 alone, as in Kafka, so that an entry takes 24 bytes whatever the key; 27 with the room that
an open table needs. Source: org.apache.kafka.storage.internals.log SkimpyOffsetMap, LogCleaner.
"""

import hashlib
import mmap
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, count
from math import isqrt
from struct import Struct

ENTRY_BYTES = 24
NOT_FOUND = -1

_HASH_BYTES = 16
_OFFSET = Struct("<q")
_STEP = Struct("<I")
_NO_HASH = bytes(_HASH_BYTES)
_MOST_MARKS = 1 << 24
_MOST_FAMILIAR = 4096
_FAMILIAR_BYTES = 64
_MAX_BUFFER_BYTES = 2**31 - 1

# takes a third of the time of hashlib's, which asks OpenSSL; not every Python has it
md5 = import_module("_md5").md5 if find_spec("_md5") else hashlib.md5


def keys_for(buffer_bytes: int, load_factor: float) -> int:
    """How many different keys a buffer of so many bytes takes: `log.cleaner.dedupe.buffer.size`, a thread's share of
    it, and `log.cleaner.io.buffer.load.factor`."""
    return int(min(buffer_bytes, _MAX_BUFFER_BYTES) // ENTRY_BYTES * load_factor)


def _slots_for(keys: int, max_keys: int) -> int:
    """A prime: a third more than keys while that is within the buffer, which by the default load factor has room for a
    ninth more than it may take keys."""
    most = min(keys * 4 // 3, max_keys * 10 // 9) + 1
    return next(slots for slots in chain(range(most, keys, -1), count(most + 1)) if _is_prime(slots))


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, isqrt(number) + 1))


class OffsetMap:
    """24 bytes for each slot, all together no more than the buffer.

    The kernel provides the pages that are touched. Keys lie all over them, so that is most of them after some ten
    thousand.

    A key whose slot is taken goes on by a step of its own: in a full table a lookup has a fifth of the way that it has
    from slot to slot. The number of slots is a prime, so that each step comes to all of them.

    Beside it a byte for each offset, of 16 million at most, says whether a record there is the latest of its key, so
    that batches of which nothing is needed any more are known without another look at their records. And the slots of
    some keys are at hand: in internal topics a few come again and again.

    `latest` is the offset up to which the log is in the map; -1 before anything is.
    """

    __slots__ = (
        "_familiar",
        "_first_offset",
        "_hashes",
        "_marks",
        "_offsets",
        "_slots",
        "count",
        "latest",
        "max_keys",
    )

    def __init__(self, max_keys: int, first_offset: int, offsets: int) -> None:
        """Room for `max_keys`, or less where there are only so many offsets from the first on. Raises `MemoryError`."""
        most_keys = max(1, max_keys)
        self._slots = _slots_for(min(most_keys, max(1, offsets)), most_keys)
        # one is left free, by which a search ends: at one offset there may be records of several keys
        self.max_keys = min(most_keys, self._slots - 1)
        # zeros, of which the kernel provides only what is touched
        try:
            self._hashes = mmap.mmap(-1, self._slots * _HASH_BYTES)
            self._offsets = mmap.mmap(-1, self._slots * _OFFSET.size)
        except OSError as failure:  # which would pass for one of the disk
            raise MemoryError(f"an offset map of {self._slots} slots: {failure}") from failure
        self._first_offset = first_offset
        self._marks = bytearray(min(max(0, offsets), _MOST_MARKS))
        self._familiar: dict[bytes, int] = {}
        self.count = 0
        self.latest = -1

    def put(self, key: bytes, offset: int) -> bool:
        """The key has a record at the offset, not before any that was put. False, and nothing done, where the map is
        full: even a key that is in it isn't taken any more, as in Kafka."""
        known = self.count
        if known >= self.max_keys:
            return False
        slot = self._familiar.get(key, -1)
        if slot < 0:
            slot = self._slot_for(key)
        marks = self._marks
        if self.count == known:
            mark = _OFFSET.unpack_from(self._offsets, slot * 8)[0] - self._first_offset
            if mark < len(marks) and marks[mark] == 1:
                marks[mark] = 0
        mark = offset - self._first_offset
        if mark < len(marks):
            # 2 stays: records of a batch that is out of order, at one offset
            marks[mark] = 2 if marks[mark] else 1
        _OFFSET.pack_into(self._offsets, slot * 8, offset)
        self.latest = offset
        return True

    def _slot_for(self, key: bytes) -> int:
        """Its own, or a free one, which is taken with that."""
        hashed = md5(key).digest()
        hashes = self._hashes
        slots = self._slots
        step = 0
        slot = hash(hashed) % slots
        at = slot * _HASH_BYTES
        found = hashes[at : at + _HASH_BYTES]
        while found != hashed:
            if found == _NO_HASH:
                hashes[at : at + _HASH_BYTES] = hashed
                self.count += 1
                break
            if not step:
                step = 1 + _STEP.unpack_from(hashed)[0] % (slots - 1)
            slot += step
            if slot >= slots:
                slot -= slots
            at = slot * _HASH_BYTES
            found = hashes[at : at + _HASH_BYTES]
        if len(key) <= _FAMILIAR_BYTES:
            if len(self._familiar) == _MOST_FAMILIAR:
                self._familiar.clear()
            self._familiar[key] = slot
        return slot

    def get(self, key: bytes) -> int:
        """The offset of the key's latest record, `NOT_FOUND` of a key that isn't in the map."""
        hashed = md5(key).digest()
        hashes = self._hashes
        slots = self._slots
        step = 0
        slot = hash(hashed) % slots
        at = slot * _HASH_BYTES
        found = hashes[at : at + _HASH_BYTES]
        while found != hashed:
            if found == _NO_HASH:
                return NOT_FOUND
            if not step:
                step = 1 + _STEP.unpack_from(hashed)[0] % (slots - 1)
            slot += step
            if slot >= slots:
                slot -= slots
            at = slot * _HASH_BYTES
            found = hashes[at : at + _HASH_BYTES]
        offset: int = _OFFSET.unpack_from(self._offsets, slot * 8)[0]
        return offset

    def has_latest_within(self, first_offset: int, last_offset: int) -> bool:
        """Whether one of these offsets may have the latest record of a key. False is certain: all of them are in the
        map, and what is there are older records, records without a key, or none."""
        start, end = first_offset - self._first_offset, last_offset + 1 - self._first_offset
        if start < 0 or last_offset > self.latest or end > len(self._marks):
            return True
        return self._marks.count(0, start, end) < end - start

    def reach(self, offset: int) -> None:
        """The log is in the map up to the offset, whether or not there was a key."""
        if offset > self.latest:
            self.latest = offset

    def close(self) -> None:
        """Gives the memory back."""
        self._hashes.close()
        self._offsets.close()
