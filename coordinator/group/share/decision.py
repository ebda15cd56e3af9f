"""What is decided of a share group by a member's heartbeat, while it goes from one step to the next.

Nothing of the group is changed before the records are written; that its topics were looked up, and the lines of the
log, come before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator.group.modern.effects import Effects
from coordinator.group.records import AnyRecord
from coordinator.group.share.group import ShareGroup
from coordinator.group.share.member import ShareMember


@dataclass(slots=True)
class ShareDecision(Effects):
    """A member goes from `old`, as the group knows it, to `new`. A group that isn't there yet is empty, and another one
    than the records make."""

    group: ShareGroup
    old: ShareMember
    new: ShareMember
    epoch: int
    """The group's, as it will be."""
    topics: Iterable[str]
    homogeneous: bool
    records: list[AnyRecord] = field(default_factory=list)
    bumped: bool = False
    """Whether the group has a new epoch."""
