"""A node signs in to another one before it asks: by each mechanism, again in time, and with wrong credentials."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import pytest

from broker.environment.scheduler import Chance
from broker.peers.opening import QUIET_S, Entrance
from broker.peers.peer import OPENING_S, Peer, PeerSettings, PeerState
from broker.security.sasl_client import Credentials
from protocol.errors import Error, KafkaError
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.security import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from tests.simulation.machine import Machine, World
from tests.simulation.test_peer import asked
from tests.simulation.virtual_loop import VirtualLoop, run
from tests.simulation.virtual_scheduler import NodeScheduler
from tests.support.wishes import tell

PORT = 9092
LIFETIME_MS = 60_000
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_node="secret";'
SALT = b"salt of sixteen!"


def machine_of(world: World, *settings: str) -> Machine:
    return Machine(
        world,
        "one",
        PORT,
        [
            f"listeners=SASL_PLAINTEXT://127.0.0.1:{PORT}",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"listener.name.sasl_plaintext.plain.sasl.jaas.config={JAAS}",
            "connection.failed.authentication.delay.ms=300",
            *settings,
        ],
    )


def peer_of(world: World, mechanism: str = "PLAIN", password: str = "secret") -> Peer:
    scheduler = NodeScheduler(world.loop)
    entrance = Entrance(
        "NODES", Credentials(mechanism, "node", password), None, Chance(random.Random(1).randbytes)
    )
    settings = PeerSettings("7", "1", idle_ms=1_000_000, entrance=entrance)
    return Peer("localhost", PORT, settings, world.network.of_node(scheduler), scheduler)


def connections(machine: Machine) -> list[Any]:
    assert machine.server is not None
    return [*machine.server.listeners["SASL_PLAINTEXT"].connections]


async def is_answered(world: World, peer: Peer) -> None:
    assert isinstance(await asked(world, peer, MetadataRequest(topics=[])), MetadataResponse)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_node_signs_in_before_it_asks(mechanism: str) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machine = machine_of(world)
        assert await machine.start()
        if mechanism != "PLAIN":
            await make_credential(world, mechanism)
        peer = peer_of(world, mechanism)
        await is_answered(world, peer)
        assert peer.state is PeerState.FREE
        assert "User:node" in {str(each.principal) for each in connections(machine)}
        peer.stop()
        await machine.stop()

    run(main)


async def make_credential(world: World, mechanism: str) -> None:
    import hashlib

    digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    upsertion = ScramCredentialUpsertion(
        name="node",
        mechanism=1 if digest == "sha256" else 2,
        iterations=4096,
        salt=SALT,
        salted_password=hashlib.pbkdf2_hmac(digest, b"secret", SALT, 4096),
    )
    answer = await asked(
        world, peer_of(world), AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    )
    assert not isinstance(answer, KafkaError)


def test_a_node_signs_in_again_before_its_session_is_over() -> None:
    """It happens between 85 % and 95 % of the session's life, on the same connection, and only if something is
    asked."""

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machine = machine_of(world, f"connections.max.reauth.ms={LIFETIME_MS}")
        assert await machine.start()
        peer = peer_of(world)
        await is_answered(world, peer)
        [connection] = connections(machine)
        gate = connection.gate
        first_s = gate._expires_s
        await asyncio.sleep(LIFETIME_MS * 0.84 / 1000)
        await is_answered(world, peer)
        assert gate._expires_s == first_s
        await asyncio.sleep(LIFETIME_MS * 0.11 / 1000)
        await is_answered(world, peer)
        assert gate._expires_s > first_s
        assert connections(machine) == [connection]
        await asyncio.sleep(
            2 * LIFETIME_MS / 1000
        )  # The session is over. A node that asks nothing needn't notice.
        await is_answered(world, peer)
        assert connections(machine) == [connection]
        peer.stop()
        await machine.stop()

    run(main)


@pytest.mark.parametrize(
    ("mechanism", "password", "why"),
    [
        ("PLAIN", "wrong", "Authentication failed: Invalid username or password"),
        (
            "SCRAM-SHA-256",
            "secret",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256",
        ),
    ],
)
def test_a_refused_node_reports_the_reason_now_and_then(
    mechanism: str, password: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machine = machine_of(world)
        assert await machine.start()
        peer = peer_of(world, mechanism, password)
        for _ in range(2):
            answer = await asked(world, peer, MetadataRequest(topics=[]))
            assert isinstance(answer, KafkaError)
            assert answer.error is Error.NETWORK_EXCEPTION
            assert answer.message == f"localhost:{PORT}: {why}"
            assert peer.state is PeerState.APART
        assert lines() == [f"localhost:{PORT} doesn't let this node in as node (listener NODES): {why}"]
        await asyncio.sleep(QUIET_S)
        await asked(world, peer, MetadataRequest(topics=[]))
        assert len(lines()) == 2
        assert not any(password in line for line in lines())
        peer.stop()
        await machine.stop()

    def lines() -> list[str]:
        return [
            each.getMessage()
            for each in caplog.records
            if each.name == "barnabas.peers" and each.levelno == logging.ERROR
        ]

    run(main)


def test_a_mechanism_that_isnt_enabled_there_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machine = machine_of(world, "sasl.enabled.mechanisms=PLAIN")
        assert await machine.start()
        answer = await asked(world, peer_of(world, "SCRAM-SHA-512"), MetadataRequest(topics=[]))
        assert isinstance(answer, KafkaError)
        assert "UNSUPPORTED_SASL_MECHANISM: mechanism SCRAM-SHA-512, and PLAIN are enabled" in str(answer)
        await machine.stop()

    run(main)


def test_a_request_given_up_during_a_sign_in_goes_with_its_connection() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machine = machine_of(world)
        assert await machine.start()
        peer = peer_of(world)
        told: list[Any] = []
        tell(peer.ask(MetadataRequest(topics=[])), told.append)
        while peer.state is not PeerState.OPENING:
            await asyncio.sleep(0.001)
        peer.forget()
        assert peer.state is PeerState.APART
        await is_answered(world, peer)
        assert told == []
        peer.stop()
        await machine.stop()

    run(main)


def test_a_node_without_sasl_is_reported_as_the_wrong_listener() -> None:
    """A plaintext listener answers the handshake with ILLEGAL_SASL_STATE."""

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machine = Machine(world, "one", PORT)
        assert await machine.start()
        answer = await asked(world, peer_of(world), MetadataRequest(topics=[]))
        assert isinstance(answer, KafkaError)
        assert "ILLEGAL_SASL_STATE" in str(answer)
        await machine.stop()

    run(main)


def test_an_opening_that_outlasts_a_request_serves_the_next_one() -> None:
    """Otherwise a request with less time than the opening takes would never succeed."""

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machine = machine_of(world)
        assert await machine.start()
        peer = peer_of(world)
        told: list[Any] = []
        tell(peer.ask(MetadataRequest(topics=[])), told.append)
        while peer.state is not PeerState.OPENING:
            await asyncio.sleep(0.0001)
        peer._timed_out()
        [late] = told
        assert late.error is Error.REQUEST_TIMED_OUT
        assert peer.state is PeerState.OPENING
        [connection] = connections(machine)
        await is_answered(world, peer)
        assert connections(machine) == [connection]
        tell(peer.ask(MetadataRequest(topics=[])), told.append)
        peer._timed_out()
        assert peer.state is PeerState.APART, "what stands is given up, for its answer may still come"
        peer.stop()
        await machine.stop()

    run(main)


def test_an_opening_whose_request_is_over_rests_once_it_is_done() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machine = machine_of(world)
        assert await machine.start()
        peer = peer_of(world)
        peer.ask(MetadataRequest(topics=[]))
        while peer.state is not PeerState.OPENING:
            await asyncio.sleep(0.0001)
        peer._timed_out()
        while peer.state is PeerState.OPENING:
            await asyncio.sleep(0.0001)
        assert peer.state is PeerState.FREE
        peer.stop()
        await machine.stop()

    run(main)


def test_an_opening_that_comes_to_no_end_is_given_up() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machine = machine_of(world)
        assert await machine.start()
        peer = peer_of(world)
        told: list[Any] = []
        tell(peer.ask(MetadataRequest(topics=[])), told.append)
        while peer.state is not PeerState.OPENING:
            await asyncio.sleep(0.0001)
        peer._answered = lambda frame: None  # type: ignore[method-assign]
        peer._connection._answered = lambda frame: None  # type: ignore[union-attr]
        await asyncio.sleep(OPENING_S)
        assert peer.state is PeerState.APART
        assert next(each.error for each in told) in (Error.REQUEST_TIMED_OUT, Error.NETWORK_EXCEPTION)
        peer.stop()
        await machine.stop()

    run(main)
