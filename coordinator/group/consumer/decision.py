"""What a heartbeat or a join of a member decides, while it goes from one step to the next.

Subscription → target → reconciliation: each step reads what the ones before it have found and adds its own records.
Nothing of the group changes before the records are written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.group.consumer.group import ConsumerGroup
from coordinator.group.consumer.member import ConsumerMember, Owned
from coordinator.group.modern.targets import Target
from coordinator.group.records import AnyRecord


@dataclass(slots=True)
class Decision:
    """A member of a group goes from `old`, as the group knows it, to `new`."""

    group: ConsumerGroup
    old: ConsumerMember
    new: ConsumerMember
    records: list[AnyRecord]
    """In the order in which Kafka writes them; they begin with what let the member in."""
    owned: Owned
    subscription_changed: bool = field(init=False, default=False)
    epoch: int = field(init=False)
    """The group's, as it will be."""
    homogeneous: bool = field(init=False)
    target_epoch: int = field(init=False)
    target: Target = field(init=False)
    """The member's part of the target assignment."""
    effects: list[Callable[[], None]] = field(init=False, default_factory=list)
    """What it does besides its records, timers and lines of the log: where the decision is taken, not where it is
    made, which may be in a thread, and more than once."""

    def __post_init__(self) -> None:
        group = self.group
        self.epoch, self.homogeneous = group.epoch, group.homogeneous
        self.target_epoch = group.assignment_epoch

    def take_effect(self) -> None:
        """Once, before the records are written. What a step has brought about that a later one refuses is done, too."""
        for effect in self.effects:
            effect()
