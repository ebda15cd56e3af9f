"""SyncGroup, Heartbeat and LeaveGroup (Kafka: `GroupMetadataManager`, classicGroupSync and its neighbours)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from coordinator.group.classic import rebalance
from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.member import SyncReply
from coordinator.group.classic.states import DEAD, PREPARING, Move, Request, answer
from coordinator.group.records import GroupRecord
from protocol.errors import Error, KafkaError
from protocol.messages.groups_classic import (
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from coordinator.group.shard import GroupShard

log = logging.getLogger("barnabas.groups")


def _group_of_member(shard: GroupShard, request: SyncGroupRequest | HeartbeatRequest) -> ClassicGroup | Error:
    """The group, where whoever asks is a member of its generation; what speaks against it else, in Kafka's order."""
    if not request.group_id:
        return Error.INVALID_GROUP_ID
    group = shard.groups.get(request.group_id)
    if group is None:
        return Error.UNKNOWN_MEMBER_ID
    if group.state is DEAD:
        return Error.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not Error.NONE:
        return error
    if request.generation_id != group.generation:
        return Error.ILLEGAL_GENERATION
    return group


# --- SyncGroup ----------------------------------------------------------------------------------------------


def sync(shard: GroupShard, request: SyncGroupRequest, reply: SyncReply) -> None:
    """The leader brings the assignments, which are recorded and go to all; the others wait for them."""
    group = _group_of_member(shard, request)
    if isinstance(group, Error):
        return reply(SyncGroupResponse(error_code=group))
    if _is_of_another_protocol(group, request):
        return reply(SyncGroupResponse(error_code=Error.INCONSISTENT_GROUP_PROTOCOL))
    found = answer(Request.SYNC, group.state)
    if isinstance(found, Error):
        return reply(SyncGroupResponse(error_code=found))
    member = group.members[request.member_id]
    rebalance.has_synced(shard, group, member.member_id)
    if found is Move.ACCEPT:
        return reply(rebalance.assignment_of(group, member))
    member.sync_reply = reply
    if group.is_leader(member.member_id):
        _store_assignments(shard, group, request)
    return None


def _is_of_another_protocol(group: ClassicGroup, request: SyncGroupRequest) -> bool:
    return any(
        given is not None and ours is not None and given != ours
        for given, ours in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol),
        )
    )


def _store_assignments(shard: GroupShard, group: ClassicGroup, request: SyncGroupRequest) -> None:
    """Members that the leader left out get nothing, and ids that it made up are ignored."""
    given = {each.member_id: bytes(each.assignment) for each in request.assignments}
    assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
    try:
        shard.commit([GroupRecord(group.group_id, group.to_record(assignments))])
    except KafkaError as error:
        rebalance.answer_syncs(shard, group, error.error)
        rebalance.prepare_rebalance(shard, group, f"the assignments can't be recorded: {error}")
    else:
        rebalance.answer_syncs(shard, group, Error.NONE)


# --- Heartbeat ----------------------------------------------------------------------------------------------


def heartbeat(shard: GroupShard, request: HeartbeatRequest) -> Error:
    """A member lives. It does so, too, where it is told to join again."""
    group = _group_of_member(shard, request)
    if isinstance(group, Error):
        return group
    rebalance.restart_session(shard, group, group.members[request.member_id])
    found = answer(Request.HEARTBEAT, group.state)
    return found if isinstance(found, Error) else Error.NONE


# --- LeaveGroup ---------------------------------------------------------------------------------------------


def leave(shard: GroupShard, request: LeaveGroupRequest) -> tuple[Error, list[MemberResponse]]:
    """An error of the whole request, or each member with its own."""
    if not request.group_id:
        return Error.INVALID_GROUP_ID, []
    group = shard.groups.get(request.group_id)
    if group is None:
        return Error.NONE, [_left(identity, Error.UNKNOWN_MEMBER_ID) for identity in request.members]
    if group.state is DEAD:
        return Error.COORDINATOR_NOT_AVAILABLE, []
    answers = [_left(identity, _leave_one(shard, group, identity)) for identity in request.members]
    gone = [each.member_id for each in answers if each.error_code == Error.NONE]
    if gone:
        found = answer(Request.LEAVE, group.state)
        if found is Move.REBALANCE:
            rebalance.prepare_rebalance(shard, group, f"{gone} left")
        elif found is Move.COMPLETE_JOIN:
            assert group.state is PREPARING
            rebalance.complete_join_if_all_joined(shard, group)
    return Error.NONE, answers


def _left(identity: MemberIdentity, error: Error) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
    )


def _leave_one(shard: GroupShard, group: ClassicGroup, identity: MemberIdentity) -> Error:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if not member_id:
        # An administrator takes a static member out (KIP-345).
        if instance_id is None or instance_id not in group.static_members:
            return Error.UNKNOWN_MEMBER_ID
        member_id = group.static_members[instance_id]
    elif member_id not in group.pending_joins:
        error = group.check_member(member_id, instance_id)
        if error is not Error.NONE:
            return error
    shard.runtime.cancel(rebalance.session_key(group.group_id, member_id))
    member = group.members.get(member_id)
    if member is not None:
        group.answer_join(member, JoinGroupResponse(error_code=Error.UNKNOWN_MEMBER_ID))
    group.remove(member_id)
    log.info("group %s: %s left; %s", group.group_id, member_id, identity.reason or "no reason")
    return Error.NONE
