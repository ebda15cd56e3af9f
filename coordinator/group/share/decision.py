"""What is decided of a share group by a member's heartbeat, while it goes from one step to the next.

Nothing of the group is changed before the records are written; that its topics were looked up, and the lines of the
log, come before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from coordinator.group.records import AnyRecord
from coordinator.group.share.group import ShareGroup
from coordinator.group.share.member import ShareMember


@dataclass(slots=True)
class ShareDecision:
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
    effects: list[Callable[[], None]] = field(default_factory=list)
    """What it does besides its records, timers and lines of the log: where the decision is taken, not where it is
    made, which may be in a thread, and more than once."""
    once_written: list[Callable[[], None]] = field(default_factory=list)
    bumped: bool = False
    """Whether the group has a new epoch."""

    def take_effect(self) -> None:
        """Once, before the records are written. What a step has brought about that a later one refuses is done, too."""
        for effect in self.effects:
            effect()

    def was_written(self) -> None:
        """Once, behind the records; `group` may be another one by then, that took its place."""
        for effect in self.once_written:
            effect()
