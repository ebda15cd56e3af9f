"""Committed offsets, and those of open transactions (Kafka: `OffsetMetadataManager`, its two inner stores).

Only records change the store: `commit`, `remove`, and `end_transaction` for a marker.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from coordinator.group.records import CommittedOffset, OffsetKey
from protocol.errors import Error
from protocol.messages.groups import (
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.wire.schema import ZERO_UUID

KEYS_AT_ONCE = 500
GROUPS_AT_ONCE = 2_000
"""The groups to look through, and the keys to find, before others are served."""

OffsetsByTopic = dict[str, dict[int, CommittedOffset]]


class OffsetStore:
    """Offsets by group, topic and partition."""

    def __init__(self) -> None:
        self.committed: dict[str, OffsetsByTopic] = {}
        self._pending: dict[int, dict[OffsetKey, CommittedOffset]] = {}  # by producer id
        self._open: dict[str, dict[tuple[str, int], frozenset[int]]] = {}  # group → partition → producer ids

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        return self.committed.get(key.group_id, {}).get(key.topic, {}).get(key.partition)

    def of_group(self, group_id: str) -> OffsetsByTopic:
        """The offsets of a group. Don't change this dict."""
        return self.committed.get(group_id, {})

    def is_unstable(self, key: OffsetKey) -> bool:
        """True if an open transaction may change the offset (KIP-447)."""
        return (key.topic, key.partition) in self._open.get(key.group_id, {})

    def unstable_partitions(self, group_id: str) -> Collection[tuple[str, int]]:
        """Topics and partitions whose offsets an open transaction may change (KIP-447). Don't change this view."""
        return self._open.get(group_id, {}).keys()

    def held(self, group_id: str) -> int:
        """The number of offsets that the group has committed."""
        return sum(map(len, self.of_group(group_id).values()))

    def keys_held(self, group_id: str) -> int:
        """The number of `places_of_group` or more: partitions both committed and pending count twice."""
        return self.held(group_id) + len(self._open.get(group_id, ()))

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def committed_keys(self, group_id: str) -> Iterator[OffsetKey]:
        """The keys of offsets that are committed now. They may be removed during the iteration."""
        places = [(topic, [*partitions]) for topic, partitions in self.of_group(group_id).items()]
        return (OffsetKey(group_id, topic, each) for topic, partitions in places for each in partitions)

    def places_of_group(self, group_id: str) -> list[tuple[str, int]]:
        """All places with an offset of the group: the committed ones, then those that are only pending."""
        topics = self.of_group(group_id)
        places = [(topic, each) for topic, partitions in topics.items() for each in partitions]
        pending = self._open.get(group_id, {})
        return places + [place for place in pending if place[1] not in topics.get(place[0], {})]

    def keys_of_topics(
        self, gone: Mapping[str, Container[bytes]], just_now: Container[str]
    ) -> Iterator[tuple[list[OffsetKey], int]]:
        """Find the keys of offsets of deleted topics, given by name and ids.

        These are the offsets with such an id, and those without an id if the name is in `just_now`. Each step
        yields some keys, which may be removed before the next step, and the cost of finding them, in keys.

        Offsets of open transactions come first, in one step. A transaction that ends later adds to the
        committed offsets, maybe in a place that the walk over those has already passed.
        """
        zero = bytes(16)

        def goes(topic: str, offset: CommittedOffset) -> bool:
            return topic in just_now if offset.topic_id == zero else offset.topic_id in gone[topic]

        pending = {
            key: None
            for each in self._pending.values()
            for key, offset in each.items()
            if key.topic in gone and goes(key.topic, offset)
        }
        rest = iter(pending)
        while some := [*islice(rest, KEYS_AT_ONCE)]:
            yield some, len(some)
        found: list[OffsetKey] = []
        looked_at = 0
        for group_id in [*self.committed]:
            topics = self.of_group(group_id)
            for topic in gone if len(gone) < len(topics) else [*topics]:  # go over the smaller one
                if topic not in topics or topic not in gone:
                    continue
                for partition, offset in [*topics[topic].items()]:
                    if goes(topic, offset):
                        found.append(OffsetKey(group_id, topic, partition))
                    if len(found) >= KEYS_AT_ONCE:
                        yield found, len(found)
                        found = []
            looked_at += 1
            if looked_at >= GROUPS_AT_ONCE:
                yield found, KEYS_AT_ONCE
                found, looked_at = [], 0
        if found or looked_at:
            yield found, len(found) + looked_at * KEYS_AT_ONCE // GROUPS_AT_ONCE

    def commit(
        self,
        group_id: str,
        committed: Sequence[tuple[OffsetKey, CommittedOffset]],
        first_offset: int,
        producer_id: int,
    ) -> None:
        """Apply records of the log, consecutive from this offset on. With a producer id they are part of its
        transaction.

        There may be thousands of them.
        """
        in_topic: str | None = None
        partitions: dict[int, CommittedOffset] = {}
        if producer_id < 0:
            topics = self.committed.setdefault(group_id, {})
            for record_offset, ((_, topic, partition), value) in enumerate(committed, first_offset):
                if topic != in_topic:
                    in_topic, partitions = topic, topics.setdefault(topic, {})
                partitions[partition] = CommittedOffset._make((*value[:-1], record_offset))
            return
        pending = self._pending.setdefault(producer_id, {})
        opened = self._open.setdefault(group_id, {})
        alone = frozenset((producer_id,))
        for record_offset, (key, value) in enumerate(committed, first_offset):
            pending[key] = CommittedOffset._make((*value[:-1], record_offset))
            place = key[1:]
            others = opened.get(place)
            opened[place] = alone if others is None else others | alone

    def remove(self, group_id: str, places: Iterable[tuple[str, int]]) -> None:
        """Apply records that remove these topics' partitions, committed and pending. There may be thousands
        of them."""
        topics = self.committed.get(group_id, {})
        opened = self._open.get(group_id, {})
        in_topic: str | None = None
        partitions: dict[int, CommittedOffset] = {}
        for place in places:
            topic, partition = place
            if topic != in_topic:
                in_topic, partitions = topic, topics.get(topic, {})
            if partitions.pop(partition, None) is not None and not partitions:
                del topics[topic]
            if opened:
                for other in opened.pop(place, ()):
                    self._pending.get(other, {}).pop(OffsetKey(group_id, *place), None)
        if not topics:
            self.committed.pop(group_id, None)
        self._drop_empty(group_id)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a marker. With a commit the pending offsets count, unless a later record has committed another one."""
        for key, value in self._pending.pop(producer_id, {}).items():
            group_id, topic, partition = key
            opened = self._open.get(group_id, {})
            others = opened.pop((topic, partition), frozenset()) - {producer_id}
            if others:
                opened[topic, partition] = others
            self._drop_empty(group_id)
            if commit:
                partitions = self.committed.setdefault(group_id, {}).setdefault(topic, {})
                current = partitions.get(partition)
                if current is None or value.record_offset > current.record_offset:
                    partitions[partition] = value

    def _drop_empty(self, group_id: str) -> None:
        if not self._open.get(group_id, True):
            del self._open[group_id]


# --- OffsetFetch (Kafka: `OffsetMetadataManager.fetchOffsets`, `fetchAllOffsets`) -----------------------------
#
# An unknown group or partition is no error: its offset is −1.

INVALID_OFFSET = -1

_NOTHING: Mapping[int, CommittedOffset] = {}


def fetch_offsets(
    offsets: OffsetStore, group_id: str, topics: Sequence[OffsetFetchRequestTopics], *, require_stable: bool
) -> list[OffsetFetchResponseTopics]:
    """The offsets of the requested partitions. If a topic was recreated under the same name, the old one's
    offset doesn't count for the new id (KAFKA-19154)."""
    by_topic = offsets.of_group(group_id)
    unstable = offsets.unstable_partitions(group_id) if require_stable else ()
    found = []
    for topic in topics:
        name, topic_id = topic.name, topic.topic_id
        committed = by_topic.get(name, _NOTHING)
        partitions = [
            _none(index, Error.UNSTABLE_OFFSET_COMMIT)
            if unstable and (name, index) in unstable
            else _partition(index, committed.get(index), topic_id)
            for index in topic.partition_indexes
        ]
        found.append(OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions))
    return found


def fetch_all_offsets(
    offsets: OffsetStore, group_id: str, *, require_stable: bool
) -> list[OffsetFetchResponseTopics]:
    """All offsets that the group has committed. Their topics have no ids."""
    asked = [
        OffsetFetchRequestTopics(name=topic, topic_id=ZERO_UUID, partition_indexes=[*partitions])
        for topic, partitions in offsets.of_group(group_id).items()
    ]
    return fetch_offsets(offsets, group_id, asked, require_stable=require_stable)


def _partition(index: int, found: CommittedOffset | None, topic_id: bytes) -> OffsetFetchResponsePartitions:
    if found is None or (ZERO_UUID not in (found.topic_id, topic_id) and found.topic_id != topic_id):
        return _none(index, Error.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )


def _none(partition: int, error: Error) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=INVALID_OFFSET, metadata="", error_code=error
    )
