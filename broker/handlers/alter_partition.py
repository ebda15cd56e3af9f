"""AlterPartition (56), versions 2 to 3, of a controller: what leaders say of who is in sync (KIP-497).

v3: the members' broker epochs (KIP-903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.partition_requests import altered_partitions
from broker.network.later import Later
from broker.security.authorizer import Operation, cluster_refusal
from protocol.errors import KafkaError
from protocol.messages.broker_to_controller import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from broker.controller.controller import ControllerResult
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from protocol.waiting import Waiting


async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: AlterPartitionRequest,
) -> AlterPartitionResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.CLUSTER_ACTION)
    if refusal is not None:
        return AlterPartitionResponse(error_code=refusal.error)
    later: Later[AlterPartitionResponse] = Later()

    def decide(image: ClusterImage) -> Waiting[ControllerResult[AlterPartitionResponse]]:
        return altered_partitions(image, request, context.api_version, node.own_settings)

    def reply(answer: AlterPartitionResponse | KafkaError) -> None:
        later.reply(
            AlterPartitionResponse(error_code=answer.error) if isinstance(answer, KafkaError) else answer
        )

    later.waits_for(node.controller.submit(decide, later.guarded(reply), later.fail))
    return await later
