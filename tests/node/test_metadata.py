"""Topics that a Metadata request creates."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from broker.handlers import metadata
from broker.security.authorizer import ANONYMOUS
from broker.server import Server
from protocol.errors import Error
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.support.submitting import ask_controller
from tests.support.whole_server import handled


def ask(node: Server, version: int, *names: str, create: bool = True) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
    context = SimpleNamespace(
        api_version=version,
        listener_name="PLAINTEXT",
        client_id="c",
        principal=ANONYMOUS,
        peer_host="127.0.0.1",
    )
    answer = handled(node, metadata, context, request)
    assert isinstance(answer, MetadataResponse)
    return answer


@pytest.mark.parametrize("version", range(14))
async def test_a_topic_just_created_has_no_leader_yet(node: Server, version: int) -> None:
    first, again = ask(node, version, "a"), ask(node, version, "a")
    [topic] = first.topics
    assert (topic.error_code, topic.name, topic.partitions) == (Error.LEADER_NOT_AVAILABLE, "a", [])
    [topic] = again.topics
    assert (topic.error_code, topic.name) == (Error.NONE, "a")
    assert [partition.leader_id for partition in topic.partitions] == [node.node_id]


async def test_asking_whether_a_topic_is_deleted_shows_no_partitions(node: Server) -> None:
    """kafka-go's test of DeleteTopics looks with a request that creates the topic again."""
    ask(node, 6, "a")
    ask_controller(
        node.controller, node.topics.delete([node.metadata.image.topics["a"]]), lambda _deleted: None
    )
    [topic] = ask(node, 6, "a").topics
    assert topic.error_code != Error.NONE
    assert not topic.partitions


async def test_a_watch_of_partitions_meets_an_error_before_it_counts_a_new_topics(
    node: Server,
) -> None:
    """kafka-go's leader of a group takes UNKNOWN_TOPIC_OR_PARTITION for a topic without partitions, and assigns none.
    If its watch then finds the partitions already there, it never sees a change. Other errors make it begin again."""
    [topic] = ask(node, 6, "a").topics
    assert topic.error_code not in (Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION)


async def test_a_topic_that_cannot_be_created_is_answered_beside_those_that_can(node: Server) -> None:
    answer = ask(node, 12, "a", "b/c", "__cluster_metadata", "d")
    assert {topic.name: Error(topic.error_code) for topic in answer.topics} == {
        "a": Error.LEADER_NOT_AVAILABLE,
        "d": Error.LEADER_NOT_AVAILABLE,
        "b/c": Error.INVALID_TOPIC_EXCEPTION,
        "__cluster_metadata": Error.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_a_topic_that_is_not_to_be_created_is_unknown(node: Server) -> None:
    [topic] = ask(node, 12, "a", create=False).topics
    assert topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert not node.metadata.image.topics
