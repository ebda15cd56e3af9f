"""Metadata (3), versions 0 to 13.

v1: null means all topics, an empty list none; v4: AllowAutoTopicCreation; v8: authorized operations (v11 moves the
cluster's to DescribeCluster); v10: topic ids in answers; v12: topic ids in requests; v13: a top-level error.

If a request creates a topic, the answer waits until it exists and has LEADER_NOT_AVAILABLE; the client asks again.
Kafka answered so before KRaft; now it answers UNKNOWN_TOPIC_OR_PARTITION (see GAPS.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from broker.controller.image import (
    NO_LEADER,
    ListenerView,
    PartitionImage,
    TopicImage,
    invalid_name_reason,
    is_internal,
)
from broker.network.turns import PER_TURN, in_turns, portions
from broker.security.authorizer import (
    CLUSTER,
    CLUSTER_NAME,
    CREATE,
    DESCRIBE,
    TOPIC,
    Operation,
    authorized_operations,
)
from protocol.errors import Error
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.waiting import Pause, turn
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.config.broker_config import BrokerConfig
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.topic_requests import TopicRequests
    from broker.handlers.node_ports import ControllerPorts
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer


PARTITIONS_PER_TURN = 5_000
"""Partitions that one turn of the loop describes, at some 2.5 µs each."""
TOPIC_COST = 5
"""The cost of a topic itself, in partitions."""


class _Topics(NamedTuple):
    """Describes topics for one request."""

    metadata: MetadataLog
    view: ListenerView
    topics: TopicRequests
    authorizer: Authorizer
    context: RequestContext

    async def all(self) -> _Described:
        found, pause = _Described(), Pause(PARTITIONS_PER_TURN)
        for topic in [*self.metadata.image.topics.values()]:
            cost = TOPIC_COST
            if self._allows(DESCRIBE, topic.name, log_denied=False):
                found.known.append(self._described(topic))
                cost += len(topic.partitions)
            if pause.is_due(cost):
                await turn()
        return found

    async def by_id(self, ids: Sequence[bytes]) -> _Described:
        found, pause = _Described(), Pause(PARTITIONS_PER_TURN)
        for topic_id in ids:
            topic = self.metadata.image.topics_by_id.get(topic_id)
            if topic is None:
                found.unknown_ids.append(_refused(Error.UNKNOWN_TOPIC_ID, None, topic_id))
            elif self._allows(DESCRIBE, topic.name):
                found.known.append(self._described(topic))
            else:
                found.refused.append(_refused(Error.TOPIC_AUTHORIZATION_FAILED, None, topic_id))
            if pause.is_due(TOPIC_COST if topic is None else TOPIC_COST + len(topic.partitions)):
                await turn()
        return found

    async def by_name(self, asked: Sequence[MetadataRequestTopic], *, create: bool) -> _Described:
        """Describe topics by name. All entries have a name, and each name counts once.

        With `create` missing topics are created, a portion at a time. The answer waits for the commit, so that its
        reader finds them."""
        found, pause = _Described(), Pause(PARTITIONS_PER_TURN)
        seen: set[str | None] = set()
        for some in portions(asked):
            new = dict.fromkeys(topic.name for topic in some if topic.name not in seen)
            seen.update(new)
            names = cast("Sequence[str]", [*new])
            missing = await self._find_by_name(names, found, pause)
            if missing and create:
                missing = await self._create(missing, found)
            self._tell_missing(missing, found)
            if len(some) == PER_TURN:
                await turn()
        return found

    async def _find_by_name(self, names: Sequence[str], found: _Described, pause: Pause) -> Sequence[str]:
        """Describe the topics that exist. Returns the names of the missing ones."""
        missing = []
        for name in names:
            topic = self.metadata.image.topics.get(name)
            if not self._allows(DESCRIBE, name):  # the error mustn't tell whether the topic exists
                found.refused.append(_refused(Error.TOPIC_AUTHORIZATION_FAILED, name))
            elif topic is None:
                missing.append(name)  # it stays missing for this answer
            else:
                found.known.append(self._described(topic))
                if pause.is_due(len(topic.partitions)):
                    await turn()
        return missing

    async def _create(self, missing: Sequence[str], found: _Described) -> Sequence[str]:
        """Create topics, and wait for the commit. Returns the names that the client may create."""
        denied = self._not_to_be_created(missing)
        found.refused[:0] = [
            _refused(Error.TOPIC_AUTHORIZATION_FAILED, name, internal=is_internal(name)) for name in denied
        ]
        allowed = [name for name in missing if name not in denied]
        wanted = [name for name in allowed if invalid_name_reason(name) is None]
        if wanted:
            await self.topics.auto_create(wanted)
        return allowed

    def _tell_missing(self, missing: Sequence[str], found: _Described) -> None:
        for name in missing:
            error = Error.UNKNOWN_TOPIC_OR_PARTITION
            if name in self.metadata.image.topics:
                error = Error.LEADER_NOT_AVAILABLE
            elif invalid_name_reason(name) is not None:
                error = Error.INVALID_TOPIC_EXCEPTION
            found.missing.append(_refused(error, name, internal=is_internal(name)))

    def tell_operations(self, described: Sequence[MetadataResponseTopic]) -> None:
        """Add the operations that the client may do with each topic."""
        for topic in described:
            assert topic.name is not None
            topic.topic_authorized_operations = authorized_operations(
                self.authorizer, self.context, TOPIC, topic.name
            )

    def _not_to_be_created(self, names: Sequence[str]) -> Sequence[str]:
        """The names that the client may not create. A client that may create in the cluster may create any topic."""
        if self.authorizer.allows(self.context, CREATE, CLUSTER, CLUSTER_NAME, log_denied=False):
            return ()
        return [name for name in names if not self._allows(CREATE, name)]

    def _allows(self, operation: Operation, name: str, *, log_denied: bool = True) -> bool:
        return self.authorizer.allows(self.context, operation, TOPIC, name, log_denied=log_denied)

    def _described(self, topic: TopicImage) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            partitions=[self._partition(index, partition) for index, partition in topic.partitions.items()],
        )

    def _partition(self, index: int, partition: PartitionImage) -> MetadataResponsePartition:
        view = self.view
        leader = view.leader(partition)
        described = MetadataResponsePartition(
            error_code=Error.NONE if leader != NO_LEADER else self._without_leader(partition),
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            offline_replicas=view.offline_replicas(partition),
        )
        if self.context.api_version == 0:  # v0 has no list of offline replicas
            described.replica_nodes = view.reachable(partition.replicas)
            described.isr_nodes = view.reachable(partition.isr)
            is_short = len(described.replica_nodes) < len(partition.replicas) or len(
                described.isr_nodes
            ) < len(partition.isr)
            if leader != NO_LEADER and is_short:
                described.error_code = Error.REPLICA_NOT_AVAILABLE
        return described

    def _without_leader(self, partition: PartitionImage) -> Error:
        if self.context.api_version >= 6 and self.view.has_leader_elsewhere(partition):
            return Error.LISTENER_NOT_FOUND
        return Error.LEADER_NOT_AVAILABLE


class _Described:
    """The topics of an answer. `known` and `missing` ones are shown with their authorized operations."""

    def __init__(self, known: list[MetadataResponseTopic] | None = None) -> None:
        self.unknown_ids: list[MetadataResponseTopic] = []
        self.known: list[MetadataResponseTopic] = known or []
        self.missing: list[MetadataResponseTopic] = []
        self.refused: list[MetadataResponseTopic] = []

    def in_order(self) -> list[MetadataResponseTopic]:
        return self.unknown_ids + self.known + self.missing + self.refused


async def handle(
    node: ControllerPorts,
    context: RequestContext,
    request: MetadataRequest,
) -> MetadataResponse:
    view = ListenerView(node.metadata.image, context.listener_name)
    described = _Topics(node.metadata, view, node.topics, node.authorizer, context)
    return await _answer(described, _Cluster(node.cluster_id, node.node_id, node.config), request)


class _Cluster(NamedTuple):
    """The parts of an answer beside topics, and the settings that apply."""

    cluster_id: str
    controller_id: int
    """This node's id: any broker takes requests for the controller. Kafka names a random broker."""
    config: BrokerConfig


