"""ConsumerGroupHeartbeat: members join, live, are assigned partitions and give them up (KIP-848).

Everything is decided on the group as it is; the records of one heartbeat are written together and then applied.
Source: `GroupMetadataManager.consumerGroupHeartbeat`, in its order.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.group.consumer import leaving, migration, regexes, timers
from coordinator.group.consumer.group import (
    ConsumerGroup,
    is_homogeneous,
    owned_is_part_of,
)
from coordinator.group.consumer.member import Assigned, ConsumerMember, Owned, Target
from coordinator.group.consumer.metadata_hash import group_hash
from coordinator.group.consumer.reconciliation import reconcile
from coordinator.group.consumer.records import (
    assignment_record,
    epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    target_record,
)
from coordinator.group.consumer.regexes import RegexChange
from coordinator.group.consumer.states import (
    EPOCHS,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Epoch,
    MemberState,
)
from coordinator.group.consumer.target import subscribed_names, update_target
from coordinator.group.records import AnyRecord
from coordinator.java.maps import JavaSet
from protocol.errors import Error, KafkaError
from protocol.messages.groups_consumer import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.wire.primitives import uuid_to_text

if TYPE_CHECKING:
    from coordinator.group.shard import Client, GroupShard

log = logging.getLogger("barnabas.groups")


def heartbeat(
    shard: GroupShard, client: Client, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """The answer. Raises KafkaError; the group is as before then."""
    if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        return leaving.leave(shard, request)
    records: list[AnyRecord] = []
    joins = request.member_epoch == JOIN_EPOCH
    group = migration.group_for_heartbeat(shard, request.group_id, records, joins=joins)
    check_room(shard, group, request.member_id)
    member_id = request.member_id or uuid_to_text(shard.runtime.new_uuid())
    owned: Owned = None
    if request.topic_partitions is not None:
        owned = [(topic.topic_id, topic.partitions) for topic in request.topic_partitions]
    member = _find(group, request, member_id, owned, records)
    updated = _updated(member, client, request)
    names_changed = record_member(group, member, updated, records)
    regex_change = regexes.update(shard, group, member, updated, records)
    epoch, homogeneous = group.epoch, group.homogeneous
    bump = names_changed or regex_change is RegexChange.RESOLVED
    if bump or group.needs_refresh(shard.runtime.now_ms()):
        epoch, homogeneous = refresh_metadata(shard, group, member, updated, records, bump=bump)
    target_epoch, target = update_target(
        shard, group, epoch, member, updated, records, homogeneous=homogeneous
    )
    changed = names_changed or regex_change is not RegexChange.NONE
    reconciled = reconcile_member(
        shard, group, updated, target_epoch, target, owned, records, subscription_changed=changed
    )
    timers.restart_session(shard, group.group_id, member_id)
    shard.commit(records)
    is_full = (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and owned is not None
    )
    shows = joins or is_full or reconciled.assigned != member.assigned
    return ConsumerGroupHeartbeatResponse(
        member_id=reconciled.member_id,
        member_epoch=reconciled.epoch,
        heartbeat_interval_ms=shard.timeouts_of(group.group_id).heartbeat_interval_ms,
        assignment=_shown(reconciled.assigned) if shows else None,
    )


def _shown(assigned: Assigned) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=partitions.keys())
            for topic_id, partitions in assigned.items()
        ]
    )


def check_room(shard: GroupShard, group: ConsumerGroup, member_id: str) -> None:
    """Raises KafkaError (GROUP_MAX_SIZE_REACHED) for one member too many."""
    limit = shard.settings.consumer_max_size
    if len(group.members) >= limit and not (member_id and member_id in group.members):
        raise KafkaError(
            Error.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limit} members.",
        )


# --- the member ---------------------------------------------------------------------------------------------


def _find(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    owned: Owned,
    records: list[AnyRecord],
) -> ConsumerMember:
    """The member as it is, or a new one."""
    epoch, instance_id = request.member_epoch, request.instance_id
    if instance_id is not None and epoch == JOIN_EPOCH:
        return take_instance(group, member_id, instance_id, records, uses_classic=False)
    if instance_id is not None:
        member = leaving.check_instance(group.static_member(instance_id), member_id, instance_id)
    elif epoch == JOIN_EPOCH:
        member = group.members.get(member_id) or ConsumerMember(member_id)
    else:
        member = group.member(member_id)
    _check_epoch(member, epoch, owned)
    return member


def take_instance(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str,
    records: list[AnyRecord],
    *,
    uses_classic: bool,
) -> ConsumerMember:
    """A static member joins, or comes back and takes its place under a new id.

    Raises KafkaError (UNRELEASED_INSTANCE_ID) where the last one, of the same protocol, hasn't left.
    """
    owner = group.static_member(instance_id)
    if owner is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if not uses_classic and not owner.is_classic and owner.epoch != LEAVE_STATIC_EPOCH:
        raise KafkaError(
            Error.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {owner.member_id} member.",
        )
    member = replace(owner, member_id=member_id, epoch=0, previous_epoch=0)
    records += member_tombstones(group.group_id, owner.member_id)
    records.append(member_record(group.group_id, member))
    records.append(target_record(group.group_id, member_id, group.target_of(owner.member_id)))
    records.append(assignment_record(group.group_id, member))
    log.info("group %s: %s takes the place of %s", group.group_id, member_id, owner.member_id)
    return member


def relation(member: ConsumerMember, epoch: int, owned: Owned) -> Epoch:
    """How the epoch of a heartbeat stands to the member's."""
    if epoch == JOIN_EPOCH:
        return Epoch.JOINS
    if epoch == member.epoch:
        return Epoch.CURRENT
    if epoch > member.epoch:
        return Epoch.NEWER
    if epoch == member.previous_epoch and owned_is_part_of(owned, member.assigned):
        return Epoch.PREVIOUS
    return Epoch.OLDER


