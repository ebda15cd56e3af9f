"""StreamsGroupHeartbeat (88), versions 0 and 1 (KIP-1071).

As in Kafka 4.4, expressions for source topics and updates of a topology are refused with INVALID_REQUEST. Members are
never asked for a description of the topology, since no plugin stores it (KIP-1331). Comments in
`coordinator/group/streams` explain the conscious differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.controller.image import invalid_name_reason, is_internal
from broker.coordination.groups import client_of
from broker.handlers.consumer_group_heartbeat import check_text, invalid
from broker.security.authorizer import DESCRIBE, GROUP, READ, TOPIC, Operation, allows_on_cluster
from coordinator.group.consumer.states import JOIN_EPOCH, LEAVE_STATIC_EPOCH
from coordinator.group.streams.states import StatusCode
from protocol.errors import Error, KafkaError, answered_text
from protocol.messages.groups_streams import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from broker.coordination.internal_topics import InternalTopics
    from broker.handlers.node_ports import GroupPorts
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer
    from coordinator.group.streams.heartbeats import StreamsAnswer
    from protocol.messages.groups_streams import TaskIds, Topology

NAMED_REFUSALS = 3
ONE_KIND = "If one task-type is non-null, all must be non-null."


async def handle(
    node: GroupPorts,
    context: RequestContext,
    request: StreamsGroupHeartbeatRequest,
) -> StreamsGroupHeartbeatResponse:
    if not node.groups.serves_streams_groups:
        return _refused(KafkaError(Error.UNSUPPORTED_VERSION))
    if not node.authorizer.allows(context, READ, GROUP, request.group_id):
        return _refused(KafkaError(Error.GROUP_AUTHORIZATION_FAILED))
    try:
        if request.topology is not None:
            _check_topics(request.topology, node.authorizer, context)
        _check_supported(request)
        _check(request)
    except KafkaError as error:
        return _refused(error)
    client = client_of(context, node.authorizer)
    found = await node.groups.decide(request, lambda shard: shard.streams_heartbeat(client, request))
    if isinstance(found, KafkaError):
        return _refused(found)
    if found.to_create:
        _create(found, node.internal_topics, node.authorizer, context)
    for status in found.response.status or ():
        status.status_detail = answered_text(status.status_detail)
    return found.response


def _refused(error: KafkaError) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=error.error, error_message=error.message)


# --- checks of the request on its own -----------------------------------------------------------------------


def _check_topics(topology: Topology, authorizer: Authorizer, context: RequestContext) -> None:
    """Check the topics of a topology. Raises KafkaError: STREAMS_INVALID_TOPOLOGY, TOPIC_AUTHORIZATION_FAILED."""
    names: dict[str, None] = {}
    for subtopology in topology.subtopologies:
        names |= dict.fromkeys(subtopology.source_topics)
        names |= dict.fromkeys(subtopology.repartition_sink_topics)
        names |= dict.fromkeys(topic.name for topic in subtopology.repartition_source_topics)
        names |= dict.fromkeys(topic.name for topic in subtopology.state_changelog_topics)
    internal = [name for name in names if is_internal(name)]
    if internal:
        raise KafkaError(
            Error.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited.",
        )
    illegal = [name for name in names if invalid_name_reason(name) is not None]
    if illegal:
        raise KafkaError(
            Error.STREAMS_INVALID_TOPOLOGY, f"Topic names {','.join(illegal)} are not valid topic names."
        )
    for name in names:
        if not authorizer.allows(context, DESCRIBE, TOPIC, name):
            raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)


def _check_supported(request: StreamsGroupHeartbeatRequest) -> None:
    """Refuse what this version of Kafka doesn't support yet. Raises KafkaError(INVALID_REQUEST)."""
    if request.topology is not None:
        for subtopology in request.topology.subtopologies:
            if subtopology.source_topic_regex:
                raise invalid("Regular expressions for source topics are not supported yet.")


def _check(request: StreamsGroupHeartbeatRequest) -> None:
    """Check the request on its own. Raises KafkaError: INVALID_REQUEST, STREAMS_INVALID_TOPOLOGY."""
    epoch, topology = request.member_epoch, request.topology
    check_text("MemberId", request.member_id)
    check_text("GroupId", request.group_id)
    check_text("InstanceId", request.instance_id)
    check_text("RackId", request.rack_id)
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise invalid("RebalanceTimeoutMs must be provided in first request.")
        _check_none_owned("ActiveTasks", request.active_tasks)
        _check_none_owned("StandbyTasks", request.standby_tasks)
        _check_none_owned("WarmupTasks", request.warmup_tasks)
        if topology is None:
            raise invalid("Topology must be non-null when (re-)joining.")
        _check_changelogs(topology)
    elif epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise invalid(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    kinds = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(kind is not None for kind in kinds) and any(kind is None for kind in kinds):
        raise invalid(ONE_KIND)
    if epoch != JOIN_EPOCH and topology is not None:
        raise invalid("Topology can only be provided when (re-)joining.")


def _check_none_owned(name: str, tasks: Sequence[TaskIds] | None) -> None:
    if tasks is None or tasks:
        raise invalid(f"{name} must be empty when (re-)joining.")


def _check_changelogs(topology: Topology) -> None:
    for subtopology in topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                raise KafkaError(
                    Error.STREAMS_INVALID_TOPOLOGY,
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}.",
                )


# --- internal topics ----------------------------------------------------------------------------------------


def _create(
    answer: StreamsAnswer,
    internal_topics: InternalTopics,
    authorizer: Authorizer,
    context: RequestContext,
) -> None:
    """Create the missing internal topics in the client's name, if it may create all of them. This doesn't wait.

    The answer's status says what the client may not create, and from the next heartbeat on why creation failed."""
    status = answer.response.status
    assert status is not None
    missing = next(each for each in status if each.status_code == StatusCode.MISSING_INTERNAL_TOPICS)
    if not allows_on_cluster(authorizer, context, Operation.CREATE, log_denied=False):
        denied = [
            name for name in answer.to_create if not authorizer.allows(context, Operation.CREATE, TOPIC, name)
        ]
        if denied:
            missing.status_detail += f"; Unauthorized to CREATE on topics {', '.join(denied)}."
            return
    refusals = internal_topics.refusals_of(answer.to_create)
    if refusals:
        shown = ", ".join(f"{name} ({text})" for name, text in refusals[:NAMED_REFUSALS])
        if len(refusals) > NAMED_REFUSALS:
            shown += f" and {len(refusals) - NAMED_REFUSALS} more"
        missing.status_detail += f"; Creation failed: {shown}."
    internal_topics.create(answer.to_create, 2 * answer.heartbeat_interval_ms)
