"""OffsetFetch: what a group has committed (Kafka: `OffsetMetadataManager.fetchOffsets`, `fetchAllOffsets`).

A group or a partition that isn't known is no error: its offset is −1.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.group.offsets.store import OffsetStore
from coordinator.group.records import OffsetKey
from protocol.errors import Error
from protocol.messages.groups_offsets import (
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.wire.schema import ZERO_UUID

INVALID_OFFSET = -1


def fetch_offsets(
    offsets: OffsetStore, group_id: str, topics: Sequence[OffsetFetchRequestTopics], *, require_stable: bool
) -> list[OffsetFetchResponseTopics]:
    """The offsets of the partitions asked for. An offset of an older topic of the same name doesn't count for the
    new one's id (KAFKA-19154)."""
    return [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                _partition(
                    offsets,
                    OffsetKey(group_id, topic.name, index),
                    topic.topic_id,
                    require_stable=require_stable,
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


def fetch_all_offsets(
    offsets: OffsetStore, group_id: str, *, require_stable: bool
) -> list[OffsetFetchResponseTopics]:
    """All that the group has committed; topics come without their ids."""
    return [
        OffsetFetchResponseTopics(
            name=topic,
            partitions=[
                _partition(
                    offsets, OffsetKey(group_id, topic, index), ZERO_UUID, require_stable=require_stable
                )
                for index in partitions
            ],
        )
        for topic, partitions in offsets.of_group(group_id).items()
    ]


def _partition(
    offsets: OffsetStore, key: OffsetKey, topic_id: bytes, *, require_stable: bool
) -> OffsetFetchResponsePartitions:
    if require_stable and offsets.is_unstable(key):
        return _none(key.partition, Error.UNSTABLE_OFFSET_COMMIT)
    found = offsets.get(key)
    if found is None or (ZERO_UUID not in (found.topic_id, topic_id) and found.topic_id != topic_id):
        return _none(key.partition, Error.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=key.partition,
        committed_offset=found.offset,
        committed_leader_epoch=found.leader_epoch,
        metadata=found.metadata,
    )


def _none(partition: int, error: Error) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition, committed_offset=INVALID_OFFSET, metadata="", error_code=error
    )
