"""The assignors that share partitions among members on the server (KIP-848)."""

from collections.abc import Callable

from coordinator.group.modern.assignors.range import assign_range
from coordinator.group.modern.assignors.spec import Assignments, GroupSpec
from coordinator.group.modern.assignors.uniform import assign_uniform

ASSIGNORS: dict[str, Callable[[GroupSpec], Assignments]] = {"uniform": assign_uniform, "range": assign_range}
