"""What groups came to, for whoever watches: counts that only go up. All shards of a node share one object."""

from __future__ import annotations

from collections import Counter


class GroupStatistics:
    """Of all groups whose coordinator is this node."""

    __slots__ = ("rebalances",)

    def __init__(self) -> None:
        self.rebalances: Counter[str] = Counter()
        """By the group's protocol, as Kafka counts them (`GroupCoordinatorMetrics`). Of classic groups those that came
        to their end; of the others each next epoch that a heartbeat or a join brought about."""

    def rebalanced(self, protocol: str) -> None:
        self.rebalances[protocol] += 1
