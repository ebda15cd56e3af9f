"""ShareAcknowledge (79), versions 1 and 2 (KIP-932).

v2: renewed locks (KIP-1222), the duration of a lock in the answer. A conscious difference: a request may have 5,000
partitions. Kafka has no limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.share_requests import (
    Acknowledgements,
    TopicAccess,
    acknowledge,
    check_sender,
    refuse_too_many,
    tell_leaders,
)
from broker.network.turns import runs_to_its_end
from broker.shares.share_session_cache import FINAL_EPOCH, FIRST_EPOCH
from protocol.errors import Error, KafkaError
from protocol.messages.share_fetch import (
    AcknowledgedPartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from broker.handlers.node_ports import BrokerPorts
    from broker.network.context import RequestContext
    from broker.shares.share_partition_manager import AcknowledgedPartitions, SharePartitionManager


@runs_to_its_end
async def handle(
    node: BrokerPorts,
    context: RequestContext,
    request: ShareAcknowledgeRequest,
) -> ShareAcknowledgeResponse:
    image, epoch = node.metadata.image, request.share_session_epoch
    try:
        group_id, member_id = check_sender(
            node.groups, node.authorizer, context, request.group_id, request.member_id
        )
        _use_session(node.shares, group_id, member_id, epoch)
        refuse_too_many(node.shares, group_id, member_id, epoch, request.topics)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.error)
    acknowledgements: Acknowledgements = {
        (topic.topic_id, partition.partition_index): partition.acknowledgement_batches
        for topic in request.topics
        for partition in topic.partitions
    }
    acknowledged = await acknowledge(
        node.shares,
        TopicAccess(image, node.authorizer, context),
        group_id,
        member_id,
        acknowledgements,
        version=context.api_version,
        renews=request.is_renew_ack,
    )
    response = _response(acknowledged)
    if epoch == FINAL_EPOCH:
        node.shares.end_session(group_id, member_id)
    response.acquisition_lock_timeout_ms = node.shares.settings_of(group_id).record_lock_duration_ms
    listed = [(topic.topic_id, answer) for topic in response.responses for answer in topic.partitions]
    response.node_endpoints = tell_leaders(node.current_leaders, context, listed)
    return response


def _use_session(shares: SharePartitionManager, group_id: str, member_id: str, epoch: int) -> None:
    """Check and advance the session. Raises KafkaError: INVALID_SHARE_SESSION_EPOCH, SHARE_SESSION_NOT_FOUND."""
    if epoch == FIRST_EPOCH:
        raise KafkaError(Error.INVALID_SHARE_SESSION_EPOCH)
    if epoch == FINAL_EPOCH:
        shares.sessions.get(group_id, member_id)
    else:
        shares.sessions.go_on(group_id, member_id, epoch)


def _response(found: AcknowledgedPartitions) -> ShareAcknowledgeResponse:
    topics: dict[bytes, list[AcknowledgedPartition]] = {}
    for (topic_id, index), error in found.items():
        answer = AcknowledgedPartition(partition_index=index)
        if error is not None:
            answer.error_code, answer.error_message = error.error, error.message
        topics.setdefault(topic_id, []).append(answer)
    return ShareAcknowledgeResponse(
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ]
    )
