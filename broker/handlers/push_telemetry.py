"""PushTelemetry (72), version 0 (KIP-714): a client's metrics, in OpenTelemetry's format.

Only a node with a listener for metrics serves and advertises it. Source: `ClientMetricsManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import KafkaError
from protocol.messages.configs import PushTelemetryRequest, PushTelemetryResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import TelemetryPorts
    from broker.network.context import RequestContext


def handle(
    node: TelemetryPorts, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    try:
        node.telemetry.push(context, request)
    except KafkaError as refused:
        return PushTelemetryResponse(error_code=refused.error)
    return PushTelemetryResponse()
