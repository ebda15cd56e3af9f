"""The common part of ConsumerGroupDescribe, ShareGroupDescribe and StreamsGroupDescribe: the coordinator describes each
group, and a group with topics that the client may not see is hidden.

Groups that the client may not describe come first, as in Kafka.
Source: `KafkaApis` (handleConsumerGroupDescribe and its neighbours).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from broker.network.pieces import answered
from broker.security.authorizer import Operation, ResourceType, authorized_operations
from protocol.errors import Error, KafkaError
from protocol.waiting import together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.coordination.groups import Groups
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer
    from coordinator.group.shard import GroupShard

HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


class DescribeRequest(Protocol):
    """A request of any of the three."""

    @property
    def group_ids(self) -> list[str]: ...

    @property
    def include_authorized_operations(self) -> bool: ...


class Described(Protocol):
    """A group in their responses."""

    group_id: str
    authorized_operations: int


G = TypeVar("G", bound=Described)
R = TypeVar("R")


class DescribeApi(NamedTuple, Generic[G, R]):
    """One of the three APIs."""

    response: Callable[..., R]
    described: Callable[..., G]
    describe: Callable[[GroupShard, str], G]
    """Asks the shard. May raise KafkaError."""
    topics_of: Callable[[G], Iterable[str]]
    """The names of all topics in a description."""
    hidden_topics: str = HIDDEN_TOPICS
    without_coordinator: str | None = None
    """The error message if no coordinator gives one."""


async def described_groups(
    groups: Groups,
    authorizer: Authorizer,
    context: RequestContext,
    request: DescribeRequest,
    api: DescribeApi[G, R],
    *,
    is_served: bool,
) -> R:
    """The answer. Each group has UNSUPPORTED_VERSION if the protocol isn't served."""
    if not is_served:
        unsupported = [
            api.described(group_id=group_id, error_code=Error.UNSUPPORTED_VERSION)
            for group_id in request.group_ids
        ]
        return api.response(groups=unsupported)
    allowed = []
    answers = []
    for group_id in answered(request.group_ids, str):
        if authorizer.allows(context, Operation.DESCRIBE, ResourceType.GROUP, group_id):
            allowed.append(group_id)
        else:
            answers.append(api.described(group_id=group_id, error_code=Error.GROUP_AUTHORIZATION_FAILED))

    def describe(group_id: str, shard: GroupShard) -> G:
        if not group_id:
            raise KafkaError(Error.INVALID_GROUP_ID)
        return api.describe(shard, group_id)

    found = await together([groups.ask(each, partial(describe, each)) for each in allowed])
    for group_id, group in zip(allowed, found, strict=True):
        if isinstance(group, KafkaError):
            message = group.message
            if group.error is not Error.INVALID_GROUP_ID:
                message = message or api.without_coordinator
            group = api.described(group_id=group_id, error_code=group.error, error_message=message)
        elif request.include_authorized_operations:
            group.authorized_operations = authorized_operations(
                authorizer, context, ResourceType.GROUP, group_id
            )
        answers.append(group)
    return api.response(groups=_visible(authorizer, context, answers, api))


def _visible(
    authorizer: Authorizer, context: RequestContext, answers: Sequence[G], api: DescribeApi[G, R]
) -> list[G]:
    """Hide groups with topics that the client may not see."""
    topics_of = [[*api.topics_of(group)] for group in answers]
    hidden = {
        topic
        for topic in dict.fromkeys(topic for topics in topics_of for topic in topics)
        if not authorizer.allows(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
    }
    return [
        group
        if hidden.isdisjoint(topics)
        else api.described(
            group_id=group.group_id,
            error_code=Error.TOPIC_AUTHORIZATION_FAILED,
            error_message=api.hidden_topics,
        )
        for group, topics in zip(answers, topics_of, strict=True)
    ]
