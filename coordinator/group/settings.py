"""The settings of the group coordinator (Kafka: `GroupCoordinatorConfig`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Kafka's names are in the comments. Defaults are Kafka's."""

    min_session_timeout_ms: int = 6_000  # group.min.session.timeout.ms
    max_session_timeout_ms: int = 1_800_000  # group.max.session.timeout.ms
    initial_rebalance_delay_ms: int = 3_000  # group.initial.rebalance.delay.ms
    max_size: int = 2**31 - 1  # group.max.size
    new_member_join_timeout_ms: int = 300_000  # fixed in Kafka
    offset_metadata_max_length: int = 4_096  # offset.metadata.max.bytes: really UTF-16 units
    offsets_commit_timeout_ms: int = 5_000  # offsets.commit.timeout.ms
    offsets_retention_ms: int = 10_080 * 60_000  # offsets.retention.minutes
    offsets_retention_check_interval_ms: int = 600_000  # offsets.retention.check.interval.ms
    consumer_max_size: int = 2**31 - 1  # group.consumer.max.size
    consumer_assignors: tuple[str, ...] = (
        "uniform",
        "range",
    )  # group.consumer.assignors: the first by default
    consumer_regex_refresh_interval_ms: int = 600_000  # group.consumer.regex.refresh.interval.ms
    streams_max_size: int = 2**31 - 1  # group.streams.max.size
    migration_policy: str = "bidirectional"  # group.consumer.migration.policy
    share_max_size: int = 200  # group.share.max.size
    share_initialize_retry_interval_ms: int = 30_000  # group.share.initialize.retry.interval.ms
