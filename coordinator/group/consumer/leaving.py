"""Members that leave, for good or for a while, and those that are fenced (Kafka: consumerGroupLeave, FenceMembers)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import ConsumerMember
from coordinator.group.consumer.migration import Migration
from coordinator.group.consumer.records import (
    assignment_record,
    epoch_record,
    member_tombstones,
    regex_record,
)
from coordinator.group.consumer.sessions import ConsumerSessions
from coordinator.group.consumer.states import LEAVE_STATIC_EPOCH
from coordinator.group.parts import ShardParts
from coordinator.group.records import AnyRecord
from coordinator.java.maps import JavaMap
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

log = logging.getLogger("barnabas.groups")

MOST_LEAVING_WORK = 10_000
"""Some 10 ms, the unit being about a microsecond: with each member that leaves the group's topics are gone through."""

_PER_MEMBER, _PER_TOPIC = 50, 5


def most_leaving(group: ConsumerGroup) -> int:
    """How many members leave in one turn."""
    return max(1, MOST_LEAVING_WORK // (_PER_MEMBER + _PER_TOPIC * len(group.topics)))


class Leaving:
    """Members leave consumer groups."""

    def __init__(self, parts: ShardParts, migration: Migration, sessions: ConsumerSessions) -> None:
        self._store = parts.store
        self._journal = parts.journal
        self._hashes = parts.hashes
        self._migration = migration
        self._sessions = sessions

    def leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat of epoch −1, or −2.

        Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        group = self._store.consumer_group(request.group_id)
        member = group.member_as(request.member_id, request.instance_id)
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch, assignment=None
        )
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
            log.info("group %s: %s leaves for a while", group.group_id, member.member_id)
            self._journal.write([assignment_record(group.group_id, _away(member))])
        else:
            log.info("group %s: %s leaves", group.group_id, member.member_id)
            self.fence(group, [member])
        return answer

    def fence_late(self, group_id: str, member_id: str, reason: str) -> None:
        """A member's time is over. Raises KafkaError where that can't be recorded."""
        group = self._store.consumer.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return
        log.info("group %s: %s is fenced: %s", group_id, member_id, reason)
        self.fence(group, [member])

    def fence(self, group: ConsumerGroup, members: Sequence[ConsumerMember]) -> None:
        """Take members out; the group is assigned anew at somebody's next heartbeat.

        Where only members of the classic protocol are left it becomes a classic group. Raises KafkaError where that
        can't be recorded.
        """
        if not members:
            return
        if self._migration.may_downgrade(group, members):
            self._migration.downgrade(group, leaving=members)
            return
        group_id = group.group_id
        records: list[AnyRecord] = []
        for member in members:
            records += member_tombstones(group_id, member.member_id)
        counts = Counter(member.regex for member in members if member.regex)
        unused = [regex for regex, count in counts.items() if group.regexes[regex] == count]
        records += [regex_record(group_id, regex, None) for regex in unused]
        metadata_hash = self._hashes.of(group.topics_without(members, unused))
        records.append(epoch_record(group_id, group.epoch + 1, metadata_hash))
        self._journal.write(records)
        for member in members:  # who couldn't be taken out stays, and its session goes on
            self._sessions.cancel_all(group_id, member.member_id)


def _away(member: ConsumerMember) -> ConsumerMember:
    """A static member that comes back: it keeps its partitions, and whoever comes may commit for them."""
    assigned: JavaMap[bytes, JavaMap[int, int]] = JavaMap()
    for topic_id, partitions in member.assigned.items():
        epochs: JavaMap[int, int] = JavaMap()
        for partition in partitions:
            epochs[partition] = 0
        assigned[topic_id] = epochs
    return replace(member, epoch=LEAVE_STATIC_EPOCH, assigned=assigned, pending=JavaMap())
