"""Groups from outside: ListGroups, DescribeGroups, DeleteGroups (Kafka: `GroupMetadataManager`, `ClassicGroup`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from coordinator.group.classic.rebalance import join_key, sync_key
from coordinator.group.classic.states import DEAD, STABLE, Request, refuse_or_move
from coordinator.group.consumer.group import CONSUMER_PROTOCOL_TYPE
from coordinator.group.consumer.records import group_tombstones
from coordinator.group.records import AnyRecord, GroupRecord, OffsetRecord
from protocol.errors import Error
from protocol.messages.groups_admin import DescribedGroup, DescribedGroupMember, ListedGroup

if TYPE_CHECKING:
    from coordinator.group.shard import GroupShard

CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"
GROUP_ID_NOT_FOUND_VERSION = 6  # of DescribeGroups (KIP-1043)


def list_groups(shard: GroupShard, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """Groups in any of the states and of any of the types; no filter lets all through. Case doesn't matter."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {group_type.lower() for group_type in types}
    found = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            group_state=group.state.value,
            group_type=CONSUMER_TYPE,
        )
        for group in shard.consumer_groups.values()
    ]
    found += [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=CLASSIC_TYPE,
        )
        for group in shard.groups.values()
    ]
    return [
        group
        for group in found
        if (not wanted_states or group.group_state.lower() in wanted_states)
        and (not wanted_types or group.group_type in wanted_types)
    ]


def describe_group(shard: GroupShard, group_id: str, *, api_version: int) -> DescribedGroup:
    """Metadata of members and the protocol only where it is Stable; Dead where it isn't there."""
    group = shard.groups.get(group_id)
    if group is None:
        described = DescribedGroup(group_id=group_id, group_state=DEAD.value)
        if api_version >= GROUP_ID_NOT_FOUND_VERSION:
            described.error_code = Error.GROUP_ID_NOT_FOUND
            other = group_id in shard.other_groups or group_id in shard.consumer_groups
            described.error_message = (
                f"Group {group_id} {'is not a classic group' if other else 'not found'}."
            )
        return described
    protocol = group.protocol if group.state is STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.metadata(protocol),
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def delete_groups(shard: GroupShard, group_ids: Sequence[str]) -> list[Error]:
    """Each group's error, in their order; offsets go first, then the groups. Raises KafkaError where that can't be
    recorded."""
    errors = []
    records: list[AnyRecord] = []
    for group_id in group_ids:
        group = shard.groups.get(group_id)
        consumers = shard.consumer_groups.get(group_id)
        if consumers is not None:
            error = Error.NONE if consumers.is_empty else Error.NON_EMPTY_GROUP
        else:
            error = Error.GROUP_ID_NOT_FOUND if group is None else refuse_or_move(Request.DELETE, group.state)
        errors.append(error)
        if error is Error.NONE:
            records += [OffsetRecord(key, None) for key in shard.offsets.keys_of_group(group_id)]
            records += [GroupRecord(group_id, None)] if consumers is None else group_tombstones(consumers)
            for key in (join_key(group_id), sync_key(group_id)):
                shard.runtime.cancel(key)
    shard.commit(records)
    return errors
