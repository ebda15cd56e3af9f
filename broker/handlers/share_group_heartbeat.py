"""ShareGroupHeartbeat (76), version 1 (KIP-932).

A share group has at most a thousand members. Conscious gap: here each of them subscribes to at most 10,000 topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.groups import client_of
from broker.handlers.consumer_group_heartbeat import check_text, invalid
from broker.security.authorizer import DESCRIBE, GROUP, READ, TOPIC
from coordinator.group.share.states import JOIN_EPOCH, LEAVE_EPOCH
from protocol.errors import Error, KafkaError
from protocol.messages.groups_share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext

LONGEST_MEMBER_ID = 36
"""Characters; a uuid as text has as many."""

MOST_NAMES = 10_000
"""Topics that a member may subscribe to."""


async def handle(
    node: GroupPorts,
    context: RequestContext,
    request: ShareGroupHeartbeatRequest,
) -> ShareGroupHeartbeatResponse:
    if not node.groups.serves_share_groups:
        return _refused(KafkaError(Error.UNSUPPORTED_VERSION))
    if not node.authorizer.allows(context, READ, GROUP, request.group_id):
        return _refused(KafkaError(Error.GROUP_AUTHORIZATION_FAILED))
    if not is_member_id(request.member_id):
        return _refused(KafkaError(Error.INVALID_REQUEST))
    names = request.subscribed_topic_names or ()
    if len(names) > MOST_NAMES:
        return _refused(KafkaError(Error.INVALID_REQUEST, f"No more than {MOST_NAMES} names are taken."))
    for name in dict.fromkeys(names):
        if not node.authorizer.allows(context, DESCRIBE, TOPIC, name):
            return _refused(KafkaError(Error.TOPIC_AUTHORIZATION_FAILED))
    try:
        _check(request)
    except KafkaError as error:
        return _refused(error)
    client = client_of(context, node.authorizer)
    found = await node.groups.decide(request, lambda shard: shard.share_groups.heartbeat(client, request))
    return _refused(found) if isinstance(found, KafkaError) else found


def is_member_id(text: str | None) -> bool:
    """True if a member of a share group may have this id (Kafka: `KafkaApis.isMemberIdValid`)."""
    return bool(text) and _units(text or "") <= LONGEST_MEMBER_ID


def _refused(error: KafkaError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=error.error, error_message=error.message, assignment=None)


def _units(text: str) -> int:
    """The length that Java's String has."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Check the request on its own. Raises KafkaError(INVALID_REQUEST)."""
    check_text("MemberId", request.member_id)
    check_text("GroupId", request.group_id)
    check_text("RackId", request.rack_id)
    if request.member_epoch == JOIN_EPOCH:
        if not request.subscribed_topic_names:
            raise invalid("SubscribedTopicNames must be set in first request.")
    elif request.member_epoch < LEAVE_EPOCH:
        raise invalid("MemberEpoch is invalid.")
