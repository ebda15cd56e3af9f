"""A JoinGroup request on its way: who joins, with what, and where the answer goes."""

from __future__ import annotations

from typing import NamedTuple

from coordinator.group.classic.member import JoinReply, MemberTimeouts, Protocols
from coordinator.group.client import Client
from protocol.errors import Error
from protocol.messages.groups import JoinGroupRequest, JoinGroupResponse

MEMBER_ID_FIRST_VERSION = 4  # KIP-394: a member gets its id first and joins with it


class Join(NamedTuple):
    """The answer goes to `reply`, exactly once: at once, or when the rebalance is complete."""

    client: Client
    request: JoinGroupRequest
    reply: JoinReply

    @property
    def group_id(self) -> str:
        return self.request.group_id

    @property
    def member_id(self) -> str:
        """As the request says it: a new member knows none."""
        return self.request.member_id

    @property
    def instance_id(self) -> str | None:
        return self.request.group_instance_id

    @property
    def timeouts(self) -> MemberTimeouts:
        """In version 0 the session timeout stands for the other one, too."""
        session_timeout_ms = self.request.session_timeout_ms
        if self.client.api_version == 0:
            return MemberTimeouts(session_timeout_ms, session_timeout_ms)
        return MemberTimeouts(session_timeout_ms, self.request.rebalance_timeout_ms)

    @property
    def reason(self) -> str:
        return self.request.reason or "no reason"

    @property
    def needs_member_id_first(self) -> bool:
        return self.client.api_version >= MEMBER_ID_FIRST_VERSION

    def protocols(self) -> Protocols:
        return [(protocol.name, bytes(protocol.metadata)) for protocol in self.request.protocols]

    def refuse(self, member_id: str, error: Error) -> None:
        self.reply(JoinGroupResponse(member_id=member_id, error_code=error))
