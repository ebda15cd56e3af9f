"""How a rebalance goes: its start, its delays, its completion, and who is dropped on the way.

Timers, by key: ("join", group) ends the join phase, ("sync", group) the wait for the members' SyncGroup,
("session", group, member) a member's session. Source: `GroupMetadataManager` (prepareRebalance,
completeClassicGroupJoin, expirePendingSync, expireClassicGroupMemberHeartbeat).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from coordinator.group.classic.group import ClassicGroup
from coordinator.group.classic.member import ClassicMember
from coordinator.group.classic.states import (
    COMPLETING,
    DEAD,
    EMPTY,
    ENTERED_FROM,
    PREPARING,
    STABLE,
)
from coordinator.group.records import GroupRecord
from protocol.errors import Error, KafkaError
from protocol.messages.groups_classic import JoinGroupResponse, SyncGroupResponse

if TYPE_CHECKING:
    from coordinator.group.shard import GroupShard

log = logging.getLogger("barnabas.groups")


def join_key(group_id: str) -> tuple[str, str]:
    return ("join", group_id)


def sync_key(group_id: str) -> tuple[str, str]:
    return ("sync", group_id)


def session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return ("session", group_id, member_id)


# --- sessions -----------------------------------------------------------------------------------------------


def restart_session(
    shard: GroupShard, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None
) -> None:
    """The member was heard of: its session starts anew, by default with its own timeout."""
    watch_session(
        shard, group, member.member_id, member.session_timeout_ms if timeout_ms is None else timeout_ms
    )


def watch_session(shard: GroupShard, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
    shard.runtime.schedule(
        session_key(group.group_id, member_id),
        timeout_ms,
        partial(_session_expired, shard, group.group_id, member_id),
    )


def _session_expired(shard: GroupShard, group_id: str, member_id: str) -> None:
    group = shard.groups.get(group_id)
    if group is None or group.state is DEAD:
        return
    if member_id in group.pending_joins:
        log.info("group %s: %s never came back with its member id", group_id, member_id)
        group.remove(member_id)
        if group.state is PREPARING and group.all_have_joined:
            complete_join(shard, group)
        return
    member = group.members.get(member_id)
    if member is None or member.heartbeat_is_satisfied:
        return
    log.info("group %s: the session of %s expired", group_id, member_id)
    group.answer_join(member, JoinGroupResponse(error_code=Error.UNKNOWN_MEMBER_ID))
    group.remove(member_id)
    after_removal(shard, group, f"the session of {member_id} expired")


def after_removal(shard: GroupShard, group: ClassicGroup, reason: str) -> None:
    """Members went: the others share anew, or need not wait for them any longer."""
    if group.state in (STABLE, COMPLETING):
        prepare_rebalance(shard, group, reason)
    elif group.state is PREPARING and group.all_have_joined:
        complete_join(shard, group)


# --- the join phase -----------------------------------------------------------------------------------------


def rebalance_or_complete_join(shard: GroupShard, group: ClassicGroup, reason: str) -> None:
    """A member joined: a rebalance starts, or the one at hand may be complete."""
    if group.state in ENTERED_FROM[PREPARING]:
        prepare_rebalance(shard, group, reason)
    else:
        complete_join_if_all_joined(shard, group)


def prepare_rebalance(shard: GroupShard, group: ClassicGroup, reason: str) -> None:
    """Start a rebalance: everybody has to join again."""
    if group.state is COMPLETING:
        for member in group.members.values():
            member.assignment = b""
        answer_syncs(shard, group, Error.REBALANCE_IN_PROGRESS)
    group.pending_syncs.clear()
    shard.runtime.cancel(sync_key(group.group_id))
    is_initial = group.state is EMPTY
    group.move_to(PREPARING, shard.runtime.now_ms())
    log.info("group %s rebalances, generation %d: %s", group.group_id, group.generation, reason)
    if is_initial:
        delay_ms = shard.settings.initial_rebalance_delay_ms
        _wait_for_more(shard, group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
    elif group.all_have_joined:
        complete_join(shard, group)
    else:
        _end_join_phase_after(shard, group, group.rebalance_timeout_ms)


def complete_join_if_all_joined(shard: GroupShard, group: ClassicGroup) -> None:
    """The first rebalance of an empty group is spared: it waits its delay, since others may come."""
    if group.state is PREPARING and group.previous_state is not EMPTY and group.all_have_joined:
        complete_join(shard, group)


def _wait_for_more(shard: GroupShard, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
    shard.runtime.schedule(
        join_key(group.group_id),
        delay_ms,
        partial(_initial_delay_passed, shard, group.group_id, delay_ms, remaining_ms),
    )


def _initial_delay_passed(shard: GroupShard, group_id: str, delay_ms: int, remaining_ms: int) -> None:
    """Where members came meanwhile more may come: wait on, in total no longer than the rebalance timeout."""
    group = shard.groups.get(group_id)
    if group is None:
        return
    if group.new_member_added and remaining_ms != 0:
        group.new_member_added = False
        next_delay_ms = min(shard.settings.initial_rebalance_delay_ms, remaining_ms)
        _wait_for_more(shard, group, next_delay_ms, max(remaining_ms - delay_ms, 0))
    else:
        complete_join(shard, group)


def _end_join_phase_after(shard: GroupShard, group: ClassicGroup, delay_ms: int) -> None:
    group_id = group.group_id

    def due() -> None:
        found = shard.groups.get(group_id)
        if found is not None:
            complete_join(shard, found)

    shard.runtime.schedule(join_key(group_id), delay_ms, due)


def complete_join(shard: GroupShard, group: ClassicGroup) -> None:
    """The next generation is of those who joined; dynamic members that didn't are dropped, static ones stay."""
    shard.runtime.cancel(join_key(group.group_id))
    for member in group.members.values():
        if member.join_reply is None and not member.is_static:
            group.remove(member.member_id)
            shard.runtime.cancel(session_key(group.group_id, member.member_id))
            log.info("group %s: %s didn't join again", group.group_id, member.member_id)
    if group.state is DEAD:
        return
    if not group.elect_joined_leader() and group.members:
        # Static members alone, and none has come back: their sessions end, or they join.
        _end_join_phase_after(shard, group, group.rebalance_timeout_ms)
        return
    group.next_generation(shard.runtime.now_ms())
    if group.state is EMPTY:
        log.info("group %s is empty, generation %d", group.group_id, group.generation)
        try:
            shard.commit([GroupRecord(group.group_id, group.to_record({}))])
        except KafkaError as error:
            # The last generation written stays in the log: after a restart its members' sessions end.
            log.warning("group %s: its emptiness isn't recorded: %s", group.group_id, error)
        return
    log.info("group %s: generation %d of %d members", group.group_id, group.generation, len(group.members))
    for member in group.members.values():
        group.pending_syncs[member.member_id] = None
    for member in group.members.values():
        group.answer_join(member, group.current_generation(member.member_id))
        restart_session(shard, group, member)
        member.is_new = False
    shard.runtime.schedule(
        sync_key(group.group_id),
        group.rebalance_timeout_ms,
        partial(_sync_expired, shard, group.group_id, group.generation),
    )


