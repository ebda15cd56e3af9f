"""AllocateProducerIds (67), version 0, of a controller: a block of producer ids for a broker (KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.producer_id_allocation import allocate_producer_ids
from broker.controller.registration import BrokerIncarnation
from broker.network.later import Later
from broker.security.authorizer import Operation, cluster_refusal
from coordinator.transaction.producer_ids import BLOCK_SIZE
from protocol.errors import KafkaError
from protocol.messages.produce import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: AllocateProducerIdsRequest,
) -> AllocateProducerIdsResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.CLUSTER_ACTION)
    if refusal is not None:
        return AllocateProducerIdsResponse(error_code=refusal.error)
    broker = BrokerIncarnation(request.broker_id, request.broker_epoch)
    later: Later[AllocateProducerIdsResponse] = Later()

    def reply(first: int | KafkaError) -> None:
        if isinstance(first, KafkaError):
            later.reply(AllocateProducerIdsResponse(error_code=first.error))
        else:
            later.reply(AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE))

    later.waits_for(
        node.controller.submit(
            lambda image: allocate_producer_ids(image, broker), later.guarded(reply), later.fail
        )
    )
    return await later
