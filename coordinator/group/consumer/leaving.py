"""Members that leave, for good or for a while, and those that are fenced (Kafka: consumerGroupLeave, FenceMembers)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.group.consumer import migration, timers
from coordinator.group.consumer.group import ConsumerGroup, regex_of
from coordinator.group.consumer.member import ConsumerMember
from coordinator.group.consumer.metadata_hash import group_hash
from coordinator.group.consumer.records import (
    assignment_record,
    epoch_record,
    member_tombstones,
    regex_record,
)
from coordinator.group.consumer.states import LEAVE_STATIC_EPOCH
from coordinator.group.records import AnyRecord
from coordinator.java.maps import JavaMap
from protocol.errors import Error, KafkaError
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from coordinator.group.shard import GroupShard

log = logging.getLogger("barnabas.groups")


def leave(shard: GroupShard, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat of epoch −1, or −2. Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    group = shard.consumer_group(request.group_id)
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        member = check_instance(
            group.static_member(request.instance_id), request.member_id, request.instance_id
        )
    answer = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=request.member_epoch, assignment=None
    )
    if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
        log.info("group %s: %s leaves for a while", group.group_id, member.member_id)
        shard.commit([assignment_record(group.group_id, _away(member))])
    else:
        log.info("group %s: %s leaves", group.group_id, member.member_id)
        fence(shard, group, [member])
    return answer


def check_instance(member: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """The owner of an instance id, if it is this member. Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    if member is None:
        raise KafkaError(Error.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            Error.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def _away(member: ConsumerMember) -> ConsumerMember:
    """A static member that comes back: it keeps its partitions, and whoever comes may commit for them."""
    assigned: JavaMap[bytes, JavaMap[int, int]] = JavaMap()
    for topic_id, partitions in member.assigned.items():
        epochs: JavaMap[int, int] = JavaMap()
        for partition in partitions:
            epochs[partition] = 0
        assigned[topic_id] = epochs
    return replace(member, epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending=JavaMap())


def fence(shard: GroupShard, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
    """Take members out; the group is assigned anew at somebody's next heartbeat.

    Where only members of the classic protocol are left it becomes a classic group. Raises KafkaError where that can't
    be recorded.
    """
    if not members:
        return
    if migration.may_downgrade(shard, group, members):
        migration.downgrade(shard, group, leaving=members)
        return
    group_id = group.group_id
    records: list[AnyRecord] = []
    for member in members:
        records += member_tombstones(group_id, member.member_id)
    counts = Counter(regex for member in members if (regex := regex_of(member)) is not None)
    unused = [regex for regex, count in counts.items() if group.regexes[regex] == count]
    records += [regex_record(group_id, regex, None) for regex in unused]
    metadata_hash = group_hash(group.topics_without(members, unused), shard.topics, shard.topic_hashes)
    records.append(epoch_record(group_id, group.epoch + 1, metadata_hash))
    for member in members:
        timers.cancel_all(shard, group_id, member.member_id)
    shard.commit(records)
