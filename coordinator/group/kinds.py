"""The interface of a group of any kind, for working with its offsets or administering it.

Classic, consumer, share and streams groups implement it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from coordinator.group.offsets.commit import CommitRequest, Committer, NewOffset
from coordinator.group.records import AnyRecord, CommittedOffset
from protocol.messages.groups import ListedGroup

RetentionStart = Callable[[CommittedOffset], int]
"""The time, in milliseconds, from which an offset's retention runs."""


class Group(Protocol):
    """A group of any kind (Kafka: `Group`). Checks raise KafkaError."""

    @property
    def group_id(self) -> str: ...

    @property
    def member_count(self) -> int: ...

    @property
    def is_empty(self) -> bool:
        """True if it has no members."""
        ...

    def has_member(self, member_id: str) -> bool: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """True if offsets of the topic are in use. Then they don't expire, and can't be deleted."""
        ...

    def check_commit(
        self, committer: Committer, offsets: Sequence[NewOffset], request: CommitRequest
    ) -> None:
        """Check that the committer may commit these offsets."""
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that this member may fetch offsets."""
        ...

    def check_offset_deletion(self) -> None:
        """Check that offsets may be deleted, of topics that nobody subscribes to."""
        ...

    def check_deletion(self) -> None:
        """Check that the group may be deleted."""
        ...

    def retention_start(self) -> RetentionStart | None:
        """The start of an offset's retention, or None if the group's offsets don't expire now."""
        ...

    def tombstones(self) -> list[AnyRecord]:
        """The records that delete it."""
        ...

    def listed(self) -> ListedGroup:
        """The group as ListGroups shows it."""
        ...
