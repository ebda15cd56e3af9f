"""Who may commit and fetch offsets of a consumer group (Kafka: `ConsumerGroup.validateOffsetCommit`, OffsetFetch).

A member's epoch may be behind its own: an offset counts if the partition was the member's at that epoch (KIP-1251).
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import ConsumerMember
from protocol.errors import Error, KafkaError

CONSUMER_MEMBER_VERSION = 9  # of OffsetCommit
NO_EPOCH = -1


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    partitions: Iterable[tuple[bytes, int]],
    *,
    api_version: int | None,
) -> None:
    """`partitions` by topic id; no `api_version`: inside of a transaction. Raises KafkaError."""
    if epoch < 0 and group.is_empty:
        return
    in_transaction = api_version is None
    if in_transaction and epoch == NO_EPOCH and not member_id and instance_id is None:
        return
    member = group.member(member_id)
    if api_version is not None and not member.is_classic and api_version < CONSUMER_MEMBER_VERSION:
        raise KafkaError(Error.UNSUPPORTED_VERSION)
    if epoch == member.epoch:
        return
    stale = KafkaError(
        Error.ILLEGAL_GENERATION if member.is_classic or in_transaction else Error.STALE_MEMBER_EPOCH
    )
    if epoch > member.epoch:
        raise stale
    for topic_id, partition in partitions:
        since = _assignment_epoch(member, topic_id, partition)
        if since is None or epoch < since:
            raise stale


def _assignment_epoch(member: ConsumerMember, topic_id: bytes, partition: int) -> int | None:
    """Since which epoch a partition is the member's, be it about to give it up."""
    for assigned in (member.assigned, member.pending):
        partitions = assigned.get(topic_id)
        if partitions is not None and partition in partitions:
            return partitions[partition]
    return None


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raises KafkaError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION for one of the classic protocol."""
    if member_id is None and epoch < 0:
        return
    if member_id is None:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)  # Kafka: a NullPointerException
    member = group.member(member_id)
    if epoch != member.epoch:
        raise KafkaError(Error.ILLEGAL_GENERATION if member.is_classic else Error.STALE_MEMBER_EPOCH)