def _check_epoch(member: ConsumerMember, epoch: int, owned: Owned) -> None:
    found = relation(member, epoch, owned)
    if not EPOCHS[found]:
        kind = "greater" if found is Epoch.NEWER else "smaller"
        raise KafkaError(
            Error.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {kind} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def _updated(
    member: ConsumerMember, client: Client, request: ConsumerGroupHeartbeatRequest
) -> ConsumerMember:
    """What the request says of the member; null leaves it as it was. It is one of the new protocol from here on."""
    names = request.subscribed_topic_names
    regex = request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        names=member.names if names is None else JavaSet.of(names),
        regex=member.regex if regex is None else regex,
        client_id=client.client_id,
        client_host=client.host,
        classic=None,
    )


def record_member(
    group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember, records: list[AnyRecord]
) -> bool:
    """Record what changed of a member; whether it subscribes to other names than before."""
    if new == old:
        return False
    records.append(member_record(group.group_id, new))
    return new.names != old.names


# --- the group ----------------------------------------------------------------------------------------------


def refresh_metadata(
    shard: GroupShard,
    group: ConsumerGroup,
    old: ConsumerMember,
    new: ConsumerMember,
    records: list[AnyRecord],
    *,
    bump: bool,
) -> tuple[int, bool]:
    """The group's epoch, which grows where its topics changed or `bump` says so, and whether it is homogeneous."""
    topics = group.topics_with(old, new)
    metadata_hash = group_hash(topics, shard.topics, shard.topic_hashes)
    count = len(group.members)
    if new.member_id not in group.members and new.instance_id not in group.static_members:
        count += 1
    epoch = group.epoch
    if bump or metadata_hash != group.metadata_hash:
        epoch += 1
        records.append(epoch_record(group.group_id, epoch, metadata_hash))
        log.info("group %s is at epoch %d", group.group_id, epoch)
    group.was_refreshed(shard.runtime.now_ms(), epoch)
    if group.has_partition_metadata:
        records.append(partition_metadata_tombstone(group.group_id))
    return epoch, is_homogeneous(group.regexes_with(old, new), topics, count)


def reconcile_member(
    shard: GroupShard,
    group: ConsumerGroup,
    member: ConsumerMember,
    target_epoch: int,
    target: Target,
    owned: Owned,
    records: list[AnyRecord],
    *,
    subscription_changed: bool,
) -> ConsumerMember:
    """Bring the member a step nearer to its target."""
    if not subscription_changed and member.is_reconciled_to(target_epoch):
        return member
    names = subscribed_names(member, group.resolved)
    found = (shard.topics.by_name(name) for name in names)
    reconciled = reconcile(
        member,
        target_epoch,
        target,
        subscribed={topic.topic_id for topic in found if topic is not None},
        subscription_changed=subscription_changed,
        owned=owned,
        partition_epoch=group.partition_epoch,
    )
    if reconciled == member:
        return member
    records.append(assignment_record(group.group_id, reconciled))
    if not reconciled.is_classic:
        if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
            timers.limit_rebalance(shard, group.group_id, reconciled)
        else:
            timers.end_rebalance(shard, group.group_id, reconciled.member_id)
    return reconciled
