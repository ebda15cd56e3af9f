"""ShareGroupDescribe (77), version 1 (KIP-932)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.coordination.gathering import Gathering
from broker.handlers.consumer_group_describe import HIDDEN_TOPICS
from broker.network.later import Later
from broker.network.repeats import answered
from broker.security.authorized_operations import authorized_operations
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import Error, KafkaError
from protocol.messages.groups_share import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from broker.coordination.groups import Groups
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer
    from coordinator.group.shard import GroupShard


def handle(
    groups: Groups, authorizer: Authorizer, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse | Later[ShareGroupDescribeResponse]:
    """Groups that may not be described come first, as in Kafka."""
    if not groups.serves_share_groups:
        unsupported = [
            DescribedGroup(group_id=group_id, error_code=Error.UNSUPPORTED_VERSION)
            for group_id in request.group_ids
        ]
        return ShareGroupDescribeResponse(groups=unsupported)
    allowed = []
    answers = []
    for group_id in answered(request.group_ids, str):
        if authorizer.allows(context, Operation.DESCRIBE, ResourceType.GROUP, group_id):
            allowed.append(group_id)
        else:
            answers.append(DescribedGroup(group_id=group_id, error_code=Error.GROUP_AUTHORIZATION_FAILED))
    later: Later[ShareGroupDescribeResponse] = Later()

    def reply(found: list[DescribedGroup | KafkaError]) -> None:
        for group_id, group in zip(allowed, found, strict=True):
            if isinstance(group, KafkaError):
                message = group.message
                if group.error is not Error.INVALID_GROUP_ID:
                    message = message or "The coordinator isn't here."
                group = DescribedGroup(group_id=group_id, error_code=group.error, error_message=message)
            elif request.include_authorized_operations:
                group.authorized_operations = authorized_operations(
                    authorizer, context, ResourceType.GROUP, group_id
                )
            answers.append(group)
        later.reply(ShareGroupDescribeResponse(groups=_visible(authorizer, context, answers)))

    gathering = Gathering(len(allowed), reply)
    for index, group_id in enumerate(allowed):
        groups.ask(group_id, _question(group_id), gathering.place(index))
    return later.answer()


def _question(group_id: str) -> Callable[[GroupShard], DescribedGroup]:
    def describe(shard: GroupShard) -> DescribedGroup:
        if not group_id:
            raise KafkaError(Error.INVALID_GROUP_ID)
        return shard.share_groups.describe(group_id)

    return describe


def _visible(
    authorizer: Authorizer, context: RequestContext, answers: list[DescribedGroup]
) -> list[DescribedGroup]:
    """A group with topics that the client may not see is hidden from it."""
    may_see: dict[str, bool] = {}
    shown = []
    for group in answers:
        names = {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}
        for name in names:
            if name not in may_see:
                may_see[name] = authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, name)
        if not all(may_see[name] for name in names):
            group = DescribedGroup(
                group_id=group.group_id,
                error_code=Error.TOPIC_AUTHORIZATION_FAILED,
                error_message=HIDDEN_TOPICS,
            )
        shown.append(group)
    return shown
