"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-848).

Such a member doesn't lead, and nobody's join waits: the server assigns, and the member's generation is its epoch.
Source: `GroupMetadataManager`, the methods that end in ToConsumerGroup.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.group.classic.member import JoinReply
from coordinator.group.consumer import embedded, leaving, migration, regexes, timers
from coordinator.group.consumer import heartbeat as heartbeats
from coordinator.group.consumer.group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from coordinator.group.consumer.member import ClassicMetadata, ConsumerMember
from coordinator.group.consumer.regexes import RegexChange
from coordinator.group.consumer.states import MemberState
from coordinator.group.consumer.target import update_target
from coordinator.group.records import AnyRecord
from coordinator.java.maps import JavaSet
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from protocol.messages.groups_classic import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.wire.primitives import uuid_to_text

if TYPE_CHECKING:
    from coordinator.group.shard import Client, GroupShard

log = logging.getLogger("barnabas.groups")

MEMBER_ID_FIRST_VERSION = 4


def join(
    shard: GroupShard, client: Client, group: ConsumerGroup, request: JoinGroupRequest, reply: JoinReply
) -> None:
    """Answered at once. Raises KafkaError."""
    if shard.settings.migration_policy == "disabled":
        raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
    is_new = not request.member_id
    member_id = request.member_id or uuid_to_text(shard.runtime.new_uuid())
    heartbeats.check_room(shard, group, member_id)
    if not group.supports_classic(request.protocol_type, (each.name for each in request.protocols)):
        raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
    instance_id = request.group_instance_id
    if is_new and instance_id is None and client.api_version >= MEMBER_ID_FIRST_VERSION:
        return reply(JoinGroupResponse(member_id=member_id, error_code=Error.MEMBER_ID_REQUIRED))
    records: list[AnyRecord] = []
    if instance_id is None:
        member = group.members.get(member_id) or ConsumerMember(member_id)
    elif is_new:
        member = heartbeats.take_instance(group, member_id, instance_id, records, uses_classic=True)
    else:
        member = leaving.check_instance(group.static_member(instance_id), member_id, instance_id)
    return _join_as(shard, client, group, request, member, records, reply)


def _join_as(
    shard: GroupShard,
    client: Client,
    group: ConsumerGroup,
    request: JoinGroupRequest,
    member: ConsumerMember,
    records: list[AnyRecord],
    reply: JoinReply,
) -> None:
    replaced = group.static_member(request.group_instance_id)
    downgrades = replaced is not None and migration.may_downgrade_by(shard, group, replaced)
    try:
        subscription = embedded.read_subscription(bytes(request.protocols[0].metadata))
    except CodecError:
        # Kafka: an IllegalStateException.
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR) from None
    updated = _updated(member, client, request, subscription)
    names_changed = heartbeats.record_member(group, member, updated, records)
    regex_changed = regexes.update(shard, group, member, updated, records) is not RegexChange.NONE
    bump = names_changed or regex_changed
    epoch, homogeneous = group.epoch, group.homogeneous
    if bump or group.needs_refresh(shard.runtime.now_ms()):
        epoch, homogeneous = heartbeats.refresh_metadata(shard, group, member, updated, records, bump=bump)
    owned = embedded.owned_of(subscription, shard.topics)
    rebalances = group.assignment_epoch < epoch
    if downgrades:
        target_epoch, target = group.assignment_epoch, group.target_of_member(updated)
    else:
        target_epoch, target = update_target(
            shard, group, epoch, member, updated, records, homogeneous=homogeneous
        )
    if not (downgrades and rebalances):
        updated = heartbeats.reconcile_member(
            shard, group, updated, target_epoch, target, owned, records, subscription_changed=bump
        )
    response = JoinGroupResponse(
        member_id=updated.member_id,
        generation_id=updated.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
    )
    if downgrades:
        migration.downgrade(shard, group, joining=updated, records=records, rebalances=rebalances)
    else:
        shard.commit(records)
        group_id = group.group_id
        timers.end_join(shard, group_id, updated.member_id)
        timers.restart_session(shard, group_id, updated.member_id, request.session_timeout_ms)
        timers.await_sync(shard, group_id, updated.member_id, request.rebalance_timeout_ms)
    reply(response)


def _updated(
    member: ConsumerMember,
    client: Client,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
) -> ConsumerMember:
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        names=JavaSet.of(subscription.topics),
        regex="",
        client_id=client.client_id,
        client_host=client.host,
        classic=ClassicMetadata(
            request.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        ),
    )


# --- what follows a join ------------------------------------------------------------------------------------


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMetadata]:
    """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = leaving.check_instance(group.static_member(instance_id), member_id, instance_id)
    if member.classic is None:
        raise KafkaError(Error.UNKNOWN_MEMBER_ID)
    if member.epoch != generation:
        raise KafkaError(Error.ILLEGAL_GENERATION)
    return member, member.classic


def sync(shard: GroupShard, group: ConsumerGroup, request: SyncGroupRequest) -> SyncGroupResponse:
    """What the server has assigned. Raises KafkaError."""
    member, classic = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    protocol, metadata = classic.protocols[0]
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        protocol,
    ):
        raise KafkaError(Error.INCONSISTENT_GROUP_PROTOCOL)
    if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        timers.await_join(shard, group, member)
        raise KafkaError(Error.REBALANCE_IN_PROGRESS)
    timers.end_sync(shard, group.group_id, member.member_id)
    timers.restart_session(shard, group.group_id, member.member_id, classic.session_timeout_ms)
    target = embedded.without_epochs(member.assigned)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=embedded.write_assignment(target, shard.topics, embedded.version_of(metadata)),
    )


def heartbeat(shard: GroupShard, group: ConsumerGroup, request: HeartbeatRequest) -> Error:
    """REBALANCE_IN_PROGRESS where it has to join again: to get the next epoch, to have given up something, or since
    all is free that it waits for. Raises KafkaError."""
    member, classic = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    timers.restart_session(shard, group.group_id, member.member_id, classic.session_timeout_ms)
    if (
        member.epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_unreleased(member))
    ):
        timers.await_join(shard, group, member)
        return Error.REBALANCE_IN_PROGRESS
    return Error.NONE


def leave(shard: GroupShard, group: ConsumerGroup, request: LeaveGroupRequest) -> list[MemberResponse]:
    """Each member with its own error. Raises KafkaError where it can't be recorded."""
    answers: list[MemberResponse] = []
    gone: dict[str, ConsumerMember] = {}
    for identity in request.members:
        error = Error.NONE
        try:
            instance_id = identity.group_instance_id
            if instance_id is None:
                member = group.member(identity.member_id)
            else:
                owner = group.static_member(instance_id)
                # An administrator takes a static member out, and knows no member id (KIP-345).
                known = identity.member_id or (owner.member_id if owner is not None else "")
                member = leaving.check_instance(owner, known, instance_id)
            gone[member.member_id] = member
        except KafkaError as refused:
            error = refused.error
        answers.append(
            MemberResponse(
                member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error
            )
        )
    leaving.fence(shard, group, [*gone.values()])
    return answers
