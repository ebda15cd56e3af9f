"""Members of share groups that leave, and those whose session ends: they are taken out, and the group is assigned anew
at somebody's next heartbeat.

Timers, by key: ("share session", group, member).
Source: `GroupMetadataManager` (shareGroupLeave, shareGroupFenceMember, scheduleShareGroupSessionTimeout).
"""

from __future__ import annotations

import logging

from coordinator.group.modern.sessions import Sessions
from coordinator.group.parts import ShardParts
from coordinator.group.share.group import ShareGroup
from coordinator.group.share.member import ShareMember
from coordinator.group.share.records import share_epoch_record, share_member_tombstones
from coordinator.group.share.states import LEAVE_EPOCH
from protocol.messages.groups_share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

log = logging.getLogger("barnabas.groups")

SHARE_SESSION = "share session"


class ShareSessions(Sessions):
    """The ends of members."""

    def __init__(self, parts: ShardParts) -> None:
        super().__init__(
            parts.runtime,
            self._fence,
            is_undecided=parts.undecided.is_of,
            session=SHARE_SESSION,
            timeout_ms_of=lambda group_id: parts.share.timeouts_of(group_id).session_timeout_ms,
        )
        self._store = parts.store
        self._journal = parts.journal
        self._hashes = parts.hashes

    def leave(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        """A heartbeat of epoch -1. Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID."""
        group = self._store.share_group(request.group_id)
        member = group.member(request.member_id)
        log.info("group %s: %s leaves", group.group_id, member.member_id)
        self._remove(group, member)
        return ShareGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=LEAVE_EPOCH, assignment=None
        )

    def restart_all(self) -> None:
        """After a start: everybody has a whole session."""
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
        """Raises KafkaError where that can't be recorded."""
        group_id = group.group_id
        topics, _ = group.subscriptions_with(member, None)
        records = share_member_tombstones(group_id, member.member_id)
        records.append(share_epoch_record(group_id, group.epoch + 1, self._hashes.of(topics)))
        self._journal.write(records)
        self.cancel_all(group_id, member.member_id)
