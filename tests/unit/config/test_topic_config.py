"""A topic's settings: what is accepted, and what is in force. Kafka 4.3.1 answered the error texts and lists."""

from __future__ import annotations

import pytest

from broker.config.alterations import set_dynamic
from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import BrokerConfig
from broker.config.definitions import ConfigSource
from broker.config.topic_config import (
    MOST_BETWEEN_INDEX_ENTRIES,
    TOPIC_ROWS,
    check_topic_configs,
    effective_topic_configs,
    log_config_of_metadata,
    log_config_of_topic,
    topic_values,
)
from protocol.errors import Error, KafkaError
from storage.log.log_config import LogConfig


def config(**values: str) -> BrokerConfig:
    return assemble([settings_of({name.replace("_", "."): value for name, value in values.items()})])


def refusal(overrides: dict[str, str | None], broker: BrokerConfig | None = None) -> str | None:
    with pytest.raises(KafkaError) as raised:
        check_topic_configs(broker or config(), overrides)
    assert raised.value.error is Error.INVALID_CONFIG
    return raised.value.message


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("retention.ms", "abc", "Not a number of type LONG"),
        ("retention.ms", " abc ", "Not a number of type LONG"),
        ("retention.ms", "", "Not a number of type LONG"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("segment.bytes", "1", "Value must be at least 1048576"),
        ("segment.bytes", "99999999999", "Not a number of type INT"),
        ("min.insync.replicas", "0", "Value must be at least 1"),
        ("flush.messages", "0", "Value must be at least 1"),
        ("segment.index.bytes", "3", "Value must be at least 4"),
        ("local.retention.ms", "-3", "Value must be at least -2"),
        ("cleanup.policy", "foo", "String must be one of: compact, delete"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.gzip.level", "10", "Value must be between 1 and 9 or equal to -1"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("compression.zstd.level", "23", "Value must be no more than 22"),
        (
            "compression.type",
            "GZIP",
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        ("message.timestamp.type", "logappendtime", "String must be one of: CreateTime, LogAppendTime"),
        ("internal.segment.bytes", "", "Not a number of type INT"),
    ],
)
def test_a_bad_value_is_refused_in_kafkas_words(name: str, text: str, reason: str) -> None:
    assert refusal({name: text}) == f"Invalid value {text} for configuration {name}: {reason}"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"min.cleanable.dirty.ratio": "2"},
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        ({"cleanup.policy": "delete,,compact"}, "Configuration 'cleanup.policy' values must not be empty."),
        ({"cleanup.policy": ","}, "Configuration 'cleanup.policy' values must not be empty."),
        ({"nope": "1"}, "Unknown topic config name: nope"),
        ({"message.format.version": "3.0"}, "Unknown topic config name: message.format.version"),
        ({"log.retention.ms": "1"}, "Unknown topic config name: log.retention.ms"),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
        ({"retention.ms": None, "a": None}, "Null value not supported for topic configs: retention.ms,a"),
    ],
)
def test_an_impossible_setting_is_refused_in_kafkas_words(
    overrides: dict[str, str | None], message: str
) -> None:
    assert refusal(overrides) == message


def test_of_several_mistakes_kafkas_choice_is_reported() -> None:
    assert (
        refusal({"retention.ms": "abc", "nope": "1", "x": None})
        == "Null value not supported for topic configs: x"
    )
    assert refusal({"retention.ms": "abc", "nope": "1"}) == "Unknown topic config name: nope"
    message = refusal({"delete.retention.ms": "-1", "retention.ms": "abc", "segment.ms": "abc"})
    assert message == "Invalid value abc for configuration segment.ms: Not a number of type LONG"


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"cleanup.policy": ""},
        {"cleanup.policy": " compact , delete,compact"},
        {"retention.ms": "\t+5\n"},
        {"retention.bytes": "-99"},
        {"min.cleanable.dirty.ratio": "0x1p-2"},
        {"internal.segment.bytes": "-5"},
        {"follower.replication.throttled.replicas": "0:1,0:1"},
        {"remote.storage.enable": "false"},
    ],
)
def test_settings_that_kafka_accepts_are_accepted(overrides: dict[str, str | None]) -> None:
    check_topic_configs(config(), overrides)


