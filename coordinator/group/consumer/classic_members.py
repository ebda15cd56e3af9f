"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-848).

Such a member doesn't lead, and its join waits for nobody: the server assigns, and the member's generation is
its epoch.
Source: `GroupMetadataManager`, the methods that end in ToConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from coordinator.group.classic.requests import Join
from coordinator.group.consumer import migration
from coordinator.group.consumer.decision import (
    ConsumerSessions,
    Decision,
    Entry,
    check_room,
    known_or_new,
    take_instance,
)
from coordinator.group.consumer.group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicMetadata,
    ConsumerGroup,
    ConsumerMember,
)
from coordinator.group.consumer.heartbeats import is_little
from coordinator.group.consumer.migration import Leaving, Migration
from coordinator.group.consumer.states import MemberState
from coordinator.group.consumer.steps import HeartbeatSteps
from coordinator.group.member_memory import brought_by_classic_member
from coordinator.group.shard_parts import DeferredDecision, ShardParts
from coordinator.java.maps import JavaSet
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.groups import (
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.wire.primitives import uuid_to_text


class ClassicMembers:
    """Handles requests of the classic protocol to consumer groups."""

    def __init__(
        self,
        parts: ShardParts,
        *,
        migration: Migration,
        leaving: Leaving,
        steps: HeartbeatSteps,
        sessions: ConsumerSessions,
    ) -> None:
        self._parts = parts
        self._runtime = parts.runtime
        self._journal = parts.journal
        self._settings = parts.settings
        self._topics = parts.topics
        self._migration = migration
        self._leaving = leaving
        self._steps = steps
        self._sessions = sessions

    # --- JoinGroup ------------------------------------------------------------------------------------------

    def join(self, join: Join, group: ConsumerGroup) -> LongJoin | None:
        """Answer a join at once, or return a deferred one if there is much to decide. Raises KafkaError."""
        if self._settings.migration_policy == "disabled":
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
        request = join.request
        is_new = not join.member_id
        member_id = join.member_id or uuid_to_text(self._runtime.new_uuid())
        check_room(group, member_id, join.instance_id, self._settings.consumer_max_size)
        if not group.supports_classic(request.protocol_type, (each.name for each in request.protocols)):
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
        if is_new and join.instance_id is None and join.needs_member_id_first:
            join.refuse(member_id, Error.MEMBER_ID_REQUIRED)
            return None
        entry = Entry()
        if join.instance_id is None:
            member = known_or_new(group, member_id)
        elif is_new:
            joining = ConsumerMember(member_id, instance_id=join.instance_id)
            member = take_instance(group, joining, entry, uses_classic=True)
        else:
            member = group.member_as(member_id, join.instance_id)
        try:
            subscription = migration.read_subscription(bytes(request.protocols[0].metadata))
        except CodecError:  # KAFKA-20662
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL) from None
        owned = migration.owned_of(subscription, self._topics)
        new = _as_requested(member, join, subscription)
        brought_bytes = brought_by_classic_member(group, member, new, self._topics)
        self._parts.member_memory.check(brought_bytes, self._runtime.now_ms())
        decision = Decision(group, entry.records, member, new, owned, join.client.may_describe)
        decision.effects += entry.effects
        replaced = group.static_member(join.instance_id)
        if replaced is not None and self._migration.may_downgrade_by(group, replaced):
            self._join_and_downgrade(decision, replaced)
        elif is_little(decision, subscription.topics, "", self._topics):
            self._join(decision, join)
        else:
            decide = partial(self._decide, decision, join)
            return LongJoin(self._parts, decision, decide, partial(self._joined, decision, join))
        join.answer.reply(_answer(decision, join))
        return None

    def _join(self, decision: Decision, join: Join) -> None:
        try:
            self._steps.take(decision)
        finally:
            decision.take_effect()
        self._journal.write(decision.records)
        decision.was_written()
        self._joined(decision, join)

    def _decide(self, decision: Decision, join: Join) -> JoinGroupResponse:
        """Decide, and return the answer. Only changes the decision. Raises KafkaError."""
        self._steps.take(decision)
        return _answer(decision, join)

    def _joined(self, decision: Decision, join: Join) -> None:
        group_id, member_id = decision.group.group_id, decision.new.member_id
        self._sessions.end_join(group_id, member_id)
        self._sessions.restart(group_id, member_id, join.timeouts.session_timeout_ms)
        self._sessions.await_sync(group_id, member_id, join.timeouts.rebalance_timeout_ms)

    def _join_and_downgrade(self, decision: Decision, replaced: ConsumerMember) -> None:
        """Replace the last member of the new protocol, and convert the group to the classic protocol.

        The target stays. A classic rebalance follows if the group's epoch is beyond it.
        """
        group = decision.group
        try:
            self._steps.subscription.take(decision)
            decision.target = group.target_of_member(decision.new)
            rebalances = group.assignment_epoch < decision.epoch
            if not rebalances:
                self._steps.reconciliation.take(decision)
        finally:
            decision.take_effect()
        self._migration.downgrade_by(decision, replaced, rebalances=rebalances)

    # --- requests after a join ------------------------------------------------------------------------------------

    def sync(self, request: SyncGroupRequest, group: ConsumerGroup) -> SyncGroupResponse:
        """Return the assignment that the server has made. Raises KafkaError."""
        member, classic = _member(group, request)
        protocol, metadata = classic.protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
            None,
            protocol,
        ):
            raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._sessions.await_join(group, member)
            raise KafkaError(Error.REBALANCE_IN_PROGRESS)
        self._sessions.end_sync(group.group_id, member.member_id)
        self._sessions.restart(group.group_id, member.member_id, classic.session_timeout_ms)
        target = migration.without_epochs(member.assigned)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=migration.write_assignment(target, self._topics, migration.version_of(metadata)),
        )

    def heartbeat(self, request: HeartbeatRequest, group: ConsumerGroup) -> Error:
        """Return REBALANCE_IN_PROGRESS if the member has to join again, else NONE. Raises KafkaError.

        It has to join again to get the next epoch, to give up partitions, or because those that it waits for
        are free.
        """
        member, classic = _member(group, request)
        self._sessions.restart(group.group_id, member.member_id, classic.session_timeout_ms)
        if (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_unreleased(member))
        ):
            self._sessions.await_join(group, member)
            return Error.REBALANCE_IN_PROGRESS
        return Error.NONE

    def leave(self, request: LeaveGroupRequest, group: ConsumerGroup) -> list[MemberResponse]:
        """Remove members. Returns each member with its own error. Raises KafkaError if that can't be recorded."""
        answers: list[MemberResponse] = []
        gone: dict[str, ConsumerMember] = {}
        for identity in request.members:
            error = Error.NONE
            try:
                member = _leaving(group, identity)
                gone[member.member_id] = member
            except KafkaError as refused:
                error = refused.error
            answers.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error,
                )
            )
        self._leaving.fence(group, [*gone.values()])
        return answers


