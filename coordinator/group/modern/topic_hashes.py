"""The hash of the topics that a group subscribes to: when it changes the group is assigned anew (KIP-1101).

Kafka: `org.apache.kafka.coordinator.group.Utils`, computeTopicHash and computeGroupHash.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from coordinator.group.known_topics import KnownTopic, KnownTopics
from coordinator.group.modern.xxh3 import xxh3_64

_INT32 = Struct("<i")
_INT64 = Struct("<q")


class TopicHashes:
    """Hashes of topics; those that have been asked for are kept until their topic changes."""

    def __init__(self, topics: KnownTopics) -> None:
        self._topics = topics
        self._kept: dict[str, int] = {}

    def forget(self, name: str) -> None:
        """The topic is new, another than before, or gone."""
        self._kept.pop(name, None)

    def of(self, names: Iterable[str]) -> int:
        """The hash of those of the topics that are there; 0 without any."""
        hashes: dict[str, int] = {}
        for name in names:
            topic = self._topics.by_name(name)
            if topic is not None:
                if name not in self._kept:
                    self._kept[name] = topic_hash(topic)
                hashes[name] = self._kept[name]
        if not hashes:
            return 0
        ordered = sorted(hashes, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return _signed(xxh3_64(b"".join(_INT64.pack(hashes[name]) for name in ordered)))


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
