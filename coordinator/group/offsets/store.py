"""Committed offsets, and those of open transactions (Kafka: `OffsetMetadataManager`, its two inner stores).

Only records change it: `commit`, `remove`, and `end_transaction` for a marker.
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
"""Of groups that are looked through, and keys that are found in them, others being served in between."""

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
        """Not to be changed."""
        return self.committed.get(group_id, {})

    def is_unstable(self, key: OffsetKey) -> bool:
        """Whether an open transaction may change it (KIP-447)."""
        return (key.topic, key.partition) in self._open.get(key.group_id, {})

    def unstable_partitions(self, group_id: str) -> Collection[tuple[str, int]]:
        """Those whose offsets an open transaction may change (KIP-447): topics and partitions. Not to be changed."""
        return self._open.get(group_id, {}).keys()

    def held(self, group_id: str) -> int:
        """How many offsets the group has committed."""
        return sum(map(len, self.of_group(group_id).values()))

    def keys_held(self, group_id: str) -> int:
        """How many `places_of_group` has, or more: what is committed and pending counts twice."""
        return self.held(group_id) + len(self._open.get(group_id, ()))

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open

    def committed_keys(self, group_id: str) -> Iterator[OffsetKey]:
        """Of what the group has committed by now: it may be taken away meanwhile."""
        places = [(topic, [*partitions]) for topic, partitions in self.of_group(group_id).items()]
        return (OffsetKey(group_id, topic, each) for topic, partitions in places for each in partitions)

    def places_of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Everything stored for a group: what is committed, then what is only pending."""
        topics = self.of_group(group_id)
        places = [(topic, each) for topic, partitions in topics.items() for each in partitions]
        pending = self._open.get(group_id, {})
        return places + [place for place in pending if place[1] not in topics.get(place[0], {})]

    def keys_of_topics(
        self, gone: Mapping[str, Container[bytes]], just_now: Container[str]
    ) -> Iterator[tuple[list[OffsetKey], int]]:
        """The keys whose offsets are of topics that go, by name and ids: those with such an id, and, of names that go
        `just_now`, those with none. Some at a time, which may be taken away before the next ones are asked for, and
        what it cost to find them, in keys.

        Those of open transactions come first, in one step: one that ends later adds to what is committed, and may do so
        behind the walk over that."""
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
            for topic in gone if len(gone) < len(topics) else [*topics]:  # whichever are fewer
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
        """Records of the log, in a row from this offset on; of a transaction, where it has a producer id. There may be
        thousands of them."""
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
        """Records that take everything away of these topics and partitions, also what is pending. There may be
        thousands of them."""
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
        """A marker: pending offsets count, unless a later record has committed another one; or they go."""
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
# A group or a partition that isn't known is no error: its offset is −1.

INVALID_OFFSET = -1

_NOTHING: Mapping[int, CommittedOffset] = {}


def fetch_offsets(
    offsets: OffsetStore, group_id: str, topics: Sequence[OffsetFetchRequestTopics], *, require_stable: bool
) -> list[OffsetFetchResponseTopics]:
    """The offsets of the partitions asked for. An offset of an older topic of the same name doesn't count for the
    new one's id (KAFKA-19154)."""
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
    """All that the group has committed; topics come without their ids."""
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
