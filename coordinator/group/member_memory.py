"""What the members of all classic groups of a node hold in memory, and who would go past the bound.

A member's protocols are kept for as long as it is one, up to half an hour after it was last heard of. What joins bring
is added up; what has gone since is found by going over all members once the sum says that there is no room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    from coordinator.group.classic.group import ClassicGroup
    from coordinator.group.classic.member import ClassicMember
    from coordinator.group.store import GroupStore
    from protocol.messages.groups_classic import JoinGroupRequest

MOST_MEMBER_BYTES = 256 * 1024 * 1024
"""Of all members, with those that were only given an id."""
MEMBER_BYTES = 1_000  # of each, beside what it says of itself
PROTOCOL_BYTES = 300  # of each of its protocols, beside name and metadata
BETWEEN_COUNTS_MS = 1_000  # where little came meanwhile: who is refused may ask again and again
_LITTLE_BYTES = MOST_MEMBER_BYTES // 16


def _protocols_bytes(protocols: Sequence[tuple[str, bytes]]) -> int:
    return sum([PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols])


def _group_bytes(group: ClassicGroup) -> int:
    held_bytes = sum([MEMBER_BYTES + len(member_id) for member_id in group.pending_joins])
    for member in group.members.values():
        held_bytes += MEMBER_BYTES + len(member.member_id) + _protocols_bytes(member.protocols)
    return held_bytes


class MemberMemory:
    """Of all shards of a node."""

    def __init__(self) -> None:
        self._stores: WeakSet[GroupStore] = WeakSet()
        self._counted_bytes = 0
        self._counted_ms = 0
        self._came_bytes = 0  # since then

    def count(self, store: GroupStore) -> None:
        """The groups of a shard, from now on."""
        self._stores.add(store)

    def admits(self, request: JoinGroupRequest, name: str, member: ClassicMember | None, now_ms: int) -> bool:
        """Whether there is room for what a join brings; it counts then. `name`: what a new member's id begins with.
        `member`: who it is by now; where it brings no more than it has it needs no room."""
        brought_bytes = sum(
            [PROTOCOL_BYTES + len(each.name) + len(each.metadata) for each in request.protocols]
        )
        if member is None:
            brought_bytes += MEMBER_BYTES + len(name)
        else:
            brought_bytes -= _protocols_bytes(member.protocols)
            if brought_bytes <= 0:
                return True
        if self._counted_bytes + self._came_bytes + brought_bytes > MOST_MEMBER_BYTES:
            if self._came_bytes < _LITTLE_BYTES and 0 <= now_ms - self._counted_ms < BETWEEN_COUNTS_MS:
                return False
            self._counted_bytes = sum(
                [_group_bytes(group) for store in self._stores for group in store.classic.values()]
            )
            self._counted_ms, self._came_bytes = now_ms, 0
            if self._counted_bytes + brought_bytes > MOST_MEMBER_BYTES:
                return False
        self._came_bytes += brought_bytes
        return True
