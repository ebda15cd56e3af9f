"""Brokers and their controller sign in to each other: on all of their connections, and as the right principal."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from broker.config.definitions import StartError
from broker.controller.controller import ControllerResult
from broker.replicas.leader import Leader
from broker.security.authorizer import Principal
from protocol.errors import Error
from protocol.messages.cluster_admin import DescribeQuorumRequest, DescribeQuorumTopic
from protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.metadata_records import AccessControlEntryRecord
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
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
from tests.support.certificates import KEPT, Certificates, renew
from tests.support.transactional_client import Broker, Producer, eventually, worst
from tests.support.wire import Client

NODE = Principal("User", "node")
KEYS, STRANGER = Certificates(KEPT), Certificates(KEPT / "stranger")
PARTITIONS = (0, 1, 2)
RIGHTS_OF_BROKERS = ((4, "kafka-cluster", 9), (4, "kafka-cluster", 5), (2, "*", 8))
"""Each has the type and name of the resource, and the operation."""


def principals(nodes: SecuredNodes) -> set[Principal]:
    """Return the principals of the connections at the listeners for nodes."""
    listeners = [nodes.listener_of_controller]
    listeners += [broker.listeners["NODES"] for broker in nodes.brokers.values()]
    return {each.principal for listener in listeners for each in listener.connections}


def ends(nodes: SecuredNodes, topic: str) -> list[tuple[int, int]]:
    """Return the leader's (high watermark, last stable offset) of each partition."""
    found = {}
    for broker in nodes.brokers.values():
        for index, partition in broker.partitions.by_name[topic].partitions.items():
            if isinstance(partition.role, Leader):
                found[index] = partition.log.high_watermark, partition.log.last_stable_offset
    return [found.get(index, (-1, -1)) for index in PARTITIONS]


async def play(nodes: SecuredNodes) -> None:
    """Create a topic on all nodes, and run a transaction over leaders on each of them. For that the nodes exchange
    registrations, heartbeats, the metadata, a topic and producer ids by the controller, replicas, ISRs, and markers."""
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
        await until(lambda: principals(nodes) == {NODE})  # a connection that is still signing in is nobody's


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_nodes_sign_in_encrypted(version: str, tmp_path: Path) -> None:
    settings = {**KEYS.settings(), "ssl.enabled.protocols": version}
    async with secured(tmp_path, protocols("SASL_SSL"), plain(), settings, AUTHORIZED) as nodes:
        await play(nodes)
        await until(lambda: principals(nodes) == {NODE})  # a connection that is still signing in is nobody's


async def test_nodes_are_known_by_their_certificates(tmp_path: Path) -> None:
    settings = {
        **KEYS.settings(),
        "ssl.client.auth": "required",
        "super.users": "User:CN=localhost;User:ANONYMOUS",
    }
    async with secured(tmp_path, protocols("SSL"), AUTHORIZED, settings) as nodes:
        await play(nodes)
        await until(
            lambda: principals(nodes) == {Principal("User", "CN=localhost")}
        )  # a connection that is still signing in is nobody's


async def test_certificates_of_all_nodes_give_way_to_another_authoritys(tmp_path: Path) -> None:
    """There are three steps, each at all nodes, which go on running: trust both authorities, use the new one's keys,
    and trust only the new one. Connections from then on, in any direction, show and trust the new certificates."""
    keys, trusted = tmp_path / "keys.pem", tmp_path / "trusted.pem"
    both = tmp_path / "both.pem"
    both.write_text(KEYS.certificate.read_text() + STRANGER.certificate.read_text())
    renew(keys, KEYS.folder / "server.pem")
    renew(trusted, KEYS.certificate)
    settings = {
        **KEYS.settings(),
        "ssl.keystore.location": str(keys),
        "ssl.truststore.location": str(trusted),
        "ssl.client.auth": "required",
        "broker.session.timeout.ms": "1000",  # so that a broker that left may come back soon
        "super.users": "User:CN=localhost;User:ANONYMOUS",
    }
    async with secured(tmp_path, protocols("SSL"), {**AUTHORIZED, **settings}) as nodes:
        for number, (file, by) in enumerate(
            ((trusted, both), (keys, STRANGER.folder / "server.pem"), (trusted, STRANGER.certificate)), 1
        ):
            renew(file, by)
            await alter_all(nodes, "log.retention.ms", str(number))
        await nodes.restart_broker(BROKER_IDS[-1])
        await play(nodes)