async def _answer(topics: _Topics, cluster: _Cluster, request: MetadataRequest) -> MetadataResponse:
    authorizer, context = topics.authorizer, topics.context
    version, asked = context.api_version, request.topics
    if asked is None or (version == 0 and not asked):
        found = await topics.all()
    else:
        if version < 12 and any(topic.name is None or topic.topic_id != ZERO_UUID for topic in asked):
            return _error(request, Error.INVALID_REQUEST)
        if any(topic.topic_id != ZERO_UUID for topic in asked):
            ids: dict[bytes, None] = {}
            await in_turns(
                asked,
                lambda some: ids.update(
                    (topic.topic_id, None) for topic in some if topic.topic_id != ZERO_UUID
                ),
            )
            found = await topics.by_id([*ids])
        elif any(topic.name is None for topic in asked):
            return _error(request, Error.UNKNOWN_SERVER_ERROR)
        else:
            create = request.allow_auto_topic_creation and cluster.config.get_boolean(
                "auto.create.topics.enable"
            )
            found = await topics.by_name(asked, create=create)
    response = MetadataResponse(
        cluster_id=cluster.cluster_id, controller_id=cluster.controller_id, brokers=[]
    )
    if 8 <= version <= 10 and request.include_cluster_authorized_operations:
        may_describe = authorizer.allows(context, DESCRIBE, CLUSTER, CLUSTER_NAME)
        response.cluster_authorized_operations = (
            authorized_operations(authorizer, context, CLUSTER, CLUSTER_NAME) if may_describe else 0
        )
    if version >= 8 and request.include_topic_authorized_operations:
        await in_turns(found.known + found.missing, topics.tell_operations)
    response.topics = found.in_order()
    response.brokers = [
        MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in topics.view.alive_nodes()
    ]
    return response


def _refused(
    error: Error, name: str | None, topic_id: bytes = ZERO_UUID, *, internal: bool = False
) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, is_internal=internal)


def _error(request: MetadataRequest, error: Error) -> MetadataResponse:
    """An error of the whole request. v13 has a field for it; before that each topic has the error."""
    return MetadataResponse(
        error_code=error,
        topics=[
            MetadataResponseTopic(error_code=error, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )
