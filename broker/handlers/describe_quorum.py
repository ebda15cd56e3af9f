"""DescribeQuorum (55), versions 0 to 2 (KIP-595): who leads and who votes over the cluster's metadata.

v1: timestamps (KIP-836); v2: directory ids and where the controllers are (KIP-853). There is one voter: we.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from broker.security.authorizer import Authorizer


def handle(
    node_id: int,
    config: BrokerConfig,
    metadata: MetadataLog,
    endpoints: Endpoints,
    clock: Clock,
    authorizer: Authorizer,
    context: RequestContext,
    request: DescribeQuorumRequest,
) -> DescribeQuorumResponse:
    if not authorizer.allows(context, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        denied = Error.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=denied, error_message=AUTHORIZATION_FAILED[denied])
    named = [(topic.topic_name, [p.partition_index for p in topic.partitions]) for topic in request.topics]
    if named != [(METADATA_TOPIC, [0])]:
        return DescribeQuorumResponse(
            error_message="",
            topics=[
                QuorumTopic(
                    topic_name=name,
                    partitions=[
                        QuorumPartition(
                            partition_index=index,
                            error_code=Error.UNKNOWN_TOPIC_OR_PARTITION,
                            error_message="This server does not host this topic-partition.",
                        )
                        for index in indexes
                    ],
                )
                for name, indexes in named
            ],
        )
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
