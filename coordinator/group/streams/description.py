"""StreamsGroupDescribe (Kafka: `StreamsGroup.asDescribedGroup`).

A deliberate difference: the numbers of partitions are shown as soon as they are decided. If the heartbeat
that decided them wrote no record, Kafka's snapshots only show them once something is written to the same
partition of `__consumer_offsets`.
"""

from __future__ import annotations

from coordinator.group.streams.group import StreamsGroup, StreamsMember
from coordinator.group.streams.tasks import described_offsets, described_tasks
from coordinator.settings import STICKY
from protocol.errors import Error, KafkaError
from protocol.messages.groups_streams import (
    DescribedAssignment,
    DescribedGroup,
    DescribedMember,
    DescribedTopology,
    Endpoint,
    KeyValue,
)


def describe_streams_group(group: StreamsGroup) -> DescribedGroup:
    """Describe a group. Raises KafkaError (UNKNOWN_SERVER_ERROR) if the log has no topology of it, as Kafka does."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
        assignor_name=STICKY,
    )


def _topology(group: StreamsGroup) -> DescribedTopology:
    """The topology with the numbers of partitions once all topics exist, before that as it was sent."""
    if group.configured is not None and group.configured.is_ready:
        return group.configured.described()
    if group.topology is None:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
    return group.topology.described()


def _member(group: StreamsGroup, member: StreamsMember) -> DescribedMember:
    endpoint, assigned = member.endpoint, member.assigned
    target, offsets = group.target_of(member.member_id), group.offsets_of(member.member_id)
    return DescribedMember(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.tags.items()],
        task_offsets=described_offsets(offsets.offsets),
        task_end_offsets=described_offsets(offsets.end_offsets),
        assignment=DescribedAssignment(
            active_tasks=described_tasks(assigned.active),
            standby_tasks=described_tasks(assigned.standby),
            warmup_tasks=described_tasks(assigned.warmup),
        ),
        target_assignment=DescribedAssignment(
            active_tasks=described_tasks(target.active),
            standby_tasks=described_tasks(target.standby),
            warmup_tasks=described_tasks(target.warmup),
        ),
    )