async def alter_all(nodes: SecuredNodes, name: str, value: str) -> None:
    """Alter a setting of all brokers, and wait until it is in force at each node."""
    change = IncrementalAlterableConfig(name=name, config_operation=0, value=value)
    of_all = IncrementalAlterConfigsResource(resource_type=4, resource_name="", configs=[change])
    answer = await nodes.ask(BROKER_IDS[0], IncrementalAlterConfigsRequest(resources=[of_all]), 1)
    assert [each.error_code for each in answer.responses] == [Error.NONE], answer
    everyone = [nodes.controller, *nodes.brokers.values()]
    await until(lambda: all(node.config.text_given(name) == value for node in everyone))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_new_cluster_has_its_nodes_passwords_from_its_format(mechanism: str, tmp_path: Path) -> None:
    credential = f"{mechanism}=[name=node,password=node-secret]"
    settings = protocols("SASL_PLAINTEXT"), scram(mechanism), AUTHORIZED
    async with secured(tmp_path, *settings, add_scram=credential) as nodes:
        await play(nodes)
        await until(lambda: principals(nodes) == {NODE})  # a connection that is still signing in is nobody's


async def test_a_broker_that_is_the_controller_too_signs_in_at_others(tmp_path: Path) -> None:
    settings = protocols("SASL_SSL"), plain(), KEYS.settings(), AUTHORIZED
    async with secured(tmp_path, *settings, combined=True) as nodes:
        await play(nodes)
        await until(lambda: principals(nodes) == {NODE})  # a connection that is still signing in is nobody's
        for other in [*nodes.brokers.values()][1:]:  # it follows them as this principal
            listener = other.listeners["NODES"]
            await until(lambda listener=listener: NODE in {each.principal for each in listener.connections})


# --- who isn't let in ---------------------------------------------------------------------------------------


async def refusal(nodes: SecuredNodes, **settings: str) -> str:
    """Return why another broker can't join."""
    with pytest.raises(StartError) as refused:
        await nodes.start_broker(9, initial_broker_registration_timeout_ms="2000", **settings)
    text = str(refused.value)
    assert "\n" not in text
    return text


async def says(nodes: SecuredNodes, caplog: pytest.LogCaptureFixture, why: str, **settings: str) -> None:
    """Check that another broker says so in its log while it starts, and keeps trying."""
    starting = asyncio.ensure_future(nodes.start_broker(9, **settings))
    try:
        await until(lambda: starting.done() or any(why in each for each in caplog.messages))
        assert not starting.done()
    finally:
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


async def test_a_broker_with_a_wrong_password_fails_at_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(tmp_path, protocols("SASL_PLAINTEXT"), plain(), AUTHORIZED) as nodes:
        wrong = plain("wrong")["listener.name.controller.plain.sasl.jaas.config"]
        told = await refusal(nodes, listener_name_controller_plain_sasl_jaas_config=wrong)
        why = "Authentication failed: Invalid username or password"
        assert told.endswith(f"{nodes.address_of_controller}: {why}")
        line = f"{nodes.address_of_controller} doesn't let this node in as node (listener CONTROLLER): {why}"
        assert line in caplog.messages
        assert not any("wrong" in each for each in caplog.messages)


