"""A node's roles in its cluster, and what they mean for its other settings."""

from __future__ import annotations

import re

import pytest

from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import AT_MOST_ONE, BrokerConfig
from broker.config.definitions import UsageError

VOTERS = "controller.quorum.voters"
BOOTSTRAP = "controller.quorum.bootstrap.servers"
NAMES = "controller.listener.names"
LISTENERS = "PLAINTEXT://127.0.0.1:9092"


def assembled(**values: str) -> BrokerConfig:
    """Assemble settings whose names have `_` for `.`."""
    return assemble(
        [settings_of({name.replace("_", "."): value for name, value in values.items()}, "file:1")]
    )


def joined(**values: str) -> BrokerConfig:
    given = {
        "process_roles": "broker",
        "node_id": "2",
        "controller_quorum_voters": "1@a:9093",
        "controller_listener_names": "CONTROLLER",
    }
    return assembled(**(given | values))


def refused(**values: str) -> str:
    with pytest.raises(UsageError) as error:
        joined(**values)
    text = str(error.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("settings", "joins"),
    [
        ({}, False),
        ({"process.roles": "broker", VOTERS: "1@a:9093"}, True),
        ({"process.roles": " broker ", BOOTSTRAP: "a:9093"}, True),
        ({"process.roles": "broker"}, False),
        ({"process.roles": "broker", VOTERS: " "}, False),
        ({"process.roles": "broker,controller", VOTERS: "1@a:9093"}, False),
        ({"process.roles": "broker, controller", BOOTSTRAP: "a:9093"}, False),
        ({VOTERS: "1@a:9093"}, False),
    ],
)
def test_a_node_joins_a_cluster_if_others_are_its_controllers(settings: dict[str, str], joins: bool) -> None:
    found = assemble([settings_of(settings | {"node.id": "2", NAMES: "CONTROLLER"}, "file:1")])
    assert found.joins is joins
    told = [line for line in found.warnings if "its own controller all the same" in line]
    assert len(told) == (settings == {"process.roles": "broker"} or settings.get(VOTERS) == " ")


@pytest.mark.parametrize(
    ("settings", "controllers"),
    [
        ({VOTERS: "1@a:9093,2@[::1]:9094"}, [("a", 9093), ("::1", 9094)]),
        ({BOOTSTRAP: "b:1,c:2"}, [("b", 1), ("c", 2)]),
        ({BOOTSTRAP: "b:1", VOTERS: "1@a:9093"}, [("b", 1)]),
    ],
)
def test_the_controllers_are_found_by_either_setting(
    settings: dict[str, str], controllers: list[tuple[str, int]]
) -> None:
    given = settings | {"process.roles": "broker", "node.id": "3", NAMES: "CONTROLLER"}
    assert [*assemble([settings_of(given)]).controllers] == controllers


@pytest.mark.parametrize("name", list(AT_MOST_ONE))
def test_defaults_for_one_node_are_kafkas_in_a_cluster(name: str) -> None:
    definition_default = {
        "default.replication.factor": 1,
        "transaction.state.log.min.isr": 2,
        "share.coordinator.state.topic.min.isr": 2,
    }
    assert joined().get(name) == definition_default.get(name, 3)
    given = joined(**{name.replace(".", "_"): "3"})
    assert given.get(name) == 3
    assert given.warnings == []


def test_a_broker_of_a_cluster_needs_its_own_id() -> None:
    with pytest.raises(UsageError, match=r"^file:1: process\.roles=broker: .* needs its own node\.id$"):
        assembled(process_roles="broker", controller_quorum_voters="1@a:9093")
    of_broker = {"process_roles": "broker", "broker_id": "3", "controller_listener_names": "CONTROLLER"}
    assert assembled(controller_quorum_voters="1@a:9093", **of_broker).node_id == 3


