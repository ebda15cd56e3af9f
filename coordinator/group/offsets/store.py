"""Committed offsets, and those of open transactions (Kafka: `OffsetMetadataManager`, its two inner stores).

Only records change it: `apply`, and `end_transaction` for a marker.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from coordinator.group.records import CommittedOffset, OffsetKey

OffsetsByTopic = dict[str, dict[int, CommittedOffset]]


class OffsetStore:
    """Offsets by group, topic and partition."""

    def __init__(self) -> None:
        self.committed: dict[str, OffsetsByTopic] = {}
        self._pending: dict[int, dict[OffsetKey, CommittedOffset]] = {}  # by producer id
        self._open: dict[str, dict[tuple[str, int], set[int]]] = {}  # group → partition → producer ids

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        return self.committed.get(key.group_id, {}).get(key.topic, {}).get(key.partition)

    def of_group(self, group_id: str) -> OffsetsByTopic:
        """Not to be changed."""
        return self.committed.get(group_id, {})

    def is_unstable(self, key: OffsetKey) -> bool:
        """Whether an open transaction may change it (KIP-447)."""
        return (key.topic, key.partition) in self._open.get(key.group_id, {})

    def unstable_partitions(self, group_id: str, topic: str) -> frozenset[int]:
        """Those of a topic whose offsets an open transaction may change (KIP-447)."""
        return frozenset(index for name, index in self._open.get(group_id, ()) if name == topic)

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def keys_of_group(self, group_id: str) -> list[OffsetKey]:
        """Everything stored for a group: what is committed, then what is only pending."""
        keys = [
            OffsetKey(group_id, topic, partition)
            for topic, partitions in self.of_group(group_id).items()
            for partition in partitions
        ]
        pending = (OffsetKey(group_id, *place) for place in self._open.get(group_id, {}))
        return keys + [key for key in pending if self.get(key) is None]

    def keys_of_topics(self, gone: Mapping[str, Container[bytes]]) -> list[OffsetKey]:
        """The keys whose offsets are of topics that go, by name and ids: those with such an id, and those with none."""
        found: dict[OffsetKey, None] = {}
        if not self.committed and not self._pending:
            return []  # as in most of the shards, each of which is told of thousands of topics at once
        zero = bytes(16)
        for group_id, topics in self.committed.items():
            for topic in gone if len(gone) < len(topics) else topics:  # whichever are fewer
                if topic not in topics or topic not in gone:
                    continue
                for partition, offset in topics[topic].items():
                    if offset.topic_id == zero or offset.topic_id in gone[topic]:
                        found[OffsetKey(group_id, topic, partition)] = None
        for pending in self._pending.values():
            for key, offset in pending.items():
                if key.topic in gone and (offset.topic_id == zero or offset.topic_id in gone[key.topic]):
                    found[key] = None
        return [*found]

    def apply(self, key: OffsetKey, value: CommittedOffset | None, producer_id: int = -1) -> None:
        """One record of the log; of a transaction, where it has a producer id. No value takes everything away."""
        if value is None:
            self._remove(key)
            for other in self._open.get(key.group_id, {}).pop((key.topic, key.partition), ()):
                self._pending.get(other, {}).pop(key, None)
            self._drop_empty(key.group_id)
        elif producer_id < 0:
            self.committed.setdefault(key.group_id, {}).setdefault(key.topic, {})[key.partition] = value
        else:
            self._pending.setdefault(producer_id, {})[key] = value
            partitions = self._open.setdefault(key.group_id, {})
            partitions.setdefault((key.topic, key.partition), set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A marker: pending offsets count, unless a later record has committed another one; or they go."""
        for key, value in self._pending.pop(producer_id, {}).items():
            partitions = self._open.get(key.group_id, {})
            producers = partitions.get((key.topic, key.partition), set())
            producers.discard(producer_id)
            if not producers:
                partitions.pop((key.topic, key.partition), None)
            self._drop_empty(key.group_id)
            if commit:
                current = self.get(key)
                if current is None or value.record_offset > current.record_offset:
                    self.apply(key, value)

    def _remove(self, key: OffsetKey) -> None:
        topics = self.committed.get(key.group_id, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            self.committed.pop(key.group_id, None)

    def _drop_empty(self, group_id: str) -> None:
        if not self._open.get(group_id, True):
            del self._open[group_id]
