"""Brokers and their controller that sign in at each other: all that they say to each other goes so, and as whom."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.config.definitions import StartError
from broker.replicas.leader import Leader
from broker.security.authorizer import Principal
from protocol.errors import Error
from protocol.messages.metadata import FindCoordinatorRequest
from tests.node.secured_nodes import (
    AUTHORIZED,
    BROKER_IDS,
    PLAIN,
    SecuredNodes,
    plain,
    protocols,
    scram,
    secured,
    until,
)
from tests.support.certificates import KEPT, Certificates
from tests.support.transactional_client import Broker, Producer, eventually, worst

NODE = Principal("User", "node")
KEYS, STRANGER = Certificates(KEPT), Certificates(KEPT / "stranger")
PARTITIONS = (0, 1, 2)


def principals(nodes: SecuredNodes) -> set[Principal]:
    """Whose connections there are at the listeners that are for nodes."""
    listeners = [nodes.controller.listeners["CONTROLLER"]]
    listeners += [broker.listeners["NODES"] for broker in nodes.brokers.values()]
    return {each.principal for listener in listeners for each in listener.connections}


def ends(nodes: SecuredNodes, topic: str) -> list[tuple[int, int]]:
    """Of each partition, by its leader: the high watermark, and the last stable offset."""
    found = {}
    for broker in nodes.brokers.values():
        for index, partition in broker.partitions.by_name[topic].partitions.items():
            if isinstance(partition.role, Leader):
                found[index] = partition.log.high_watermark, partition.log.last_stable_offset
    return [found.get(index, (-1, -1)) for index in PARTITIONS]


async def play(nodes: SecuredNodes) -> None:
    """A topic on all nodes, and a transaction over leaders on each of them. What nodes say to each other for it:
    registrations, heartbeats, the metadata, a topic and producer ids by the controller, replicas, ISRs, markers."""
    await nodes.create("orders", len(PARTITIONS))
    image = nodes.controller.metadata.image
    leaders = {each.leader for each in image.topics["orders"].partitions.values()}
    assert leaders == {*BROKER_IDS}
    await nodes.ask(BROKER_IDS[0], FindCoordinatorRequest(key="t", key_type=1), 3)
    await until(lambda: nodes.is_in_sync("__transaction_state"))
    producer = Producer(Broker(nodes.route), "t", 1)

    def transaction() -> None:
        eventually(producer.init)
        eventually(lambda: worst(producer.add("orders", PARTITIONS)))
        for index in PARTITIONS:
            eventually(lambda index=index: worst(producer.produce("orders", {index: b"x"})))
        assert producer.end(commit=True) is Error.NONE

    await asyncio.to_thread(transaction)
    await until(lambda: ends(nodes, "orders") == [(2, 2)] * len(PARTITIONS))


async def test_nodes_sign_in_at_each_other(tmp_path: Path) -> None:
    async with secured(tmp_path, protocols("SASL_PLAINTEXT"), plain(), AUTHORIZED) as nodes:
        await play(nodes)
        assert principals(nodes) == {NODE}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_nodes_sign_in_encrypted(version: str, tmp_path: Path) -> None:
    settings = {**KEYS.settings(), "ssl.enabled.protocols": version}
    async with secured(tmp_path, protocols("SASL_SSL"), plain(), settings, AUTHORIZED) as nodes:
        await play(nodes)
        assert principals(nodes) == {NODE}


async def test_nodes_are_known_by_their_certificates(tmp_path: Path) -> None:
    settings = {
        **KEYS.settings(),
        "ssl.client.auth": "required",
        "super.users": "User:CN=localhost;User:ANONYMOUS",
    }
    async with secured(tmp_path, protocols("SSL"), AUTHORIZED, settings) as nodes:
        await play(nodes)
        assert principals(nodes) == {Principal("User", "CN=localhost")}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_new_cluster_has_its_nodes_passwords_from_its_format(mechanism: str, tmp_path: Path) -> None:
    credential = f"{mechanism}=[name=node,password=node-secret]"
    settings = protocols("SASL_PLAINTEXT"), scram(mechanism), AUTHORIZED
    async with secured(tmp_path, *settings, add_scram=credential) as nodes:
        await play(nodes)
        assert principals(nodes) == {NODE}


# --- who isn't let in ---------------------------------------------------------------------------------------


async def refusal(nodes: SecuredNodes, **settings: str) -> str:
    """Why another broker can't join."""
    with pytest.raises(StartError) as refused:
        await nodes.start_broker(9, initial_broker_registration_timeout_ms="300", **settings)
    text = str(refused.value)
    assert "\n" not in text
    return text


async def test_a_broker_with_a_wrong_password_is_told_at_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(tmp_path, protocols("SASL_PLAINTEXT"), plain(), AUTHORIZED) as nodes:
        wrong = plain("wrong")["listener.name.controller.plain.sasl.jaas.config"]
        told = await refusal(nodes, listener_name_controller_plain_sasl_jaas_config=wrong)
        why = "Authentication failed: Invalid username or password"
        assert told.endswith(f"{nodes.controller.bootstrap}: {why}")
        line = f"{nodes.controller.bootstrap} doesn't let this node in as node (listener CONTROLLER): {why}"
        assert line in caplog.messages
        assert not any("wrong" in each for each in caplog.messages)


async def test_who_isnt_a_broker_to_the_authorizer_cant_join(tmp_path: Path) -> None:
    """It signs in, and has no right to CLUSTER_ACTION."""
    async with secured(tmp_path, protocols("SASL_PLAINTEXT"), plain(), AUTHORIZED) as nodes:
        await nodes.create("orders")
        line = f'{PLAIN} required username="other" password="s" user_node="node-secret";'
        for node in (nodes.controller, *nodes.brokers.values()):
            for passwords in node.config.sasl.values():
                passwords.passwords["other"] = "s"  # type: ignore[index]
        told = await refusal(nodes, listener_name_controller_plain_sasl_jaas_config=line)
        assert "CLUSTER_AUTHORIZATION_FAILED" in told


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("ssl_truststore_location", str(STRANGER.certificate), "its certificate isn't trusted"),
        ("ssl_keystore_location", str(STRANGER.folder / "server.pem"), "it refuses: "),
    ],
)
async def test_a_broker_that_trusts_not_or_isnt_trusted_is_told(
    name: str, value: str, why: str, tmp_path: Path
) -> None:
    settings = {**KEYS.settings(), "ssl.client.auth": "required", "super.users": "User:CN=localhost"}
    async with secured(tmp_path, protocols("SSL"), AUTHORIZED, settings) as nodes:
        told = await refusal(nodes, **{f"listener_name_controller_{name}": value})
        assert f"{nodes.controller.bootstrap}: {why}" in told


async def test_brokers_whose_own_settings_dont_fit_are_told_at_their_start(tmp_path: Path) -> None:
    async with secured(tmp_path, protocols("SASL_SSL"), plain(), KEYS.settings()) as nodes:
        told = await refusal(nodes, listener_name_nodes_ssl_truststore_location=str(STRANGER.certificate))
        assert told.startswith(
            "listener NODES: a client with its settings can't connect to a server with them"
        )
