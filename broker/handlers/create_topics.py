"""CreateTopics (19), versions 2 to 7.

v4: −1 for the default counts (KIP-464; Kafka 4 takes it in every version); v5: the answer has the new topic's settings
(KIP-525) if the client may see them; v6: refuses topics beyond a quota on changes (KIP-599); v7: topic ids.
In a cluster this runs at the controller. A client can produce as soon as it has the answer: a broker that doesn't know
the topic yet has the request wait (`broker.early_requests`). Source: ControllerApis.createTopics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import TYPE_CHECKING

from broker.config.topic_config import effective_topic_configs
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, ResourceType, allows_on_cluster
from protocol.errors import Error, KafkaError
from protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.waiting import turn
from storage.directory.log_directory import METADATA_TOPIC

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


@runs_to_its_end
async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse:
    times_named = Counter(topic.name for topic in request.topics)
    if request.timeout_ms <= 0:
        late = KafkaError(Error.REQUEST_TIMED_OUT)
        return CreateTopicsResponse(topics=[_refused(name, late) for name in times_named])
    may_all = allows_on_cluster(node.authorizer, context, Operation.CREATE, log_denied=False)
    refused: list[CreatableTopicResult] = []
    allowed: set[str] = set()
    for name, times in times_named.items():
        if times > 1:
            error = KafkaError(Error.INVALID_REQUEST, "Duplicate topic name.")
        elif name == METADATA_TOPIC:
            error = KafkaError(Error.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
        elif not (may_all or node.authorizer.allows(context, Operation.CREATE, ResourceType.TOPIC, name)):
            error = KafkaError(Error.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        else:
            allowed.add(name)
            continue
        refused.append(_refused(name, error))
    describable = {
        name
        for name in allowed
        if node.authorizer.allows(
            context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name, log_denied=False
        )
    }
    mutations = node.quotas.mutations_of(context, strict_since=6, now_ms=node.clock.now_ms())
    wanted = [topic for topic in request.topics if topic.name in allowed]
    outcomes = await node.topics.create(wanted, validate_only=request.validate_only, take=mutations.take)
    results: list[CreatableTopicResult] = []
    if isinstance(outcomes, KafkaError):
        results += (_refused(topic.name, outcomes) for topic in request.topics)
    else:
        for topic, outcome in outcomes:
            results.append(_result(node.config, topic, outcome, describable))
            if node.turns.is_over:
                await turn()
        results += refused
    return CreateTopicsResponse(throttle_time_ms=mutations.throttle_ms, topics=results)


def _result(
    config: BrokerConfig, topic: CreatableTopic, outcome: bytes | KafkaError, describable: Container[str]
) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        return _refused(topic.name, outcome)
    result = CreatableTopicResult(name=topic.name, topic_id=outcome, error_message=None)
    if topic.name not in describable:
        result.topic_config_error_code = Error.TOPIC_AUTHORIZATION_FAILED
        return result
    overrides = {each.name: each.value for each in topic.configs if each.value is not None}
    count = topic.num_partitions if topic.num_partitions > 0 else config.get_int("num.partitions")
    result.num_partitions = len(topic.assignments) or count
    factor = topic.replication_factor
    if factor == -1:
        factor = config.get_int("default.replication.factor")
    result.replication_factor = len(topic.assignments[0].broker_ids) if topic.assignments else factor
    result.configs = [
        CreatableTopicConfigs(
            name=entry.name,
            value=None if entry.is_sensitive else entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in effective_topic_configs(config, overrides)
    ]
    return result


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.error, error_message=error.message)
