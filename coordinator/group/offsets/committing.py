"""OffsetCommit, TxnOffsetCommit and OffsetDelete: the group's side of them.

Which topics and partitions exist is the caller's to check, before. Source: `OffsetMetadataManager`,
`ClassicGroup.validateOffsetCommit`.

A conscious difference: a commit to a group that isn't there, all of whose metadata is too long, records nothing and
so makes no group. In Kafka one appears in memory that DescribeGroups doesn't see, DeleteGroups does, and no restart
finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from coordinator.group.classic import rebalance
from coordinator.group.classic.states import (
    EMPTY,
    PREPARING,
    STABLE,
    Request,
    refuse_or_move,
)
from coordinator.group.consumer.commits import check_commit
from coordinator.group.records import CommittedOffset, OffsetKey, OffsetRecord
from protocol.errors import Error, KafkaError
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from coordinator.group.classic.group import ClassicGroup
    from coordinator.group.consumer.group import ConsumerGroup
    from coordinator.group.shard import GroupShard

GROUP_ID_NOT_FOUND_VERSION = 9  # of OffsetCommit


class Committer(NamedTuple):
    """Who commits. Without member id and instance id, and with generation −1, it isn't a member of a group."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1

    @property
    def is_anonymous(self) -> bool:
        return self.generation < 0 and not self.member_id and self.instance_id is None


class NewOffset(NamedTuple):
    """One partition of a commit."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str | None


def commit_offsets(
    shard: GroupShard,
    committer: Committer,
    offsets: Sequence[NewOffset],
    *,
    api_version: int,
    retention_ms: int = -1,
) -> list[Error]:
    """Each offset's error, in their order. Raises KafkaError with what holds for all of them."""
    group = shard.groups.get(committer.group_id)
    consumers = shard.consumer_groups.get(committer.group_id)
    if consumers is not None:
        _check_consumer(shard, consumers, committer, offsets, api_version)
    elif group is None:
        if committer.generation >= 0:
            unknown = api_version >= GROUP_ID_NOT_FOUND_VERSION
            raise KafkaError(Error.GROUP_ID_NOT_FOUND if unknown else Error.ILLEGAL_GENERATION)
    else:
        _check_committer(group, committer)
        if group.state in (STABLE, PREPARING):
            rebalance.restart_session(shard, group, group.members[committer.member_id])
    now_ms = shard.runtime.now_ms()
    expire_ms = -1 if retention_ms == -1 else now_ms + retention_ms
    records, errors = _decide(shard, committer.group_id, offsets, now_ms, expire_ms)
    shard.commit(records)
    return errors


def commit_offsets_in_transaction(
    shard: GroupShard,
    committer: Committer,
    offsets: Sequence[NewOffset],
    *,
    producer_id: int,
    producer_epoch: int,
    guard: object | None = None,
) -> list[Error]:
    """As `commit_offsets`, for an open transaction: the offsets count once its marker comes (KIP-98, KIP-447).

    `guard`: see `coordinator.ports.Runtime.append`.
    The state of a rebalance isn't looked at. Kafka 4.3 records no topic id here.
    """
    group = shard.groups.get(committer.group_id)
    consumers = shard.consumer_groups.get(committer.group_id)
    if consumers is not None:
        _check_consumer(shard, consumers, committer, offsets, None)
    elif group is None:
        if committer.generation >= 0:
            raise KafkaError(Error.ILLEGAL_GENERATION)
    else:
        _check_transactional_committer(group, committer)
    nameless = [offset._replace(topic_id=ZERO_UUID) for offset in offsets]
    records, errors = _decide(shard, committer.group_id, nameless, shard.runtime.now_ms(), -1)
    shard.commit(records, producer_id=producer_id, producer_epoch=producer_epoch, guard=guard)
    return errors


def _check_consumer(
    shard: GroupShard,
    group: ConsumerGroup,
    committer: Committer,
    offsets: Iterable[NewOffset],
    api_version: int | None,
) -> None:
    """Of a member that is behind its epoch the partitions are looked at, but for those that are refused anyway."""
    check_commit(
        group,
        committer.member_id,
        committer.instance_id,
        committer.generation,
        ((each.topic_id, each.partition) for each in offsets if not _is_too_long(shard, each.metadata or "")),
        api_version=api_version,
    )


def _check_committer(group: ClassicGroup, committer: Committer) -> None:
    error = Error.NONE
    if committer.generation < 0 and group.state is EMPTY:
        return  # an administrator, or a consumer that assigns partitions to itself
    if committer.is_anonymous:
        error = refuse_or_move(Request.OFFSET_COMMIT_ANONYMOUS, group.state)
    else:
        error = _check_member(group, committer)
        if error is Error.NONE:
            error = refuse_or_move(Request.OFFSET_COMMIT, group.state)
    if error is not Error.NONE:
        raise KafkaError(error)


def _check_transactional_committer(group: ClassicGroup, committer: Committer) -> None:
    if committer.is_anonymous or (committer.generation < 0 and group.state is EMPTY):
        return
    error = _check_member(group, committer)
    if error is not Error.NONE:
        raise KafkaError(error)


def _check_member(group: ClassicGroup, committer: Committer) -> Error:
    error = group.check_member(committer.member_id, committer.instance_id)
    if error is Error.NONE and committer.generation != group.generation:
        return Error.ILLEGAL_GENERATION
    return error


def _decide(
    shard: GroupShard, group_id: str, offsets: Iterable[NewOffset], now_ms: int, expire_ms: int
) -> tuple[list[OffsetRecord], list[Error]]:
    records = []
    errors = []
    for offset in offsets:
        metadata = offset.metadata or ""
        if _is_too_long(shard, metadata):
            errors.append(Error.OFFSET_METADATA_TOO_LARGE)
            continue
        errors.append(Error.NONE)
        value = CommittedOffset(
            offset.offset,
            offset.leader_epoch,
            metadata,
            now_ms,
            expire_ms,
            # The older format, which alone has an expiry, has no topic id.
            offset.topic_id if expire_ms == -1 else ZERO_UUID,
        )
        records.append(OffsetRecord(OffsetKey(group_id, offset.topic, offset.partition), value))
    return records, errors


def _is_too_long(shard: GroupShard, metadata: str) -> bool:
    limit = shard.settings.offset_metadata_max_length
    return len(metadata) > limit or len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > limit


def delete_offsets(shard: GroupShard, group_id: str, partitions: Sequence[tuple[str, int]]) -> list[Error]:
    """Each partition's error, in their order; no error where nothing was stored.

    Raises KafkaError: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP for a group with members that aren't consumers.
    """
    group = shard.groups.get(group_id)
    subscriber = shard.consumer_groups.get(group_id) or group
    if subscriber is None:
        raise KafkaError(Error.GROUP_ID_NOT_FOUND)
    if group is not None and not group.uses_consumer_protocol:
        error = refuse_or_move(Request.OFFSET_DELETE, group.state)
        if error is not Error.NONE:
            raise KafkaError(error)
    errors = []
    records = []
    for topic, partition in partitions:
        if subscriber.is_subscribed_to(topic):
            errors.append(Error.GROUP_SUBSCRIBED_TO_TOPIC)
            continue
        errors.append(Error.NONE)
        key = OffsetKey(group_id, topic, partition)
        if shard.offsets.get(key) is not None or shard.offsets.is_unstable(key):
            records.append(OffsetRecord(key, None))
    shard.commit(records)
    return errors
