"""The offset of each key's latest record in the dirty part of a log.

Keys are only known by their MD5, as in Kafka. So an entry takes 24 bytes whatever the key, or 27 with the free
slots that a hash table needs. Source: org.apache.kafka.storage.internals.log SkimpyOffsetMap, LogCleaner.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, count
from math import isqrt
from struct import Struct

from protocol.records.batch import CorruptRecordError
from protocol.wire.primitives import VarintTooLongError, read_varint

ENTRY_BYTES = 24
NOT_FOUND = -1

_HASH_BYTES = 16
_OFFSET_BYTES = 8
_STEP = Struct("<I")
_NO_HASH = bytes(_HASH_BYTES)
_MOST_MARKS = 1 << 24
_MOST_FAMILIAR = 4096
_FAMILIAR_BYTES = 64
_MAX_BUFFER_BYTES = 2**31 - 1

# takes a third of the time of hashlib's, which uses OpenSSL; not every Python has it
md5 = import_module("_md5").md5 if find_spec("_md5") else hashlib.md5


def keys_for(buffer_bytes: int, load_factor: float) -> int:
    """The number of different keys for a buffer of this size (`log.cleaner.dedupe.buffer.size`, one thread's
    share) and this `log.cleaner.io.buffer.load.factor`."""
    return int(min(buffer_bytes, _MAX_BUFFER_BYTES) // ENTRY_BYTES * load_factor)


def _slots_for(keys: int, max_keys: int) -> int:
    """A prime number of slots: a third more than keys if the buffer has room for that. With the default load
    factor it has room for a ninth more than the most keys."""
    most = min(keys * 4 // 3, max_keys * 10 // 9) + 1
    return next(slots for slots in chain(range(most, keys, -1), count(most + 1)) if _is_prime(slots))


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, isqrt(number) + 1))


class OffsetMap:
    """A hash table with 24 bytes per slot, together no more than the buffer.

    The kernel only provides the pages that are touched. Keys are spread over all of them, so that is most of
    them after some ten thousand keys.

    A key whose slot is taken tries other slots in a step of its own. In a full table such a look-up takes a
    fifth of the tries that it would take from slot to slot. The number of slots is a prime, so that each step
    reaches all of them.

    Besides, a byte for each offset, at most 16 million, says whether the record there is the latest of its
    key. So batches with nothing left to keep are recognized without another look at their records. Also, the
    slots of some keys are cached: in internal topics a few keys occur again and again.

    `latest` is the offset up to which the log is in the map; -1 at first.
    """

    __slots__ = (
        "_familiar",
        "_first_offset",
        "_hashes",
        "_mapped",
        "_marks",
        "_offsets",
        "_slots",
        "count",
        "latest",
        "max_keys",
    )

    def __init__(self, max_keys: int, first_offset: int, offsets: int) -> None:
        """Make room for `max_keys`, or for fewer if there are fewer offsets from the first on. Raises
        `MemoryError`."""
        most_keys = max(1, max_keys)
        self._slots = _slots_for(min(most_keys, max(1, offsets)), most_keys)
        # One slot stays free, so that a search ends. At one offset there may be records of several keys.
        self.max_keys = min(most_keys, self._slots - 1)
        # zeros; the kernel only provides the touched pages
        try:
            self._hashes = mmap.mmap(-1, self._slots * _HASH_BYTES)
            self._mapped = mmap.mmap(-1, self._slots * _OFFSET_BYTES)
        except OSError as failure:  # as an OSError it would be mistaken for one of the disk
            raise MemoryError(f"an offset map of {self._slots} slots: {failure}") from failure
        # each offset plus one, so that 0 marks a free slot
        self._offsets = memoryview(self._mapped).cast("q")
        self._first_offset = first_offset
        self._marks = bytearray(min(max(0, offsets), _MOST_MARKS))
        self._familiar: dict[bytes, int] = {}
        self.count = 0
        self.latest = -1

    def put(
        self, records: Iterable[KeyedRecord], base_offset: int, last_offset: int, from_offset: int
    ) -> bool:
        """Put the records of the batch with these first and last offsets. None may be before any that was put
        already.

        Records without a key or before `from_offset` are skipped. Returns False if the map is full. Then the
        rest isn't put, not even a key that is already in it, as in Kafka.
        """
        familiar, offsets, marks = self._familiar, self._offsets, self._marks
        first_offset, marked = self._first_offset, len(marks)
        left = self.max_keys - self.count
        for _, delta, key, _ in records:
            offset = base_offset + delta
            if offset > last_offset:
                # a delta beyond the batch would make later records of the key look superseded
                offset = last_offset
            if key is None or offset < from_offset:
                continue
            if not left:
                return False
            slot = familiar.get(key)
            if slot is None:
                slot = self._slot_for(key)
            behind = offsets[slot]
            if behind:
                mark = behind - 1 - first_offset
                if mark < marked and marks[mark] == 1:
                    marks[mark] = 0
            else:
                self.count += 1
                left -= 1
            mark = offset - first_offset
            if mark < marked:
                # 2 stays: several records at one offset, of a batch that is out of order
                marks[mark] = 2 if marks[mark] else 1
            offsets[slot] = offset + 1
            self.latest = offset
        return True

    def _slot_for(self, key: bytes) -> int:
        """The key's slot, or a free one that becomes its slot."""
        hashed = md5(key).digest()
        slot = self._slot_of(hashed)
        at = slot * _HASH_BYTES
        self._hashes[at : at + _HASH_BYTES] = hashed
        if len(key) <= _FAMILIAR_BYTES:
            if len(self._familiar) == _MOST_FAMILIAR:
                self._familiar.clear()
            self._familiar[key] = slot
        return slot

    def _slot_of(self, hashed: bytes) -> int:
        """The key's slot, or the free one at which the search ends."""
        hashes, slots = self._hashes, self._slots
        step = 0
        slot = hash(hashed) % slots
        while True:
            at = slot * _HASH_BYTES
            found = hashes[at : at + _HASH_BYTES]
            if found in (hashed, _NO_HASH):
                return slot
            if not step:
                step = 1 + _STEP.unpack_from(hashed)[0] % (slots - 1)
            slot += step
            if slot >= slots:
                slot -= slots

    def get(self, key: bytes) -> int:
        """The offset of the key's latest record, `NOT_FOUND` if the key isn't in the map."""
        return self._offsets[self._slot_of(md5(key).digest())] - 1

    def has_latest_within(self, first_offset: int, last_offset: int) -> bool:
        """True if one of these offsets may have the latest record of a key.

        False is certain: all of these offsets are in the map, and have only older records, records without a
        key, or none.
        """
        start, end = first_offset - self._first_offset, last_offset + 1 - self._first_offset
        if start < 0 or last_offset > self.latest or end > len(self._marks):
            return True
        return self._marks.count(0, start, end) < end - start

    def reach(self, offset: int) -> None:
        """Note that the log is in the map up to the offset, whether or not there was a key."""
        if offset > self.latest:
            self.latest = offset

    def close(self) -> None:
        """Free the memory."""
        self._hashes.close()
        self._offsets.release()
        self._mapped.close()


