"""DescribeConfigs (32), versions 1 to 4.

v1: sources and synonyms (KIP-226); v3: types and documentation (KIP-569). Resources: topics (2), brokers (4),
loggers of this process (8, KIP-412), subscriptions to client metrics (16, KIP-714), groups (32, KIP-848).

Conscious gaps: only settings that a user would look up have documentation; it is null for the others. The loggers are
barnabas's, not Kafka's classes. Settings are sorted by name; Kafka's order is that of a hash map.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from broker.config.client_metrics_config import describe_client_metrics
from broker.config.definitions import ConfigEntry, ConfigSource, ConfigType
from broker.config.describe import describe_broker, describe_cluster_defaults, describe_topic
from broker.config.group_config import describe_group
from broker.config.logger_levels import logger_levels
from broker.controller.config_decisions import BROKER_LOGGER_RESOURCE, RESOURCE_TYPES, check_broker_name
from broker.controller.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    invalid_name_reason,
)
from broker.network.pieces import answered
from broker.security.authorizer import ConfigRights, Operation
from protocol.errors import Error, KafkaError
from protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import NodePorts
    from broker.network.context import RequestContext


async def handle(
    node: NodePorts,
    context: RequestContext,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse:
    """Resources that the client may not see come last, as in Kafka. All settings of one broker take some ms."""
    described = _Described(node.metadata.image, node.config, node.node_id)
    rights = ConfigRights(node.authorizer, context, Operation.DESCRIBE_CONFIGS)
    return await _answered(described, rights, request)


async def _answered(
    described: _Described, rights: ConfigRights, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    unknown = next((r for r in request.resources if r.resource_type not in RESOURCE_TYPES), None)
    if unknown is not None:
        refusal = KafkaError(Error.INVALID_REQUEST, f"Unknown resource type {unknown.resource_type}")
        return DescribeConfigsResponse(
            results=[_refused(resource, refusal) for resource in request.resources]
        )
    results: list[DescribeConfigsResult] = []
    denied: list[DescribeConfigsResult] = []
    for resource in answered(request.resources, _key):
        if not resource.configuration_keys and (resource.resource_type != TOPIC_RESOURCE or results):
            await turn()  # a turn for all settings of a resource: a hundred clients may ask at once
        refused = rights.refusal(resource.resource_type, resource.resource_name)
        if refused is not None:
            denied.append(_refused(resource, refused))
            continue
        try:
            keys = resource.configuration_keys
            names = None if keys is None else frozenset(keys)
            entries = _ENTRIES[resource.resource_type](described, resource.resource_name, names)
        except KafkaError as error:
            results.append(_refused(resource, error))
        else:
            results.append(_result(resource, entries, request))
    return DescribeConfigsResponse(results=results + denied)


def _key(resource: DescribeConfigsResource) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


class _Described(NamedTuple):
    """The sources of the settings of all resources."""

    image: ClusterImage
    config: BrokerConfig
    node_id: int


Names: TypeAlias = Collection[str] | None
"""The names of the wanted settings. None or empty means all."""


def _topic_entries(described: _Described, name: str, names: Names) -> list[ConfigEntry]:
    reason = invalid_name_reason(name)
    if reason is not None:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    if name not in described.image.topics:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, "")
    return describe_topic(described.config, described.image.config_of_topic(name), names)


def _broker_entries(described: _Described, name: str, names: Names) -> list[ConfigEntry]:
    if not name:
        return describe_cluster_defaults(described.config, names)
    check_broker_name(described.node_id, name)
    return describe_broker(described.config, names)


def _logger_entries(described: _Described, name: str, names: Names) -> list[ConfigEntry]:
    _check_name(name)
    check_broker_name(described.node_id, name)
    return [
        ConfigEntry(name, level, ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG, False, False, ConfigType.UNKNOWN)
        for name, level in logger_levels().items()
        if not names or name in names
    ]


def _client_metrics_entries(described: _Described, name: str, names: Names) -> list[ConfigEntry]:
    _check_name(name)
    return describe_client_metrics(described.image.configs.get((CLIENT_METRICS_RESOURCE, name), {}), names)


def _group_entries(described: _Described, name: str, names: Names) -> list[ConfigEntry]:
    _check_name(name)
    stored = described.image.configs.get((GROUP_RESOURCE, name), {})
    return describe_group(described.config, stored, names)


def _check_name(name: str) -> None:
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "The resource's name must not be empty")


_ENTRIES: dict[int, Callable[[_Described, str, Names], list[ConfigEntry]]] = {
    TOPIC_RESOURCE: _topic_entries,
    BROKER_RESOURCE: _broker_entries,
    BROKER_LOGGER_RESOURCE: _logger_entries,
    CLIENT_METRICS_RESOURCE: _client_metrics_entries,
    GROUP_RESOURCE: _group_entries,
}


def _result(
    resource: DescribeConfigsResource, entries: list[ConfigEntry], request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    kind = resource.resource_type
    return DescribeConfigsResult(
        error_message="",
        resource_type=kind,
        resource_name=resource.resource_name,
        configs=[_setting(kind, entry, request) for entry in entries],
    )


def _setting(kind: int, entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        config_type=entry.config_type,
        documentation=None,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
    if kind == BROKER_LOGGER_RESOURCE:
        result.documentation = ""
    elif request.include_documentation:
        result.documentation = _documentation(kind, entry.name)
    return result


def _documentation(kind: int, name: str) -> str | None:
    from broker.config import documentation

    if kind == TOPIC_RESOURCE:
        return documentation.TOPIC.get(name)
    if kind == BROKER_RESOURCE:
        return documentation.of_broker(name)
    return (documentation.GROUP if kind == GROUP_RESOURCE else documentation.CLIENT_METRICS).get(name)


def _refused(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.error,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
