"""Requests of members of classic groups: JoinGroup, in Kafka's order of checks, SyncGroup, Heartbeat and
LeaveGroup.

An answer comes at once, or when the rebalance is complete. Source: `GroupMetadataManager` (classicGroupJoin,
classicGroupSync and its neighbours).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from coordinator.group.classic.group import (
    ClassicGroup,
    ClassicMember,
    Identity,
    MemberTimeouts,
    Protocols,
    group_record,
)
from coordinator.group.classic.rebalancing import Rebalancing, assignment_of, some_of
from coordinator.group.classic.states import (
    ANSWERS,
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    Effect,
    Request,
    answer_of,
)
from coordinator.group.member_memory import assignments_bytes, brought_by_join, classic_group_bytes
from coordinator.group.ports import Client
from coordinator.group.records import AnyRecord, GroupRecord
from coordinator.group.shard_parts import ShardParts
from protocol.errors import Error, KafkaError
from protocol.messages.group_records import GroupMetadataValue
from protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.waiting import Later

log = logging.getLogger("barnabas.groups")


# --- JoinGroup ------------------------------------------------------------------------------------------------

MEMBER_ID_FIRST_VERSION = 4  # KIP-394: a member gets its id first and joins with it


class Join(NamedTuple):
    """A JoinGroup request. It is answered exactly once: at once, or when the rebalance is complete."""

    client: Client
    request: JoinGroupRequest
    answer: Later[JoinGroupResponse]

    @property
    def group_id(self) -> str:
        return self.request.group_id

    @property
    def member_id(self) -> str:
        """The member id in the request; a new member has none."""
        return self.request.member_id

    @property
    def instance_id(self) -> str | None:
        return self.request.group_instance_id

    @property
    def timeouts(self) -> MemberTimeouts:
        """In version 0 the session timeout is also the rebalance timeout."""
        session_timeout_ms = self.request.session_timeout_ms
        if self.client.api_version == 0:
            return MemberTimeouts(session_timeout_ms, session_timeout_ms)
        return MemberTimeouts(session_timeout_ms, self.request.rebalance_timeout_ms)

    @property
    def reason(self) -> str:
        return self.request.reason or "no reason"

    @property
    def needs_member_id_first(self) -> bool:
        return self.client.api_version >= MEMBER_ID_FIRST_VERSION

    def protocols(self) -> Protocols:
        return [(protocol.name, bytes(protocol.metadata)) for protocol in self.request.protocols]

    def refuse(self, member_id: str, error: Error) -> None:
        self.answer.reply(JoinGroupResponse(member_id=member_id, error_code=error))


SKIP_ASSIGNMENT_VERSION = 9  # KIP-814


class Joining:
    """Handles JoinGroup for classic groups."""

    def __init__(self, parts: ShardParts, rebalancing: Rebalancing) -> None:
        self._store = parts.store
        self._runtime = parts.runtime
        self._journal = parts.journal
        self._settings = parts.settings
        self._member_memory = parts.member_memory
        self._rebalancing = rebalancing
        self._sessions = rebalancing.sessions

    def join(self, join: Join) -> None:
        """Raises KafkaError if a new group can't be recorded."""
        if not self.is_sound(join):
            return None
        streams = self._store.streams.get(join.group_id)
        if join.group_id in self._store.share or (streams is not None and not streams.is_empty):
            return join.refuse("", Error.INCONSISTENT_GROUP_PROTOCOL)
        group = self._store.classic.get(join.group_id)
        if group is None and join.member_id:
            return join.refuse(join.member_id, Error.UNKNOWN_MEMBER_ID)
        if group is not None and not self._has_room(group, join.member_id):
            # It isn't only refused: a member beyond the maximum that joins again is removed.
            group.remove(join.member_id)
            return join.refuse("", Error.GROUP_MAX_SIZE_REACHED)
        name = join.member_id or join.instance_id or join.client.client_id
        known = None if group is None else group.members.get(join.member_id)
        brought_bytes = brought_by_join(join.request, name, known)
        if group is None:
            brought_bytes += classic_group_bytes(join.group_id)
        if not self._member_memory.admits(brought_bytes, self._runtime.now_ms()):
            return join.refuse(join.member_id, Error.GROUP_MAX_SIZE_REACHED)
        if group is None:
            group = self._create(join.group_id)
        if join.member_id:
            return self._join_known(join, group)
        return self._join_new(join, group)

    def is_sound(self, join: Join) -> bool:
        """Check the request, whatever group it is for. If it makes no sense, refuse it and return False."""
        settings = self._settings
        if not join.group_id:
            join.refuse(join.member_id, Error.INVALID_GROUP_ID)
            return False
        timeout_ms = join.request.session_timeout_ms
        if not settings.min_session_timeout_ms <= timeout_ms <= settings.max_session_timeout_ms:
            join.refuse(join.member_id, Error.INVALID_SESSION_TIMEOUT)
            return False
        return True

    def _create(self, group_id: str) -> ClassicGroup:
        """Create a group and record it. It stays even if the join fails then.

        An empty consumer or streams group with this id ends.
        """
        value = GroupMetadataValue(
            protocol=None, leader=None, current_state_timestamp=self._runtime.now_ms(), members=[]
        )
        before = self._store.consumer.get(group_id) or self._store.streams.get(group_id)
        records: list[AnyRecord] = [] if before is None else before.tombstones()
        records.append(GroupRecord(group_id, value))
        self._journal.write(records)
        return self._store.classic[group_id]

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """True if `group.max.size` admits the member. While members join, the parked ones count."""
        limit = self._settings.max_size
        if group.state in (EMPTY, DEAD):
            return True
        member = group.members.get(member_id)
        if group.state is PREPARING:
            is_parked = member is not None and member.join_reply is not None
            return is_parked or group.parked_joins < limit
        return member is not None or len(group.members) < limit

    # --- a new member ---------------------------------------------------------------------------------------

    def _join_new(self, join: Join, group: ClassicGroup) -> None:
        found = answer_of(Request.JOIN_NEW, group.state)
        if isinstance(found, Error):
            return join.refuse("", found)
        if not group.supports(join.request.protocol_type, join.protocols()):
            return join.refuse("", Error.INCONSISTENT_GROUP_PROTOCOL)
        instance_id = join.instance_id
        name = join.client.client_id if instance_id is None else instance_id
        member_id = f"{name}-{_uuid_text(self._runtime.new_uuid())}"
        if instance_id is not None:
            if instance_id in group.static_members:
                return self._replace_static(join, group, instance_id, member_id)
            return self._add(join, group, member_id)
        if join.needs_member_id_first:
            group.pending_joins[member_id] = None
            self._sessions.watch(group.group_id, member_id, join.request.session_timeout_ms)
            return join.refuse(member_id, Error.MEMBER_ID_REQUIRED)
        return self._add(join, group, member_id)

    def _add(self, join: Join, group: ClassicGroup, member_id: str) -> None:
        client = join.client
        member = ClassicMember(
            Identity(member_id, join.instance_id, client.client_id, client.host),
            join.timeouts,
            join.request.protocol_type,
            join.protocols(),
        )
        member.is_new = True
        if group.state is PREPARING and group.previous_state is EMPTY:
            group.new_member_added = True
        group.add(member, join.answer)
        # It knows no member id yet, so it can't send heartbeats. If it went away we wouldn't notice, and it
        # would come back under other ids. So its join has a time limit of its own.
        self._sessions.watch(group.group_id, member.member_id, self._settings.new_member_join_timeout_ms)
        self._rebalancing.rebalance_or_complete_join(group, f"{member_id} joins; {join.reason}")

    # --- a member that is known -----------------------------------------------------------------------------

    def _join_known(self, join: Join, group: ClassicGroup) -> None:
        member_id = join.member_id
        if group.state is DEAD:
            return join.refuse(member_id, Error.COORDINATOR_NOT_AVAILABLE)
        protocols = join.protocols()
        if not group.supports(join.request.protocol_type, protocols):
            return join.refuse(member_id, Error.INCONSISTENT_GROUP_PROTOCOL)
        if member_id in group.pending_joins:
            if join.instance_id is not None:
                return join.refuse("", Error.UNKNOWN_SERVER_ERROR)  # Kafka: an IllegalStateException
            return self._add(join, group, member_id)
        error = group.check_member(member_id, join.instance_id)
        if error is not Error.NONE:
            return join.refuse(member_id, error)
        found = answer_of(Request.JOIN_KNOWN, group.state)
        if isinstance(found, Error):
            return join.refuse(member_id, found)
        member = group.members[member_id]
        if found is not Effect.PARK and member.protocols == protocols:
            is_spared = found is Effect.UNLESS_SAME or not group.is_leader(member_id)
            if is_spared:
                return join.answer.reply(group.current_generation(member_id))
        group.update(member, protocols, join.timeouts, join.answer)
        return self._rebalancing.rebalance_or_complete_join(group, f"{member_id} joins again; {join.reason}")

    # --- a static member that comes back --------------------------------------------------------------------

    def _replace_static(self, join: Join, group: ClassicGroup, instance_id: str, member_id: str) -> None:
        """Give the member its old place under a new id. In a stable group that keeps its protocol nobody else
        notices."""
        assert group.state not in (EMPTY, DEAD)
        old_id = group.static_members[instance_id]
        old_leader = group.leader_id
        before = group.members[old_id]
        kept = (before.protocols, before.timeouts)
        member = group.replace_static(instance_id, member_id)
        self._sessions.restart(group.group_id, member)
        group.update(member, join.protocols(), join.timeouts, join.answer)
        reason = f"the static member {instance_id} is back; {join.reason}"
        if group.state is COMPLETING:
            # The leader may be computing an assignment for the old id.
            return self._rebalancing.prepare_rebalance(group, reason)
        if group.state is not STABLE:
            return self._rebalancing.complete_join_if_all_joined(group)
        if group.vote() != group.protocol:
            return self._rebalancing.rebalance_or_complete_join(group, reason)
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        try:
            self._journal.write([group_record(group, assignments)])
        except KafkaError as error:
            group.update(member, *kept, None)
            restored = group.replace_static(instance_id, old_id)
            self._sessions.restart(group.group_id, restored)
            return join.answer.reply(
                JoinGroupResponse(
                    generation_id=group.generation,
                    protocol_type=group.protocol_type,
                    protocol_name=group.protocol,
                    leader=old_leader or "",
                    error_code=error.error,
                )
            )
        response = group.current_generation(member_id)
        if join.client.api_version >= SKIP_ASSIGNMENT_VERSION:
            response.skip_assignment = group.is_leader(member_id)
        else:
            # It would compute a new assignment, so let it believe that the old member still leads.
            response.leader, response.members = old_leader or "", []
        return group.answer_join(member, response)


