"""What each share group may have set for itself, of what its membership goes by."""

from __future__ import annotations

from typing import NamedTuple


class ShareTimeouts(NamedTuple):
    """The settings of one share group (Kafka: `GroupConfig`). Defaults are Kafka's."""

    session_timeout_ms: int = 45_000  # share.session.timeout.ms
    heartbeat_interval_ms: int = 5_000  # share.heartbeat.interval.ms
    assignment_interval_ms: int = 1_000  # share.assignment.interval.ms
