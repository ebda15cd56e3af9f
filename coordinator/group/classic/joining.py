"""JoinGroup, in Kafka's order of checks (Kafka: `GroupMetadataManager.classicGroupJoin`).

An answer may have to wait: it goes to the join's `reply`, at once or when the rebalance is complete.
"""

from __future__ import annotations

import logging

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.group_record import group_record
from coordinator.group.classic.join import Join
from coordinator.group.classic.member import ClassicMember, Identity
from coordinator.group.classic.rebalancing import Rebalancing
from coordinator.group.classic.states import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    Effect,
    Request,
    answer_of,
)
from coordinator.group.member_memory import brought_by_join, classic_group_bytes
from coordinator.group.parts import ShardParts
from coordinator.group.records import AnyRecord, GroupRecord
from protocol.errors import Error, KafkaError
from protocol.messages.group_records import GroupMetadataValue
from protocol.messages.groups import JoinGroupResponse

log = logging.getLogger("barnabas.groups")

SKIP_ASSIGNMENT_VERSION = 9  # KIP-814


class Joining:
    """Members join classic groups."""

    def __init__(self, parts: ShardParts, rebalancing: Rebalancing) -> None:
        self._store = parts.store
        self._runtime = parts.runtime
        self._journal = parts.journal
        self._settings = parts.settings
        self._member_memory = parts.member_memory
        self._rebalancing = rebalancing
        self._sessions = rebalancing.sessions

    def join(self, join: Join) -> None:
        """Raises KafkaError where the creation of a group can't be recorded."""
        if not self.is_sound(join):
            return None
        streams = self._store.streams.get(join.group_id)
        if join.group_id in self._store.share or (streams is not None and not streams.is_empty):
            return join.refuse("", Error.INCONSISTENT_GROUP_PROTOCOL)
        group = self._store.classic.get(join.group_id)
        if group is None and join.member_id:
            return join.refuse(join.member_id, Error.UNKNOWN_MEMBER_ID)
        if group is not None and not self._has_room(group, join.member_id):
            # Not only refused: who is one too many and joins again is out.
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
        """Whether the request makes sense, whatever group it is for; if not it is refused."""
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
        """A group is recorded as soon as somebody wants to join it, even where that fails then.

        An empty consumer or streams group of this id ends thereby.
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
        """Whether `group.max.size` admits it. While members join, those that are parked count."""
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
        group.add(member, join.reply)
        # It knows no member id yet, so it can't send heartbeats. If it went away we wouldn't see it either, and it
        # would come back under other ids: so its join has a time limit of its own.
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
                return join.reply(group.current_generation(member_id))
        group.update(member, protocols, join.timeouts, join.reply)
        return self._rebalancing.rebalance_or_complete_join(group, f"{member_id} joins again; {join.reason}")

    # --- a static member that comes back --------------------------------------------------------------------

    def _replace_static(self, join: Join, group: ClassicGroup, instance_id: str, member_id: str) -> None:
        """It takes its old place under a new id. In a stable group that keeps its protocol nobody else notices."""
        assert group.state not in (EMPTY, DEAD)
        old_id = group.static_members[instance_id]
        old_leader = group.leader_id
        before = group.members[old_id]
        kept = (before.protocols, before.timeouts)
        member = group.replace_static(instance_id, member_id)
        self._sessions.restart(group.group_id, member)
        group.update(member, join.protocols(), join.timeouts, join.reply)
        reason = f"the static member {instance_id} is back; {join.reason}"
        if group.state is COMPLETING:
            # The leader may be assigning to the old id.
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
            return join.reply(
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
            # It would assign anew: let it believe that the old one leads.
            response.leader, response.members = old_leader or "", []
        return group.answer_join(member, response)


def _uuid_text(uuid: bytes) -> str:
    """The text form of Java's UUID."""
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