def test_other_nodes_reach_a_broker_by_an_advertised_listener() -> None:
    assert joined().inter_broker_listener == "PLAINTEXT"
    internal = {
        "listeners": "INTERNAL://:1,CLIENTS://:2",
        "listener_security_protocol_map": "INTERNAL:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    with pytest.raises(UsageError, match=r"must be a listener name defined in advertised\.listeners"):
        joined(**internal)
    named = joined(**internal, inter_broker_listener_name="internal")
    assert named.inter_broker_listener == "INTERNAL"
    assert assembled(**internal).listeners  # a node alone doesn't need the setting


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (BOOTSTRAP, "localhost", "failed to parse localhost: there is no host and port"),
        (BOOTSTRAP, "localhost:abc", "failed to parse localhost:abc: there is no host and port"),
        (BOOTSTRAP, ":9093", "failed to parse :9093: there is no host and port"),
        (BOOTSTRAP, "a:9093,b:99999", "failed to parse b:99999: 99999 is no port"),
        (BOOTSTRAP, "1@a:9093", "failed to parse 1@a:9093: there is no host and port"),
        (VOTERS, "a:9093", "failed to parse a:9093: there is no id"),
        (VOTERS, "x@a:9093", "failed to parse x@a:9093: x is no id"),
        (VOTERS, "@a:9093", "failed to parse @a:9093: nothing is no id"),
        (VOTERS, "3000000000@a:9093", "failed to parse 3000000000@a:9093: 3000000000 is no id"),
        (VOTERS, "1@2@a:9093", "failed to parse 1@2@a:9093: there is no id"),
        (VOTERS, "1@a", "failed to parse 1@a: there is no host and port"),
    ],
)
def test_where_the_controllers_are_has_a_form(name: str, value: str, told: str) -> None:
    """The form is checked in every role, as in Kafka."""
    form = "id@host:port" if name == VOTERS else "host:port"
    text = f"file:1: {name}: {told}; each entry is {form}"
    assert refused(**{name.replace(".", "_"): value}) == text
    with pytest.raises(UsageError, match=told):
        assembled(**{name.replace(".", "_"): value})


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        (VOTERS, "1@0.0.0.0:9093", "file:1: .* is not routable"),
        (VOTERS, "1@a:9093,2@b:9093", r"file:1: .* has node\.id=2, .* it needs another node\.id"),
        (NAMES, "plaintext", "file:1: .* must not contain a value appearing in listeners"),
        (NAMES, "ssl", r"file:1: .* SSL .* not found in listener\.security\.protocol\.map"),
        ("controller.quorum.auto.join.enable", "true", "file:1: .* is only supported if"),
    ],
)
def test_settings_of_controllers_that_a_broker_alone_may_not_have(name: str, value: str, told: str) -> None:
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    of_listeners = {"listeners": LISTENERS, "listener_security_protocol_map": protocols}
    assert re.match(told, refused(**of_listeners, **{name.replace(".", "_"): value}))


def test_a_controller_votes_alone() -> None:
    of_controller = {"process_roles": "controller", "listeners": "CONTROLLER://:9093"}
    names = {"controller_listener_names": "CONTROLLER", "node_id": "1"}
    with pytest.raises(
        UsageError, match=r"^file:1: .* names node 2, but a quorum of several isn't supported yet"
    ):
        assembled(controller_quorum_voters="1@a:9093,2@b:9093", **of_controller, **names)
    assert assembled(controller_quorum_voters="1@a:9093", **of_controller, **names).is_only_controller


def test_a_broker_says_the_name_of_its_controllers_listener() -> None:
    with pytest.raises(UsageError, match=r"^file:1: controller\.listener\.names must contain"):
        assembled(process_roles="broker", node_id="2", controller_quorum_voters="1@a:9093")
    assert "Controller listener with name CONTROLLER" in refused(
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT"
    )


@pytest.mark.parametrize(
    ("settings", "warns"),
    [
        ({VOTERS: "2@a:9093"}, False),
        ({VOTERS: "1@a:9093"}, True),
        ({VOTERS: "1@a:9093,2@b:9093"}, True),
        ({BOOTSTRAP: "anything:9093"}, False),
        ({BOOTSTRAP: "a:9094"}, True),
        ({BOOTSTRAP: "a:9093,b:9093"}, True),
        ({"process.roles": "broker", VOTERS: "1@a:9093"}, False),
    ],
)
def test_a_node_of_both_roles_says_that_it_asks_no_other_controller(
    settings: dict[str, str], warns: bool
) -> None:
    listeners = LISTENERS if "process.roles" in settings else f"{LISTENERS},CONTROLLER://127.0.0.1:9093"
    both = {"process.roles": "broker,controller", "node.id": "2", "listeners": listeners, NAMES: "CONTROLLER"}
    found = assemble([settings_of(both | settings, "file:1")])
    assert [line for line in found.warnings if "none of them is asked" in line] == found.warnings
    assert len(found.warnings) == warns
