"""Requests of the classic protocol, handed on to the kind of group that they are for (Kafka: `GroupMetadataManager`,
classicGroupJoin and its neighbours)."""

from __future__ import annotations

from coordinator.group.classic.join import Join
from coordinator.group.classic.joining import Joining
from coordinator.group.classic.member import SyncReply
from coordinator.group.classic.membership import Membership
from coordinator.group.consumer.classic_members import ClassicMembers
from coordinator.group.deferred import Deferred
from coordinator.group.store import GroupStore
from protocol.errors import Error
from protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberResponse,
    SyncGroupRequest,
)


class ClassicRequests:
    """A consumer group without members is a classic one again as soon as somebody joins it so."""

    def __init__(
        self, store: GroupStore, joining: Joining, membership: Membership, in_consumer_groups: ClassicMembers
    ) -> None:
        self._consumer_groups = store.consumer
        self._joining = joining
        self._membership = membership
        self._in_consumer_groups = in_consumer_groups

    def join(self, join: Join) -> Deferred[JoinGroupResponse] | None:
        """JoinGroup. Raises KafkaError. Nothing is replied where it is deferred."""
        group = self._consumer_groups.get(join.group_id)
        if group is None or group.is_empty:
            self._joining.join(join)
        elif self._joining.is_sound(join):
            return self._in_consumer_groups.join(join, group)
        return None

    def sync(self, request: SyncGroupRequest, reply: SyncReply) -> None:
        """SyncGroup. Raises KafkaError."""
        group = self._consumer_groups.get(request.group_id)
        if group is None or group.is_empty:
            self._membership.sync(request, reply)
        else:
            reply(self._in_consumer_groups.sync(request, group))

    def heartbeat(self, request: HeartbeatRequest) -> Error:
        """Heartbeat of the classic protocol. Raises KafkaError."""
        group = self._consumer_groups.get(request.group_id)
        if group is None:
            return self._membership.heartbeat(request)
        return self._in_consumer_groups.heartbeat(request, group)

    def leave(self, request: LeaveGroupRequest) -> tuple[Error, list[MemberResponse]]:
        """LeaveGroup: an error of the whole request, or each member with its own. Raises KafkaError."""
        group = self._consumer_groups.get(request.group_id)
        if group is None:
            return self._membership.leave(request)
        return Error.NONE, self._in_consumer_groups.leave(request, group)
