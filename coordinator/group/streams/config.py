"""What each streams group may have set for itself.

Apart from the other settings: it is asked for with each heartbeat, the others by a coordinator that begins.
"""

from __future__ import annotations

from typing import NamedTuple

STANDBYS = "num.standby.replicas"
"""What the assignor is configured by, as the group's record names it."""


class StreamsConfig(NamedTuple):
    """The settings of one streams group (Kafka: `GroupConfig`). Defaults are Kafka's."""

    session_timeout_ms: int = 45_000  # streams.session.timeout.ms
    heartbeat_interval_ms: int = 5_000  # streams.heartbeat.interval.ms
    assignment_interval_ms: int = 1_000  # streams.assignment.interval.ms
    initial_rebalance_delay_ms: int = 3_000  # streams.initial.rebalance.delay.ms
    num_standby_replicas: int = 0  # streams.num.standby.replicas

    @property
    def assignment_configs(self) -> dict[str, str]:
        return {STANDBYS: str(self.num_standby_replicas)}
