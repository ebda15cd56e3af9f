"""Rebalances of a classic group: their start, their delays, their completion, and the members they drop.

Timers, by key: ("join", group) ends the join phase, ("sync", group) the wait for the members' SyncGroup,
("session", group, member) the wait for a silent member.

Source: `GroupMetadataManager` (prepareRebalance, completeClassicGroupJoin, expirePendingSync,
rescheduleClassicGroupMemberHeartbeat, expireClassicGroupMemberHeartbeat).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from coordinator.group.classic.group import ClassicGroup, ClassicMember, group_record
from coordinator.group.classic.states import COMPLETING, DEAD, EMPTY, ENTERED_FROM, PREPARING, STABLE
from coordinator.group.shard_parts import RETRY_MS, ShardParts
from coordinator.ports import Barriers
from protocol.errors import Error, KafkaError
from protocol.messages.groups import JoinGroupResponse, SyncGroupResponse
from protocol.waiting import carry_on

log = logging.getLogger("barnabas.groups")

LateMember = Callable[[str, str], None]
"""Deals with a late member, given its group's id and its own."""


class ClassicSessions:
    """The session timers of members, and of clients that have got a member id and haven't joined with it yet."""

    def __init__(self, parts: ShardParts, late: LateMember) -> None:
        self._runtime = parts.runtime
        self._undecided = parts.undecided
        self._late = late

    def restart(self, group_id: str, member: ClassicMember) -> None:
        """Restart the session of a member that was heard of."""
        member_id = member.member_id
        self._runtime.schedule(
            ("session", group_id, member_id),
            member.session_timeout_ms,
            partial(self._due, group_id, member_id),
        )

    def watch(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Expect to hear of the member within this time, whatever its own timeout is."""
        self._runtime.schedule(
            ("session", group_id, member_id), timeout_ms, partial(self._due, group_id, member_id)
        )

    def _due(self, group_id: str, member_id: str) -> None:
        if self._undecided.is_of(group_id, member_id):  # it is coming back with the consumer protocol
            self.watch(group_id, member_id, RETRY_MS)
        else:
            self._late(group_id, member_id)

    def end(self, group_id: str, member_id: str) -> None:
        self._runtime.cancel(("session", group_id, member_id))


# --- the rebalance --------------------------------------------------------------------------------------------


def _join_key(group_id: str) -> tuple[str, str]:
    return ("join", group_id)


def _sync_key(group_id: str) -> tuple[str, str]:
    return ("sync", group_id)


def assignment_of(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


MOST_NAMED = 10
"""The most members to name in a log line: an id may have 32 KB."""


def some_of(member_ids: Sequence[str]) -> str:
    """The first member ids, and how many more there are."""
    named = ", ".join(member_ids[:MOST_NAMED])
    more = len(member_ids) - MOST_NAMED
    return named if more <= 0 else f"{named} and {more} more"


class Rebalancing:
    """Rebalances the classic groups of a shard."""

    def __init__(self, parts: ShardParts) -> None:
        self.sessions = ClassicSessions(parts, self.member_is_late)
        self._groups = parts.store.classic
        self._runtime = parts.runtime
        self._journal = parts.journal
        self._settings = parts.settings
        self.barriers: Barriers | None = None
        self._standing: set[str] = set()
        """Groups that a test holds before their next generation."""

    def restart_all(self) -> None:
        """After loading, restart all sessions, and rebalance groups that exceed the maximum size."""
        for group in self._groups.values():
            for member in group.members.values():
                self.sessions.restart(group.group_id, member)
            if len(group.members) > self._settings.max_size:
                self.prepare_rebalance(group, f"group.max.size is {self._settings.max_size}")

    def give_up(self) -> None:
        """Answer all who wait for a rebalance, as another node coordinates the groups now."""
        for group in self._groups.values():
            group.move_to(DEAD, self._runtime.now_ms())
            for member in group.members.values():
                group.answer_join(
                    member, JoinGroupResponse(member_id=member.member_id, error_code=Error.NOT_COORDINATOR)
                )
                member.answer_sync(SyncGroupResponse(error_code=Error.NOT_COORDINATOR))

    def forget(self, group_id: str) -> None:
        """End the rebalance of this group. The group is deleted, or becomes one of another kind."""
        self._runtime.cancel(_join_key(group_id))
        self._runtime.cancel(_sync_key(group_id))

    def member_is_late(self, group_id: str, member_id: str) -> None:
        """Remove a member whose session has expired, unless it waits for our answer."""
        group = self._groups.get(group_id)
        if group is None or group.state is DEAD:
            return
        if member_id in group.pending_joins:
            log.info("group %s: %s never came back with its member id", group_id, member_id)
            group.remove(member_id)
            if group.state is PREPARING and group.all_have_joined:
                self.complete_join(group)
            return
        member = group.members.get(member_id)
        if member is None or member.heartbeat_is_satisfied:
            return
        log.info("group %s: the session of %s expired", group_id, member_id)
        group.answer_join(member, JoinGroupResponse(error_code=Error.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        self.after_removal(group, f"the session of {member_id} expired")

    def after_removal(self, group: ClassicGroup, reason: str) -> None:
        """Rebalance after members were removed, or complete the join phase if nobody else is awaited."""
        if group.state in (STABLE, COMPLETING):
            self.prepare_rebalance(group, reason)
        elif group.state is PREPARING and group.all_have_joined:
            self.complete_join(group)

    # --- the join phase -------------------------------------------------------------------------------------

    def rebalance_or_complete_join(self, group: ClassicGroup, reason: str) -> None:
        """Start a rebalance after a join, or complete the current one if this was the last join."""
        if group.state in ENTERED_FROM[PREPARING]:
            self.prepare_rebalance(group, reason)
        else:
            self.complete_join_if_all_joined(group)

    def prepare_rebalance(self, group: ClassicGroup, reason: str) -> None:
        """Start a rebalance: all members have to join again."""
        if group.state is COMPLETING:
            for member in group.members.values():
                member.assignment = b""
            self.answer_syncs(group, Error.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        self._runtime.cancel(_sync_key(group.group_id))
        is_initial = group.state is EMPTY
        group.move_to(PREPARING, self._runtime.now_ms())
        log.info("group %s rebalances, generation %d: %s", group.group_id, group.generation, reason)
        if is_initial:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._wait_for_more(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.all_have_joined:
            self.complete_join(group)
        else:
            self._end_join_phase_after(group, group.rebalance_timeout_ms)

    def complete_join_if_all_joined(self, group: ClassicGroup) -> None:
        """Complete the join phase if all have joined. The first rebalance of an empty group waits for its
        delay instead."""
        if group.state is PREPARING and group.previous_state is not EMPTY and group.all_have_joined:
            self.complete_join(group)

    def _wait_for_more(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        self._runtime.schedule(
            _join_key(group.group_id),
            delay_ms,
            partial(self._initial_delay_passed, group.group_id, delay_ms, remaining_ms),
        )

    def _initial_delay_passed(self, group_id: str, delay_ms: int, remaining_ms: int) -> None:
        """If members came meanwhile, more may come, so wait again; in total no longer than the rebalance timeout."""
        group = self._groups.get(group_id)
        if group is None:
            return
        if group.new_member_added and remaining_ms != 0:
            group.new_member_added = False
            next_delay_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            self._wait_for_more(group, next_delay_ms, max(remaining_ms - delay_ms, 0))
        else:
            self.complete_join(group)

    def _end_join_phase_after(self, group: ClassicGroup, delay_ms: int) -> None:
        group_id = group.group_id

        def due() -> None:
            found = self._groups.get(group_id)
            if found is not None:
                self.complete_join(found)

        self._runtime.schedule(_join_key(group_id), delay_ms, due)

    def complete_join(self, group: ClassicGroup) -> None:
        """Start the next generation with the members that joined. Dynamic members that didn't are removed,
        static ones stay."""
        if self.barriers is not None or self._standing:
            if group.group_id not in self._standing:
                carry_on(self._complete_join_behind(group.group_id, self.barriers))
        else:
            self._complete_join(group)

    async def _complete_join_behind(self, group_id: str, barriers: Barriers | None) -> None:
        self._standing.add(group_id)
        try:
            if barriers is not None:
                await barriers.before_generation(group_id)
        finally:
            self._standing.discard(group_id)
        group = self._groups.get(group_id)
        if group is not None and group.state is PREPARING:
            self._complete_join(group)

    def _complete_join(self, group: ClassicGroup) -> None:
        self._runtime.cancel(_join_key(group.group_id))
        for member in group.members.values():
            if member.join_reply is None and not member.is_static:
                group.remove(member.member_id)
                self.sessions.end(group.group_id, member.member_id)
                log.info("group %s: %s didn't join again", group.group_id, member.member_id)
        if group.state is DEAD:
            return
        if not group.elect_joined_leader() and group.members:
            # There are only static members, and none has come back. Either they join, or their sessions end.
            self._end_join_phase_after(group, group.rebalance_timeout_ms)
            return
        group.next_generation(self._runtime.now_ms())
        if group.state is EMPTY:
            log.info("group %s is empty in generation %d", group.group_id, group.generation)
            try:
                self._journal.write([group_record(group, {})])
            except KafkaError as error:
                # The log still has the last generation. After a restart the sessions of its members end.
                log.warning("group %s: can't record that it is empty: %s", group.group_id, error)
            return
        log.info(
            "group %s: generation %d of %d members", group.group_id, group.generation, len(group.members)
        )
        for member in group.members.values():
            group.pending_syncs[member.member_id] = None
        for member in group.members.values():
            group.answer_join(member, group.current_generation(member.member_id))
            self.sessions.restart(group.group_id, member)
            member.is_new = False
        self._runtime.schedule(
            _sync_key(group.group_id),
            group.rebalance_timeout_ms,
            partial(self._sync_expired, group.group_id, group.generation),
        )

    # --- the sync phase -------------------------------------------------------------------------------------

    def answer_syncs(self, group: ClassicGroup, error: Error) -> None:
        """Answer every parked sync with the assignment or an error."""
        response = SyncGroupResponse(error_code=error)
        for member in group.members.values():
            if error is Error.NONE:
                response = assignment_of(group, member)
            if member.answer_sync(response):
                # If its session ended while it was parked, nothing happened then. So start the timer again.
                self.sessions.restart(group.group_id, member)

    def has_synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.pop(member_id, None)
        if not group.pending_syncs:
            self._runtime.cancel(_sync_key(group.group_id))

    def _sync_expired(self, group_id: str, generation: int) -> None:
        """Remove members that haven't synced in time, whether or not they send heartbeats (KAFKA-12890)."""
        group = self._groups.get(group_id)
        if group is None or group.generation != generation or group.state not in (COMPLETING, STABLE):
            return
        late = [*group.pending_syncs]
        if not late:
            return
        for member_id in late:
            group.remove(member_id)
            self.sessions.end(group.group_id, member_id)
        self.prepare_rebalance(group, f"{some_of(late)} didn't sync")
