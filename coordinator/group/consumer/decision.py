"""What is decided of a group: by a heartbeat or a join of a member, while it goes from one step to the next.

Subscription → target → reconciliation: each step reads what the ones before it have found and adds its own records.
Nothing of the group that a record has changes before the records are written; that its topics were looked up, and the
lines of the log, come before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.group.client import MayDescribe
from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import ConsumerMember, Owned
from coordinator.group.modern.effects import Effects
from coordinator.group.modern.targets import Target
from coordinator.group.records import AnyRecord


@dataclass(slots=True)
class GroupDecision(Effects):
    """What becomes of a group."""

    group: ConsumerGroup
    records: list[AnyRecord]
    """In the order in which Kafka writes them; those of a member's begin with what let it in."""


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
