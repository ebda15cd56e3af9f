"""SyncGroup, Heartbeat and LeaveGroup (Kafka: `GroupMetadataManager`, classicGroupSync and its neighbours)."""

from __future__ import annotations

import logging

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.group_record import group_record
from coordinator.group.classic.member import SyncReply
from coordinator.group.classic.rebalancing import Rebalancing, assignment_of, some_of
from coordinator.group.classic.states import ANSWERS, DEAD, PREPARING, Effect, Request, answer_of
from coordinator.group.member_memory import assignments_bytes
from coordinator.group.parts import ShardParts
from protocol.errors import Error, KafkaError
from protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

log = logging.getLogger("barnabas.groups")

_HEARTBEAT_ANSWERS = ANSWERS[Request.HEARTBEAT]  # the request that comes most often looks up but once


class Membership:
    """Members of classic groups after their join."""

    def __init__(self, parts: ShardParts, rebalancing: Rebalancing) -> None:
        self._groups = parts.store.classic
        self._runtime = parts.runtime
        self._journal = parts.journal
        self._member_memory = parts.member_memory
        self._rebalancing = rebalancing
        self._sessions = rebalancing.sessions

    def _group_of_member(self, request: SyncGroupRequest | HeartbeatRequest) -> ClassicGroup | Error:
        """The group, where whoever asks is a member of its generation; else what speaks against it."""
        if not request.group_id:
            return Error.INVALID_GROUP_ID
        group = self._groups.get(request.group_id)
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

    # --- SyncGroup ------------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, reply: SyncReply) -> None:
        """The leader brings the assignments, which are recorded and go to all; the others wait for them."""
        group = self._group_of_member(request)
        if isinstance(group, Error):
            return reply(SyncGroupResponse(error_code=group))
        if _is_of_another_protocol(group, request):
            return reply(SyncGroupResponse(error_code=Error.INCONSISTENT_GROUP_PROTOCOL))
        found = answer_of(Request.SYNC, group.state)
        if isinstance(found, Error):
            return reply(SyncGroupResponse(error_code=found))
        member = group.members[request.member_id]
        self._rebalancing.has_synced(group, member.member_id)
        if found is Effect.ACCEPT:
            return reply(assignment_of(group, member))
        member.sync_reply = reply
        if group.is_leader(member.member_id):
            self._store_assignments(group, request)
        return None

    def _store_assignments(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        """Members that the leader left out get nothing, and ids that it made up are ignored."""
        given = {each.member_id: bytes(each.assignment) for each in request.assignments}
        assignments = {member_id: given.get(member_id, b"") for member_id in group.members}
        held_bytes = assignments_bytes([member.assignment for member in group.members.values()])
        brought_bytes = assignments_bytes(assignments.values()) - held_bytes
        try:
            self._member_memory.check(brought_bytes, self._runtime.now_ms())
            self._journal.write([group_record(group, assignments)])
        except KafkaError as error:
            self._rebalancing.answer_syncs(group, error.error)
            self._rebalancing.prepare_rebalance(group, f"the assignments can't be recorded: {error}")
        else:
            self._rebalancing.answer_syncs(group, Error.NONE)

    # --- Heartbeat ------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest) -> Error:
        """A member lives; so does one that is told to join again."""
        group = self._group_of_member(request)
        if isinstance(group, Error):
            return group
        self._sessions.restart(request.group_id, group.members[request.member_id])
        found = _HEARTBEAT_ANSWERS[group.state]
        return found if isinstance(found, Error) else Error.NONE

    # --- LeaveGroup -----------------------------------------------------------------------------------------

    def leave(self, request: LeaveGroupRequest) -> tuple[Error, list[MemberResponse]]:
        """An error of the whole request, or each member with its own."""
        if not request.group_id:
            return Error.INVALID_GROUP_ID, []
        group = self._groups.get(request.group_id)
        if group is None:
            return Error.NONE, [_left(identity, Error.UNKNOWN_MEMBER_ID) for identity in request.members]
        if group.state is DEAD:
            return Error.COORDINATOR_NOT_AVAILABLE, []
        answers = [_left(identity, self._leave_one(group, identity)) for identity in request.members]
        gone = [each.member_id for each in answers if each.error_code == Error.NONE]
        if gone:
            found = answer_of(Request.LEAVE, group.state)
            if found is Effect.REBALANCE:
                self._rebalancing.prepare_rebalance(group, f"{some_of(gone)} left")
            elif found is Effect.COMPLETE_JOIN:
                assert group.state is PREPARING
                self._rebalancing.complete_join_if_all_joined(group)
        return Error.NONE, answers

    def _leave_one(self, group: ClassicGroup, identity: MemberIdentity) -> Error:
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
        self._sessions.end(group.group_id, member_id)
        member = group.members.get(member_id)
        if member is not None:
            group.answer_join(member, JoinGroupResponse(error_code=Error.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        log.info("group %s: %s left; %s", group.group_id, member_id, identity.reason or "no reason")
        return Error.NONE


def _is_of_another_protocol(group: ClassicGroup, request: SyncGroupRequest) -> bool:
    return any(
        given is not None and ours is not None and given != ours
        for given, ours in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol),
        )
    )


def _left(identity: MemberIdentity, error: Error) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
    )
