"""Which replicas a partition has while it is reassigned, and once it is (KIP-455).

Between the two it has the wanted ones and, behind them, those that are to go; it is done when all that came are in
sync. Source: `PartitionReassignmentReplicas`, `PartitionReassignmentRevert`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from broker.controller.image import PartitionImage


class Reassignment(NamedTuple):
    """A partition's replicas on the way: all of them, and which of these come and go."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]

    def completed(self, isr: Sequence[int]) -> Completed | None:
        """What it comes to with these in sync; None where it isn't under way, or has to go on.

        Where the partition is to have fewer replicas, all that stay have to be in sync: else it could end with fewer in
        sync than there are now.
        """
        if not (self.adding or self.removing):
            return None
        left = Completed(
            [replica for replica in self.replicas if replica not in self.removing],
            [replica for replica in isr if replica not in self.removing],
        )
        if not left.replicas:
            return None
        awaited = [*self.adding]
        if len(self.adding) < len(self.removing):
            awaited += left.replicas
        return left if {*left.isr}.issuperset(awaited) else None


class Completed(NamedTuple):
    """Replicas, and those in sync, of a partition that has been reassigned."""

    replicas: list[int]
    isr: list[int]


class Reverted(NamedTuple):
    """Replicas, and those in sync, of a partition that is what it was. `unclean`: nobody of these was in sync."""

    replicas: list[int]
    isr: list[int]
    unclean: bool


def is_under_way(partition: PartitionImage) -> bool:
    """Whether the partition is being reassigned."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def towards(wanted: Sequence[int], replicas: Sequence[int]) -> Reassignment:
    """From these replicas to the wanted ones."""
    removing = sorted({*replicas}.difference(wanted))
    return Reassignment([*wanted, *removing], sorted({*wanted}.difference(replicas)), removing)


def reverted(partition: PartitionImage) -> Reverted:
    """Without those that came; who was to go stays. With nobody of them in sync the first one is taken to be."""
    came = partition.adding_replicas
    replicas = [replica for replica in partition.replicas if replica not in came]
    isr = [replica for replica in partition.isr if replica not in came]
    return Reverted(replicas, isr or replicas[:1], unclean=not isr)
