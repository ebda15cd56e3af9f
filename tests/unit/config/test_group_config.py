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
    assert len(entries) == 17
    assert (session.value, session.source) == ("50000", ConfigSource.STATIC_BROKER_CONFIG)

    (own,) = group_config.describe_group(
        broker, {"consumer.session.timeout.ms": "55000"}, ["consumer.session.timeout.ms"]
    )
    assert (own.value, own.source) == ("55000", ConfigSource.GROUP_CONFIG)
    assert [synonym.value for synonym in own.synonyms] == ["55000", "50000", "45000"]


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
    ],
)
def test_a_groups_setting_that_cannot_be_is_refused(name: str, value: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_group_configs(config(), {name: value})
    assert refused.value.error is Error.INVALID_CONFIG


@pytest.mark.parametrize("value", ["earliest", "by_duration:PT1H", "by_duration:p2dt3.25s"])
def test_where_a_share_group_begins(value: str) -> None:
    check_group_configs(config(), {"share.auto.offset.reset": value})


def test_what_was_legal_once_is_brought_within_the_bounds() -> None:
    stored = {"consumer.session.timeout.ms": "99999", "consumer.heartbeat.interval.ms": "x", "gone": "1"}

    values = group_config.group_values(config(), stored)

    assert values["consumer.session.timeout.ms"] == 60_000
    assert values["consumer.heartbeat.interval.ms"] == 5_000


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


def test_a_subscription_shows_what_it_says() -> None:
    stored = {"interval.ms": "1000", "match": "client_id=a.*"}
    check_client_metrics_configs(stored)

    entries = {entry.name: entry for entry in client_metrics_config.describe_client_metrics(stored)}

    assert entries["interval.ms"].source is ConfigSource.CLIENT_METRICS_CONFIG
    assert (entries["metrics"].value, entries["metrics"].source) == ("", ConfigSource.DEFAULT_CONFIG)


def test_every_setting_of_a_topic_a_group_and_a_subscription_is_documented() -> None:
    assert documentation.TOPIC.keys() == TOPIC_ROWS.keys()
    assert documentation.GROUP.keys() == group_config.GROUP_ROWS.keys()
    assert documentation.CLIENT_METRICS.keys() == client_metrics_config.CLIENT_METRICS_ROWS.keys()


def test_only_settings_that_there_are_are_documented() -> None:
    assert documentation.BROKER.keys() <= BROKER_ROWS.keys()
    assert documentation.of_broker("log.retention.ms") is not None
    assert documentation.of_broker("ssl.cipher.suites") is None
