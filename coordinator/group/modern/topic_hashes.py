"""The hash of the topics that a group subscribes to: when it changes the group is assigned anew (KIP-1101).

Kafka: `org.apache.kafka.coordinator.group.Utils`, computeTopicHash and computeGroupHash.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from coordinator.group.known_topics import KnownTopic, KnownTopics
from coordinator.group.modern.xxh3 import xxh3_64

_INT32 = Struct("<i")
_INT64 = Struct("<q")


class HashedTopics(NamedTuple):
    """The hash of some topics; those of topics that hadn't been asked for before, and as of when they are."""

    value: int
    new: dict[str, int]
    forgotten: int


class TopicHashes:
    """Hashes of topics; those that have been asked for are kept until their topic changes."""

    def __init__(self, topics: KnownTopics) -> None:
        self._topics = topics
        self._kept: dict[str, int] = {}
        self.forgotten = 0
        """How often topics were said to be new, others than before, or gone; of any other change of the metadata it
        knows nothing."""

    def forget(self, names: Iterable[str]) -> None:
        """The topics are new, others than before, or gone."""
        if self._kept:
            for name in names:
                self._kept.pop(name, None)
        self.forgotten += 1

    def of(self, names: Iterable[str]) -> int:
        """The hash of those of the topics that are there; 0 without any."""
        hashed = self.look(names)
        self.keep(hashed)
        return hashed.value

    def keep(self, hashed: HashedTopics) -> None:
        """Keep what was found, unless something was to be forgotten since."""
        if hashed.forgotten == self.forgotten:
            self._kept.update(hashed.new)

    def look(self, names: Iterable[str]) -> HashedTopics:
        """As `of`; nothing is kept, so that another thread may ask."""
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
    """Signed 64 bits. Everything is little-endian; strings are UTF-16 units with their number behind them."""
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
