"""ShareGroupHeartbeat: members join, stay alive, and get partitions, which others may have as well (KIP-932).

    admission → subscription → target → assignment → what is to be initialized → answer

Each step decides by the group's current state. The records of one heartbeat are written together and then
applied. Looking up its topics and log lines come before that. If there is much to decide, everything but the
writing is done beside the loop: see `shard_parts.py`.

Timers, by key: ("share session", group, member). A member that leaves or whose session ends is removed. The
next heartbeat of any member computes a new assignment.

Source: `GroupMetadataManager` (shareGroupHeartbeat, in its order; shareGroupLeave, shareGroupFenceMember,
scheduleShareGroupSessionTimeout).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from coordinator.commit_waiters import Gate
from coordinator.group.member_memory import brought_by_share_heartbeat
from coordinator.group.modern.assignors import AssignorError, GroupSpec, MemberSpec
from coordinator.group.modern.group import NO_TARGET, Target, same_target
from coordinator.group.ports import Client, Deferred, KnownTopics, partitions_of
from coordinator.group.records import AnyRecord
from coordinator.group.shard_parts import DeferredHeartbeat, Effects, Sessions, ShardParts
from coordinator.group.share.group import (
    InitTopics,
    ShareGroup,
    ShareMember,
    StatePartitions,
    share_assignment_record,
    share_epoch_record,
    share_member_record,
    share_member_tombstones,
    share_target_epoch_record,
    share_target_record,
)
from coordinator.group.share.initializing import StateInitializing
from coordinator.group.share.simple_assignor import SIMPLE, assign_simply
from coordinator.group.share.states import (
    ACCEPTED_EPOCHS,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STABLE_MEMBER,
    ShareEpochRelation,
)
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import Error, KafkaError
from protocol.messages.groups_share import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

log = logging.getLogger("barnabas.groups")


# --- a decision -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ShareDecision(Effects):
    """A member changes from `old`, as the group knows it, to `new`.

    A group that doesn't exist yet is an empty object, and not the one that the records will create.
    """

    group: ShareGroup
    old: ShareMember
    new: ShareMember
    epoch: int
    """The group's new epoch."""
    topics: Iterable[str]
    homogeneous: bool
    records: list[AnyRecord] = field(default_factory=list)
    bumped: bool = False
    """True if the group has a new epoch."""


# --- members that leave, or whose session ends ----------------------------------------------------------------

SHARE_SESSION = "share session"


class ShareSessions(Sessions):
    """The sessions of a share group's members, and how they end."""

    def __init__(self, parts: ShardParts) -> None:
        super().__init__(
            parts.runtime,
            self._fence,
            is_undecided=parts.undecided.is_of,
            session=SHARE_SESSION,
            timeouts_of=parts.share.timeouts_of,
        )
        self._store = parts.store
        self._journal = parts.journal
        self._hashes = parts.hashes

    def leave(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        """Handle a heartbeat of epoch -1. Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID."""
        group = self._store.share_group(request.group_id)
        member = group.member(request.member_id)
        log.info("group %s: %s leaves", group.group_id, member.member_id)
        self._remove(group, member)
        return ShareGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=LEAVE_EPOCH, assignment=None
        )

    def restart_all(self) -> None:
        """After a start, give every member a whole session."""
        for group_id, group in self._store.share.items():
            for member_id in group.members:
                self.restart(group_id, member_id)

    def _fence(self, group_id: str, member_id: str, why: str) -> None:
        group = self._store.share.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is not None and member is not None:
            log.info("group %s: %s is fenced: %s", group_id, member_id, why)
            self._remove(group, member)

    def _remove(self, group: ShareGroup, member: ShareMember) -> None:
        """Remove a member. Raises KafkaError if that can't be recorded."""
        group_id = group.group_id
        topics, _ = group.subscriptions_with(member, None)
        records = share_member_tombstones(group_id, member.member_id)
        records.append(share_epoch_record(group_id, group.epoch + 1, self._hashes.of(topics)))
        if len(group.members) == 1:  # no member is left to assign anything to (KAFKA-20442)
            records.append(share_target_epoch_record(group_id, group.epoch + 1, 0))
        self._journal.write(records)
        self.cancel_all(group_id, member.member_id)


