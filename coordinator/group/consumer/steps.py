"""The way of a decision: subscription → target → reconciliation."""

from __future__ import annotations

from coordinator.group.consumer.reconciliation import ReconciliationStep
from coordinator.group.consumer.regexes import Regexes
from coordinator.group.consumer.sessions import ConsumerSessions
from coordinator.group.consumer.subscription import SubscriptionStep
from coordinator.group.consumer.target import TargetStep
from coordinator.group.parts import ShardParts


class Steps:
    """Each has a `take(decision)`. Heartbeats take them in a row, joins of the classic protocol by themselves."""

    def __init__(self, parts: ShardParts, regexes: Regexes, sessions: ConsumerSessions) -> None:
        self.subscription = SubscriptionStep(parts, regexes)
        self.target = TargetStep(parts)
        self.reconciliation = ReconciliationStep(parts, sessions)
