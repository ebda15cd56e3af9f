"""The assignors of consumer groups, which share partitions among members on the server (KIP-848)."""

from collections.abc import Callable

from coordinator.group.consumer.assignors.range import assign_range
from coordinator.group.consumer.assignors.spec import Assignments, GroupSpec
from coordinator.group.consumer.assignors.uniform import assign_uniform

ASSIGNORS: dict[str, Callable[[GroupSpec], Assignments]] = {"uniform": assign_uniform, "range": assign_range}
