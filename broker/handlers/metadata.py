"""Metadata (3), versions 0 to 13.

v1: null asks for all topics, an empty list for none; v4: AllowAutoTopicCreation; v8: authorized operations (v11 moves
the cluster's to DescribeCluster); v10: topic ids in answers; v12: questions by topic id; v13: a top-level error.

A topic that is created automatically is answered with UNKNOWN_TOPIC_OR_PARTITION all the same, as KRaft does, and is
there when the client asks again. No authorizer: every operation is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.controller.assigned_directories import offline_replicas
from broker.controller.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from broker.controller.image import NO_LEADER, PartitionImage, TopicImage
from broker.controller.topic_names import invalid_name_reason, is_internal
from protocol.errors import Error
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server


def handle(server: Server, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    version = context.api_version
    image = server.metadata.image
    asked = request.topics
    if asked is None or (version == 0 and not asked):
        topics = [_topic(server, topic) for topic in image.topics.values()]
    else:
        if version < 12 and any(topic.name is None or topic.topic_id != ZERO_UUID for topic in asked):
            return _error(request, Error.INVALID_REQUEST)
        by_id = dict.fromkeys(topic.topic_id for topic in asked if topic.topic_id != ZERO_UUID)
        if by_id:
            topics = _by_id(server, [*by_id])
        else:
            names = [*dict.fromkeys(topic.name for topic in asked)]
            if None in names:
                return _error(request, Error.UNKNOWN_SERVER_ERROR)
            create = request.allow_auto_topic_creation and server.config.get_boolean(
                "auto.create.topics.enable"
            )
            topics = _by_name(server, [name for name in names if name is not None], create)
    if version >= 8 and request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    response = MetadataResponse(
        cluster_id=server.cluster_id, controller_id=server.node_id, topics=topics, brokers=[]
    )
    endpoint = server.advertised_endpoint(context.listener_name)
    if endpoint is None:
        _take_node_away(server.node_id, topics, version)
    else:
        host, port = endpoint
        response.brokers.append(
            MetadataResponseBroker(node_id=server.node_id, host=host, port=port, rack=server.rack)
        )
    if 8 <= version <= 10 and request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _take_node_away(node_id: int, topics: list[MetadataResponseTopic], version: int) -> None:
    """By a listener that isn't advertised nobody finds this node (Kafka: `KRaftMetadataCache`)."""
    for topic in topics:
        for partition in topic.partitions:
            partition.offline_replicas = [node_id] if node_id in partition.replica_nodes else []
            if partition.leader_id == node_id:
                partition.leader_id = NO_LEADER
                partition.error_code = (
                    Error.LISTENER_NOT_FOUND if version >= 6 else Error.LEADER_NOT_AVAILABLE
                )
            if version == 0:
                partition.replica_nodes = [each for each in partition.replica_nodes if each != node_id]
                partition.isr_nodes = [each for each in partition.isr_nodes if each != node_id]


def _by_name(server: Server, names: list[str], create: bool) -> list[MetadataResponseTopic]:
    known, unknown, to_create = [], [], []
    for name in names:
        topic = server.metadata.image.topics.get(name)
        if topic is not None:
            known.append(_topic(server, topic))
            continue
        if invalid_name_reason(name) is not None:
            error = Error.INVALID_TOPIC_EXCEPTION
        else:
            error = Error.UNKNOWN_TOPIC_OR_PARTITION
            if create:
                to_create.append(name)
        unknown.append(MetadataResponseTopic(error_code=error, name=name, is_internal=is_internal(name)))
    if to_create:
        server.topics.auto_create(to_create)
    return known + unknown


def _by_id(server: Server, ids: list[bytes]) -> list[MetadataResponseTopic]:
    found = [(topic_id, server.metadata.image.topics_by_id.get(topic_id)) for topic_id in ids]
    unknown = [
        MetadataResponseTopic(error_code=Error.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        for topic_id, topic in found
        if topic is None
    ]
    return unknown + [_topic(server, topic) for _, topic in found if topic is not None]


def _topic(server: Server, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(server, index, partition) for index, partition in topic.partitions.items()],
    )


def _partition(server: Server, index: int, partition: PartitionImage) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=Error.NONE if partition.leader >= 0 else Error.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=offline_replicas(partition, server.node_id, server.log_dirs.ids),
    )


def _error(request: MetadataRequest, error: Error) -> MetadataResponse:
    """An error of the whole request: v13 has a place for it, before that each topic carries it."""
    return MetadataResponse(
        error_code=error,
        topics=[
            MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )
