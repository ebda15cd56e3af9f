"""What is decided of a streams group by a member's heartbeat, while it goes from one step to the next.

Topology → target → reconciliation: each step reads what the ones before it have found and adds its own records.
Nothing of the group is changed before the records are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.group.modern.effects import Effects
from coordinator.group.records import AnyRecord
from coordinator.group.streams.config import StreamsConfig
from coordinator.group.streams.configured_topology import ConfiguredTopology
from coordinator.group.streams.group import StreamsGroup
from coordinator.group.streams.member import StreamsMember
from coordinator.group.streams.states import StatusCode
from coordinator.group.streams.tasks import NO_TARGET_TASKS, OwnedTasks, TargetTasks
from protocol.messages.groups_streams import Status


@dataclass(slots=True)
class StreamsDecision(Effects):
    """A member goes from `old`, as the group knows it, to `new`. A group that isn't there yet is empty, and another one
    than the records make."""

    group: StreamsGroup
    config: StreamsConfig
    owned: OwnedTasks
    old: StreamsMember
    new: StreamsMember
    records: list[AnyRecord] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)
    """What the answer says of the application, in Kafka's order."""
    is_decided: bool = field(init=False, default=False)
    configured: ConfiguredTopology = field(init=False)
    assignment_configs: Mapping[str, str] = field(init=False)
    epoch: int = field(init=False)
    """The group's, as it will be."""
    is_delayed: bool = field(init=False, default=False)
    """Whether the group's first assignment waits for more members."""
    target_epoch: int = field(init=False)
    target: TargetTasks = field(init=False, default=NO_TARGET_TASKS)
    """The member's part of the target assignment."""

    def __post_init__(self) -> None:
        self.epoch = self.group.epoch
        self.target_epoch = self.group.assignment_epoch
        self.assignment_configs = self.config.assignment_configs

    def take_effect(self) -> None:
        """Once, before the records are written. What is refused leaves all as it is."""
        if self.is_decided:
            Effects.take_effect(self)

    def tell(self, code: StatusCode, detail: str) -> None:
        self.statuses.append(Status(status_code=code, status_detail=detail))
