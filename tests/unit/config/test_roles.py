"""What a node is in its cluster, and what that makes of its other settings."""

from __future__ import annotations

import pytest

from broker.config.assembly import assemble, settings_of
from broker.config.broker_config import BrokerConfig
from broker.config.errors import UsageError
from broker.config.single_node import AT_MOST_ONE

VOTERS = "controller.quorum.voters"
BOOTSTRAP = "controller.quorum.bootstrap.servers"
LISTENERS = "PLAINTEXT://127.0.0.1:9092"


def assembled(**values: str) -> BrokerConfig:
    """Settings with `_` for `.`."""
    return assemble(
        [settings_of({name.replace("_", "."): value for name, value in values.items()}, "file:1")]
    )


def joined(**values: str) -> BrokerConfig:
    given = {"process_roles": "broker", "node_id": "2", "controller_quorum_voters": "1@a:9093"}
    return assembled(**(given | values))


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
def test_a_node_joins_a_cluster_where_it_is_no_controller_and_others_are(
    settings: dict[str, str], joins: bool
) -> None:
    found = assemble([settings_of(settings | {"node.id": "2"}, "file:1")])
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
    given = settings | {"process.roles": "broker", "node.id": "2"}
    assert [*assemble([settings_of(given)]).controllers] == controllers


@pytest.mark.parametrize("name", list(AT_MOST_ONE))
def test_what_one_node_needs_is_kafkas_default_where_there_are_others(name: str) -> None:
    definition_default = {
        "default.replication.factor": 1,
        "transaction.state.log.min.isr": 2,
        "share.coordinator.state.topic.min.isr": 2,
    }
    assert joined().get(name) == definition_default.get(name, 3)
    given = joined(**{name.replace(".", "_"): "3"})
    assert given.get(name) == 3
    assert given.warnings == []


def test_a_broker_of_a_cluster_has_an_id_of_its_own() -> None:
    with pytest.raises(UsageError, match=r"^file:1: process\.roles=broker: .* has a node\.id of its own$"):
        assembled(process_roles="broker", controller_quorum_voters="1@a:9093")
    assert assembled(process_roles="broker", controller_quorum_voters="1@a:9093", broker_id="3").node_id == 3


def test_others_reach_it_by_a_listener_that_it_advertises() -> None:
    assert joined().inter_broker_listener == "PLAINTEXT"
    internal = {
        "listeners": "INTERNAL://:1,CLIENTS://:2",
        "listener_security_protocol_map": "INTERNAL:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    with pytest.raises(UsageError, match=r"must be a listener name defined in advertised\.listeners"):
        joined(**internal)
    named = joined(**internal, inter_broker_listener_name="internal")
    assert named.inter_broker_listener == "INTERNAL"
    assert assembled(**internal).listeners  # alone it asks for none
