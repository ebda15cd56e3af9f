"""What is decided of a group: by a heartbeat or a join of a member, while it goes from one step to the next.

Subscription → target → reconciliation: each step reads what the ones before it have found and adds its own records.
Nothing of the group that a record has changes before the records are written; that its topics were looked up, and the
lines of the log, come before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.group.client import MayDescribe
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import ConsumerMember, Owned
from coordinator.group.modern.targets import Target
from coordinator.group.records import AnyRecord


@dataclass(slots=True)
class GroupDecision:
    """What becomes of a group."""

    group: ConsumerGroup
    records: list[AnyRecord]
    """In the order in which Kafka writes them; those of a member's begin with what let it in."""
    effects: list[Callable[[], None]] = field(init=False, default_factory=list)
    """What it does besides its records, timers and lines of the log: where the decision is taken, not where it is
    made, which may be in a thread, and more than once."""
    once_written: list[Callable[[], None]] = field(init=False, default_factory=list)
    """The same of what follows from its records: a time limit that ends with a state, where the state stays."""

    def take_effect(self) -> None:
        """Once, before the records are written. What a step has brought about that a later one refuses is done, too."""
        for effect in self.effects:
            effect()

    def was_written(self) -> None:
        """Once, behind the records."""
        for effect in self.once_written:
            effect()


@dataclass(slots=True)
class Decision(GroupDecision):
    """A member of a group goes from `old`, as the group knows it, to `new`.

    Where a classic group goes over to the consumer protocol `group` is empty at first, see `Migration.go_up`.
    """

    old: ConsumerMember
    new: ConsumerMember
    owned: Owned
    may_describe: MayDescribe
    """Of whoever brings it about: what an expression matches and they may not know of isn't subscribed to."""
    subscription_changed: bool = field(init=False, default=False)
    epoch: int = field(init=False)
    """The group's, as it will be."""
    homogeneous: bool = field(init=False)
    target_epoch: int = field(init=False)
    target: Target = field(init=False)
    """The member's part of the target assignment."""

    def __post_init__(self) -> None:
        self._look()

    def begin_with(self, member: ConsumerMember) -> None:
        """Where the group has only now become what it is: the member as it knows it."""
        self.old = self.new = member
        self._look()

    def _look(self) -> None:
        group = self.group
        self.epoch, self.homogeneous = group.epoch, group.homogeneous
        self.target_epoch = group.assignment_epoch
