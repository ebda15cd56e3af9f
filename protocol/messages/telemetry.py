"""GetTelemetrySubscriptions (71) and PushTelemetry (72): a client's metrics (KIP-714)."""

from protocol.wire.schema import Message, array, binary, boolean, int8, int16, int32, string, uuid


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
