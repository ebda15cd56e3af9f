"""Members of share groups that leave, and those whose session ends: they are taken out, and the group is assigned anew
at somebody's next heartbeat.

Timers, by key: ("share session", group, member).
Source: `GroupMetadataManager` (shareGroupLeave, shareGroupFenceMember, scheduleShareGroupSessionTimeout).
"""

from __future__ import annotations

import logging
from functools import partial

from coordinator.group.modern.sessions import RETRY_MS
from coordinator.group.parts import ShardParts
from coordinator.group.share.group import ShareGroup
from coordinator.group.share.member import ShareMember
from coordinator.group.share.records import share_epoch_record, share_member_tombstones
from coordinator.group.share.states import LEAVE_EPOCH
from protocol.errors import KafkaError
from protocol.messages.groups_share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

log = logging.getLogger("barnabas.groups")

SHARE_SESSION = "share session"


class ShareSessions:
    """The ends of members."""

    def __init__(self, parts: ShardParts) -> None:
        self._runtime = parts.runtime
        self._store = parts.store
        self._journal = parts.journal
        self._hashes = parts.hashes
        self._timeouts_of = parts.share.timeouts_of

    def leave(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        """A heartbeat of epoch -1. Raises KafkaError: GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID."""
        group = self._store.share_group(request.group_id)
        member = group.member(request.member_id)
        log.info("group %s: %s leaves", group.group_id, member.member_id)
        self._remove(group, member)
        return ShareGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=LEAVE_EPOCH, assignment=None
        )

    def restart(self, group_id: str, member_id: str) -> None:
        """The member was heard of."""
        self._schedule(group_id, member_id, self._timeouts_of(group_id).session_timeout_ms)

    def restart_all(self) -> None:
        """After a start: everybody has a whole session."""
        for group_id, group in self._store.share.items():
            for member_id in group.members:
                self.restart(group_id, member_id)

    def _schedule(self, group_id: str, member_id: str, delay_ms: int) -> None:
        expired = partial(self._expired, group_id, member_id)
        self._runtime.schedule((SHARE_SESSION, group_id, member_id), delay_ms, expired)

    def _expired(self, group_id: str, member_id: str) -> None:
        group = self._store.share.get(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return
        log.info("group %s: %s is fenced: its session expired", group_id, member_id)
        try:
            self._remove(group, member)
        except KafkaError as error:
            log.warning("group %s: %s can't be fenced now: %s", group_id, member_id, error)
            self._schedule(group_id, member_id, RETRY_MS)

    def _remove(self, group: ShareGroup, member: ShareMember) -> None:
        """Raises KafkaError where that can't be recorded."""
        group_id = group.group_id
        topics, _ = group.subscriptions_with(member, None)
        records = share_member_tombstones(group_id, member.member_id)
        records.append(share_epoch_record(group_id, group.epoch + 1, self._hashes.of(topics)))
        self._journal.write(records)
        self._runtime.cancel((SHARE_SESSION, group_id, member.member_id))
