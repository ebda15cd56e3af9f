"""Settings of groups and of subscriptions to client metrics."""

from __future__ import annotations

import pytest

from broker.config import client_metrics_config, documentation, group_config
from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import BrokerConfig
from broker.config.broker_definitions import BROKER_ROWS
from broker.config.client_metrics_config import check_client_metrics_configs
from broker.config.definitions import ConfigSource
from broker.config.group_config import check_group_configs
from broker.config.topic_config import TOPIC_ROWS
from protocol.errors import Error, KafkaError


def config(**values: str) -> BrokerConfig:
    return assemble([settings_of({name.replace("_", "."): value for name, value in values.items()})])


def test_a_group_has_the_brokers_settings_until_it_has_its_own() -> None:
    broker = config(group_consumer_session_timeout_ms="50000")

    entries = {entry.name: entry for entry in group_config.describe_group(broker, {})}
    session = entries["consumer.session.timeout.ms"]
    assert len(entries) == 21
    assert (session.value, session.source) == ("50000", ConfigSource.STATIC_BROKER_CONFIG)

    (own,) = group_config.describe_group(
        broker, {"consumer.session.timeout.ms": "55000"}, ["consumer.session.timeout.ms"]
    )
    assert (own.value, own.source) == ("55000", ConfigSource.GROUP_CONFIG)
    assert [synonym.value for synonym in own.synonyms] == ["55000", "50000", "45000"]


def test_a_streams_group_shows_the_assignor_that_it_has() -> None:
    (assignor,) = group_config.describe_group(config(), {}, ["streams.assignor.name"])
    assert (assignor.value, assignor.source) == ("sticky", ConfigSource.DEFAULT_CONFIG)
    assert [synonym.name for synonym in assignor.synonyms] == ["group.streams.assignors"]


def test_a_hidden_setting_of_a_group_shows_as_it_is_written_where_it_is_set() -> None:
    name = "streams.assignor.offload.enable"
    assert name not in {entry.name for entry in group_config.describe_group(config(), {})}
    (shown,) = group_config.describe_group(config(), {name: "FALSE"}, [name])
    assert [(synonym.name, synonym.value) for synonym in shown.synonyms] == [
        (name, "FALSE"),
        (f"group.{name}", "true"),
    ]


def test_an_unknown_setting_of_a_group_shows_no_value() -> None:
    (shown,) = group_config.describe_group(config(), {"gone": "1"}, ["gone"])
    assert (shown.value, shown.is_sensitive, shown.source) == (None, True, ConfigSource.GROUP_CONFIG)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.session.timeout.ms", "44999"),
        ("consumer.session.timeout.ms", "60001"),
        ("consumer.heartbeat.interval.ms", "4999"),
        ("share.assignment.interval.ms", "15001"),
        ("streams.num.standby.replicas", "3"),
        ("share.isolation.level", "sometimes"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.auto.offset.reset", "by_duration:1d"),
        ("no.such", "1"),
        ("streams.assignor.name", "nope"),
        ("streams.assignor.name", ""),
        ("streams.rack.aware.assignment.tags", "a, a"),
        ("streams.rack.aware.assignment.tags", "a,,b"),
        ("streams.num.warmup.replicas", "21"),
        ("streams.task.offset.interval.ms", "14999"),
        ("streams.acceptable.recovery.lag", "-1"),
        ("errors.deadletterqueue.copy.record.enable", "1"),
    ],
)
def test_a_groups_setting_that_cannot_be_is_refused(name: str, value: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_group_configs(config(), {name: value})
    assert refused.value.error is Error.INVALID_CONFIG


@pytest.mark.parametrize("value", ["earliest", "by_duration:PT1H", "by_duration:p2dt3.25s"])
def test_the_first_offset_of_a_share_group(value: str) -> None:
    check_group_configs(config(), {"share.auto.offset.reset": value})


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        (
            "share.delivery.count.limit",
            "11",
            "share.delivery.count.limit must be in the range 2 to 10 inclusive.",
        ),
        (
            "streams.num.standby.replicas",
            "3",
            "streams.num.standby.replicas must be less than or equal to 2",
        ),
        (
            "streams.task.offset.interval.ms",
            "14999",
            "streams.task.offset.interval.ms must be greater than or equal to 15000",
        ),
        (
            "streams.rack.aware.assignment.tags",
            "a,b,a",
            "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
        ),
        (
            "streams.rack.aware.assignment.tags",
            "a,,b",
            "Configuration 'streams.rack.aware.assignment.tags' values must not be empty.",
        ),
        (
            "streams.assignor.name",
            "nope",
            "streams.assignor.name 'nope' is not a registered task assignor. "
            "Registered assignors are: [sticky].",
        ),
        (
            "errors.deadletterqueue.topic.name",
            "__x",
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
        ),
    ],
)
def test_a_groups_setting_is_refused_in_kafkas_words(name: str, value: str, text: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_group_configs(config(), {name: value})
    assert (refused.value.error, refused.value.message) == (Error.INVALID_CONFIG, text)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("errors.deadletterqueue.topic.name", ""),
        ("errors.deadletterqueue.topic.name", "dlq.orders"),
        ("errors.deadletterqueue.topic.name", "no topic's name"),
        ("errors.deadletterqueue.copy.record.enable", "true"),
        ("streams.assignor.name", " sticky "),
        ("streams.rack.aware.assignment.tags", " rack , zone "),
        ("streams.num.warmup.replicas", "20"),
        ("streams.task.offset.interval.ms", "15000"),
    ],
)
def test_a_groups_setting_that_can_be_is_taken(name: str, value: str) -> None:
    check_group_configs(config(), {name: value})


