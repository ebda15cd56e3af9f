"""The hash of the topics that a group subscribes to. If it changes, the group needs a new assignment (KIP-1101).

It is XXH3 as specified, with 64 bits and seed 0. Kafka: `org.apache.kafka.coordinator.group.Utils`,
computeTopicHash and computeGroupHash.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from coordinator.group.ports import KnownTopic, KnownTopics

# --- XXH3 -----------------------------------------------------------------------------------------------------

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF

_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1 = 0x9E3779B185EBCA87
_P64_2 = 0xC2B2AE3D27D4EB4F
_P64_3 = 0x165667B19E3779F9
_P64_4 = 0x85EBCA77C2B2AE63
_P64_5 = 0x27D4EB2F165667C5
_MX1 = 0x165667919E3779F9
_MX2 = 0x9FB21C651E98DF25

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE, _ACCUMULATORS, _CONSUMED = 64, 8, 8
_STRIPES_PER_BLOCK = (len(_SECRET) - _STRIPE) // _CONSUMED
_BLOCK = _STRIPE * _STRIPES_PER_BLOCK

_U64 = Struct("<Q")
_U32 = Struct("<I")
_EIGHT = Struct("<8Q")


def _u64(data: bytes, at: int) -> int:
    value: int = _U64.unpack_from(data, at)[0]
    return value


def _u32(data: bytes, at: int) -> int:
    value: int = _U32.unpack_from(data, at)[0]
    return value


def _fold(left: int, right: int) -> int:
    product = left * right
    return (product & _M64) ^ product >> 64


def _xxh64_avalanche(h: int) -> int:
    h = (h ^ h >> 33) * _P64_2 & _M64
    h = (h ^ h >> 29) * _P64_3 & _M64
    return h ^ h >> 32


def _avalanche(h: int) -> int:
    h = (h ^ h >> 37) * _MX1 & _M64
    return h ^ h >> 32


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _M64


def xxh3_64(data: bytes) -> int:
    """The hash of some bytes, unsigned."""
    length = len(data)
    if length <= 16:
        return _up_to_16(data, length)
    if length <= 128:
        return _up_to_128(data, length)
    return _up_to_240(data, length) if length <= 240 else _long(data, length)


def _up_to_16(data: bytes, length: int) -> int:
    if length > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, length - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche((length + swapped + high + _fold(low, high)) & _M64)
    if length >= 4:
        both = _u32(data, length - 4) + (_u32(data, 0) << 32)
        h = both ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16)
        h ^= _rotated(h, 49) ^ _rotated(h, 24)
        h = h * _MX2 & _M64
        h = (h ^ (h >> 35) + length) * _MX2 & _M64
        return h ^ h >> 28
    if length:
        combined = data[0] << 16 | data[length >> 1] << 24 | data[length - 1] | length << 8
        return _xxh64_avalanche(combined ^ _u32(_SECRET, 0) ^ _u32(_SECRET, 4))
    return _xxh64_avalanche(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _mix(data: bytes, at: int, secret_at: int) -> int:
    return _fold(_u64(data, at) ^ _u64(_SECRET, secret_at), _u64(data, at + 8) ^ _u64(_SECRET, secret_at + 8))


def _up_to_128(data: bytes, length: int) -> int:
    h = length * _P64_1
    for pair in range((length - 1) // 32 + 1):
        h += _mix(data, 16 * pair, 32 * pair) + _mix(data, length - 16 * (pair + 1), 32 * pair + 16)
    return _avalanche(h & _M64)


def _up_to_240(data: bytes, length: int) -> int:
    h = length * _P64_1
    for part in range(8):
        h += _mix(data, 16 * part, 16 * part)
    h = _avalanche(h & _M64)
    for part in range(8, length // 16):
        h += _mix(data, 16 * part, 16 * (part - 8) + 3)
    h += _mix(data, length - 16, 136 - 17)
    return _avalanche(h & _M64)


def _accumulate(sums: list[int], data: bytes, at: int, secret_at: int) -> None:
    words = _EIGHT.unpack_from(data, at)
    keys = _EIGHT.unpack_from(_SECRET, secret_at)
    for lane in range(_ACCUMULATORS):
        word = words[lane]
        keyed = word ^ keys[lane]
        sums[lane ^ 1] += word
        sums[lane] = (sums[lane] + (keyed & _M32) * (keyed >> 32)) & _M64
    for lane in range(_ACCUMULATORS):
        sums[lane] &= _M64


def _long(data: bytes, length: int) -> int:
    sums = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    blocks = (length - 1) // _BLOCK
    scramble = _EIGHT.unpack_from(_SECRET, len(_SECRET) - _STRIPE)
    for block in range(blocks):
        for stripe in range(_STRIPES_PER_BLOCK):
            _accumulate(sums, data, block * _BLOCK + stripe * _STRIPE, stripe * _CONSUMED)
        for lane in range(_ACCUMULATORS):
            value = sums[lane]
            sums[lane] = (value ^ value >> 47 ^ scramble[lane]) * _P32_1 & _M64
    for stripe in range((length - 1 - blocks * _BLOCK) // _STRIPE):
        _accumulate(sums, data, blocks * _BLOCK + stripe * _STRIPE, stripe * _CONSUMED)
    _accumulate(sums, data, length - _STRIPE, len(_SECRET) - _STRIPE - 7)
    h = length * _P64_1
    for pair in range(4):
        h += _fold(
            sums[2 * pair] ^ _u64(_SECRET, 11 + 16 * pair), sums[2 * pair + 1] ^ _u64(_SECRET, 19 + 16 * pair)
        )
    return _avalanche(h & _M64)


# --- topics ---------------------------------------------------------------------------------------------------

_INT32 = Struct("<i")
_INT64 = Struct("<q")


class HashedTopics(NamedTuple):
    """The combined hash of some topics, the hashes that are new here, and the value of `forgotten` they belong to."""

    value: int
    new: dict[str, int]
    forgotten: int


class TopicHashes:
    """Hashes of topics. Computed hashes are kept until their topic changes."""

    def __init__(self, topics: KnownTopics) -> None:
        self._topics = topics
        self._kept: dict[str, int] = {}
        self.forgotten = 0
        """Counts calls of `forget`: topics were added, changed or deleted. Other changes of the metadata
        don't count."""

    def forget(self, names: Iterable[str]) -> None:
        """Forget the hashes of topics that were added, changed or deleted."""
        if self._kept:
            for name in names:
                self._kept.pop(name, None)
        self.forgotten += 1

    def of(self, names: Iterable[str]) -> int:
        """The combined hash of those topics that exist; 0 without any."""
        hashed = self.look(names)
        self.keep(hashed)
        return hashed.value

    def keep(self, hashed: HashedTopics) -> None:
        """Keep new hashes, unless `forget` was called since."""
        if hashed.forgotten == self.forgotten:
            self._kept.update(hashed.new)

    def look(self, names: Iterable[str]) -> HashedTopics:
        """Compute the hash as `of` does, but keep nothing, so that another thread may call it."""
        forgotten = self.forgotten
        hashes: dict[str, int] = {}
        new: dict[str, int] = {}
        for name in names:
            topic = self._topics.by_name(name)
            if topic is not None:
                found = self._kept.get(name)
                if found is None:
                    found = new[name] = topic_hash(topic)
                hashes[name] = found
        if not hashes:
            return HashedTopics(0, new, forgotten)
        ordered = sorted(hashes, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        value = _signed(xxh3_64(b"".join(_INT64.pack(hashes[name]) for name in ordered)))
        return HashedTopics(value, new, forgotten)


def topic_hash(topic: KnownTopic) -> int:
    """A topic's hash, signed 64 bits. Everything is little-endian. A string is its UTF-16 units, then their number."""
    out = bytearray(b"\0")
    out += topic.topic_id[7::-1] + topic.topic_id[:7:-1]
    out += _units(topic.name)
    out += _INT32.pack(topic.partition_count)
    for index, racks in enumerate(topic.racks):
        out += _INT32.pack(index)
        for rack in sorted(racks, key=lambda rack: rack.encode("utf-16-be", "surrogatepass")):
            units = _units(rack)
            out += units[-4:] + units
    return _signed(xxh3_64(bytes(out)))


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _units(text: str) -> bytes:
    data = text.encode("utf-16-le", "surrogatepass")
    return data + _INT32.pack(len(data) // 2)
