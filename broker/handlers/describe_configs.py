"""DescribeConfigs (32), versions 1 to 4.

v1: sources and synonyms (KIP-226); v3: types and documentation (KIP-569). Resources: topics (2), brokers (4),
loggers of this process (8, KIP-412), subscriptions to client metrics (16, KIP-714), groups (32, KIP-848).

Conscious gaps: documentation is there for the settings that a user would look up, null for the others; the loggers
are ours, not Kafka's classes. Settings come by name, where Kafka's order is that of a hash map.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from broker.config.client_metrics_config import describe_client_metrics
from broker.config.definitions import ConfigType
from broker.config.describe import describe_broker, describe_cluster_defaults, describe_topic
from broker.config.entries import ConfigEntry, ConfigSource
from broker.config.group_config import describe_group
from broker.config.logger_levels import logger_levels
from broker.config.resources import check_broker_name
from broker.controller.config_decisions import BROKER_LOGGER_RESOURCE, RESOURCE_TYPES
from broker.controller.image import BROKER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from broker.controller.topic_names import invalid_name_reason
from protocol.errors import Error, KafkaError
from protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    unknown = next((r for r in request.resources if r.resource_type not in RESOURCE_TYPES), None)
    if unknown is not None:
        refusal = KafkaError(Error.INVALID_REQUEST, f"Unknown resource type {unknown.resource_type}")
        return DescribeConfigsResponse(
            results=[_refused(resource, refusal) for resource in request.resources]
        )
    results = []
    for resource in request.resources:
        try:
            entries = _entries(server, resource)
        except KafkaError as error:
            results.append(_refused(resource, error))
        else:
            results.append(
                DescribeConfigsResult(
                    error_message="",
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[_result(resource.resource_type, entry, request) for entry in entries],
                )
            )
    return DescribeConfigsResponse(results=results)


def _entries(server: Server, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    kind, name, names = resource.resource_type, resource.resource_name, resource.configuration_keys
    image = server.metadata.image
    if kind == TOPIC_RESOURCE:
        reason = invalid_name_reason(name)
        if reason is not None:
            raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        if name not in image.topics:
            raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION, "")
        return describe_topic(server.config, image.config_of_topic(name), names)
    if kind == BROKER_RESOURCE:
        if not name:
            return describe_cluster_defaults(server.config, names)
        check_broker_name(server, name)
        return describe_broker(server.config, names)
    if not name:
        raise KafkaError(Error.INVALID_REQUEST, "The resource's name must not be empty")
    if kind == BROKER_LOGGER_RESOURCE:
        check_broker_name(server, name)
        return _logger_entries(names)
    stored = image.configs.get((kind, name), {})
    if kind == CLIENT_METRICS_RESOURCE:
        return describe_client_metrics(stored, names)
    return describe_group(server.config, stored, names)


def _logger_entries(names: Collection[str] | None) -> list[ConfigEntry]:
    return [
        ConfigEntry(name, level, ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG, False, False, ConfigType.UNKNOWN)
        for name, level in logger_levels().items()
        if not names or name in names
    ]


def _result(kind: int, entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
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
