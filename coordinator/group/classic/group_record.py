"""The record of a classic group: the group as it says it, and the group that it makes."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.member import ClassicMember, Identity, MemberTimeouts
from coordinator.group.classic.states import COMPLETING, EMPTY, STABLE
from coordinator.group.records import GroupRecord
from protocol.errors import CodecError
from protocol.messages.group_records import GroupMetadataValue, MemberMetadata


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupRecord:
    """The record of a group with the assignments that are to be, by member id."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol or ""),
                assignment=assignments[member.member_id],
            )
            for member in group.members.values()
        ],
    )
    return GroupRecord(group.group_id, value)


def group_from(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """The group as a restart finds it: Stable with members, else Empty. Raises CodecError for one that can't be."""
    check_members(group_id, value)
    group = ClassicGroup(group_id, value.current_state_timestamp)
    group.protocol_type = value.protocol_type or None
    group.protocol = value.protocol
    group.generation = value.generation
    if value.members:
        group.leader_id = value.leader
        group.state = STABLE
    for written in value.members:
        timeout_ms = written.rebalance_timeout
        member = ClassicMember(
            Identity(written.member_id, written.group_instance_id, written.client_id, written.client_host),
            MemberTimeouts(
                written.session_timeout, written.session_timeout if timeout_ms == -1 else timeout_ms
            ),
            value.protocol_type,
            [(value.protocol or "", written.subscription)],
        )
        member.assignment = written.assignment
        group.add(member)
    group.compute_subscribed_topics()
    return group


def check_members(group_id: str, value: GroupMetadataValue) -> None:
    """Raises CodecError where an id stands twice, or somebody leads who is no member.

    Kafka's load fails at the first, too; with the second its group fails at its next rebalance, and at each one after
    that (`ClassicGroup.maybeElectNewJoinedLeader`).
    """
    members = {member.member_id for member in value.members}
    if len(members) != len(value.members):
        raise CodecError(f"group {group_id!r} has a member twice")
    instances = [member.group_instance_id for member in value.members if member.group_instance_id is not None]
    if len({*instances}) != len(instances):
        raise CodecError(f"group {group_id!r} has two members of one instance id")
    if members and value.leader is not None and value.leader not in members:
        raise CodecError(f"group {group_id!r} is led by {value.leader!r}, who is no member of it")


def is_of_this_generation(group: ClassicGroup, value: GroupMetadataValue) -> bool:
    """Whether a record is one of the generation that is at work."""
    return value.generation == group.generation and {m.member_id for m in value.members} == {*group.members}


def adopt_record(group: ClassicGroup, value: GroupMetadataValue, now_ms: int) -> None:
    """Apply a record of the generation at work: what its members were assigned is theirs, and it is stable."""
    group.changes += 1
    for written in value.members:
        group.members[written.member_id].assignment = written.assignment
    if group.state is COMPLETING:
        group.move_to(STABLE, now_ms)
    elif group.state is EMPTY:
        group.protocol_type = value.protocol_type or None
        group.state_timestamp_ms = value.current_state_timestamp
