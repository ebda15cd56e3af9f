"""ConsumerGroupHeartbeat (68), versions 0 and 1 (KIP-848).

v1: subscription by regular expression, and member ids that clients generate (KIP-1082).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.groups import client_of
from broker.security.authorizer import DESCRIBE, GROUP, READ, TOPIC
from coordinator.group.consumer.states import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from coordinator.java.maps import is_blank
from protocol.errors import Error, KafkaError
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext

OWN_MEMBER_ID_VERSION = 1


async def handle(
    node: GroupPorts,
    context: RequestContext,
    request: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse:
    if not node.groups.serves_consumer_groups:
        return _refused(KafkaError(Error.UNSUPPORTED_VERSION))
    if not node.authorizer.allows(context, READ, GROUP, request.group_id):
        return _refused(KafkaError(Error.GROUP_AUTHORIZATION_FAILED))
    for name in dict.fromkeys(request.subscribed_topic_names or ()):
        if not node.authorizer.allows(context, DESCRIBE, TOPIC, name):
            return _refused(KafkaError(Error.TOPIC_AUTHORIZATION_FAILED))
    try:
        _check(request, context.api_version, node.groups.consumer_assignors)
    except KafkaError as error:
        return _refused(error)
    client = client_of(context, node.authorizer)
    found = await node.groups.decide(request, lambda shard: shard.consumer_heartbeat(client, request))
    return _refused(found) if isinstance(found, KafkaError) else found


def _refused(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        error_code=error.error, error_message=error.message, assignment=None
    )


def _check(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """Check the request on its own. Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if version >= OWN_MEMBER_ID_VERSION or epoch > 0 or epoch == LEAVE_EPOCH:
        check_text("MemberId", request.member_id)
    check_text("GroupId", request.group_id)
    check_text("InstanceId", request.instance_id)
    check_text("RackId", request.rack_id)
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            Error.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def check_text(name: str, value: str | None) -> None:
    """Refuse a text of blanks alone (Java's String.trim), with KafkaError(INVALID_REQUEST). Null is fine."""
    if value is not None and is_blank(value):
        raise invalid(f"{name} can't be empty.")


def invalid(message: str) -> KafkaError:
    return KafkaError(Error.INVALID_REQUEST, message)
