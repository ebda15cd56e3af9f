"""GetTelemetrySubscriptions (71), version 0 (KIP-714): tells a client which metrics to push, and how often.

Only a node with a listener for metrics serves and advertises it. Source: `ClientMetricsManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import KafkaError
from protocol.messages.configs import GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import TelemetryPorts
    from broker.network.context import RequestContext


def handle(
    node: TelemetryPorts, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    telemetry = node.telemetry
    try:
        client_id, client = telemetry.subscribe(context, bytes(request.client_instance_id))
    except KafkaError as refused:
        return GetTelemetrySubscriptionsResponse(error_code=refused.error)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client_id,
        subscription_id=client.subscription_id,
        accepted_compression_types=telemetry.accepted,
        push_interval_ms=client.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=[*client.metrics],
    )
