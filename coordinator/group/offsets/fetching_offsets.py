"""OffsetFetch: what a group has committed (Kafka: `OffsetMetadataManager.fetchOffsets`, `fetchAllOffsets`).

A group or a partition that isn't known is no error: its offset is −1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coordinator.group.offsets.store import OffsetStore
from coordinator.group.records import CommittedOffset
from protocol.errors import Error
from protocol.messages.groups import (
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.wire.schema import ZERO_UUID

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