def _answer(decision: Decision, join: Join) -> JoinGroupResponse:
    return JoinGroupResponse(
        member_id=decision.new.member_id,
        generation_id=decision.new.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=join.request.protocols[0].name,
    )


def _as_requested(
    member: ConsumerMember, join: Join, subscription: ConsumerProtocolSubscription
) -> ConsumerMember:
    session_timeout_ms, rebalance_timeout_ms = join.timeouts
    return replace(
        member,
        instance_id=member.instance_id if join.instance_id is None else join.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms
        ),
        names=JavaSet.of(subscription.topics),
        regex="",
        client_id=join.client.client_id,
        client_host=join.client.host,
        classic=ClassicMetadata(session_timeout_ms, tuple(join.protocols())),
    )


def _member(
    group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest
) -> tuple[ConsumerMember, ClassicMetadata]:
    """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
    member = group.member_as(request.member_id, request.group_instance_id)
    if member.classic is None:
        raise KafkaError(Error.UNKNOWN_MEMBER_ID)
    if member.epoch != request.generation_id:
        raise KafkaError(Error.ILLEGAL_GENERATION)
    return member, member.classic


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if instance_id is not None and not member_id:
        # An administrator removes a static member without knowing its member id (KIP-345).
        owner = group.static_member(instance_id)
        member_id = "" if owner is None else owner.member_id
    return group.member_as(member_id, instance_id)


# --- a join with a long decision ------------------------------------------------------------------------------


class LongJoin(DeferredDecision[JoinGroupResponse]):
    """A deferred join. It calls `joined` once its records are written."""

    def __init__(
        self,
        parts: ShardParts,
        decision: Decision,
        decide: Callable[[], JoinGroupResponse],
        joined: Callable[[], None],
    ) -> None:
        super().__init__(parts, decision, decide)
        self._joined = joined

    def _written(self) -> None:
        self._joined()
