"""StreamsGroupHeartbeat: members join with their topology, stay alive, get tasks and give them up (KIP-1071).

    admission → topology → target → reconciliation → records → answer

Each step decides by the group's current state. The records of one heartbeat are written together and then
applied. If there is much to decide, everything but the writing is done beside the loop: see `shard_parts.py`.

Source: `GroupMetadataManager` (streamsGroupHeartbeat, in its order; streamsGroupLeave, streamsGroupFenceMember).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from coordinator.group.classic.rebalancing import Rebalancing
from coordinator.group.consumer.states import (
    ACCEPTED,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    MemberEpochRelation,
)
from coordinator.group.member_memory import brought_by_streams_heartbeat
from coordinator.group.ports import Client, Deferred, KnownTopics
from coordinator.group.records import AnyRecord
from coordinator.group.shard_parts import DeferredHeartbeat, MemberSessions, ShardParts
from coordinator.group.streams.group import (
    StreamsGroup,
    StreamsMember,
    UserEndpoint,
    current_tasks_record,
    group_epoch_record,
    streams_member_replaced,
    streams_member_tombstones,
    target_tasks_epoch_record,
)
from coordinator.group.streams.states import StatusCode
from coordinator.group.streams.steps import (
    StreamsDecision,
    StreamsSessions,
    TaskReconciliationStep,
    TaskTargetStep,
    TopologyStep,
)
from coordinator.group.streams.tasks import OwnedTasks, TaskSets, told_tasks
from coordinator.group.streams.topology import ConfiguredSubtopology
from coordinator.java.maps import JavaMap, JavaSet
from coordinator.settings import RACK_TAGS, StreamsConfig
from protocol.errors import Error, KafkaError
from protocol.messages.groups_streams import (
    Endpoint,
    EndpointToPartitions,
    KeyValue,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TopicPartition,
)
from protocol.messages.topics import CreatableTopic

log = logging.getLogger("barnabas.groups")


# --- the answer -----------------------------------------------------------------------------------------------


class StreamsAnswer(NamedTuple):
    """An answer. `to_create` has the missing internal topics, by name. The broker creates them with the
    client's rights."""

    response: StreamsGroupHeartbeatResponse
    to_create: Mapping[str, CreatableTopic]
    heartbeat_interval_ms: int


# --- members that leave, or are fenced ------------------------------------------------------------------------


