"""A replication quota whose rate a test sets."""

from __future__ import annotations

from broker.environment.scheduler import Clock
from broker.quotas import ReplicationQuota, Windows
from storage.log.log_config import LONG_MAX


class AdjustableQuota(ReplicationQuota):
    """`limit` is in bytes a second. By default there are as many windows as in Kafka: 11 of one second."""

    def __init__(self, clock: Clock) -> None:
        self.limit = LONG_MAX
        super().__init__(Windows(11, 1_000), clock, lambda: self.limit)
