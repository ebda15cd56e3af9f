"""What a request is charged for once it is handled, and for how long its connection waits then (KIP-219, KIP-124)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.quotas.client_quotas import ClientQuotas

_PRODUCE_KEY = 0
_EXEMPT = frozenset({27, 56, 59})
"""WriteTxnMarkers, AlterPartition, FetchSnapshot: nodes alone ask these of each other, and are never throttled (Kafka:
`RequestHandlerHelper.sendResponseExemptThrottle`). Of a Fetch its handler says so."""

FULL_TIME_PERCENT = 100.0


def charge(
    quotas: ClientQuotas,
    context: RequestContext,
    response: Any,
    request_bytes: int,
    handling_s: float,
    now_ms: int,
) -> None:
    """Say in the response how long the client is throttled, and mute its connection for as long.

    `response` is None where nothing is answered (acks=0): such a Produce is charged for its bytes alone. What a
    handler has put in already (a Fetch above its quota, a change of too many partitions) counts as well.
    """
    user, client_id = context.principal.name, context.client_id or ""
    throttle_ms = 0
    if context.api_key == _PRODUCE_KEY:
        throttle_ms = quotas.produce.charge(user, client_id, request_bytes, now_ms)
    if response is not None and not context.is_between_nodes and context.api_key not in _EXEMPT:
        used = handling_s * FULL_TIME_PERCENT
        request_ms = min(quotas.request.charge(user, client_id, used, now_ms), quotas.max_request_throttle_ms)
        throttle_ms = max(throttle_ms, request_ms)
    told_ms = getattr(response, "throttle_time_ms", None)
    if told_ms is not None:
        throttle_ms = max(throttle_ms, told_ms)
        response.throttle_time_ms = throttle_ms
    if throttle_ms > 0:
        context.mute(throttle_ms)