@pytest.mark.parametrize(
    ("given", "legal"),
    [
        ({"share.session.timeout.ms": "60000", "share.heartbeat.interval.ms": "5000"}, True),
        ({"share.session.timeout.ms": "45000", "share.heartbeat.interval.ms": "45000"}, False),
        ({"share.session.timeout.ms": "50000"}, False),
        ({"share.heartbeat.interval.ms": "50000"}, True),
        ({"share.heartbeat.interval.ms": "55000"}, False),
        ({"share.delivery.count.limit": "4"}, True),
    ],
)
def test_a_groups_session_lasts_longer_than_its_beats(given: dict[str, str], legal: bool) -> None:
    broker = config(
        group_share_max_heartbeat_interval_ms="60000",
        group_share_heartbeat_interval_ms="50000",
        group_share_session_timeout_ms="55000",
    )
    if legal:
        check_group_configs(broker, given)
    else:
        with pytest.raises(KafkaError, match="must be greater than"):
            check_group_configs(broker, given)


def test_a_value_that_was_legal_once_is_brought_within_the_bounds() -> None:
    stored = {
        "consumer.session.timeout.ms": "99999",
        "consumer.heartbeat.interval.ms": "x",
        "streams.num.warmup.replicas": "21",
        "streams.task.offset.interval.ms": "1",
        "gone": "1",
    }

    values = group_config.group_values(config(), stored)

    assert values["consumer.session.timeout.ms"] == 60_000
    assert values["consumer.heartbeat.interval.ms"] == 5_000
    assert (values["streams.num.warmup.replicas"], values["streams.task.offset.interval.ms"]) == (20, 15_000)


@pytest.mark.parametrize(
    ("configs", "error"),
    [
        ({"no.such": "1"}, Error.INVALID_REQUEST),
        ({"interval.ms": "99"}, Error.INVALID_REQUEST),
        ({"interval.ms": "x"}, Error.INVALID_CONFIG),
        ({"match": "client_id"}, Error.INVALID_CONFIG),
        ({"match": "nobody=a"}, Error.INVALID_CONFIG),
        ({"match": "client_id=["}, Error.INVALID_CONFIG),
    ],
)
def test_a_subscription_that_cannot_be_is_refused(configs: dict[str, str], error: Error) -> None:
    with pytest.raises(KafkaError) as refused:
        check_client_metrics_configs(configs)
    assert refused.value.error is error


def test_a_subscription_shows_its_settings() -> None:
    stored = {"interval.ms": "1000", "match": "client_id=a.*"}
    check_client_metrics_configs(stored)

    entries = {entry.name: entry for entry in client_metrics_config.describe_client_metrics(stored)}

    assert entries["interval.ms"].source is ConfigSource.CLIENT_METRICS_CONFIG
    assert (entries["metrics"].value, entries["metrics"].source) == ("", ConfigSource.DEFAULT_CONFIG)


def test_every_setting_of_a_topic_a_group_and_a_subscription_is_documented() -> None:
    assert documentation.TOPIC.keys() == TOPIC_ROWS.keys()
    assert documentation.GROUP.keys() == group_config.GROUP_ROWS.keys()
    assert documentation.CLIENT_METRICS.keys() == client_metrics_config.CLIENT_METRICS_ROWS.keys()


def test_only_existing_settings_are_documented() -> None:
    assert documentation.BROKER.keys() <= BROKER_ROWS.keys()
    assert documentation.of_broker("log.retention.ms") is not None
    assert documentation.of_broker("ssl.cipher.suites") is None
