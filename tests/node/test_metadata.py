"""Topics that Metadata creates on the way."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from broker.handlers import metadata
from broker.security.principal import ANONYMOUS
from broker.server import Server
from protocol.errors import Error
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
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
async def test_a_topic_that_is_created_is_described_in_the_same_answer(node: Server, version: int) -> None:
    first, again = ask(node, version, "a"), ask(node, version, "a")
    [topic] = first.topics
    assert (topic.error_code, topic.name) == (Error.NONE, "a")
    assert [partition.leader_id for partition in topic.partitions] == [node.node_id]
    assert first == again


async def test_what_cannot_be_created_is_told_beside_what_is(node: Server) -> None:
    answer = ask(node, 12, "a", "b/c", "__cluster_metadata", "d")
    assert {topic.name: Error(topic.error_code) for topic in answer.topics} == {
        "a": Error.NONE,
        "d": Error.NONE,
        "b/c": Error.INVALID_TOPIC_EXCEPTION,
        "__cluster_metadata": Error.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_a_topic_that_is_not_to_be_created_is_unknown(node: Server) -> None:
    [topic] = ask(node, 12, "a", create=False).topics
    assert topic.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert not node.metadata.image.topics
