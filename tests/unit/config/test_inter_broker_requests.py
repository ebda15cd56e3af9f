"""Listeners that are closed to requests between brokers: which ones they are, and what the user is told."""

from __future__ import annotations

import pytest

from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import BrokerConfig
from broker.config.definitions import ConfigError, UsageError
from broker.config.describe import describe_broker
from broker.config.given_settings import read_environment
from broker.config.reconfiguration import check_dynamic

SETTING = "barnabas.inter.broker.requests"
OF_CLIENTS, OF_BROKERS = f"listener.name.clients.{SETTING}", f"listener.name.brokers.{SETTING}"
SEVERAL = {
    "listeners": "CLIENTS://localhost:9092,BROKERS://localhost:9091,CONTROLLER://localhost:9093",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


def config(settings: dict[str, str]) -> BrokerConfig:
    return assemble([settings_of(settings, "file:1")])


def refusal(settings: dict[str, str]) -> str:
    with pytest.raises(UsageError) as raised:
        config(settings)
    return str(raised.value)


@pytest.mark.parametrize(
    ("settings", "closed"),
    [
        ({}, set()),
        ({SETTING: "false"}, {"PLAINTEXT"}),  # a single node has no other broker to let in
        ({**SEVERAL, OF_CLIENTS: "false"}, {"CLIENTS"}),
        ({**SEVERAL, OF_CLIENTS: " FALSE "}, {"CLIENTS"}),
        ({**SEVERAL, OF_CLIENTS: "true"}, set()),
        ({**SEVERAL, SETTING: "false", OF_BROKERS: "true"}, {"CLIENTS"}),
        ({**SEVERAL, SETTING: "false", OF_BROKERS: "true", OF_CLIENTS: "true"}, set()),
    ],
)
def test_a_listeners_own_setting_goes_before_that_of_all(settings: dict[str, str], closed: set[str]) -> None:
    found = config(settings)
    assert found.closed_to_brokers == closed
    assert not found.warnings


def test_a_controller_has_none_and_may_be_given_the_brokers_settings() -> None:
    controller = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": "CONTROLLER://localhost:9093",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
    }
    assert config({**controller, OF_CLIENTS: "false"}).closed_to_brokers == set()


def test_a_listener_may_have_a_dot_in_its_name() -> None:
    settings = {
        "listeners": "MY.CLIENTS://localhost:9092",
        "listener.security.protocol.map": "MY.CLIENTS:PLAINTEXT",
        f"listener.name.my.clients.{SETTING}": "false",
    }
    assert config(settings).closed_to_brokers == {"MY.CLIENTS"}


def test_a_setting_for_no_listener_by_name_is_refused() -> None:
    setting = f"listener.name.{SETTING}"
    assert refusal({**SEVERAL, setting: "false"}).startswith(
        f"file:1: {setting} is for a listener that this broker doesn't have"
    )


@pytest.mark.parametrize("name", ["client", "CLIENTS", "controller", "my.clients"])
def test_a_setting_for_a_missing_listener_is_refused(name: str) -> None:
    setting = f"listener.name.{name}.{SETTING}"
    assert refusal({**SEVERAL, setting: "false"}) == (
        f"file:1: {setting} is for a listener that this broker doesn't have: it could be {OF_CLIENTS} or {OF_BROKERS}"
    )


def test_a_value_that_is_neither_is_refused() -> None:
    assert refusal({**SEVERAL, OF_CLIENTS: "no"}) == (
        f"file:1: Invalid value no for configuration {OF_CLIENTS}: Expected value to be either true or false"
    )


@pytest.mark.parametrize("setting", [SETTING, OF_BROKERS])
@pytest.mark.parametrize("joins", [False, True])
def test_brokers_have_to_reach_each_other(setting: str, joins: bool) -> None:
    settings = {**SEVERAL, setting: "false"}
    if joins:
        settings |= {
            "process.roles": "broker",
            "node.id": "2",
            "listeners": "CLIENTS://localhost:9092,BROKERS://localhost:9091",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:9093",
        }
    assert refusal(settings) == (
        f"file:1: {setting} can't be false for BROKERS, through which brokers reach each other "
        "(inter.broker.listener.name)"
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (OF_CLIENTS.removesuffix("s"), OF_CLIENTS),
        (OF_CLIENTS.replace("inter.broker", "interbroker"), OF_CLIENTS),
        (SETTING.removesuffix("s"), SETTING),
        (OF_CLIENTS.replace("listener", "listeners"), None),
        (OF_CLIENTS.replace("listener", "Listener"), None),
        (OF_CLIENTS.replace("barnabas", "BARNABAS"), None),
    ],
)
def test_a_slip_of_the_pen_is_refused(written: str, meant: str | None) -> None:
    hint = f"; did you mean {meant}?" if meant else ""
    assert refusal({**SEVERAL, written: "false"}) == f"file:1: {written} isn't a setting of barnabas{hint}"


def test_a_name_that_merely_contains_the_word_is_not_ours() -> None:
    """Kubernetes sets such variables for a service named `kafka-barnabas`."""
    variables = {
        "KAFKA_BARNABAS_SERVICE_HOST": "10.0.0.1",
        "KAFKA_BARNABAS_PORT_9092_TCP": "tcp://10.0.0.1:9092",
    }
    assert not assemble([read_environment(variables).settings]).warnings
    assert config({"listener.name.barnabas.some.plugin": "x", "com.barnabas.x": "1"}).warnings


def test_a_slip_in_a_variable_is_refused() -> None:
    variable = "KAFKA_LISTENERS_NAME_PLAINTEXT_BARNABAS_INTER_BROKER_REQUESTS"
    with pytest.raises(UsageError, match=f"{variable}: .* isn't a setting of barnabas"):
        assemble([read_environment({variable: "false"}).settings])


@pytest.mark.parametrize("name", [SETTING, OF_CLIENTS])
def test_the_setting_cannot_be_altered_while_the_broker_runs(name: str) -> None:
    with pytest.raises(ConfigError, match="Cannot update these configs dynamically"):
        check_dynamic({name: "false"}, per_broker=True)


def test_the_setting_is_described_if_it_is_set() -> None:
    def described(found: BrokerConfig) -> list[tuple[str, str | None, bool, bool]]:
        return [
            (each.name, each.value, each.read_only, each.is_sensitive)
            for each in describe_broker(found)
            if SETTING in each.name
        ]

    assert described(config(SEVERAL)) == []
    assert described(config({**SEVERAL, OF_CLIENTS: "false"})) == [(OF_CLIENTS, "false", True, False)]
