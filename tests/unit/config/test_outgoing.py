"""How a node signs in to other nodes, by its settings. Contradictions are told in one line, without passwords."""

from __future__ import annotations

import pytest

from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import BrokerConfig
from broker.config.definitions import UsageError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
NODE = 'username="node" password="sesame"'
OF_NODES = "listener.name.nodes."
OF_CONTROLLER = "listener.name.controller."
SETTINGS = {
    "process.roles": "broker",
    "node.id": "2",
    "controller.quorum.voters": "1@a:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CLIENTS://h:1,NODES://h:2",
    "inter.broker.listener.name": "NODES",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,NODES:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
    f"{OF_NODES}plain.sasl.jaas.config": f"{PLAIN} {NODE};",
    f"{OF_CONTROLLER}scram-sha-256.sasl.jaas.config": f'{SCRAM} username="at controllers" password="sesame";',
}


def assembled(**changes: str | None) -> BrokerConfig:
    """Assemble the settings with changes. `None` removes a setting."""
    settings = {**SETTINGS, **changes}
    given = {name: value for name, value in settings.items() if value is not None}
    return assemble([settings_of(given, "file:1")])


def refused(**changes: str | None) -> str:
    with pytest.raises(UsageError) as error:
        assembled(**changes)
    text = str(error.value)
    assert "\n" not in text
    assert "sesame" not in text
    return text


def test_a_broker_signs_in_at_each_listener_as_its_line_says() -> None:
    config = assembled()
    assert config.to_brokers is not None
    assert config.to_controllers is not None
    for way, listener, mechanism, user in (
        (config.to_brokers, "NODES", "PLAIN", "node"),
        (config.to_controllers, "CONTROLLER", "SCRAM-SHA-256", "at controllers"),
    ):
        assert way.credentials is not None
        found = way.listener_name, way.security_protocol, way.credentials.mechanism, way.credentials.user
        assert found == (listener, "SASL_PLAINTEXT", mechanism, user)


def test_a_node_alone_asks_nobody() -> None:
    config = assemble(
        [settings_of({"listeners": "SASL_PLAINTEXT://h:1", "sasl.enabled.mechanisms": "SCRAM-SHA-256"})]
    )
    assert (config.to_brokers, config.to_controllers) == (None, None)


def test_a_controller_that_is_a_broker_too_asks_other_brokers_and_no_controller() -> None:
    config = assembled(
        **{
            "process.roles": "broker,controller",
            "controller.quorum.voters": "2@h:3",
            "listeners": "CLIENTS://h:1,NODES://h:2,CONTROLLER://h:3",
            f"{OF_CONTROLLER}plain.sasl.jaas.config": f"{PLAIN} user_node=sesame;",
        }
    )
    assert config.to_controllers is None
    assert config.to_brokers is not None
    assert {"NODES", "CONTROLLER"} == {*config.sasl}


def test_the_mechanism_between_brokers_has_to_be_enabled_at_their_listener() -> None:
    told = refused(**{f"{OF_NODES}sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    assert (
        "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used for "
        "inter-broker communication" in told
    )
    told = refused(**{"sasl.mechanism.inter.broker.protocol": None})
    assert "it is GSSAPI" in told


def test_a_mechanism_for_signing_in_has_to_be_built() -> None:
    told = refused(**{"sasl.mechanism.controller.protocol": None})
    assert "a node can't sign in with GSSAPI at listener CONTROLLER" in told


@pytest.mark.parametrize("name", [f"{OF_NODES}plain.", f"{OF_CONTROLLER}scram-sha-256."])
@pytest.mark.parametrize(
    ("line", "told"),
    [
        (None, "has to say how this node signs in"),
        (f"{NODE}", "is invalid"),
        (f"com.example.Other required {NODE};", "no Java class can be loaded"),
        ('{module} username="node";', "has no password, with which this node signs in"),
        ('{module} password="sesame";', "has no username, with which this node signs in"),
        ('{module} user_alice="sesame";', "has no username and no password"),
    ],
)
def test_a_line_has_to_say_as_whom(name: str, line: str | None, told: str) -> None:
    module = PLAIN if "plain" in name else SCRAM
    value = None if line is None else line.replace("{module}", module)
    found = refused(**{f"{name}sasl.jaas.config": value})
    if "plain" in name and line is None:
        told = "has to say who may sign in"  # for the node's own listener this check comes first
    assert f"{name}sasl.jaas.config" in found
    assert told in found


def test_a_line_without_the_listener_or_the_mechanism_isnt_it() -> None:
    """Kafka ignores both (`ChannelBuilders.channelBuilderConfigs`, `JaasContext.loadServerContext`)."""
    line = SETTINGS[f"{OF_CONTROLLER}scram-sha-256.sasl.jaas.config"]
    for name in ("scram-sha-256.sasl.jaas.config", f"{OF_CONTROLLER}sasl.jaas.config", "sasl.jaas.config"):
        assert "has to say how this node signs in" in refused(
            **{f"{OF_CONTROLLER}scram-sha-256.sasl.jaas.config": None, name: line}
        )


def test_early_listeners_are_among_the_listeners() -> None:
    assembled(**{"early.start.listeners": "nodes"})
    assembled(**{"early.start.listeners": ""})
    told = refused(**{"early.start.listeners": "NODES,CONTROLLER"})
    assert (
        "early.start.listeners contains listener CONTROLLER, but this is not contained in listeners or "
        "controller.listener.names" in told
    )


def test_a_controller_has_no_listener_between_brokers() -> None:
    told = refused(
        **{
            "process.roles": "controller",
            "listeners": "CONTROLLER://h:1",
            "controller.quorum.voters": "2@h:1",
            "inter.broker.listener.name": "CONTROLLER",
        }
    )
    assert "controller.listener.names must not contain an explicitly set inter.broker.listener.name" in told


@pytest.mark.parametrize(("idle", "is_refused"), [("100", True), ("101", False), ("-1", False)])
def test_a_failed_sign_in_is_answered_before_the_connection_counts_as_idle(
    idle: str, is_refused: bool
) -> None:
    if is_refused:
        assert (
            "connection.failed.authentication.delay.ms=100 should always be less than connections.max.idle.ms=100 to "
            "prevent failed authentication responses from timing out"
            in refused(**{"connections.max.idle.ms": idle})
        )
    else:
        assembled(**{"connections.max.idle.ms": idle})