# --- the sync phase -----------------------------------------------------------------------------------------


def answer_syncs(shard: GroupShard, group: ClassicGroup, error: Error) -> None:
    """Answer every sync that is parked: with the assignment, or with an error."""
    response = SyncGroupResponse(error_code=error)
    for member in group.members.values():
        if error is Error.NONE:
            response = assignment_of(group, member)
        if member.answer_sync(response):
            # A session that ended while it was parked was let pass: it has to be watched again.
            restart_session(shard, group, member)


def assignment_of(group: ClassicGroup, member: ClassicMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )


def has_synced(shard: GroupShard, group: ClassicGroup, member_id: str) -> None:
    group.pending_syncs.pop(member_id, None)
    if not group.pending_syncs:
        shard.runtime.cancel(sync_key(group.group_id))


def _sync_expired(shard: GroupShard, group_id: str, generation: int) -> None:
    """Who hasn't synced by now is dropped, heartbeats or not (KAFKA-12890)."""
    group = shard.groups.get(group_id)
    if group is None or group.generation != generation or group.state not in (COMPLETING, STABLE):
        return
    late = [*group.pending_syncs]
    if not late:
        return
    for member_id in late:
        group.remove(member_id)
        shard.runtime.cancel(session_key(group_id, member_id))
    prepare_rebalance(shard, group, f"{late} didn't sync")
