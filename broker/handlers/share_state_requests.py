"""The common part of the five requests to the share coordinator. Each names partitions of one group; the shard is asked
for them one by one, and one answer has them all.

Without a group's id, or with an empty list, the answer is empty. It has topics and partitions in the order of Java's
maps. If one is named twice, the last counts.
Source: `ShareCoordinatorService`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from broker.security.authorizer import CLUSTER_ACTION, CLUSTER_NAME, ResourceType, denied
from coordinator.java.maps import JavaMap
from coordinator.share.share_partition_key import SharePartitionKey
from protocol.errors import KafkaError
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.coordination.share_states import ShareStates
    from broker.handlers.node_ports import ShareGroupPorts
    from broker.network.context import RequestContext
    from coordinator.share.shard import ShareShard


_NOT_HERE = "The share coordinator isn't here, or can't do it now."


R = TypeVar("R")


def _nothing(said: Any) -> dict[str, Any]:
    """No fields: the partition has no error, and there is nothing else to tell."""
    return {}


class ShareStateApi(NamedTuple, Generic[R]):
    """One of the five APIs."""

    ask: Callable[[ShareShard, SharePartitionKey, Any], Any]
    """Carries out on the shard what the request says of a partition. May raise KafkaError."""
    response: Callable[..., R]
    of_topic: Callable[..., Any]
    of_partition: Callable[..., Any]
    """The message classes of a topic and a partition in the answer."""
    told: Callable[[Any], dict[str, Any]] = _nothing
    """Turns the shard's result into fields of a partition's answer."""
    topics_may_be_empty: bool = False
    """If True, the answer leaves out topics without partitions. Else one such topic makes the answer empty."""

    def result(self, partition: int, said: Any) -> Any:
        """A partition's answer, from the shard's result or a KafkaError."""
        if isinstance(said, KafkaError):
            return self.of_partition(partition=partition, error_code=said.error, error_message=said.message)
        return self.of_partition(partition=partition, **self.told(said))


class _Found:
    """The results by topic and partition. A shard's results are certain only once all its records are committed."""

    def __init__(self) -> None:
        self.results: JavaMap[bytes, JavaMap[int, Any]] = JavaMap()
        self.of_shards: dict[ShareShard, list[tuple[JavaMap[int, Any], int]]] = {}

    def of_topic(self, topic_id: bytes) -> JavaMap[int, Any]:
        found = self.results.get(topic_id)
        if found is None:
            found = self.results[topic_id] = JavaMap()
        return found


async def share_state_answer(
    node: ShareGroupPorts, context: RequestContext, request: Any, api: ShareStateApi[R]
) -> R:
    """The response to a request."""
    return api.response(results=await _results(node, context, request.group_id, request.topics, api))


async def _results(
    node: ShareGroupPorts,
    context: RequestContext,
    group_id: str,
    topics: Sequence[Any],
    api: ShareStateApi[R],
) -> list[Any]:
    """The answer for each topic."""
    share_states, turns = node.share_states, node.turns
    if not node.authorizer.allows(context, CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return _all_refused(topics, api)
    is_empty = not api.topics_may_be_empty and not all(topic.partitions for topic in topics)
    if is_empty or not group_id:
        return []
    found = _Found()
    for topic in topics:
        for asked in topic.partitions:
            key = SharePartitionKey(group_id, topic.topic_id, asked.partition)
            _ask(share_states, key, asked, api, found)
            if turns.is_over:
                await turn()
    for shard, places in found.of_shards.items():
        if shard.gate.is_open:
            continue
        lost = await shard.ask(lambda _: None)
        if lost is not None:
            for of_topic, partition in places:
                of_topic[partition] = KafkaError(lost.error, lost.message or _NOT_HERE)
    answered = []
    for topic_id, of_topic in found.results.items():
        results = [api.result(partition, said) for partition, said in of_topic.items()]
        answered.append(api.of_topic(topic_id=topic_id, partitions=results))
        if turns.is_over:
            await turn()
    return answered


def _ask(
    share_states: ShareStates, key: SharePartitionKey, asked: Any, api: ShareStateApi[R], found: _Found
) -> None:
    of_topic = found.of_topic(key.topic_id)
    said: Any
    try:
        shard = share_states.shard_of(key)
        found.of_shards.setdefault(shard, []).append((of_topic, key.partition))
        said = api.ask(shard, key, asked)
    except KafkaError as error:
        said = KafkaError(error.error, error.message or _NOT_HERE)
    of_topic[key.partition] = said


def _all_refused(topics: Sequence[Any], api: ShareStateApi[R]) -> list[Any]:
    refused = denied(ResourceType.CLUSTER)
    return [
        api.of_topic(
            topic_id=topic.topic_id,
            partitions=[api.result(asked.partition, refused) for asked in topic.partitions],
        )
        for topic in topics
    ]
