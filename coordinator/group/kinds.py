"""What a group of every kind can tell: whoever works with offsets, or administers groups, need not know the kind.

Streams groups come in here, as classic, consumer and share groups do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from coordinator.group.offsets.commit import CommitRequest, Committer, NewOffset
from coordinator.group.records import AnyRecord, CommittedOffset
from protocol.messages.groups import ListedGroup

RetentionStart = Callable[[CommittedOffset], int]
"""From when on, in milliseconds, the retention time of an offset runs."""


class Group(Protocol):
    """A group of any kind (Kafka: `Group`). What is refused is raised as KafkaError."""

    @property
    def group_id(self) -> str: ...

    @property
    def member_count(self) -> int: ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        ...

    def has_member(self, member_id: str) -> bool: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of a topic are in use: they neither expire nor are they deleted."""
        ...

    def check_commit(
        self, committer: Committer, offsets: Sequence[NewOffset], request: CommitRequest
    ) -> None:
        """Whether the committer may commit these offsets."""
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether this member may fetch offsets."""
        ...

    def check_offset_deletion(self) -> None:
        """Whether offsets may be deleted, of topics that nobody subscribes to."""
        ...

    def check_deletion(self) -> None:
        """Whether the group may be deleted."""
        ...

    def retention_start(self) -> RetentionStart | None:
        """None for a group whose offsets don't expire now."""
        ...

    def tombstones(self) -> list[AnyRecord]:
        """The records that end it."""
        ...

    def listed(self) -> ListedGroup:
        """The group as ListGroups shows it."""
        ...
