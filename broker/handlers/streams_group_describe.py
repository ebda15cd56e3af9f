"""StreamsGroupDescribe (89), version 0 (KIP-1071)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.coordination.gathering import Gathering
from broker.network.later import Later
from broker.network.repeats import answered
from broker.security.authorized_operations import authorized_operations
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import Error, KafkaError
from protocol.messages.groups_streams import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)

if TYPE_CHECKING:
    from broker.coordination.groups import Groups
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer
    from coordinator.group.shard import GroupShard

HIDDEN_STREAMS_TOPICS = "The described group uses topics that the client is not authorized to describe."


def handle(
    groups: Groups, authorizer: Authorizer, context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse | Later[StreamsGroupDescribeResponse]:
    """Groups that may not be described come first, as in Kafka."""
    if not groups.serves_streams_groups:
        unsupported = [
            DescribedGroup(group_id=group_id, error_code=Error.UNSUPPORTED_VERSION)
            for group_id in request.group_ids
        ]
        return StreamsGroupDescribeResponse(groups=unsupported)
    allowed = []
    answers = []
    for group_id in answered(request.group_ids, str):
        if authorizer.allows(context, Operation.DESCRIBE, ResourceType.GROUP, group_id):
            allowed.append(group_id)
        else:
            answers.append(DescribedGroup(group_id=group_id, error_code=Error.GROUP_AUTHORIZATION_FAILED))
    later: Later[StreamsGroupDescribeResponse] = Later()

    def reply(found: list[DescribedGroup | KafkaError]) -> None:
        for group_id, group in zip(allowed, found, strict=True):
            if isinstance(group, KafkaError):
                group = DescribedGroup(group_id=group_id, error_code=group.error, error_message=group.message)
            elif request.include_authorized_operations:
                group.authorized_operations = authorized_operations(
                    authorizer, context, ResourceType.GROUP, group_id
                )
            answers.append(group)
        later.reply(StreamsGroupDescribeResponse(groups=_visible(authorizer, context, answers)))

    gathering = Gathering(len(allowed), reply)
    for index, group_id in enumerate(allowed):
        groups.ask(group_id, _question(group_id), gathering.place(index))
    return later.answer()


def _question(group_id: str) -> Callable[[GroupShard], DescribedGroup]:
    def describe(shard: GroupShard) -> DescribedGroup:
        if not group_id:
            raise KafkaError(Error.INVALID_GROUP_ID)
        return shard.describe_streams_group(group_id)

    return describe


def _visible(
    authorizer: Authorizer, context: RequestContext, answers: list[DescribedGroup]
) -> list[DescribedGroup]:
    """A group with topics that the client may not see is hidden from it."""
    topics_of = [_topics(group) for group in answers]
    hidden = {
        topic
        for topic in dict.fromkeys(topic for topics in topics_of for topic in topics)
        if not authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
    }
    return [
        group
        if hidden.isdisjoint(topics)
        else DescribedGroup(
            group_id=group.group_id,
            error_code=Error.TOPIC_AUTHORIZATION_FAILED,
            error_message=HIDDEN_STREAMS_TOPICS,
        )
        for group, topics in zip(answers, topics_of, strict=True)
    ]


def _topics(group: DescribedGroup) -> list[str]:
    topics = []
    for subtopology in () if group.topology is None else group.topology.subtopologies or ():
        topics += subtopology.source_topics
        topics += subtopology.repartition_sink_topics
        topics += [topic.name for topic in subtopology.repartition_source_topics]
        topics += [topic.name for topic in subtopology.state_changelog_topics]
    return topics