def _uuid_text(uuid: bytes) -> str:
    """Format a UUID as Java does."""
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


# --- SyncGroup, Heartbeat and LeaveGroup ----------------------------------------------------------------------


_HEARTBEAT_ANSWERS = ANSWERS[Request.HEARTBEAT]  # this request comes most often, so it only needs one lookup


class Membership:
    """Handles the requests of classic groups' members after their join."""

    def __init__(self, parts: ShardParts, rebalancing: Rebalancing) -> None:
        self._groups = parts.store.classic
        self._runtime = parts.runtime
        self._journal = parts.journal
        self._member_memory = parts.member_memory
        self._statistics = parts.statistics
        self._rebalancing = rebalancing
        self._sessions = rebalancing.sessions

    def _group_of_member(self, request: SyncGroupRequest | HeartbeatRequest) -> ClassicGroup | Error:
        """Return the group if the sender is a member of its current generation, else the error."""
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

    def sync(self, request: SyncGroupRequest) -> SyncGroupResponse | Later[SyncGroupResponse]:
        """Handle SyncGroup. The leader's assignments are recorded and go to all; the others wait for them."""
        group = self._group_of_member(request)
        if isinstance(group, Error):
            return SyncGroupResponse(error_code=group)
        if _is_of_another_protocol(group, request):
            return SyncGroupResponse(error_code=Error.INCONSISTENT_GROUP_PROTOCOL)
        found = answer_of(Request.SYNC, group.state)
        if isinstance(found, Error):
            return SyncGroupResponse(error_code=found)
        member = group.members[request.member_id]
        self._rebalancing.has_synced(group, member.member_id)
        if found is Effect.ACCEPT:
            return assignment_of(group, member)
        synced: Later[SyncGroupResponse] = Later()
        member.sync_reply = synced
        if group.is_leader(member.member_id):
            self._store_assignments(group, request)
        return synced

    def _store_assignments(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        """Record the assignments. Members without one get an empty one. Unknown member ids are ignored."""
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
            self._statistics.rebalanced("classic")
            self._rebalancing.answer_syncs(group, Error.NONE)

    # --- Heartbeat ------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest) -> Error:
        """Handle Heartbeat. It restarts the session, even if the answer tells the member to join again."""
        group = self._group_of_member(request)
        if isinstance(group, Error):
            return group
        self._sessions.restart(request.group_id, group.members[request.member_id])
        found = _HEARTBEAT_ANSWERS[group.state]
        return found if isinstance(found, Error) else Error.NONE

    # --- LeaveGroup -----------------------------------------------------------------------------------------

    def leave(self, request: LeaveGroupRequest) -> tuple[Error, list[MemberResponse]]:
        """Handle LeaveGroup. Returns an error for the whole request, or one for each member."""
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
            # An administrator removes a static member (KIP-345).
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