def test_a_topic_has_to_agree_with_the_brokers_settings_only_if_it_has_its_own() -> None:
    broker = config(log_cleaner_max_compaction_lag_ms="5")
    assert refusal({"min.compaction.lag.ms": "10"}, broker) == (
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"
    )
    check_topic_configs(
        config(log_cleaner_max_compaction_lag_ms="5", log_cleaner_min_compaction_lag_ms="9"), {}
    )


# --- in force -----------------------------------------------------------------------------------------------


def test_without_settings_the_defaults_are_kafkas() -> None:
    assert log_config_of_topic(config(), {}) == LogConfig()


@pytest.mark.parametrize(
    ("values", "retention_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.minutes": "2", "log.retention.hours": "1"}, 120_000),
        ({"log.retention.ms": "3", "log.retention.minutes": "2"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-5"}, -1),
    ],
)
def test_the_finest_unit_that_is_set_counts(values: dict[str, str], retention_ms: int) -> None:
    assert log_config_of_topic(assemble([settings_of(values)]), {}).retention_ms == retention_ms


def test_a_topics_setting_goes_before_the_brokers() -> None:
    broker = config(log_roll_hours="2", message_max_bytes="5", log_cleanup_policy="compact")
    found = log_config_of_topic(broker, {"max.message.bytes": "7", "cleanup.policy": "compact,delete"})
    assert (found.segment_ms, found.max_message_bytes) == (7_200_000, 7)
    assert found.cleanup_policy == {"compact", "delete"}


def test_alterations_of_the_broker_reach_its_topics() -> None:
    broker = config(log_flush_scheduler_interval_ms="9")
    assert log_config_of_topic(broker, {}).flush_ms == 9
    set_dynamic(broker, cluster={"log.flush.interval.ms": "4"})
    assert log_config_of_topic(broker, {}).flush_ms == 4


def test_every_field_of_a_log_follows_the_topics_setting() -> None:
    overrides = {
        "cleanup.policy": "compact",
        "compression.type": "gzip",
        "delete.retention.ms": "11",
        "file.delete.delay.ms": "12",
        "flush.messages": "13",
        "flush.ms": "14",
        "index.interval.bytes": "15",
        "max.compaction.lag.ms": "16",
        "max.message.bytes": "17",
        "message.timestamp.after.max.ms": "18",
        "message.timestamp.before.max.ms": "19",
        "message.timestamp.type": "LogAppendTime",
        "min.cleanable.dirty.ratio": "0.25",
        "min.compaction.lag.ms": "10",
        "min.insync.replicas": "2",
        "preallocate": "true",
        "retention.bytes": "21",
        "retention.ms": "22",
        "segment.bytes": "1048577",
        "segment.index.bytes": "24",
        "segment.jitter.ms": "25",
        "segment.ms": "26",
        "unclean.leader.election.enable": "true",
    }
    found = log_config_of_topic(config(producer_id_expiration_ms="27"), overrides)
    assert found == LogConfig(
        cleanup_policy=frozenset(("compact",)),
        compression_type="gzip",
        delete_retention_ms=11,
        file_delete_delay_ms=12,
        flush_messages=13,
        flush_ms=14,
        index_interval_bytes=15,
        max_compaction_lag_ms=16,
        max_message_bytes=17,
        message_timestamp_after_max_ms=18,
        message_timestamp_before_max_ms=19,
        message_timestamp_type="LogAppendTime",
        min_cleanable_dirty_ratio=0.25,
        min_compaction_lag_ms=10,
        min_insync_replicas=2,
        preallocate=True,
        producer_id_expiration_ms=27,
        retention_bytes=21,
        retention_ms=22,
        segment_bytes=1048577,
        segment_index_bytes=24,
        segment_jitter_ms=25,
        segment_ms=26,
        unclean_leader_election_enable=True,
    )


