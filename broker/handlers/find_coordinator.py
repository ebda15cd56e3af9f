"""FindCoordinator (10), versions 0 to 6.

v1: key types; v3: flexible; v4: several keys at once; v6: share groups (KIP-932).

A conscious difference: where `__consumer_offsets` or `__transaction_state` isn't there yet, Kafka starts to create it,
answers COORDINATOR_NOT_AVAILABLE and lets the client come again. Here it is created, and its coordinators are loaded,
before the answer; so the first group and the first transaction of a fresh broker are as fast as any later ones.

Conscious gap: share groups have no coordinator yet: COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.transactions import TRANSACTION_TOPIC
from protocol.errors import Error
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server

GROUP = 0
TRANSACTION = 1
SHARE = 2
SHARE_VERSION = 6
BATCH_VERSION = 4

# group : topic id : partition; a group's id may have colons itself
_SHARE_KEY = re.compile(r"(?s).+:[A-Za-z0-9_-]{22}:\d+")

_MESSAGES = {
    Error.COORDINATOR_NOT_AVAILABLE: "The coordinator isn't there yet.",
    Error.INVALID_REQUEST: "There is no such type of coordinator, or no such key of it.",
}
NO_NODE = (-1, "", -1)


def handle(
    server: Server, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    version = context.api_version
    if version >= BATCH_VERSION:
        return FindCoordinatorResponse(
            coordinators=[_coordinator(server, context, request, key) for key in request.coordinator_keys]
        )
    error, (node_id, host, port) = _find(server, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=error,
        error_message=_MESSAGES.get(error, error.name) if version >= 1 else None,
        node_id=node_id,
        host=host,
        port=port,
    )


def _coordinator(
    server: Server, context: RequestContext, request: FindCoordinatorRequest, key: str
) -> Coordinator:
    error, (node_id, host, port) = _find(server, context, request.key_type, key)
    known_type = request.key_type in (GROUP, TRANSACTION, SHARE)
    return Coordinator(
        key=key,
        node_id=node_id,
        host=host,
        port=port,
        error_code=error,
        error_message="" if known_type else _MESSAGES[error],
    )


def _find(
    server: Server, context: RequestContext, key_type: int, key: str
) -> tuple[Error, tuple[int, str, int]]:
    if key_type == SHARE:
        valid = context.api_version >= SHARE_VERSION and _SHARE_KEY.fullmatch(key) is not None
        return Error.COORDINATOR_NOT_AVAILABLE if valid else Error.INVALID_REQUEST, NO_NODE
    if key_type not in (GROUP, TRANSACTION):
        return Error.INVALID_REQUEST, NO_NODE
    name = OFFSETS_TOPIC if key_type == GROUP else TRANSACTION_TOPIC
    image = server.metadata.image
    if name not in image.topics:
        server.topics.auto_create([name])
    topic = image.topics.get(name)
    if topic is None:
        return Error.COORDINATOR_NOT_AVAILABLE, NO_NODE
    coordinators = server.groups if key_type == GROUP else server.transactions
    partition = topic.partitions.get(coordinators.partition_of(key))
    if partition is None or partition.leader != server.node_id:
        return Error.COORDINATOR_NOT_AVAILABLE, NO_NODE
    endpoint = server.advertised_endpoint(context.listener_name)
    if endpoint is None:
        return Error.COORDINATOR_NOT_AVAILABLE, NO_NODE
    return Error.NONE, (server.node_id, *endpoint)
