"""DescribeConfigs: values, sources and synonyms as Kafka 4.3.1 answered them."""

from __future__ import annotations

from broker.config.alterations import set_dynamic
from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import BrokerConfig
from broker.config.broker_definitions import BROKER_ROWS
from broker.config.definitions import ConfigEntry, ConfigSource, ConfigSynonym, ConfigType
from broker.config.describe import describe_broker, describe_cluster_defaults, describe_topic

TOPIC, BROKER, CLUSTER, STATIC, DEFAULT = (
    ConfigSource(1),
    ConfigSource(2),
    ConfigSource(3),
    ConfigSource(4),
    ConfigSource(5),
)

FILE = {
    "log.retention.hours": "24",
    "log.cleanup.policy": "compact, delete",
    "log.preallocate": "FALSE",
    "log.roll.hours": "48",
    "log.roll.ms": "5000",
    "log.cleaner.min.cleanable.ratio": ".000001",
    "log.cleaner.io.max.bytes.per.second": "12345678",
    "foo.bar": "1",
    "ssl.keystore.password": "pw",
    "listener.name.plaintext.max.connections": "77",
}


def config(values: dict[str, str] | None = None) -> BrokerConfig:
    return assemble([settings_of(FILE if values is None else values)])


def by_name(entries: list[ConfigEntry]) -> dict[str, ConfigEntry]:
    return {entry.name: entry for entry in entries}


def topic(
    name: str, overrides: dict[str, str] | None = None, broker: BrokerConfig | None = None
) -> ConfigEntry:
    return by_name(describe_topic(broker or config(), overrides or {}))[name]


def synonyms(entry: ConfigEntry) -> list[tuple[str, str | None, int]]:
    return [(one.name, one.value, one.source) for one in entry.synonyms]


# --- topics -------------------------------------------------------------------------------------------------


def test_a_topics_own_setting_comes_first_and_the_brokers_next() -> None:
    entry = topic("cleanup.policy", {"cleanup.policy": "compact , compact,delete"})
    assert entry == ConfigEntry(
        "cleanup.policy",
        "compact,delete",
        TOPIC,
        False,
        False,
        ConfigType.LIST,
        (
            ConfigSynonym("cleanup.policy", "compact,delete", TOPIC),
            ConfigSynonym("log.cleanup.policy", "compact, delete", STATIC),
            ConfigSynonym("log.cleanup.policy", "delete", DEFAULT),
        ),
    )


def test_values_are_shown_as_they_were_understood() -> None:
    assert topic("preallocate", {"preallocate": " TRUE "}).value == "true"
    assert topic("min.cleanable.dirty.ratio").value == "1.0E-6"
    assert topic("retention.ms", {"retention.ms": " 5 "}).value == "5"


def test_every_unit_that_says_something_is_listed() -> None:
    entry = topic("segment.ms")
    assert (entry.value, entry.source) == ("5000", STATIC)
    assert synonyms(entry) == [
        ("log.roll.ms", "5000", STATIC),
        ("log.roll.hours", "48", STATIC),
        ("log.roll.hours", "168", DEFAULT),
    ]


def test_a_value_in_another_unit_alone_has_no_synonyms_and_passes_for_the_default() -> None:
    entry = topic("retention.ms")
    assert (entry.value, entry.source, entry.synonyms) == ("86400000", DEFAULT, ())


def test_a_default_has_itself_as_synonym_under_the_brokers_name() -> None:
    assert synonyms(topic("segment.bytes")) == [("log.segment.bytes", "1073741824", DEFAULT)]
    assert synonyms(topic("flush.ms")) == []
    assert synonyms(topic("remote.storage.enable")) == []


