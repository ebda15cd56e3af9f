"""The settings of the share coordinator (Kafka: `ShareCoordinatorConfig`)."""

from __future__ import annotations

from typing import NamedTuple


class ShareCoordinatorSettings(NamedTuple):
    """Kafka's names are in the comments. Defaults are Kafka's."""

    updates_per_snapshot: int = 500  # share.coordinator.snapshot.update.records.per.snapshot
    write_timeout_ms: int = 5_000  # share.coordinator.write.timeout.ms
    prune_interval_ms: int = 300_000  # share.coordinator.state.topic.prune.interval.ms
    cold_snapshot_interval_ms: int = 300_000  # share.coordinator.cold.partition.snapshot.interval.ms
