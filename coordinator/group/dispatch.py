"""Requests that a group of either kind may get, handed on to its kind (Kafka: `GroupMetadataManager`, classicGroupJoin
and its neighbours)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.group.classic import joining, membership
from coordinator.group.classic.member import JoinReply, SyncReply
from coordinator.group.consumer import classic_members
from protocol.errors import Error
from protocol.messages.groups_classic import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MemberResponse,
    SyncGroupRequest,
)

if TYPE_CHECKING:
    from coordinator.group.shard import Client, GroupShard


def join(shard: GroupShard, client: Client, request: JoinGroupRequest, reply: JoinReply) -> None:
    """JoinGroup. An empty consumer group is a classic one from here on. Raises KafkaError."""
    group = shard.consumer_groups.get(request.group_id)
    if group is None or group.is_empty:
        joining.join(shard, client, request, reply)
    elif joining.is_sound(shard, request, reply):
        if client.api_version == 0:
            request.rebalance_timeout_ms = request.session_timeout_ms
        classic_members.join(shard, client, group, request, reply)


def sync(shard: GroupShard, request: SyncGroupRequest, reply: SyncReply) -> None:
    """SyncGroup. Raises KafkaError."""
    group = shard.consumer_groups.get(request.group_id)
    if group is None or group.is_empty:
        membership.sync(shard, request, reply)
    else:
        reply(classic_members.sync(shard, group, request))


def heartbeat(shard: GroupShard, request: HeartbeatRequest) -> Error:
    """Heartbeat of the classic protocol. Raises KafkaError."""
    group = shard.consumer_groups.get(request.group_id)
    if group is None:
        return membership.heartbeat(shard, request)
    return classic_members.heartbeat(shard, group, request)


def leave(shard: GroupShard, request: LeaveGroupRequest) -> tuple[Error, list[MemberResponse]]:
    """LeaveGroup: an error of the whole request, or each member with its own. Raises KafkaError."""
    group = shard.consumer_groups.get(request.group_id)
    if group is None:
        return membership.leave(shard, request)
    return Error.NONE, classic_members.leave(shard, group, request)