# --- heartbeats -----------------------------------------------------------------------------------------------


class ShareHeartbeats:
    """Handles the heartbeats of share groups' members."""

    def __init__(
        self, parts: ShardParts, gate: Gate, sessions: ShareSessions, initializing: StateInitializing
    ) -> None:
        self._parts = parts
        self._store = parts.store
        self._runtime = parts.runtime
        self._journal = parts.journal
        self._gate = gate
        self._topics = parts.topics
        self._hashes = parts.hashes
        self._member_memory = parts.member_memory
        self._max_size = parts.settings.share_max_size
        self._statistics = parts.statistics
        self._timeouts_of = parts.share.timeouts_of
        self._sessions = sessions
        self._initializing = initializing

    def heartbeat(
        self, client: Client, request: ShareGroupHeartbeatRequest
    ) -> ShareGroupHeartbeatResponse | Deferred[ShareGroupHeartbeatResponse]:
        """Return the answer, or a deferred heartbeat if there is much to decide.

        Raises KafkaError: GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH;
        the log's (`append_error`). Then the group hasn't changed.
        """
        if request.member_epoch == LEAVE_EPOCH:
            return self._sessions.leave(request)
        decision = self._admitted(client, request)
        group, old = decision.group, decision.old
        if decision.new is old and group.has_settled(old, self._runtime.now_ms()):
            self._sessions.restart(group.group_id, old.member_id)
            return self._answered(decision, request)
        decide = partial(self._decide, decision, request)
        if not is_little(group, request.subscribed_topic_names or (), self._topics):
            return LongShareHeartbeat(self._parts, self._sessions, decision, decide)
        try:
            answer = decide()
        finally:
            decision.take_effect()
        self._sessions.restart(group.group_id, old.member_id)
        self._journal.write(decision.records)
        decision.was_written()
        return answer

    def _answered(
        self, decision: ShareDecision, request: ShareGroupHeartbeatRequest
    ) -> ShareGroupHeartbeatResponse:
        new = decision.new
        is_full = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
        shows = is_full or new.assigned != decision.old.assigned
        return ShareGroupHeartbeatResponse(
            member_id=new.member_id,
            member_epoch=new.epoch,
            heartbeat_interval_ms=self._timeouts_of(decision.group.group_id).heartbeat_interval_ms,
            assignment=_shown(new.assigned) if shows else None,
        )

    def _decide(
        self, decision: ShareDecision, request: ShareGroupHeartbeatRequest
    ) -> ShareGroupHeartbeatResponse:
        """Take all steps, and return the answer. It is valid once the decision is taken. Only changes the decision.

        Raises KafkaError.
        """
        group = decision.group
        self._subscribe(decision)
        target_epoch, target = self._take_target(decision)
        decision.new = self._assigned(decision, target_epoch, target)
        missing = self._initializing.missing(group, decision.topics)
        if len(missing):
            decision.records.append(self._initializing.record_of(group, missing))
            known = StatePartitions.none() if group.state_partitions is None else group.state_partitions
            initialize = partial(self._initialize, group.group_id, decision.epoch, missing, known)
            decision.once_written.append(initialize)
        state = group.state_partitions
        if not decision.records and (state is None or not len(state.initializing)):
            decision.once_written.append(partial(_settle, group))
        return self._answered(decision, request)

    def _initialize(self, group_id: str, epoch: int, missing: InitTopics, known: StatePartitions) -> None:
        """Initialize partitions once it is committed that they are missing, except those that another request
        covers by then."""

        async def initialize() -> None:
            if await self._gate.committed() is None:
                await self._initializing.initialize(group_id, epoch, missing, known)

        self._runtime.begin(initialize())

    # --- admission ------------------------------------------------------------------------------------------

    def _admitted(self, client: Client, request: ShareGroupHeartbeatRequest) -> ShareDecision:
        member_id, joins = request.member_id, request.member_epoch == JOIN_EPOCH
        group = self._store.share_group_to_join(request.group_id) if joins else None
        group = group or self._store.share_group(request.group_id)
        if len(group.members) >= self._max_size and member_id not in group.members:
            raise KafkaError(
                Error.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {self._max_size} members.",
            )
        old = group.members.get(member_id) or ShareMember(member_id) if joins else group.member(member_id)
        _check_epoch(old, request.member_epoch)
        brought_bytes = brought_by_share_heartbeat(request, client, group, old, self._topics)
        if brought_bytes > 0:
            self._member_memory.check(brought_bytes, self._runtime.now_ms())
        new = _as_requested(old, client, request)
        return ShareDecision(group, old, new, group.epoch, group.topics, group.homogeneous)

    # --- subscription ---------------------------------------------------------------------------------------

    def _subscribe(self, decision: ShareDecision) -> None:
        """Record the member's changes, and bump the group's epoch if its topics have changed, or if
        initialized partitions aren't assigned to anybody."""
        group, old, new = decision.group, decision.old, decision.new
        bump = False
        if new != old:
            decision.records.append(share_member_record(group.group_id, new))
            bump = new.names != old.names
        if group.assignment_epoch >= group.epoch:
            bump = bump or group.awaits_assignment()
        now_ms = self._runtime.now_ms()
        if not bump and not group.needs_refresh(now_ms):
            return
        decision.topics, decision.homogeneous = group.subscriptions_with(old, new)
        hashed = self._hashes.look(decision.topics)
        decision.effects.append(partial(self._hashes.keep, hashed))
        metadata_hash = hashed.value
        if bump or metadata_hash != group.metadata_hash:
            decision.bumped = True
            decision.epoch = group.epoch + 1
            decision.records.append(share_epoch_record(group.group_id, decision.epoch, metadata_hash))
            decision.effects.append(
                partial(log.info, "group %s is at epoch %d", group.group_id, decision.epoch)
            )
            decision.effects.append(partial(self._statistics.rebalanced, "share"))
        decision.effects.append(partial(self._was_refreshed, group.group_id, now_ms, decision.epoch))

    def _was_refreshed(self, group_id: str, now_ms: int, epoch: int) -> None:
        """Note the refresh. A group that doesn't exist yet refreshes at its next heartbeat."""
        group = self._store.share.get(group_id)
        if group is not None:
            group.was_refreshed(now_ms, epoch)

    # --- target ---------------------------------------------------------------------------------------------

    def _take_target(self, decision: ShareDecision) -> tuple[int, Target]:
        """The epoch of the target assignment, and the member's part of it. A new one goes to the records.

        Raises KafkaError (UNKNOWN_SERVER_ERROR) if no assignment is possible.
        """
        group, new = decision.group, decision.new
        if group.assignment_epoch >= decision.epoch or not self._may_compute(group):
            return group.assignment_epoch, group.target_of(new.member_id)
        specs: JavaMap[str, MemberSpec] = JavaMap()
        members = group.members
        if new.member_id not in members:
            members = members.copy()
            members[new.member_id] = new
        for member_id, member in members.items():
            current = new if member_id == new.member_id else member
            specs[member_id] = self._spec(current, group.target_of(member_id))
        state = group.state_partitions
        initialized = {} if state is None else dict(state.initialized.items())
        spec = GroupSpec(specs, decision.homogeneous, {}, self._partition_count)
        try:
            assignments = assign_simply(
                spec, {topic_id: frozenset(topic.partitions) for topic_id, topic in initialized.items()}
            )
        except AssignorError as error:
            said = "group %s: no target assignment for epoch %d: %s"
            decision.effects.append(partial(log.error, said, group.group_id, decision.epoch, error))
            raise KafkaError(Error.UNKNOWN_SERVER_ERROR) from error
        for member_id in specs:
            target = assignments.get(member_id, NO_TARGET)
            if not same_target(target, group.targets.get(member_id)):
                decision.records.append(share_target_record(group.group_id, member_id, target))
        now_ms = self._runtime.now_ms()
        decision.records.append(share_target_epoch_record(group.group_id, decision.epoch, now_ms))
        said = "group %s: assignment %d by %s"
        decision.effects.append(partial(log.info, said, group.group_id, decision.epoch, SIMPLE))
        return decision.epoch, assignments.get(new.member_id, NO_TARGET)

    def _may_compute(self, group: ShareGroup) -> bool:
        interval_ms = self._timeouts_of(group.group_id).assignment_interval_ms
        return group.may_be_assigned(interval_ms, self._runtime.now_ms())

    def _spec(self, member: ShareMember, target: Target) -> MemberSpec:
        found = (self._topics.by_name(name) for name in member.names)
        topic_ids = tuple(topic.topic_id for topic in found if topic is not None)
        return MemberSpec(None, topic_ids, len(member.names), target)

    def _partition_count(self, topic_id: bytes) -> int:
        topic = self._topics.by_id(topic_id)
        return -1 if topic is None else topic.partition_count

    # --- assignment -----------------------------------------------------------------------------------------

    def _assigned(self, decision: ShareDecision, target_epoch: int, target: Target) -> ShareMember:
        """The member at the target's epoch. It gets there in one step, as it needn't give up anything first."""
        member = decision.new
        if not decision.bumped and member.is_reconciled_to(target_epoch):
            return member
        if target_epoch != member.epoch:
            new = replace(
                member,
                state=STABLE_MEMBER,
                assigned=self._subscribed(target, member.names),
                previous_epoch=member.epoch,
                epoch=target_epoch,
            )
        elif decision.bumped:
            new = replace(member, assigned=self._subscribed(target, member.names))
        else:
            return member
        if new != member:
            decision.records.append(share_assignment_record(decision.group.group_id, new))
        return new

    def _subscribed(self, target: Target, names: JavaSet[str]) -> Target:
        """The target without topics that the member has unsubscribed from."""
        kept: Target = target
        for topic_id in target:
            topic = self._topics.by_id(topic_id)
            if topic is None or topic.name not in names:
                if kept is target:
                    kept = JavaMap.copy_of(target)
                kept.pop(topic_id)
        return kept


