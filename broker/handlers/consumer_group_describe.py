"""ConsumerGroupDescribe (69), versions 0 and 1 (KIP-848). v1: the protocol that a member uses (KIP-1099)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.authorized_operations import GROUP_OPERATIONS
from protocol.errors import Error, KafkaError
from protocol.messages.groups_consumer import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """No authorizer: every operation is allowed, every topic is shown."""
    return ConsumerGroupDescribeResponse(
        groups=[
            _described(server, group_id, request.include_authorized_operations)
            for group_id in request.group_ids
        ]
    )


def _described(server: Server, group_id: str, with_operations: bool) -> DescribedGroup:
    if not server.groups.serves_consumer_groups:
        return DescribedGroup(group_id=group_id, error_code=Error.UNSUPPORTED_VERSION)
    try:
        if not group_id:
            raise KafkaError(Error.INVALID_GROUP_ID)
        group = server.groups.shard_of(group_id).describe_consumer_group(group_id)
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.error, error_message=error.message)
    if with_operations:
        group.authorized_operations = GROUP_OPERATIONS
    return group
