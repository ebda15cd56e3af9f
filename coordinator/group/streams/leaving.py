"""Members that leave a streams group, and those that are fenced (Kafka: streamsGroupLeave, streamsGroupFenceMember)."""

from __future__ import annotations

import logging

from coordinator.group.modern.sessions import MemberSessions
from coordinator.group.parts import ShardParts
from coordinator.group.streams.group import StreamsGroup
from coordinator.group.streams.member import StreamsMember
from coordinator.group.streams.records import group_epoch_record, streams_member_tombstones
from protocol.messages.groups_streams import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

log = logging.getLogger("barnabas.groups")


class StreamsLeaving:
    """Members leave streams groups; the group is assigned anew at somebody's next heartbeat."""

    def __init__(self, parts: ShardParts, sessions: MemberSessions[StreamsMember]) -> None:
        self._store = parts.store
        self._journal = parts.journal
        self._sessions = sessions

    def leave(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        """A heartbeat of epoch −1. Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID."""
        group = self._store.streams_group(request.group_id)
        if request.shutdown_application:  # also of somebody whom the group doesn't know, as in Kafka
            group.request_shutdown(request.member_id)
        member = group.member(request.member_id)
        log.info("group %s: %s leaves", group.group_id, member.member_id)
        self._fence(group, member.member_id)
        return StreamsGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)

    def fence_late(self, group_id: str, member_id: str, reason: str) -> None:
        """A member's time is over. Raises KafkaError where that can't be recorded."""
        group = self._store.streams.get(group_id)
        if group is None or member_id not in group.members:
            return
        log.info("group %s: %s is fenced: %s", group_id, member_id, reason)
        self._fence(group, member_id)

    def _fence(self, group: StreamsGroup, member_id: str) -> None:
        """Raises KafkaError where that can't be recorded."""
        group_id = group.group_id
        records = streams_member_tombstones(group_id, member_id)
        records.append(
            group_epoch_record(
                group_id,
                group.epoch + 1,
                group.metadata_hash,
                group.validated_epoch,
                group.assignment_configs,
            )
        )
        self._journal.write(records)
        self._sessions.cancel_all(group_id, member_id)
