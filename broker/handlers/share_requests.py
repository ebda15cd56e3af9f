"""The common part of ShareFetch and ShareAcknowledge: checking the sender, and acknowledgements, which both carry.

Kafka: `KafkaApis.handleAcknowledgements`, `validateAcknowledgementBatches`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from broker.handlers.share_group_heartbeat import is_member_id
from broker.security.authorizer import GROUP, READ, TOPIC
from broker.shares import share_session_cache
from coordinator.share_partition.states import AcknowledgeType
from protocol.errors import Error, KafkaError
from protocol.messages.share_fetch import AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.coordination.groups import Groups
    from broker.network.context import RequestContext
    from broker.replicas.current_leaders import CurrentLeaders
    from broker.security.authorizer import Authorizer
    from broker.shares.share_partition_manager import AcknowledgedPartitions, SharePartitionManager
    from broker.shares.share_session_cache import ShareKey
    from protocol.messages.share_fetch import (
        AcknowledgedPartition,
        AcknowledgeTopic,
        FetchedPartition,
        FetchTopic,
    )

RENEWING_VERSION = 2
TOLD_LEADERS_BY = (Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH)

Acknowledgements = dict["ShareKey", Sequence[AcknowledgementBatch]]


def check_sender(
    groups: Groups,
    authorizer: Authorizer,
    context: RequestContext,
    group_id: str | None,
    member_id: str | None,
) -> tuple[str, str]:
    """Returns (group id, member id). Raises KafkaError: UNSUPPORTED_VERSION, INVALID_REQUEST,
    GROUP_AUTHORIZATION_FAILED."""
    if not groups.serves_share_groups:
        raise KafkaError(Error.UNSUPPORTED_VERSION)
    if group_id is None:
        raise KafkaError(Error.INVALID_REQUEST)
    if not authorizer.allows(context, READ, GROUP, group_id):
        raise KafkaError(Error.GROUP_AUTHORIZATION_FAILED)
    if member_id is None or not is_member_id(member_id):
        raise KafkaError(Error.INVALID_REQUEST)
    return group_id, member_id


def refuse_too_many(
    shares: SharePartitionManager,
    group_id: str,
    member_id: str,
    epoch: int,
    topics: Iterable[FetchTopic | AcknowledgeTopic],
) -> None:
    """Refuse a request that names more partitions than a session can have, and that doesn't add any to its session.

    The last request of a session ends it even so. Raises KafkaError(INVALID_REQUEST)."""
    if sum([len(topic.partitions) for topic in topics]) > share_session_cache.MOST_PARTITIONS_OF_ONE:
        if epoch == share_session_cache.FINAL_EPOCH:
            shares.end_session(group_id, member_id)
        raise KafkaError(Error.INVALID_REQUEST)


class TopicAccess:
    """Says which topics of a request exist, and which of them the client may read."""

    def __init__(self, image: ClusterImage, authorizer: Authorizer, context: RequestContext) -> None:
        self._image = image
        self._authorizer = authorizer
        self._context = context
        self._may_read: dict[str, bool] = {}

    def is_known(self, topic_id: bytes) -> bool:
        return topic_id in self._image.topics_by_id

    def error(self, key: ShareKey) -> Error | None:
        """The error of a partition, whose topic is known; None if it may be read."""
        topic = self._image.topics_by_id[key[0]]
        may_read = self._may_read.get(topic.name)
        if may_read is None:
            may_read = self._authorizer.allows(self._context, READ, TOPIC, topic.name)
            self._may_read[topic.name] = may_read
        if not may_read:
            return Error.TOPIC_AUTHORIZATION_FAILED
        return None if key[1] in topic.partitions else Error.UNKNOWN_TOPIC_OR_PARTITION


async def acknowledge(
    shares: SharePartitionManager,
    access: TopicAccess,
    group_id: str,
    member_id: str,
    acknowledgements: Acknowledgements,
    *,
    version: int,
    renews: bool,
) -> AcknowledgedPartitions:
    """Check acknowledgements, and carry them out by `SharePartitionManager.acknowledge`.

    As in Kafka, the answer has a partition without batches only if another partition has some.
    """
    answers: AcknowledgedPartitions = {}
    empty: list[ShareKey] = []
    asked: Acknowledgements = {}
    for key, batches in acknowledgements.items():
        if not access.is_known(key[0]):
            error: Error | None = Error.UNKNOWN_TOPIC_ID
        elif not _make_sense(batches, version=version, renews=renews):
            error = Error.INVALID_REQUEST
        else:
            error = access.error(key)
        if error is not None:
            answers[key] = KafkaError(error)
        elif batches:
            asked[key] = batches
        else:
            empty.append(key)
    if not asked:
        return answers
    return await shares.acknowledge(group_id, member_id, asked) | answers | dict.fromkeys(empty)


def _make_sense(batches: Iterable[AcknowledgementBatch], *, version: int, renews: bool) -> bool:
    """True if the batches of one partition are valid on their own."""
    highest = AcknowledgeType.RENEW if version >= RENEWING_VERSION else AcknowledgeType.REJECT
    previous_last = -1
    for batch in batches:
        types = batch.acknowledge_types
        if batch.first_offset > batch.last_offset or batch.first_offset < previous_last or not types:
            return False
        if len(types) > 1 and batch.last_offset - batch.first_offset != len(types) - 1:
            return False
        if min(types) < AcknowledgeType.GAP or max(types) > highest:
            return False
        if AcknowledgeType.RENEW in types and not renews:
            return False
        previous_last = batch.last_offset
    return True


def tell_leaders(
    leaders: CurrentLeaders,
    context: RequestContext,
    answers: Iterable[tuple[bytes, FetchedPartition | AcknowledgedPartition]],
) -> list[NodeEndpoint]:
    """Name the leader in the answers of partitions that another broker leads. Returns the addresses of these."""
    nodes: dict[int, NodeEndpoint] = {}
    for topic_id, answer in answers:
        if answer.error_code not in TOLD_LEADERS_BY:
            continue
        leader_id, leader_epoch = leaders.of_topic_id(topic_id, answer.partition_index)
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        node = leaders.node(leader_id, context.listener_name)
        if node is not None:
            nodes[leader_id] = NodeEndpoint(
                node_id=node.node_id, host=node.host, port=node.port, rack=node.rack
            )
    return [*nodes.values()]
