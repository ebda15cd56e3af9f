"""Where Kafka's behaviour depends on Java: the hashes of strings, numbers and uuids. `java.maps` has the maps."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

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
