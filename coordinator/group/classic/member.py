"""A member of a classic group (Kafka: `ClassicGroupMember`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from protocol.messages.groups import (
    JoinGroupResponse,
    SyncGroupResponse,
)

JoinReply = Callable[[JoinGroupResponse], None]
SyncReply = Callable[[SyncGroupResponse], None]
Protocols = list[tuple[str, bytes]]
"""Name and metadata of the protocols that a member supports, the best first."""


class Identity(NamedTuple):
    """Who a member is: its ids, and the client that it is."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str


class MemberTimeouts(NamedTuple):
    """How long a member may be silent, and how long it may take to join again."""

    session_timeout_ms: int
    rebalance_timeout_ms: int


class ClassicMember:
    """`join_reply` and `sync_reply` are the answers that wait: a member with one is parked in a join or a sync."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self, identity: Identity, timeouts: MemberTimeouts, protocol_type: str, protocols: Protocols
    ) -> None:
        self.member_id, self.instance_id, self.client_id, self.client_host = identity
        self.session_timeout_ms, self.rebalance_timeout_ms = timeouts
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = b""
        self.is_new = False  # not yet through its first join: its session can end while it is parked
        self.join_reply: JoinReply | None = None
        self.sync_reply: SyncReply | None = None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def timeouts(self) -> MemberTimeouts:
        return MemberTimeouts(self.session_timeout_ms, self.rebalance_timeout_ms)

    @property
    def heartbeat_is_satisfied(self) -> bool:
        """Whether it may be silent: who is parked can't send heartbeats."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol: str) -> bytes:
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def with_id(self, member_id: str) -> ClassicMember:
        """The same member under a new id, with nothing parked: a static member that came back."""
        made = ClassicMember(
            Identity(member_id, self.instance_id, self.client_id, self.client_host),
            self.timeouts,
            self.protocol_type,
            self.protocols,
        )
        made.assignment = self.assignment
        return made

    def answer_join(self, response: JoinGroupResponse) -> bool:
        """Answer the join that is parked here; whether there was one. `ClassicGroup.answer_join` also counts it."""
        reply, self.join_reply = self.join_reply, None
        if reply is None:
            return False
        reply(response)
        return True

    def answer_sync(self, response: SyncGroupResponse) -> bool:
        reply, self.sync_reply = self.sync_reply, None
        if reply is None:
            return False
        reply(response)
        return True