class StreamsLeaving:
    """Removes members from streams groups. The next heartbeat of any member computes a new assignment."""

    def __init__(self, parts: ShardParts, sessions: MemberSessions[StreamsMember]) -> None:
        self._store = parts.store
        self._journal = parts.journal
        self._sessions = sessions

    def leave(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        """Handle a heartbeat of epoch −1, or −2 from a static member that will come back.

        Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        group = self._store.streams_group(request.group_id)
        if request.shutdown_application:  # as in Kafka, even if the group doesn't know the member
            group.request_shutdown(request.member_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = _of_instance(group, request.instance_id, request.member_id)
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
            log.info("group %s: %s leaves for a while", group.group_id, member.member_id)
            self._journal.write([current_tasks_record(group.group_id, member.left_for_a_while())])
        else:
            log.info("group %s: %s leaves", group.group_id, member.member_id)
            self._fence(group, member.member_id)
        return StreamsGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch, status=[]
        )

    def fence_late(self, group_id: str, member_id: str, reason: str) -> None:
        """Fence a member whose time is over. Raises KafkaError if that can't be recorded."""
        group = self._store.streams.get(group_id)
        if group is None or member_id not in group.members:
            return
        log.info("group %s: %s is fenced: %s", group_id, member_id, reason)
        self._fence(group, member_id)

    def _fence(self, group: StreamsGroup, member_id: str) -> None:
        """Remove a member. Raises KafkaError if that can't be recorded."""
        group_id = group.group_id
        records = streams_member_tombstones(group_id, member_id)
        epoch = group.epoch + 1
        records.append(
            group_epoch_record(
                group, epoch, group.metadata_hash, group.validated_epoch, group.assignment_configs
            )
        )
        if len(group.members) == 1:  # no member is left to assign anything to (KAFKA-20442)
            records.append(target_tasks_epoch_record(group_id, epoch, 0))
        self._journal.write(records)
        self._sessions.cancel_all(group_id, member_id)


# --- which endpoint to ask for which partitions: what members with interactive queries hear of each other -----
#
# Source: `StreamsGroup.buildEndpointToPartitions`, `EndpointToPartitionsManager`. A deliberate difference:
# while the topics don't fit the topology nobody is listed, and a topic that doesn't exist is left out. Kafka
# answers UNKNOWN_SERVER_ERROR.


def partitions_by_endpoint(decision: StreamsDecision, topics: KnownTopics) -> list[EndpointToPartitions]:
    """The partitions of all members with an endpoint; the member that asks comes last."""
    asking, configured = decision.new, decision.configured
    if not configured.subtopologies:
        return []
    gone = (asking.member_id, decision.replaced_id)
    members = [member for member_id, member in decision.group.members.items() if member_id not in gone]
    return [
        EndpointToPartitions(
            user_endpoint=Endpoint(host=member.endpoint.host, port=member.endpoint.port),
            active_partitions=_partitions(member.assigned.active.items(), configured.subtopologies, topics),
            standby_partitions=_partitions(_copies(member).items(), configured.subtopologies, topics),
        )
        for member in (*members, asking)
        if member.endpoint is not None
    ]


def _partitions(
    tasks: Iterable[tuple[str, Iterable[int]]],
    subtopologies: Mapping[str, ConfiguredSubtopology],
    topics: KnownTopics,
) -> list[TopicPartition]:
    """All partitions that these tasks read, of topics of which they read any."""
    found = []
    for subtopology_id, task_ids in tasks:
        partitions = sorted(task_ids)
        subtopology = subtopologies.get(subtopology_id)
        for name in () if subtopology is None else subtopology.inputs():
            topic = topics.by_name(name)
            if topic is None:
                continue
            read = [partition for partition in partitions if partition < topic.partition_count]
            if read:
                found.append(TopicPartition(topic=name, partitions=read))
    return found


def _copies(member: StreamsMember) -> TaskSets:
    """The standby and warm-up tasks."""
    copies: TaskSets = JavaMap()
    for kind in (member.assigned.standby, member.assigned.warmup):
        for subtopology_id, partitions in kind.items():
            copies.compute_if_absent(subtopology_id, JavaSet()).update(partitions)
    return copies


# --- heartbeats -----------------------------------------------------------------------------------------------


class StreamsHeartbeats:
    """Handles the heartbeats of streams groups' members."""

    def __init__(self, parts: ShardParts, rebalancing: Rebalancing) -> None:
        self._parts = parts
        self._store = parts.store
        self._max_size = parts.settings.streams_max_size
        self._rebalancing = rebalancing
        self.sessions = StreamsSessions(parts, self._member_is_late)
        self._leaving = StreamsLeaving(parts, self.sessions)
        self._topology = TopologyStep(parts)
        self._target = TaskTargetStep(parts)
        self._reconciliation = TaskReconciliationStep(self.sessions)

    def _member_is_late(self, group_id: str, member_id: str, reason: str) -> None:
        self._leaving.fence_late(group_id, member_id, reason)

    def heartbeat(
        self, client: Client, request: StreamsGroupHeartbeatRequest
    ) -> StreamsAnswer | Deferred[StreamsAnswer]:
        """Return the answer, or a deferred heartbeat if there is much to decide. Raises KafkaError.

        Then the group hasn't changed.
        """
        config = self._parts.streams_config_of(request.group_id)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return StreamsAnswer(self._leaving.leave(request), {}, config.heartbeat_interval_ms)
        is_known = self._store.find(request.group_id) is not None
        decision = self._begun(client, request, config)
        decide = partial(self._decide, decision, client, request, is_known=is_known)
        if not self._is_little(decision, request):
            return LongStreamsHeartbeat(self._parts, self.sessions, decision, decide)
        answer = decide()
        decision.take_effect()
        self.sessions.restart(request.group_id, decision.old.member_id)
        self._parts.journal.write(decision.records)
        decision.was_written()
        return answer

    def _begun(
        self, client: Client, request: StreamsGroupHeartbeatRequest, config: StreamsConfig
    ) -> StreamsDecision:
        """Begin a decision with the member as the group knows it, and with the request's changes. If it has
        many tags, these are only applied during the decision. Raises KafkaError."""
        records: list[AnyRecord] = []
        effects: list[Callable[[], None]] = []
        group = self._group(request, records, effects)
        owned = OwnedTasks(request.active_tasks, request.standby_tasks, request.warmup_tasks)
        old, replaced = _member(group, request, owned, records)
        brought_bytes = brought_by_streams_heartbeat(request, client, group, old, self._parts.topics)
        if brought_bytes > 0:
            self._parts.member_memory.check(brought_bytes, self._parts.runtime.now_ms())
        new = old if has_many_tags(request) else _as_requested(old, client, request)
        is_static = request.instance_id is not None
        decision = StreamsDecision(group, config, owned, old, new, replaced, is_static, records)
        decision.effects += effects
        if replaced is not None:
            end = partial(self.sessions.cancel_all, request.group_id, replaced.member_id)
            decision.once_written.append(end)
        return decision

    def _is_little(self, decision: StreamsDecision, request: StreamsGroupHeartbeatRequest) -> bool:
        if has_many_tags(request):
            return False
        group = decision.group
        says_nothing = request.topology is None and decision.new == decision.old and not told_offsets(request)
        is_as_configured = decision.assignment_configs == group.assignment_configs
        knows_all = is_as_configured and group.endpoint_epoch == request.endpoint_information_epoch
        if says_nothing and knows_all and group.has_settled(decision.old, self._parts.runtime.now_ms()):
            return True
        return is_little(decision, request, self._parts.topics)

    def _decide(
        self,
        decision: StreamsDecision,
        client: Client,
        request: StreamsGroupHeartbeatRequest,
        *,
        is_known: bool,
    ) -> StreamsAnswer:
        """Decide, and return the answer. It is valid once the decision is taken. Only changes the decision.
        Raises KafkaError."""
        if has_many_tags(request):
            decision.new = _as_requested(decision.old, client, request)
        self._topology.take(decision, request)
        self._target.take(decision)
        self._reconciliation.take(decision)
        answer = self._answered(decision, client, request, is_known=is_known)
        decision.is_decided = True
        return answer

    def _group(
        self,
        request: StreamsGroupHeartbeatRequest,
        records: list[AnyRecord],
        effects: list[Callable[[], None]],
    ) -> StreamsGroup:
        """Get the group, or a new one, which replaces an empty classic group.

        Raises KafkaError: GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED.
        """
        group_id, joins = request.group_id, request.member_epoch == JOIN_EPOCH
        group = self._store.streams.get(group_id)
        if group is None:
            classic = self._store.classic.get(group_id)
            may_replace = classic is not None and joins and classic.is_empty and not len(classic.members)
            is_other = self._store.find(group_id) is not None
            if is_other and not may_replace:
                raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
            if not joins:
                raise KafkaError(Error.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
            if classic is not None:
                records += classic.tombstones()
                effects.append(partial(self._rebalancing.forget, group_id))
            group = StreamsGroup(group_id)
        is_member = request.member_id in group.members or request.instance_id in group.static_members
        if joins and len(group.members) >= self._max_size and not is_member:
            raise KafkaError(
                Error.GROUP_MAX_SIZE_REACHED,
                f"The streams group has reached its maximum capacity of {self._max_size} members.",
            )
        return group

    def _answered(
        self,
        decision: StreamsDecision,
        client: Client,
        request: StreamsGroupHeartbeatRequest,
        *,
        is_known: bool,
    ) -> StreamsAnswer:
        group, new, configured = decision.group, decision.new, decision.configured
        config = decision.config
        response = StreamsGroupHeartbeatResponse(
            member_id=new.member_id,
            member_epoch=new.epoch,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            task_offset_interval_ms=config.task_offset_interval_ms,
            acceptable_recovery_lag=config.acceptable_recovery_lag,
            status=decision.statuses,
        )
        endpoint_epoch = group.endpoint_epoch
        is_other = new.assigned != decision.old.assigned
        if new.endpoint != decision.old.endpoint or (is_other and new.endpoint is not None):
            endpoint_epoch += 1
        # An answer may have been lost. Kafka doesn't repeat it, and a member with nothing to give up stays
        # without those tasks.
        is_new = request.member_epoch == JOIN_EPOCH or is_other
        if is_new or decision.owned.lack_some_of(new.assigned):
            response.active_tasks = told_tasks(new.assigned.active)
            response.standby_tasks = told_tasks(new.assigned.standby)
            response.warmup_tasks = told_tasks(new.assigned.warmup)
        if endpoint_epoch != request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = partitions_by_endpoint(decision, self._parts.topics)
        response.endpoint_information_epoch = endpoint_epoch if is_known else 0
        problem = configured.problem
        if problem is not None:
            decision.statuses.append(
                Status(status_code=problem.status_code, status_detail=problem.status_detail)
            )
        asked = new.member_id if request.shutdown_application else None
        requested_by = group.shutdown_requested_by or asked
        if requested_by is not None:
            decision.tell(
                StatusCode.SHUTDOWN_APPLICATION,
                f"Streams group member {requested_by} encountered a fatal error and requested a shutdown for "
                "the entire application.",
            )
        missing = _missing_tags(decision.assignment_configs, new)
        if missing and client.api_version >= 1:
            decision.tell(
                StatusCode.MISSING_CLIENT_TAGS,
                f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. "
                "Configure them via 'client.tag.<tagKey>' in your Streams config.",
            )
        decision.effects.append(partial(_remember, group, endpoint_epoch, requested_by))
        return StreamsAnswer(response, configured.to_create, config.heartbeat_interval_ms)


def _missing_tags(assignment_configs: Mapping[str, str], member: StreamsMember) -> list[str]:
    """The keys of the tags that the group's settings require and the member lacks."""
    required = assignment_configs.get(RACK_TAGS)
    return [tag for tag in required.split(",") if tag not in member.tags] if required else []


def _remember(group: StreamsGroup, endpoint_epoch: int, requested_by: str | None) -> None:
    """Keep changes that no record has, including those that others have made meanwhile.

    For a group that doesn't exist yet nothing is kept, as in Kafka: another object replaces it.
    """
    group.endpoint_epoch = max(group.endpoint_epoch, endpoint_epoch)
    if requested_by is not None:
        group.request_shutdown(requested_by)


def _member(
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    owned: OwnedTasks,
    records: list[AnyRecord],
) -> tuple[StreamsMember, StreamsMember | None]:
    """Return the member as the group knows it, or a new one; and the static member that it replaces, if that
    has another id.

    Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH; UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID.
    """
    member_id, epoch, instance_id = request.member_id, request.member_epoch, request.instance_id
    if epoch == JOIN_EPOCH:
        before = None if instance_id is None else group.static_member(instance_id)
        if before is None:
            return group.members.get(member_id) or StreamsMember(member_id), None
        if not before.is_away:
            raise KafkaError(
                Error.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {before.member_id} member.",
            )
        member = before.taken_over_by(member_id)
        target = group.target_of(before.member_id)
        records += streams_member_replaced(group.group_id, before, member, target)
        return member, None if before.member_id == member_id else before
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = _of_instance(group, instance_id, member_id)
    relation = member.relation_of(epoch, owned)
    if not ACCEPTED[relation]:
        kind = "greater" if relation is MemberEpochRelation.NEWER else "smaller"
        raise KafkaError(
            Error.FENCED_MEMBER_EPOCH,
            f"The streams group member has a {kind} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
    return member, None


def _of_instance(group: StreamsGroup, instance_id: str, member_id: str) -> StreamsMember:
    """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            Error.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def _as_requested(
    member: StreamsMember, client: Client, request: StreamsGroupHeartbeatRequest
) -> StreamsMember:
    """The member with the request's changes. Null leaves a part as it was, except the endpoint of one that joins.

    Raises KafkaError (UNKNOWN_SERVER_ERROR) for a tag that is there twice.
    """
    endpoint, topology, timeout_ms = request.user_endpoint, request.topology, request.rebalance_timeout_ms
    known_endpoint = None if request.member_epoch == JOIN_EPOCH else member.endpoint
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        client_id=client.client_id,
        client_host=client.host,
        topology_epoch=member.topology_epoch if topology is None else topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        endpoint=known_endpoint if endpoint is None else UserEndpoint(endpoint.host, endpoint.port),
        tags=member.tags if request.client_tags is None else _tags(request.client_tags),
    )


def _tags(sent: Sequence[KeyValue]) -> JavaMap[str, str]:
    tags: JavaMap[str, str] = JavaMap()
    for tag in sent:
        if tag.key in tags:
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR)  # Kafka: an IllegalStateException
        tags[tag.key] = tag.value
    return tags


# --- long decisions: thousands of tasks or topics, or a large group -------------------------------------------

MOST_DECIDED_IN_PASSING = 10_000
"""The most work to decide at once: some 10 ms, in units of about a microsecond."""

_PER_TASK, _PER_TOPIC, _PER_MEMBER = 50, 80, 30
_PER_SETTING = 5
"""Per internal topic of the application."""
_PER_OFFSET = 2
_PER_TAG, _CHARACTERS = 10, 10
"""Per tag, and per this many characters of its key, which is hashed."""


def has_many_tags(request: StreamsGroupHeartbeatRequest) -> bool:
    """True if even looking at the member's tags takes long."""
    tags = request.client_tags or ()
    work = len(tags) * _PER_TAG
    if work <= MOST_DECIDED_IN_PASSING:
        work += sum([len(tag.key) for tag in tags]) // _CHARACTERS
    return work > MOST_DECIDED_IN_PASSING


def told_offsets(request: StreamsGroupHeartbeatRequest) -> int:
    """The number of reported offsets."""
    return len(request.task_offsets or ()) + len(request.task_end_offsets or ())


def is_little(decision: StreamsDecision, request: StreamsGroupHeartbeatRequest, topics: KnownTopics) -> bool:
    """True if the decision can be made at once. Estimating that costs far less than deciding."""
    group = decision.group
    work = (len(group.members) + 1) * _PER_MEMBER + told_offsets(request) * _PER_OFFSET
    sent = request.topology
    if sent is not None:
        for subtopology in sent.subtopologies:
            repartitions = subtopology.repartition_source_topics
            work += _PER_TOPIC * (1 + len(subtopology.source_topics) + len(repartitions))
            work += _PER_TOPIC * (
                len(subtopology.state_changelog_topics) + len(subtopology.repartition_sink_topics)
            )
            for topics_of in (repartitions, subtopology.state_changelog_topics):
                work += _PER_SETTING * sum([len(topic.topic_configs) for topic in topics_of])
    return (
        work <= MOST_DECIDED_IN_PASSING
        and work + task_count(group, request, topics) * _PER_TASK <= MOST_DECIDED_IN_PASSING
    )


def task_count(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, topics: KnownTopics) -> int:
    """The number of tasks. It is an estimate if the topology hasn't been checked yet: each subtopology counts
    as many as the largest source of all."""
    if group.configured is not None and group.configured.subtopologies:
        return sum(each.task_count for each in group.configured.subtopologies.values())
    sources: Iterable[str] = ()
    count = 0
    if group.topology is not None:
        sources, count = group.topology.sources, len(group.topology.subtopologies)
    elif request.topology is not None:
        subtopologies = request.topology.subtopologies
        sources, count = [name for each in subtopologies for name in each.source_topics], len(subtopologies)
    found = [topics.by_name(name) for name in sources]
    return count * max((topic.partition_count for topic in found if topic is not None), default=0)


class LongStreamsHeartbeat(DeferredHeartbeat[StreamsAnswer]):
    """A deferred heartbeat."""