def test_an_altered_broker_setting_shows_at_its_level() -> None:
    broker = config()
    set_dynamic(broker, cluster={"log.retention.ms": "7000"}, broker={"message.max.bytes": "9"})
    entry = topic("retention.ms", broker=broker)
    assert (entry.value, entry.source) == ("7000", CLUSTER)
    assert synonyms(entry) == [
        ("log.retention.ms", "7000", CLUSTER),
        ("log.retention.hours", "24", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    ]
    assert topic("max.message.bytes", broker=broker).source is BROKER


def test_the_hidden_segment_size_shows_only_where_it_is_set() -> None:
    assert "internal.segment.bytes" not in by_name(describe_topic(config(), {}))
    assert topic("internal.segment.bytes", {"internal.segment.bytes": "1000"}).source is TOPIC


def test_an_unknown_setting_of_a_topic_shows_no_value() -> None:
    entries = by_name(describe_topic(config(), {"foo.bar": "2"}))
    expected = (ConfigSynonym("foo.bar", None, TOPIC),)
    assert entries["foo.bar"] == ConfigEntry(
        "foo.bar", None, TOPIC, True, False, ConfigType.UNKNOWN, expected
    )
    assert describe_topic(config(), {"foo.bar": "2"}, ["segment.ms"]) == describe_topic(
        config(), {}, ["segment.ms"]
    )


def test_a_hidden_broker_setting_shows_as_written_with_its_default_next() -> None:
    name = "group.share.assignor.offload.enable"
    broker = config()
    set_dynamic(broker, cluster={name: "FALSE"})
    entry = broker_entry(name, broker)
    assert (entry.value, entry.source, entry.read_only) == ("FALSE", CLUSTER, False)
    assert synonyms(entry) == [(name, "FALSE", CLUSTER), (name, "true", DEFAULT)]


def test_only_the_names_asked_for_are_described() -> None:
    assert [entry.name for entry in describe_topic(config(), {}, ["retention.ms", "nope"])] == [
        "retention.ms"
    ]
    assert len(describe_topic(config(), {}, [])) == 37
    assert [entry.name for entry in describe_broker(config(), ["node.id"])] == ["node.id"]


# --- brokers ------------------------------------------------------------------------------------------------


def broker_entry(name: str, broker: BrokerConfig | None = None) -> ConfigEntry:
    return by_name(describe_broker(broker or config()))[name]


def test_a_broker_lists_kafkas_350_settings() -> None:
    assert {entry.name for entry in describe_broker(config({}))} == set(BROKER_ROWS)


def test_an_alterable_setting_is_not_read_only() -> None:
    entries = by_name(describe_broker(config({})))
    assert not entries["log.retention.ms"].read_only
    assert not entries["listeners"].read_only
    assert entries["num.partitions"].read_only
    assert entries["log.retention.hours"].read_only


def test_a_setting_of_the_file_is_static_and_shows_the_default_next() -> None:
    entry = broker_entry("log.cleaner.io.max.bytes.per.second")
    assert (entry.value, entry.source, entry.config_type) == ("1.2345678E7", STATIC, ConfigType.DOUBLE)
    assert synonyms(entry)[1] == ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", DEFAULT)


def test_null_has_no_value_and_no_synonyms() -> None:
    entry = broker_entry("log.retention.ms")
    assert (entry.value, entry.source, entry.synonyms) == (None, DEFAULT, ())


def test_a_password_is_never_shown() -> None:
    entry = broker_entry("ssl.keystore.password")
    assert (entry.value, entry.is_sensitive, entry.source) == (None, True, STATIC)
    assert synonyms(entry) == [("ssl.keystore.password", None, STATIC)]


def test_an_unknown_setting_may_be_a_password_too() -> None:
    entry = broker_entry("foo.bar")
    expected = (ConfigSynonym("foo.bar", None, STATIC),)
    assert entry == ConfigEntry("foo.bar", None, STATIC, True, True, ConfigType.UNKNOWN, expected)


def test_a_listeners_own_setting_has_the_general_ones_type() -> None:
    entry = broker_entry("listener.name.plaintext.max.connections")
    assert (entry.value, entry.read_only, entry.config_type) == ("77", True, ConfigType.INT)
    assert synonyms(entry) == [
        ("listener.name.plaintext.max.connections", "77", STATIC),
        ("max.connections", "2147483647", DEFAULT),
    ]


def test_settings_that_every_kafka_has_in_its_file_are_static_without_one() -> None:
    entries = by_name(describe_broker(config({})))
    assert {entries[name].source for name in ("node.id", "broker.id", "process.roles")} == {STATIC}
    assert synonyms(entries["broker.id"]) == [("broker.id", "1", STATIC), ("broker.id", "-1", DEFAULT)]


def test_our_own_default_is_shown_as_the_default() -> None:
    entry = broker_entry("group.initial.rebalance.delay.ms", config({}))
    assert (entry.value, entry.source) == ("100", DEFAULT)


def test_the_cluster_lists_only_its_own_settings_as_written() -> None:
    broker = config()
    set_dynamic(
        broker, cluster={"compression.type": " gzip ", "foo.bar": "2"}, broker={"message.max.bytes": "5"}
    )
    compression, foo = describe_cluster_defaults(broker)
    assert compression == ConfigEntry(
        "compression.type",
        " gzip ",
        CLUSTER,
        False,
        False,
        ConfigType.STRING,
        (ConfigSynonym("compression.type", " gzip ", CLUSTER),),
    )
    assert (foo.value, foo.is_sensitive) == (None, True)
    assert describe_cluster_defaults(broker, ["nope"]) == []
