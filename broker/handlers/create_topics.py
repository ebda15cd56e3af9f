"""CreateTopics (19), versions 2 to 7.

v4: −1 for the default counts (KIP-464, which Kafka 4 takes in every version); v5: the new topic's settings in the
answer (KIP-525); v7: topic ids. v6: beyond a
quota on changes topics are refused (KIP-599). A client can produce as soon as it has the answer.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from broker.config.topic_config import effective_topic_configs
from protocol.errors import Error, KafkaError
from protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from storage.directory.log_directory import METADATA_TOPIC

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(server: Server, context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    times_named = Counter(topic.name for topic in request.topics)
    wanted = [
        topic for topic in request.topics if times_named[topic.name] == 1 and topic.name != METADATA_TOPIC
    ]
    if request.timeout_ms <= 0:
        late = KafkaError(Error.REQUEST_TIMED_OUT)
        return CreateTopicsResponse(topics=[_refused(name, late) for name in times_named])
    response = CreateTopicsResponse()
    mutations = server.quotas.mutations_of(context, strict_since=6, now_ms=server.clock.now_ms())
    try:
        outcomes = server.topics.create(wanted, validate_only=request.validate_only, take=mutations.take)
    except KafkaError as refusal:
        return CreateTopicsResponse(
            throttle_time_ms=mutations.throttle_ms,
            topics=[_refused(topic.name, refusal) for topic in request.topics],
        )
    for topic, result in outcomes:
        if isinstance(result, KafkaError):
            response.topics.append(_refused(topic.name, result))
        else:
            response.topics.append(_created(server, topic, result))
    for name, times in times_named.items():
        if times > 1:
            error = KafkaError(Error.INVALID_REQUEST, "Duplicate topic name.")
        elif name == METADATA_TOPIC:
            error = KafkaError(Error.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        else:
            continue
        response.topics.append(_refused(name, error))
    response.throttle_time_ms = mutations.throttle_ms
    return response


def _created(server: Server, topic: CreatableTopic, topic_id: bytes) -> CreatableTopicResult:
    overrides = {config.name: config.value for config in topic.configs if config.value is not None}
    count = topic.num_partitions if topic.num_partitions > 0 else server.config.get_int("num.partitions")
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(topic.assignments) or count,
        replication_factor=len(topic.assignments[0].broker_ids) if topic.assignments else 1,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=None if entry.is_sensitive else entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in effective_topic_configs(server.config, overrides)
        ],
    )


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.error, error_message=error.message)
