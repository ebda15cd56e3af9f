"""Offsets that expire, groups that go with their last one, and offsets of topics that are deleted.

Source: `GroupCoordinatorShard.cleanupGroupMetadata`, `ClassicGroup.offsetExpirationCondition`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coordinator.group.classic.states import EMPTY, STABLE
from coordinator.group.consumer.records import group_tombstones
from coordinator.group.records import AnyRecord, CommittedOffset, GroupRecord, OffsetKey, OffsetRecord

if TYPE_CHECKING:
    from coordinator.group.classic.group import ClassicGroup
    from coordinator.group.consumer.group import ConsumerGroup
    from coordinator.group.shard import GroupShard

log = logging.getLogger("barnabas.groups")


def expire(shard: GroupShard) -> None:
    """Delete what `offsets.retention.minutes` says, and the groups that are left with nothing and nobody.

    Raises KafkaError where that can't be recorded.
    """
    records: list[AnyRecord] = []
    for consumers in shard.consumer_groups.values():
        keys, all_expired = _expired_of_consumers(shard, consumers)
        records += [OffsetRecord(key, None) for key in keys]
        if all_expired and consumers.is_empty:
            records += group_tombstones(consumers)
    for group in shard.groups.values():
        expired = _expired(shard, group)
        if expired is None:
            continue
        keys, all_expired = expired
        records += [OffsetRecord(key, None) for key in keys]
        if all_expired and group.state is EMPTY:
            records.append(GroupRecord(group.group_id, None))
    if records:
        log.info("%d offsets and groups expired", len(records))
    shard.commit_in_parts(records)


def _expired_of_consumers(shard: GroupShard, group: ConsumerGroup) -> tuple[list[OffsetKey], bool]:
    """The expired keys, of topics that nobody subscribes to, and whether they are all that there is."""
    store = shard.offsets
    all_expired = not store.has_open_transaction(group.group_id)
    now_ms = shard.runtime.now_ms()
    keys = []
    for topic, partitions in store.of_group(group.group_id).items():
        if group.is_subscribed_to(topic):
            all_expired = False
            continue
        for partition, offset in partitions.items():
            key = OffsetKey(group.group_id, topic, partition)
            since_ms = offset.expire_timestamp_ms
            if since_ms == -1:
                since_ms = offset.commit_timestamp_ms + shard.settings.offsets_retention_ms
            if now_ms >= since_ms and not store.is_unstable(key):
                keys.append(key)
            else:
                all_expired = False
    return keys, all_expired


def _expired(shard: GroupShard, group: ClassicGroup) -> tuple[list[OffsetKey], bool] | None:
    """The expired keys and whether they are all that there is; None for a group whose offsets don't expire now."""
    store = shard.offsets
    topics = store.of_group(group.group_id)
    all_expired = not store.has_open_transaction(group.group_id)
    if not topics:
        return [], all_expired
    if not _may_expire(group):
        return None
    now_ms = shard.runtime.now_ms()
    keys = []
    for topic, partitions in topics.items():
        if group.is_subscribed_to(topic):
            all_expired = False
            continue
        for partition, offset in partitions.items():
            key = OffsetKey(group.group_id, topic, partition)
            retention_ms = shard.settings.offsets_retention_ms
            if _is_expired(group, offset, now_ms, retention_ms) and not store.is_unstable(key):
                keys.append(key)
            else:
                all_expired = False
    return keys, all_expired


def _may_expire(group: ClassicGroup) -> bool:
    """A group without a type, an empty one, and a stable one of consumers whose topics are known."""
    if group.protocol_type is None or group.state is EMPTY:
        return True
    return group.state is STABLE and group.uses_consumer_protocol and group.subscribed_topics is not None


def _is_expired(group: ClassicGroup, offset: CommittedOffset, now_ms: int, retention_ms: int) -> bool:
    if offset.expire_timestamp_ms != -1:
        return now_ms >= offset.expire_timestamp_ms
    base_ms = offset.commit_timestamp_ms
    if group.protocol_type is not None and group.state is EMPTY and group.state_timestamp_ms != -1:
        base_ms = group.state_timestamp_ms
    return now_ms - base_ms >= retention_ms


def forget_topics(shard: GroupShard, topics: Sequence[tuple[str, bytes]]) -> None:
    """Topics (name, id) were deleted: their offsets go at once. Raises KafkaError where that can't be recorded."""
    keys = {key: None for name, topic_id in topics for key in shard.offsets.keys_of_topic(name, topic_id)}
    shard.commit_in_parts(OffsetRecord(key, None) for key in keys)