# ---- the records of a batch as the cleaner needs them: offset, key, and whether the value is null

RECORDS_AT_ONCE = 1000
"""The records to read at once: some milliseconds of work."""

KeyedRecord = tuple[int, int, bytes | None, int]
"""The end of the record, its offset delta, its key, and 1 if its value is null. A delta below 0, which is
wrong but may occur, counts as 0, so that no record seems to lie before its batch."""


def read_keyed_records(data: bytes, pos: int, count: int) -> list[KeyedRecord]:
    """Read the next `count` records of `data`, uncompressed, from `pos` on. Raises `CorruptRecordError`.

    The CRC and the checks at the append have proven the batch, so fields that aren't needed aren't checked.
    """
    records: list[KeyedRecord] = []
    limit = len(data)
    try:
        for _ in range(count):
            byte = data[pos]
            high = data[pos + 1]
            if byte < 0x80:
                at = pos + 1
                end = at + (byte >> 1)
            elif high < 0x80:
                at = pos + 2
                end = at + (high << 6) + (byte >> 1) - 64
            else:
                size, at = read_varint(data, pos)
                end = at + size
            # after its attributes: the timestamp delta
            at += 1
            while data[at] > 0x7F:
                at += 1
            at += 1
            byte = data[at]
            if byte < 0x80:
                at += 1
                delta = 0 if byte & 1 else byte >> 1
            else:
                delta, at = read_varint(data, at)
                if delta < 0:
                    delta = 0
            byte = data[at]
            at += 1
            if byte > 0x7F:
                size, at = read_varint(data, at - 1)
                byte = 1 if size < 0 else size << 1
            key = None
            if not byte & 1:
                size = byte >> 1
                key = data[at : at + size]
                at += size
            # the sizes of the value and of the headers take at least a byte each
            if not at + 1 < end <= limit:
                raise CorruptRecordError("a record that doesn't fit its size")
            records.append((end, delta, key, data[at] & 1))
            pos = end
    except (IndexError, VarintTooLongError) as error:
        raise CorruptRecordError(f"a record doesn't parse: {error}") from error
    return records