async def test_a_node_that_the_authorizer_does_not_know_as_a_broker_cannot_join(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker signs in, but has no right to CLUSTER_ACTION."""
    async with secured(tmp_path, protocols("SASL_PLAINTEXT"), plain(), AUTHORIZED) as nodes:
        await nodes.create("orders")
        line = f'{PLAIN} required username="other" password="s" user_node="node-secret";'
        for node in (nodes.controller, *nodes.brokers.values()):
            for passwords in node.config.sasl.values():
                passwords.passwords["other"] = "s"  # type: ignore[index]
        await says(
            nodes,
            caplog,
            "CLUSTER_AUTHORIZATION_FAILED",
            listener_name_controller_plain_sasl_jaas_config=line,
        )


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("ssl_truststore_location", str(STRANGER.certificate), "its certificate isn't trusted"),
        ("ssl_keystore_location", str(STRANGER.folder / "server.pem"), "it refuses: "),
    ],
)
async def test_a_broker_that_does_not_trust_or_is_not_trusted_is_refused(
    name: str, value: str, why: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**KEYS.settings(), "ssl.client.auth": "required", "super.users": "User:CN=localhost"}
    async with secured(tmp_path, protocols("SSL"), AUTHORIZED, settings) as nodes:
        why = f"{nodes.address_of_controller} doesn't let this node in (listener CONTROLLER): {why}"
        await says(nodes, caplog, why, **{f"listener_name_controller_{name}": value})


async def test_brokers_with_inconsistent_settings_fail_at_their_start(tmp_path: Path) -> None:
    async with secured(tmp_path, protocols("SASL_SSL"), plain(), KEYS.settings()) as nodes:
        told = await refusal(nodes, listener_name_nodes_ssl_truststore_location=str(STRANGER.certificate))
        assert told.startswith(
            "listener NODES: a client with its settings can't connect to a server with them"
        )


# --- rights -------------------------------------------------------------------------------------------------


async def test_a_forwarded_client_keeps_its_identity_at_the_controller(tmp_path: Path) -> None:
    """The broker signs in as itself, and says in the envelope whose request it is."""
    only_nodes = {"super.users": "User:node"}
    async with secured(tmp_path, protocols("SASL_PLAINTEXT"), plain(), AUTHORIZED, only_nodes) as nodes:
        wanted = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
        answer = await nodes.ask(BROKER_IDS[0], request, 7)
        assert [each.error_code for each in answer.topics] == [Error.TOPIC_AUTHORIZATION_FAILED]
        anonymous = AccessControlEntryRecord(
            id=bytes(16),
            resource_type=2,
            resource_name="orders",
            pattern_type=3,
            principal="User:ANONYMOUS",
            host="127.0.0.1",
            operation=5,
            permission_type=3,
        )
        failure = await_own(nodes, anonymous)
        await until(lambda: failure.done())
        answer = await nodes.ask(BROKER_IDS[0], request, 7)
        assert [each.error_code for each in answer.topics] == [Error.NONE]


def await_own(nodes: SecuredNodes, record: AccessControlEntryRecord) -> asyncio.Future[None]:
    """Have the controller itself write this record. The future ends when it is in force."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def submit() -> None:
        await nodes.controller.controller.submit_own(
            lambda image: ControllerResult([record], lambda error: error),
            logging.getLogger("test"),
            "an ACL can't be written",
        )
        done.set_result(None)

    nodes.controller.controller.begin(submit())
    return done


async def test_brokers_need_the_rights_that_kafkas_need(tmp_path: Path) -> None:
    """Brokers that aren't super users need ClusterAction, Create for the coordinators' topics, which a broker asks for
    in its own name, and Describe of topics, because followers list offsets."""
    nobody = {"super.users": "User:ANONYMOUS", "allow.everyone.if.no.acl.found": "true"}
    # until there is an ACL of the cluster, everybody may speak as a broker
    async with secured(tmp_path, protocols("SASL_PLAINTEXT"), plain(), AUTHORIZED, nobody) as nodes:
        for number, (kind, name, operation) in enumerate(RIGHTS_OF_BROKERS):
            acl = AccessControlEntryRecord(
                id=number.to_bytes(16),
                resource_type=kind,
                resource_name=name,
                pattern_type=3,
                principal="User:node",
                host="*",
                operation=operation,
                permission_type=3,
            )
            await await_own(nodes, acl)
        await play(nodes)


async def test_the_controllers_authorizer_judges_users_signed_in_there(tmp_path: Path) -> None:
    """Clients may connect to the controller directly (KIP-919)."""
    more = plain()["listener.name.controller.plain.sasl.jaas.config"].replace(";", ' user_alice="a";')
    settings = {**plain(), "listener.name.controller.plain.sasl.jaas.config": more}
    async with secured(tmp_path, protocols("SASL_PLAINTEXT"), settings, AUTHORIZED) as nodes:
        port = nodes.listener_of_controller.port

        def described(user: str, password: str) -> Error:
            with Client.connect(port) as client:
                assert not client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
                token = f"\0{user}\0{password}".encode()
                assert not client.ask(SaslAuthenticateRequest(auth_bytes=token), 2).error_code
                topics = [DescribeQuorumTopic(topic_name="__cluster_metadata", partitions=[])]
                return Error(client.ask(DescribeQuorumRequest(topics=topics), 2).error_code)

        assert await asyncio.to_thread(described, "node", "node-secret") is Error.NONE
        assert await asyncio.to_thread(described, "alice", "a") is Error.CLUSTER_AUTHORIZATION_FAILED
