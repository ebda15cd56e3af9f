"""AssignReplicasToDirs (73), version 0, of a controller: a broker reports which directories its replicas are in
(KIP-858)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.controller.partition_changes import (
    PartitionTerms,
    TopicIdPartition,
    Wish,
    leader_and_isr_updates,
    partition_change,
)
from broker.controller.partition_requests import ReplicaDirectory, assign_replicas
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import Operation, cluster_refusal
from protocol.errors import KafkaError
from protocol.messages.broker_to_controller import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse

if TYPE_CHECKING:
    from broker.controller.controller import ControllerResult
    from broker.controller.image import ClusterImage
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from protocol.waiting import Waiting
    from protocol.wire.schema import Message


@runs_to_its_end
async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: AssignReplicasToDirsRequest,
) -> AssignReplicasToDirsResponse:
    refusal = cluster_refusal(node.authorizer, context, Operation.CLUSTER_ACTION)
    if refusal is not None:
        return AssignReplicasToDirsResponse(error_code=refusal.error)

    def decide(image: ClusterImage) -> Waiting[ControllerResult[AssignReplicasToDirsResponse | KafkaError]]:
        own = node.own_settings
        terms = PartitionTerms(image, own)

        def change(of: ClusterImage, replica: ReplicaDirectory) -> Message | None:
            topic = of.topics_by_id[replica.topic_id]
            return partition_change(
                TopicIdPartition(replica.topic_id, replica.partition_index),
                topic.partitions[replica.partition_index],
                Wish(directories={replica.broker_id: replica.directory_id}),
                terms.of(topic),
            )

        return assign_replicas(image, request, change, partial(leader_and_isr_updates, own=own))

    answer = await node.controller.submit(decide)
    return AssignReplicasToDirsResponse(error_code=answer.error) if isinstance(answer, KafkaError) else answer