def _settle(group: ShareGroup) -> None:
    """Mark the group as settled: nothing was written, so it is unchanged since the decision."""
    group.settled = group.changes


def _check_epoch(member: ShareMember, epoch: int) -> None:
    relation = member.relation_of(epoch)
    if not ACCEPTED_EPOCHS[relation]:
        kind = "greater" if relation is ShareEpochRelation.NEWER else "smaller"
        raise KafkaError(
            Error.FENCED_MEMBER_EPOCH,
            f"The share group member has a {kind} member epoch ({epoch}) than the one known by the group coordinator "
            f"({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def _as_requested(member: ShareMember, client: Client, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """The member with the request's changes, or the same object if there are none. Null leaves a part as it was."""
    names, rack_id = request.subscribed_topic_names, request.rack_id
    if (
        names is None
        and rack_id in (None, member.rack_id)
        and client.client_id == member.client_id
        and client.host == member.client_host
    ):
        return member
    new = replace(
        member,
        rack_id=member.rack_id if rack_id is None else rack_id,
        client_id=client.client_id,
        client_host=client.host,
    )
    return new if names is None else new.subscribed_to(names)


def _shown(assigned: Target) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=[*partitions])
            for topic_id, partitions in assigned.items()
        ]
    )


# --- long decisions: thousands of topics or partitions, or a large group --------------------------------------

MOST_OF_SHARES_IN_PASSING = 10_000
"""The most work to decide at once: some 10 ms, in units of about a microsecond."""

_PER_TOPIC, _PER_PARTITION, _PER_MEMBER, _PER_SUBSCRIPTION = 60, 16, 40, 2


def is_little(group: ShareGroup, names: Collection[str], topics: KnownTopics) -> bool:
    """True if the decision can be made at once. Estimating that costs far less than deciding."""
    members = len(group.members) + 1
    state = group.state_partitions
    with_state = 0 if state is None else len(state.initialized) + len(state.initializing)
    work = (len(group.topics) + len(names) + with_state) * (_PER_TOPIC + members * _PER_SUBSCRIPTION)
    work += members * _PER_MEMBER
    if work > MOST_OF_SHARES_IN_PASSING:
        return False
    work += partitions_of(chain(group.topics, names), topics) * _PER_PARTITION
    return work <= MOST_OF_SHARES_IN_PASSING


class LongShareHeartbeat(DeferredHeartbeat[ShareGroupHeartbeatResponse]):
    """A deferred heartbeat."""
