"""Settings of topics, brokers and clients: configs, quotas, and the telemetry requested from clients."""

from __future__ import annotations

from protocol.wire.schema import (
    Message,
    Struct,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    string,
    uuid,
)

# ---- DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44) and ListConfigResources (74)
#
# DescribeConfigs: v1 sources and synonyms (KIP-226), v3 types and documentation (KIP-569), v4 flexible. AlterConfigs:
# v2 flexible. IncrementalAlterConfigs (KIP-339): v1 flexible. ListConfigResources: v0 lists client metrics (KIP-714),
# v1 every type of resource (KIP-1142).


class DescribeConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configuration_keys: list[str] | None = array(string, "0+", nullable="0+")


class DescribeConfigsRequest(Message, api_key=32, versions="1-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource, "0+")
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Struct):
    name: str = string("1+")
    value: str | None = string("1+", nullable="0+")
    source: int = int8("1+")


class DescribeConfigsResourceResult(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")
    read_only: bool = boolean("0+")
    config_source: int = int8("1+", default=-1, ignorable=True)
    is_sensitive: bool = boolean("0+")
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
    config_type: int = int8("3+", ignorable=True)
    documentation: str | None = string("3+", nullable="0+", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult, "0+")


class DescribeConfigsResponse(Message, api_key=32, versions="1-4", flexible="4+"):
    throttle_time_ms: int = int32("0+")
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult, "0+")


class AlterableConfig(Struct):
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[AlterableConfig] = array(AlterableConfig, "0+")


class AlterConfigsRequest(Message, api_key=33, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class AlterConfigsResourceResponse(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")


class AlterConfigsResponse(Message, api_key=33, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")


class IncrementalAlterableConfig(Struct):
    name: str = string("0+")
    config_operation: int = int8("0+")
    value: str | None = string("0+", nullable="0+")


class IncrementalAlterConfigsResource(Struct):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig, "0+")


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource, "0+")
    validate_only: bool = boolean("0+")


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+")
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse, "0+")


class ListConfigResourcesRequest(Message, api_key=74, versions="0-1", flexible="0+"):
    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Struct):
    resource_name: str = string("0+")
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Message, api_key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    config_resources: list[ConfigResource] = array(ConfigResource, "0+")


# ---- DescribeClientQuotas (48) and AlterClientQuotas (49): KIP-546. v1 flexible


class ComponentData(Struct):
    """`match_type`: 0 the exact name, 1 the default entity, 2 any that is named."""

    entity_type: str = string("0+")
    match_type: int = int8("0+")
    match: str | None = string("0+", nullable="0+")


class DescribeClientQuotasRequest(Message, api_key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = array(ComponentData, "0+")
    strict: bool = boolean("0+")


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class ValueData(Struct):
    key: str = string("0+")
    value: float = float64("0+")


class EntryData(Struct):
    entity: list[EntityData] = array(EntityData, "0+")
    values: list[ValueData] = array(ValueData, "0+")


class DescribeClientQuotasResponse(Message, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entries: list[EntryData] | None = array(EntryData, "0+", nullable="0+")


class OpData(Struct):
    """`value` is meaningless if the key is removed."""

    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class AlterEntryData(Struct):
    entity: list[EntityData] = array(EntityData, "0+")
    ops: list[OpData] = array(OpData, "0+")


class AlterClientQuotasRequest(Message, api_key=49, versions="0-1", flexible="1+"):
    entries: list[AlterEntryData] = array(AlterEntryData, "0+")
    validate_only: bool = boolean("0+")


class AlterEntryResult(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entity: list[EntityData] = array(EntityData, "0+")


class AlterClientQuotasResponse(Message, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32("0+")
    entries: list[AlterEntryResult] = array(AlterEntryResult, "0+")


# ---- GetTelemetrySubscriptions (71) and PushTelemetry (72): a client's metrics (KIP-714)


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions="0", flexible="0+"):
    client_instance_id: bytes = uuid("0+")


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    client_instance_id: bytes = uuid("0+")
    subscription_id: int = int32("0+")
    accepted_compression_types: list[int] = array(int8, "0+")
    push_interval_ms: int = int32("0+")
    telemetry_max_bytes: int = int32("0+")
    delta_temporality: bool = boolean("0+")
    requested_metrics: list[str] = array(string, "0+")


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+"):
    client_instance_id: bytes = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = binary("0+")


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
