"""StreamsGroupDescribe (Kafka: `StreamsGroup.asDescribedGroup`).

A conscious difference: the partitions that were decided on are told as soon as they are. Where the heartbeat that
found them wrote no record, Kafka's snapshots show them once anything is written to the same partition of
`__consumer_offsets`.
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
    """Raises KafkaError (UNKNOWN_SERVER_ERROR) for a group that the log has no topology of, as Kafka does."""
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
    """With the partitions that were decided on, once all topics are there; as it was sent before."""
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
