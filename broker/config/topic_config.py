"""A topic's configuration in force: its own settings over the broker's over the defaults.

Kafka's LogConfig, KafkaConfig.extractLogConfigMap and KafkaConfigSchema. A topic's own settings are called
overrides here: they are the ConfigRecords of the metadata log, by name, as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.config.definitions import ConfigDef, Value
from broker.config.entries import ConfigEntry, ConfigSource
from broker.config.errors import ConfigError
from broker.config.parsing import parse_type, parse_value
from broker.config.topic_definitions import TOPIC_ROWS, TOPIC_SYNONYMS, topic_definition

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from storage.log.log_config import LogConfig

MOST_BETWEEN_INDEX_ENTRIES = 16 * 1024
"""Bytes of a log that an index leaves out, whatever index.interval.bytes says: a read may have to walk over so many in
one turn of the loop, some 200 batches of one small record."""


def broker_log_defaults(config: BrokerConfig) -> dict[str, Value]:
    """All 33 settings of a topic that has none of its own."""
    values: dict[str, Value] = {}
    for name in TOPIC_ROWS:
        for broker_name, factor in TOPIC_SYNONYMS.get(name, ()):
            value = config.get(broker_name)
            if value is not None:
                values[name] = value * factor if factor != 1 and isinstance(value, int) else value
                break
        else:
            definition = _definition(name)
            values[name] = parse_type(name, definition.default, definition.type)
    retention_ms = values["retention.ms"]
    if isinstance(retention_ms, int) and retention_ms < 0:
        values["retention.ms"] = -1
    return values


def topic_values(config: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Value]:
    """The settings in force for a topic: all 33, and `internal.segment.bytes` where the topic has it.

    Overrides come from the log, where an earlier version may have let pass what is out of range today: they
    are taken as they are. A name that isn't known, or a text that makes no value, counts for nothing.
    """
    values = broker_log_defaults(config)
    for name, text in overrides.items():
        definition = topic_definition(name)
        if definition is None:
            continue
        try:
            values[name] = parse_value(definition, text)
        except ConfigError:
            try:
                values[name] = parse_type(name, text, definition.type)
            except ConfigError:
                continue
    return values


def effective_topic_configs(config: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """What CreateTopics v5+ lists of a new topic: all 33 by name, and hidden ones where the topic has them.

    Unlike DescribeConfigs, which shows values as they were understood (`true`, `1.0E-6`), Kafka shows them
    here as they were written (` TRUE `, `.000001`), and lists no synonyms.
    """
    entries = []
    for name in sorted({*TOPIC_ROWS, *overrides}):
        definition = topic_definition(name)
        if definition is not None:
            value, source = _topic_setting(config, definition, overrides)
            entries.append(ConfigEntry(name, value, source, definition.sensitive, False, definition.type))
    return entries


def _topic_setting(
    config: BrokerConfig, definition: ConfigDef, overrides: Mapping[str, str]
) -> tuple[str | None, ConfigSource]:
    """The text in force, as written, and its source (KafkaConfigSchema.resolveEffectiveTopicConfig)."""
    if definition.name in overrides:
        return overrides[definition.name], ConfigSource.TOPIC_CONFIG
    synonyms = TOPIC_SYNONYMS.get(definition.name, ())
    static = {name: config.static[name].value for name, _ in synonyms if name in config.static}
    for texts, source in (
        (config.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (config.dynamic_cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (static, ConfigSource.STATIC_BROKER_CONFIG),
    ):
        for name, factor in synonyms:
            if name in texts:
                return texts[name] if factor == 1 else str(int(texts[name]) * factor), source
    return definition.default, ConfigSource.DEFAULT_CONFIG


def log_config_of_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """A topic's settings as its partitions' logs take them."""
    from storage.log.log_config import LogConfig

    values = topic_values(config, overrides)

    def number(name: str) -> int:
        value = values[name]
        assert isinstance(value, int), f"{name} is {value!r}"
        return value

    ratio = values["min.cleanable.dirty.ratio"]
    assert isinstance(ratio, float)
    policy = values["cleanup.policy"]
    assert isinstance(policy, tuple)
    segment_bytes = values.get("internal.segment.bytes")
    return LogConfig(
        cleanup_policy=frozenset(policy),
        compression_gzip_level=number("compression.gzip.level"),
        compression_lz4_level=number("compression.lz4.level"),
        compression_type=str(values["compression.type"]),
        compression_zstd_level=number("compression.zstd.level"),
        delete_retention_ms=number("delete.retention.ms"),
        file_delete_delay_ms=number("file.delete.delay.ms"),
        flush_messages=number("flush.messages"),
        flush_ms=number("flush.ms"),
        index_interval_bytes=min(number("index.interval.bytes"), MOST_BETWEEN_INDEX_ENTRIES),
        max_compaction_lag_ms=number("max.compaction.lag.ms"),
        max_message_bytes=number("max.message.bytes"),
        message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
        message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
        message_timestamp_type=str(values["message.timestamp.type"]),
        min_cleanable_dirty_ratio=ratio,
        min_compaction_lag_ms=number("min.compaction.lag.ms"),
        min_insync_replicas=number("min.insync.replicas"),
        preallocate=bool(values["preallocate"]),
        producer_id_expiration_ms=config.get_int("producer.id.expiration.ms"),
        retention_bytes=number("retention.bytes"),
        retention_ms=number("retention.ms"),
        segment_bytes=segment_bytes if isinstance(segment_bytes, int) else number("segment.bytes"),
        segment_index_bytes=number("segment.index.bytes"),
        segment_jitter_ms=number("segment.jitter.ms"),
        segment_ms=number("segment.ms"),
        transaction_partition_verification_enable=config.get_boolean(
            "transaction.partition.verification.enable"
        ),
        unclean_leader_election_enable=bool(values["unclean.leader.election.enable"]),
    )


def log_config_of_metadata(config: BrokerConfig) -> LogConfig:
    """What `__cluster_metadata` is kept by: only snapshots let its segments go (KafkaRaftLog.createLog)."""
    from storage.log.log_config import LogConfig

    segment_bytes = config.get_optional_int("internal.metadata.log.segment.bytes")
    if segment_bytes is None:
        segment_bytes = config.get_int("metadata.log.segment.bytes")
    return LogConfig(
        max_message_bytes=config.get_int("internal.metadata.max.batch.size.in.bytes"),
        segment_bytes=segment_bytes,
        segment_ms=config.get_int("metadata.log.segment.ms"),
        retention_ms=-1,
        retention_bytes=-1,
    )


def _definition(name: str) -> ConfigDef:
    definition = topic_definition(name)
    assert definition is not None
    return definition
