"""DescribeQuorum (55), versions 0 to 2 (KIP-595): who leads and who votes over the cluster's metadata.

v1: timestamps (KIP-836); v2: directory ids and where the controllers are (KIP-853). There is one voter: we.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.pause import Pause
from broker.security.authorizer import AUTHORIZATION_FAILED, CLUSTER_NAME, Operation, ResourceType
from protocol.errors import Error
from protocol.messages.cluster_admin import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumReplica,
    QuorumTopic,
)
from protocol.wire.schema import ZERO_UUID
from storage.directory.log_directory import METADATA_TOPIC

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.metadata_log import MetadataLog
    from broker.environment.clock import Clock
    from broker.network.context import RequestContext
    from broker.network.endpoints import Endpoints
    from broker.network.later import Later
    from broker.network.turns import RequestSteps, Turns
    from broker.security.authorizer import Authorizer


def handle(
    node_id: int,
    config: BrokerConfig,
    metadata: MetadataLog,
    endpoints: Endpoints,
    clock: Clock,
    authorizer: Authorizer,
    turns: Turns,
    context: RequestContext,
    request: DescribeQuorumRequest,
) -> DescribeQuorumResponse | Later[DescribeQuorumResponse]:
    if not authorizer.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = Error.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=denied, error_message=AUTHORIZATION_FAILED[denied])
    if not _asks_for_metadata(request):
        return turns.answer(_unknown(request), context)
    now_ms = clock.now_ms()
    voters = metadata.quorum.voters
    directory_id = ZERO_UUID if voters is None else voters.voters[0].voter_directory_id
    voter = QuorumReplica(
        replica_id=node_id,
        replica_directory_id=directory_id,
        log_end_offset=metadata.log.log_end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    partition = QuorumPartition(
        error_message="",
        leader_id=node_id,
        leader_epoch=metadata.epoch,
        high_watermark=metadata.log.high_watermark,
        current_voters=[voter],
    )
    response = DescribeQuorumResponse(
        error_message="", topics=[QuorumTopic(topic_name=METADATA_TOPIC, partitions=[partition])]
    )
    if context.api_version >= 2:
        listener = _controller_listener(node_id, config, endpoints)
        response.nodes = [QuorumNode(node_id=node_id, listeners=[listener])]
    return response


def _asks_for_metadata(request: DescribeQuorumRequest) -> bool:
    """And for nothing else."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    (topic,) = request.topics
    return topic.topic_name == METADATA_TOPIC and topic.partitions[0].partition_index == 0


def _unknown(request: DescribeQuorumRequest) -> RequestSteps[DescribeQuorumResponse]:
    response = DescribeQuorumResponse(error_message="")
    pause = Pause()
    for topic in request.topics:
        if pause.is_due():
            yield None
        found = QuorumTopic(topic_name=topic.topic_name)
        response.topics.append(found)
        for partition in topic.partitions:
            if pause.is_due():
                yield None
            found.partitions.append(
                QuorumPartition(
                    partition_index=partition.partition_index,
                    error_code=Error.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message="This server does not host this topic-partition.",
                )
            )
    return response


def _controller_listener(node_id: int, config: BrokerConfig, endpoints: Endpoints) -> QuorumListener:
    """Where the configuration says that controllers are. Nothing listens there: the broker's listeners serve all."""
    name = config.get_list("controller.listener.names")[0]
    for voter in config.get_list("controller.quorum.voters"):
        voter_id, _, address = voter.partition("@")
        host, _, port = address.rpartition(":")
        if voter_id == str(node_id) and port.isdecimal():
            return QuorumListener(name=name, host=host.strip("[]"), port=int(port))
    host, port_number = endpoints.first_advertised
    return QuorumListener(name=name, host=host, port=port_number)
