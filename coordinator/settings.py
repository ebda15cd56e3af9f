"""Settings of the coordinators, for a whole broker or for one group. Comments give Kafka's names; defaults
are Kafka's.

Each heartbeat reads the settings of its group anew. A coordinator reads the others when it starts.
"""

from __future__ import annotations

from typing import NamedTuple

# --- groups (Kafka: `GroupCoordinatorConfig`) -----------------------------------------------------------------


class GroupSettings(NamedTuple):
    """Settings of all groups of a broker."""

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


# --- what a group may have set for itself (Kafka: `GroupConfig`) ----------------------------------------------


class ConsumerTimeouts(NamedTuple):
    """The settings of one consumer group."""

    session_timeout_ms: int = 45_000  # consumer.session.timeout.ms
    heartbeat_interval_ms: int = 5_000  # consumer.heartbeat.interval.ms
    assignment_interval_ms: int = 1_000  # consumer.assignment.interval.ms


class ShareTimeouts(NamedTuple):
    """The settings of one share group."""

    session_timeout_ms: int = 45_000  # share.session.timeout.ms
    heartbeat_interval_ms: int = 5_000  # share.heartbeat.interval.ms
    assignment_interval_ms: int = 1_000  # share.assignment.interval.ms


STICKY = "sticky"
"""The only assignor for `group.streams.assignors`."""

STANDBYS = "num.standby.replicas"
RACK_TAGS = "rack.aware.assignment.tags"
"""The assignor's settings, under their names in the group's record."""


class StreamsConfig(NamedTuple):
    """The settings of one streams group."""

    session_timeout_ms: int = 45_000  # streams.session.timeout.ms
    heartbeat_interval_ms: int = 5_000  # streams.heartbeat.interval.ms
    assignment_interval_ms: int = 1_000  # streams.assignment.interval.ms
    initial_rebalance_delay_ms: int = 3_000  # streams.initial.rebalance.delay.ms
    num_standby_replicas: int = 0  # streams.num.standby.replicas
    rack_tags: tuple[str, ...] = ()  # streams.rack.aware.assignment.tags
    num_warmup_replicas: int = 2  # streams.num.warmup.replicas
    task_offset_interval_ms: int = 60_000  # streams.task.offset.interval.ms
    acceptable_recovery_lag: int = 10_000  # streams.acceptable.recovery.lag: in records

    @property
    def assignment_configs(self) -> dict[str, str]:
        configs = {STANDBYS: str(self.num_standby_replicas)}
        if self.rack_tags:
            configs[RACK_TAGS] = ",".join(self.rack_tags)
        return configs


# --- share states (Kafka: `ShareCoordinatorConfig`) -----------------------------------------------------------


class ShareCoordinatorSettings(NamedTuple):
    """Settings of all share partitions of a broker."""

    updates_per_snapshot: int = 500  # share.coordinator.snapshot.update.records.per.snapshot
    write_timeout_ms: int = 5_000  # share.coordinator.write.timeout.ms
    prune_interval_ms: int = 300_000  # share.coordinator.state.topic.prune.interval.ms
    cold_snapshot_interval_ms: int = 300_000  # share.coordinator.cold.partition.snapshot.interval.ms


# --- transactions (Kafka: `TransactionStateManagerConfig`) ----------------------------------------------------


class TransactionSettings(NamedTuple):
    """Settings of all transactions of a broker."""

    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    transactional_id_expiration_ms: int = 604_800_000  # transactional.id.expiration.ms
    abort_timed_out_interval_ms: int = 10_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms
    remove_expired_interval_ms: int = 3_600_000  # transaction.remove.expired.transaction.cleanup.interval.ms
    two_phase_commit_enable: bool = False  # transaction.two.phase.commit.enable
    retry_backoff_ms: int = 20  # Kafka has none: the way to another broker takes time enough
