"""UnregisterBroker (64), version 0 (KIP-500): the cluster forgets a broker.

Conscious difference: this node doesn't unregister itself, which would leave a cluster without a broker:
INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import Error
from protocol.messages.cluster_admin import UnregisterBrokerRequest, UnregisterBrokerResponse
from protocol.messages.metadata_records import UnregisterBrokerRecord

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(
    server: Server, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    broker_id = request.broker_id
    broker = server.metadata.image.brokers.get(broker_id)
    if broker is None:
        return UnregisterBrokerResponse(
            error_code=Error.BROKER_ID_NOT_REGISTERED,
            error_message=f"Broker ID {broker_id} is not currently registered",
        )
    if broker_id == server.node_id:
        return UnregisterBrokerResponse(
            error_code=Error.INVALID_REQUEST, error_message="The only broker can't unregister itself"
        )
    record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch)
    failure = server.metadata.try_append([record])
    if failure is not None:
        return UnregisterBrokerResponse(error_code=failure.error, error_message=failure.message)
    return UnregisterBrokerResponse()
