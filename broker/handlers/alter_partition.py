"""AlterPartition (56), versions 2 to 3, of a controller: leaders report which replicas are in sync (KIP-497).

v3: the members' broker epochs (KIP-903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.partition_requests import altered_partitions
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, cluster_refusal
from protocol.errors import KafkaError
from protocol.messages.broker_to_controller import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from broker.controller.controller import ControllerResult
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from protocol.waiting import Waiting


@runs_to_its_end
async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: AlterPartitionRequest,
) -> AlterPartitionResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.CLUSTER_ACTION)
    if refusal is not None:
        return AlterPartitionResponse(error_code=refusal.error)

    def decide(image: ClusterImage) -> Waiting[ControllerResult[AlterPartitionResponse]]:
        return altered_partitions(image, request, context.api_version, node.own_settings)

    answer = await node.controller.submit(decide)
    return AlterPartitionResponse(error_code=answer.error) if isinstance(answer, KafkaError) else answer
