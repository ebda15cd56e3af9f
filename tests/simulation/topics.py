"""Topics, over the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from protocol.errors import Error
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.simulation.wire_client import WireClient


async def create_topic(
    client: WireClient,
    name: str,
    partitions: int,
    configs: Mapping[str, str] = MappingProxyType({}),
    replication_factor: int = 1,
) -> None:
    settings = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, configs=settings
    )

    async def create() -> Error:
        answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 4)
        return Error(answer.topics[0].error_code)

    error = await client.insist(create)
    assert error in (Error.NONE, Error.TOPIC_ALREADY_EXISTS), error


async def topic_ids(client: WireClient, names: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}

    async def ask() -> Error:
        topics = [MetadataRequestTopic(name=name) for name in names]
        answer = await client.ask(MetadataRequest(topics=topics), 12)
        for topic in answer.topics:
            if topic.error_code:
                return Error(topic.error_code)
            found[topic.name] = topic.topic_id
        return Error.NONE

    error = await client.insist(ask)
    assert error is Error.NONE, error
    return found
