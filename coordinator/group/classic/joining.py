"""JoinGroup, in Kafka's order of checks (facts of `GroupMetadataManager.classicGroupJoin`).

An answer may have to wait: it goes to `reply`, at once or when the rebalance is complete.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from coordinator.group.classic import rebalance
from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.member import ClassicMember, JoinReply, Protocols
from coordinator.group.classic.states import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    Move,
    Request,
    answer,
)
from coordinator.group.consumer.records import group_tombstones
from coordinator.group.records import AnyRecord, GroupRecord
from protocol.errors import Error, KafkaError
from protocol.messages.group_records import GroupMetadataValue
from protocol.messages.groups_classic import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from coordinator.group.shard import Client, GroupShard

log = logging.getLogger("barnabas.groups")

MEMBER_ID_FIRST_VERSION = 4  # KIP-394: a member gets its id first and joins with it
SKIP_ASSIGNMENT_VERSION = 9  # KIP-814


def join(shard: GroupShard, client: Client, request: JoinGroupRequest, reply: JoinReply) -> None:
    """Answers go to `reply`. Raises KafkaError where the creation of a group can't be recorded."""
    if not is_sound(shard, request, reply):
        return None
    if request.group_id in shard.other_groups:
        return _refuse(reply, "", Error.INCONSISTENT_GROUP_PROTOCOL)
    if client.api_version == 0:
        request.rebalance_timeout_ms = request.session_timeout_ms
    group = shard.groups.get(request.group_id)
    if group is None:
        if request.member_id:
            return _refuse(reply, request.member_id, Error.UNKNOWN_MEMBER_ID)
        group = _create(shard, request.group_id)
    if not _has_room(shard, group, request.member_id):
        # Not only refused: who is one too many and joins again is out.
        group.remove(request.member_id)
        return _refuse(reply, "", Error.GROUP_MAX_SIZE_REACHED)
    if request.member_id:
        return _join_known(shard, client, request, group, reply)
    return _join_new(shard, client, request, group, reply)


def is_sound(shard: GroupShard, request: JoinGroupRequest, reply: JoinReply) -> bool:
    """Whether the request makes sense, whatever group it is for; if not it is refused."""
    settings = shard.settings
    if not request.group_id:
        _refuse(reply, request.member_id, Error.INVALID_GROUP_ID)
        return False
    timeout_ms = request.session_timeout_ms
    if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
        _refuse(reply, request.member_id, Error.INVALID_SESSION_TIMEOUT)
        return False
    return True


def _refuse(reply: JoinReply, member_id: str, error: Error) -> None:
    reply(JoinGroupResponse(member_id=member_id, error_code=error))


def _create(shard: GroupShard, group_id: str) -> ClassicGroup:
    """A group is recorded as soon as somebody wants to join it, even where that fails then.

    An empty consumer group of this id ends thereby.
    """
    value = GroupMetadataValue(
        protocol=None, leader=None, current_state_timestamp=shard.runtime.now_ms(), members=[]
    )
    before = shard.consumer_groups.get(group_id)
    records: list[AnyRecord] = [] if before is None else group_tombstones(before)
    records.append(GroupRecord(group_id, value))
    shard.commit(records)
    return shard.groups[group_id]


def _has_room(shard: GroupShard, group: ClassicGroup, member_id: str) -> bool:
    """Whether `group.max.size` admits it. While members join, those that are parked count."""
    if group.state in (EMPTY, DEAD):
        return True
    member = group.members.get(member_id)
    if group.state is PREPARING:
        return (
            member is not None and member.join_reply is not None
        ) or group.parked_joins < shard.settings.max_size
    return member is not None or len(group.members) < shard.settings.max_size


