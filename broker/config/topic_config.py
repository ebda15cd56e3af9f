"""A topic's configuration: its 37 settings and `internal.segment.bytes`, the valid values, and what is in
force.

A topic's own settings take precedence over the broker's, and these over the defaults. The topic's own are
called overrides here: they are the ConfigRecords of the metadata log, by name, as text. The rows are in
Kafka's order of validation, so that of several wrong values the same one is reported.

Source: LogConfig, ServerTopicConfigSynonyms, KafkaConfig.extractLogConfigMap, KafkaConfigSchema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from broker.config.definitions import (
    ConfigDef,
    ConfigEntry,
    ConfigError,
    ConfigSource,
    Value,
    definition_of,
    parse_type,
    parse_value,
)
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.config.definitions import Row
    from storage.log.log_config import LogConfig


_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000

TOPIC_ROWS: dict[str, Row] = {
    "segment.bytes": ("INT", "1073741824", "[1048576,...]", "MEDIUM", "cluster-wide"),
    "segment.ms": ("LONG", "604800000", "[1,...]", "MEDIUM", "cluster-wide"),
    "segment.jitter.ms": ("LONG", "0", "[0,...]", "MEDIUM", "cluster-wide"),
    "segment.index.bytes": ("INT", "10485760", "[4,...]", "MEDIUM", "cluster-wide"),
    "flush.messages": ("LONG", "9223372036854775807", "[1,...]", "MEDIUM", "cluster-wide"),
    "flush.ms": ("LONG", "9223372036854775807", "[0,...]", "MEDIUM", "cluster-wide"),
    "retention.bytes": ("LONG", "-1", "", "MEDIUM", "cluster-wide"),
    "retention.ms": ("LONG", "604800000", "[-1,...]", "MEDIUM", "cluster-wide"),
    "max.message.bytes": ("INT", "1048588", "[0,...]", "MEDIUM", "cluster-wide"),
    "max.decompressed.message.bytes": ("INT", "2147483639", "[1,...,2147483639]", "MEDIUM", "cluster-wide"),
    "index.interval.bytes": ("INT", "4096", "[0,...]", "MEDIUM", "cluster-wide"),
    "delete.retention.ms": ("LONG", "86400000", "[0,...]", "MEDIUM", "cluster-wide"),
    "min.compaction.lag.ms": ("LONG", "0", "[0,...]", "MEDIUM", "cluster-wide"),
    "max.compaction.lag.ms": ("LONG", "9223372036854775807", "[1,...]", "MEDIUM", "cluster-wide"),
    "file.delete.delay.ms": ("LONG", "60000", "[0,...]", "MEDIUM", "cluster-wide"),
    "min.cleanable.dirty.ratio": ("DOUBLE", "0.5", "[0,...,1]", "MEDIUM", "cluster-wide"),
    "cleanup.policy": ("LIST", "delete", "[compact, delete]", "MEDIUM", "cluster-wide"),
    "unclean.leader.election.enable": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
    "min.insync.replicas": ("INT", "1", "[1,...]", "MEDIUM", "cluster-wide"),
    "compression.type": (
        "STRING",
        "producer",
        "[uncompressed, zstd, lz4, snappy, gzip, producer]",
        "MEDIUM",
        "cluster-wide",
    ),
    "compression.gzip.level": ("INT", "-1", "[1,...,9] or -1", "MEDIUM", "cluster-wide"),
    "compression.lz4.level": ("INT", "9", "[1,...,17]", "MEDIUM", "cluster-wide"),
    "compression.zstd.level": ("INT", "3", "[-131072,...,22]", "MEDIUM", "cluster-wide"),
    "preallocate": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
    "message.timestamp.type": (
        "STRING",
        "CreateTime",
        "[CreateTime, LogAppendTime]",
        "MEDIUM",
        "cluster-wide",
    ),
    "message.timestamp.before.max.ms": ("LONG", "9223372036854775807", "[0,...]", "MEDIUM", "cluster-wide"),
    "message.timestamp.after.max.ms": ("LONG", "3600000", "[0,...]", "MEDIUM", "cluster-wide"),
    "leader.replication.throttled.replicas": ("LIST", "", "throttled replicas", "MEDIUM", "cluster-wide"),
    "follower.replication.throttled.replicas": ("LIST", "", "throttled replicas", "MEDIUM", "cluster-wide"),
    "remote.storage.enable": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
    "local.retention.ms": ("LONG", "-2", "[-2,...]", "MEDIUM", "cluster-wide"),
    "local.retention.bytes": ("LONG", "-2", "[-2,...]", "MEDIUM", "cluster-wide"),
    "remote.log.copy.disable": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
    "remote.copy.lag.ms": ("LONG", "0", "[-1,...]", "MEDIUM", "cluster-wide"),
    "remote.copy.lag.bytes": ("LONG", "-1", "[-1,...]", "MEDIUM", "cluster-wide"),
    "remote.log.delete.on.disable": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
    "errors.deadletterqueue.group.enable": ("BOOLEAN", "false", "", "MEDIUM", "cluster-wide"),
}

INTERNAL_TOPIC_ROWS: dict[str, Row] = {
    "internal.segment.bytes": ("INT", None, "", "MEDIUM", "cluster-wide"),
}

TOPIC_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "max.message.bytes": (("message.max.bytes", 1),),
    "max.decompressed.message.bytes": (("max.decompressed.message.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "preallocate": (("log.preallocate", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "remote.copy.lag.ms": (("log.remote.copy.lag.ms", 1),),
    "remote.copy.lag.bytes": (("log.remote.copy.lag.bytes", 1),),
}
"""A topic's setting -> the broker's (name, factor to the topic's unit), in order of precedence."""


def topic_definition(name: str) -> ConfigDef | None:
    """Return the definition of a topic's setting, including the hidden one. None for an unknown name."""
    row = TOPIC_ROWS.get(name)
    if row is not None:
        return definition_of(name, row)
    row = INTERNAL_TOPIC_ROWS.get(name)
    return None if row is None else definition_of(name, row, internal=True)


# --- Settings in force --------------------------------------------------------------------------------------

MOST_BETWEEN_INDEX_ENTRIES = 16 * 1024
"""The most bytes between index entries, whatever index.interval.bytes says. A read may have to walk over so
many in one turn of the loop, some 200 batches of one small record."""


def broker_log_defaults(config: BrokerConfig) -> dict[str, Value]:
    """Return all 37 settings for a topic without overrides."""
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
    """Return the settings in force for a topic: all 37, and `internal.segment.bytes` if the topic has it.

    Overrides come from the log. An earlier version may have accepted values that are out of range today;
    these are taken as they are. Unknown names and texts that can't be parsed are ignored.
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
    """Return a new topic's settings for CreateTopics v5+: all 37 by name, and hidden ones that the topic has.

    DescribeConfigs shows values as they were parsed (`true`, `1.0E-6`). Here Kafka shows them as they were
    written (` TRUE `, `.000001`), and without synonyms.
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
    """Return the text in force, as written, and its source
    (KafkaConfigSchema.resolveEffectiveTopicConfig)."""
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


def log_config_by_name(
    config: BrokerConfig, overrides_of: Callable[[str], Mapping[str, str]], name: str
) -> LogConfig:
    """Return the settings for a topic's logs. `overrides_of` returns a topic's own settings."""
    return log_config_of_topic(config, overrides_of(name))


def log_config_of_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Return a topic's settings in the form for its partitions' logs."""
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
        max_decompressed_message_bytes=number("max.decompressed.message.bytes"),
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
    """Return the settings for `__cluster_metadata`: only snapshots allow deleting its segments
    (KafkaRaftLog.createLog)."""
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


# --- Checking names, values, and their relations (LogConfig.validate) ---------------------------------------


def check_topic_configs(config: BrokerConfig, overrides: Mapping[str, str | None]) -> None:
    """Check the settings of a topic to create. Raises KafkaError(INVALID_CONFIG)."""
    nulls = [name for name, text in overrides.items() if text is None]
    if nulls:
        raise _invalid(f"Null value not supported for topic configs: {','.join(nulls)}")
    check_overrides(config, {name: text for name, text in overrides.items() if text is not None})


def check_overrides(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Check names, values, and their relations with each other and with the broker's settings
    (LogConfig.validate).

    Raises KafkaError(INVALID_CONFIG). As in Kafka, the broker's settings only matter if the topic has any of
    its own.
    """
    if not overrides:
        return
    for name in overrides:
        if name not in TOPIC_ROWS and name not in INTERNAL_TOPIC_ROWS:
            raise _invalid(f"Unknown topic config name: {name}")
    values = broker_log_defaults(config)
    try:
        for name in (*TOPIC_ROWS, *INTERNAL_TOPIC_ROWS):
            if name in overrides:
                values[name] = _parsed(name, overrides[name])
    except ConfigError as error:
        raise _invalid(str(error)) from None
    lowest, highest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(lowest, int)
    assert isinstance(highest, int)
    if lowest > highest:
        raise _invalid(
            f"conflict topic config setting min.compaction.lag.ms ({lowest}) > "
            f"max.compaction.lag.ms ({highest})"
        )
    if values["remote.storage.enable"]:
        raise _invalid(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def _parsed(name: str, text: str) -> Value:
    definition = topic_definition(name)
    assert definition is not None
    return parse_value(definition, text)


def _invalid(message: str) -> KafkaError:
    return KafkaError(Error.INVALID_CONFIG, message)
