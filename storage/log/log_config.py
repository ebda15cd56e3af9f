"""The settings of a topic for its partitions' logs, with Kafka 4.4's units and defaults."""

from dataclasses import dataclass, field

LONG_MAX = 2**63 - 1

LARGEST_RECORD_BODY_BYTES = 2**31 - 1 - 8
"""The largest array in Java, and so no limit."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Named like the topic configs, with `.` written as `_`. Source: org.apache.kafka.storage LogConfig.

    Values aren't checked here: whoever parses a topic's configs checks their ranges.
    """

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_decompressed_message_bytes: int = LARGEST_RECORD_BODY_BYTES
    """The limit for one record of a compressed batch: for its body, which is what its length counts."""
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    producer_id_expiration_ms: int = 86_400_000
    """The broker's `producer.id.expiration.ms`. No topic has its own."""
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000
    transaction_partition_verification_enable: bool = True
    """The broker's setting of that name (KIP-890). No topic has its own."""
    unclean_leader_election_enable: bool = False

    compacts: bool = field(init=False)
    deletes: bool = field(init=False)
    flushes_by_time: bool = field(init=False)
    roll_ms: int = field(init=False)
    """The age at which a segment is rolled. A compacted topic's rolls before its records must be compacted."""

    def __post_init__(self) -> None:
        compacts = "compact" in self.cleanup_policy
        roll_ms = min(self.segment_ms, self.max_compaction_lag_ms) if compacts else self.segment_ms
        object.__setattr__(self, "compacts", compacts)
        object.__setattr__(self, "deletes", "delete" in self.cleanup_policy)
        object.__setattr__(self, "flushes_by_time", self.flush_ms != LONG_MAX)
        object.__setattr__(self, "roll_ms", roll_ms)