def _protocols(request: JoinGroupRequest) -> Protocols:
    return [(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols]


# --- a new member -------------------------------------------------------------------------------------------


def _join_new(
    shard: GroupShard, client: Client, request: JoinGroupRequest, group: ClassicGroup, reply: JoinReply
) -> None:
    found = answer(Request.JOIN_NEW, group.state)
    if isinstance(found, Error):
        return _refuse(reply, "", found)
    if not group.supports(request.protocol_type, _protocols(request)):
        return _refuse(reply, "", Error.INCONSISTENT_GROUP_PROTOCOL)
    instance_id = request.group_instance_id
    name = client.client_id if instance_id is None else instance_id
    member_id = f"{name}-{_uuid_text(shard.runtime.new_uuid())}"
    if instance_id is not None:
        if instance_id in group.static_members:
            return _replace_static(shard, client, request, group, member_id, reply)
        return _add(shard, client, request, group, member_id, reply)
    if client.api_version >= MEMBER_ID_FIRST_VERSION:
        group.pending_joins[member_id] = None
        rebalance.watch_session(shard, group, member_id, request.session_timeout_ms)
        return _refuse(reply, member_id, Error.MEMBER_ID_REQUIRED)
    return _add(shard, client, request, group, member_id, reply)


def _uuid_text(uuid: bytes) -> str:
    """The text form of Java's UUID."""
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _add(
    shard: GroupShard,
    client: Client,
    request: JoinGroupRequest,
    group: ClassicGroup,
    member_id: str,
    reply: JoinReply,
) -> None:
    member = ClassicMember(
        member_id,
        request.group_instance_id,
        client.client_id,
        client.host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocol_type,
        _protocols(request),
    )
    member.is_new = True
    if group.state is PREPARING and group.previous_state is EMPTY:
        group.new_member_added = True
    group.add(member, reply)
    # It knows no member id yet, so it can't send heartbeats. If it went away we wouldn't see it either, and it would
    # come back under other ids: so its join has a time limit of its own.
    rebalance.restart_session(shard, group, member, shard.settings.new_member_join_timeout_ms)
    rebalance.rebalance_or_complete_join(shard, group, f"{member_id} joins; {request.reason or 'no reason'}")


# --- a member that is known ---------------------------------------------------------------------------------


def _join_known(
    shard: GroupShard, client: Client, request: JoinGroupRequest, group: ClassicGroup, reply: JoinReply
) -> None:
    member_id = request.member_id
    if group.state is DEAD:
        return _refuse(reply, member_id, Error.COORDINATOR_NOT_AVAILABLE)
    protocols = _protocols(request)
    if not group.supports(request.protocol_type, protocols):
        return _refuse(reply, member_id, Error.INCONSISTENT_GROUP_PROTOCOL)
    if member_id in group.pending_joins:
        if request.group_instance_id is not None:
            return _refuse(reply, "", Error.UNKNOWN_SERVER_ERROR)  # Kafka: an IllegalStateException
        return _add(shard, client, request, group, member_id, reply)
    error = group.check_member(member_id, request.group_instance_id)
    if error is not Error.NONE:
        return _refuse(reply, member_id, error)
    found = answer(Request.JOIN_KNOWN, group.state)
    if isinstance(found, Error):
        return _refuse(reply, member_id, found)
    member = group.members[member_id]
    if found is not Move.PARK and member.protocols == protocols:
        is_spared = found is Move.UNLESS_SAME or not group.is_leader(member_id)
        if is_spared:
            return reply(group.current_generation(member_id))
    group.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms, reply)
    return rebalance.rebalance_or_complete_join(
        shard, group, f"{member_id} joins again; {request.reason or 'no reason'}"
    )


# --- a static member that comes back ------------------------------------------------------------------------


def _replace_static(
    shard: GroupShard,
    client: Client,
    request: JoinGroupRequest,
    group: ClassicGroup,
    member_id: str,
    reply: JoinReply,
) -> None:
    """It takes its old place under a new id. In a stable group that keeps its protocol nobody else notices."""
    instance_id = request.group_instance_id
    assert instance_id is not None
    assert group.state not in (EMPTY, DEAD)
    old_id = group.static_members[instance_id]
    old_leader = group.leader_id
    before = group.members[old_id]
    kept = (before.protocols, before.rebalance_timeout_ms, before.session_timeout_ms)
    member = group.replace_static(instance_id, member_id)
    rebalance.restart_session(shard, group, member)
    group.update(member, _protocols(request), request.rebalance_timeout_ms, request.session_timeout_ms, reply)
    reason = f"the static member {instance_id} is back; {request.reason or 'no reason'}"
    if group.state is COMPLETING:
        # The leader may be assigning to the old id.
        return rebalance.prepare_rebalance(shard, group, reason)
    if group.state is not STABLE:
        return rebalance.complete_join_if_all_joined(shard, group)
    if group.vote() != group.protocol:
        return rebalance.rebalance_or_complete_join(shard, group, reason)
    assignments = {each.member_id: each.assignment for each in group.members.values()}
    try:
        shard.commit([GroupRecord(group.group_id, group.to_record(assignments))])
    except KafkaError as error:
        group.update(member, *kept, None)
        restored = group.replace_static(instance_id, old_id)
        rebalance.restart_session(shard, group, restored)
        return reply(
            JoinGroupResponse(
                generation_id=group.generation,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol,
                leader=old_leader or "",
                error_code=error.error,
            )
        )
    response = group.current_generation(member_id)
    if client.api_version >= SKIP_ASSIGNMENT_VERSION:
        response.skip_assignment = group.is_leader(member_id)
    else:
        # It would assign anew: let it believe that the old one leads.
        response.leader, response.members = old_leader or "", []
    return group.answer_join(member, response)
