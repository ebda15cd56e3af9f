"""The way of a decision: subscription → target → reconciliation."""

from __future__ import annotations

from coordinator.group.consumer.decision import Decision
from coordinator.group.consumer.reconciliation import ReconciliationStep
from coordinator.group.consumer.regexes import Regexes
from coordinator.group.consumer.sessions import ConsumerSessions
from coordinator.group.consumer.subscription import SubscriptionStep
from coordinator.group.consumer.target import TargetStep
from coordinator.group.parts import ShardParts


class HeartbeatSteps:
    """Each has a `take(decision)`, which changes nothing but the decision."""

    def __init__(self, parts: ShardParts, regexes: Regexes, sessions: ConsumerSessions) -> None:
        self.subscription = SubscriptionStep(parts, regexes)
        self.target = TargetStep(parts)
        self.reconciliation = ReconciliationStep(parts, sessions)

    def take(self, decision: Decision) -> None:
        """All in a row. Raises KafkaError."""
        self.subscription.take(decision)
        self.target.take(decision)
        self.reconciliation.take(decision)
