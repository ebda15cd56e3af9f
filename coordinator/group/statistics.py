"""Counts of events in groups, for metrics. They only go up. All shards of a node share one object."""

from __future__ import annotations

from collections import Counter


class GroupStatistics:
    """Counts for all groups that this node coordinates."""

    __slots__ = ("rebalances",)

    def __init__(self) -> None:
        self.rebalances: Counter[str] = Counter()
        """Rebalances by the group's protocol, as Kafka counts them (`GroupCoordinatorMetrics`).

        For classic groups these are completed rebalances. For the others each new epoch from a heartbeat or a
        join counts.
        """

    def rebalanced(self, protocol: str) -> None:
        self.rebalances[protocol] += 1
