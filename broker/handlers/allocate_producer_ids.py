"""AllocateProducerIds (67), version 0, of a controller: a block of producer ids for a broker (KIP-730). No two brokers
ever get the same block.

Source: `ProducerIdControlManager.generateNextProducerId`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.broker_records import BrokerIncarnation, check_broker_epoch
from broker.controller.controller import ControllerResult
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, cluster_refusal
from coordinator.transaction.producer_ids import BLOCK_SIZE
from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import ProducerIdsRecord
from protocol.messages.produce import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext


LAST_PRODUCER_ID = (1 << 63) - 1  # Long.MAX_VALUE


def allocate_producer_ids(
    image: ClusterImage, broker: BrokerIncarnation, size: int = BLOCK_SIZE
) -> ControllerResult[int | KafkaError]:
    """Decide on the next block; the answer is its first id.

    Raises KafkaError: STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR if too few ids are left.
    """
    check_broker_epoch(image, broker)
    first = image.next_producer_id
    if first > LAST_PRODUCER_ID - size:
        raise KafkaError(
            Error.UNKNOWN_SERVER_ERROR,
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit",
        )
    record = ProducerIdsRecord(
        broker_id=broker.node_id, broker_epoch=broker.broker_epoch, next_producer_id=first + size
    )
    return ControllerResult([record], lambda error: first if error is None else error)


@runs_to_its_end
async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: AllocateProducerIdsRequest,
) -> AllocateProducerIdsResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.CLUSTER_ACTION)
    if refusal is not None:
        return AllocateProducerIdsResponse(error_code=refusal.error)
    broker = BrokerIncarnation(request.broker_id, request.broker_epoch)
    first = await node.controller.submit(lambda image: allocate_producer_ids(image, broker))
    if isinstance(first, KafkaError):
        return AllocateProducerIdsResponse(error_code=first.error)
    return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)