@pytest.mark.limit("broker.config.topic_config.MOST_BETWEEN_INDEX_ENTRIES")
def test_an_index_has_its_entries_however_few_its_topic_asks_for() -> None:
    overrides = {"index.interval.bytes": "1000000000"}
    assert log_config_of_topic(config(), overrides).index_interval_bytes == MOST_BETWEEN_INDEX_ENTRIES
    assert topic_values(config(), overrides)["index.interval.bytes"] == 1_000_000_000
    assert log_config_of_topic(config(), {"index.interval.bytes": "16383"}).index_interval_bytes == 16383


def test_the_hidden_setting_makes_small_segments() -> None:
    overrides = {"internal.segment.bytes": "100", "segment.bytes": "1048576"}
    assert log_config_of_topic(config(), overrides).segment_bytes == 100


def test_values_that_an_earlier_version_accepted_are_kept_and_nonsense_is_ignored() -> None:
    stored = {"segment.bytes": "14", "retention.ms": "soon", "message.format.version": "3.0"}
    found = log_config_of_topic(config(), stored)
    assert (found.segment_bytes, found.retention_ms) == (14, LogConfig().retention_ms)
    assert set(topic_values(config(), stored)) == set(TOPIC_ROWS)


def test_the_metadata_log_is_never_cut_by_age_or_size() -> None:
    found = log_config_of_metadata(config(metadata_log_segment_ms="5", log_retention_ms="1"))
    assert (found.retention_ms, found.retention_bytes, found.segment_ms) == (-1, -1, 5)
    assert (found.segment_bytes, found.max_message_bytes) == (1_073_741_824, 8_388_608)
    assert log_config_of_metadata(config(internal_metadata_log_segment_bytes="9")).segment_bytes == 9


# --- CreateTopics -------------------------------------------------------------------------------------------


def created(broker: BrokerConfig, overrides: dict[str, str]) -> dict[str, tuple[str | None, int]]:
    return {entry.name: (entry.value, entry.source) for entry in effective_topic_configs(broker, overrides)}


def test_a_new_topic_lists_all_37_settings_by_name() -> None:
    entries = effective_topic_configs(config(), {})
    assert [entry.name for entry in entries] == sorted(TOPIC_ROWS)
    assert len(entries) == 37
    assert {(entry.is_sensitive, entry.read_only) for entry in entries} == {(False, False)}


def test_a_new_topics_settings_come_as_written_with_their_source() -> None:
    broker = config(
        log_retention_hours="24",
        log_cleanup_policy="compact, delete",
        log_preallocate="FALSE",
        log_roll_hours="48",
        log_roll_ms="5000",
        message_max_bytes="2000000",
        log_cleaner_min_cleanable_ratio=".000001",
    )
    set_dynamic(broker, cluster={"min.insync.replicas": "1", "compression.type": " gzip "})
    set_dynamic(broker, broker={"log.cleaner.min.compaction.lag.ms": "3"})
    overrides = {"preallocate": " TRUE ", "retention.bytes": " 5 ", "internal.segment.bytes": "1000"}
    listed = created(broker, overrides)
    static, default = ConfigSource.STATIC_BROKER_CONFIG, ConfigSource.DEFAULT_CONFIG
    topic, cluster = ConfigSource.TOPIC_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    assert {name: listed[name] for name in listed if listed[name][1] != default} == {
        "cleanup.policy": ("compact, delete", static),
        "compression.type": (" gzip ", cluster),
        "internal.segment.bytes": ("1000", topic),
        "max.message.bytes": ("2000000", static),
        "min.cleanable.dirty.ratio": (".000001", static),
        "min.compaction.lag.ms": ("3", ConfigSource.DYNAMIC_BROKER_CONFIG),
        "min.insync.replicas": ("1", cluster),
        "preallocate": (" TRUE ", topic),
        "retention.bytes": (" 5 ", topic),
        "retention.ms": ("86400000", static),
        "segment.ms": ("5000", static),
    }
    assert listed["segment.jitter.ms"] == ("0", default)
    assert listed["leader.replication.throttled.replicas"] == ("", default)
