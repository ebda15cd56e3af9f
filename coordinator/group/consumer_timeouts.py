"""What each consumer group may have set for itself.

Apart from the other settings: it is asked for with each heartbeat, the others by a coordinator that begins.
"""

from __future__ import annotations

from typing import NamedTuple


class ConsumerTimeouts(NamedTuple):
    """The settings of one consumer group (Kafka: `GroupConfig`). Defaults are Kafka's."""

    session_timeout_ms: int = 45_000  # consumer.session.timeout.ms
    heartbeat_interval_ms: int = 5_000  # consumer.heartbeat.interval.ms
    assignment_interval_ms: int = 1_000  # consumer.assignment.interval.ms
