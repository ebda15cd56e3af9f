"""A node that asks another one: answers, deaths, silence, and a connection that ends at any byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.peers.peer import Peer, PeerSettings, PeerState
from protocol.errors import Error, KafkaError
from protocol.messages.fetch import FetchRequest, ReplicaState
from protocol.messages.metadata import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from protocol.messages.raft import VoteRequest
from protocol.wire.codec import encode
from protocol.wire.schema import Message
from tests.simulation.machine import Machine, World
from tests.simulation.virtual_loop import VirtualLoop, run
from tests.simulation.virtual_scheduler import NodeScheduler
from tests.support.wishes import tell

PORT = 9092
SETTINGS = PeerSettings("raft-client-7", "1", request_timeout_ms=5_000, idle_ms=60_000)


def peer_in(world: World, settings: PeerSettings = SETTINGS) -> Peer:
    scheduler = NodeScheduler(world.loop)
    return Peer("localhost", PORT, settings, world.network.of_node(scheduler), scheduler)


async def asked(
    world: World, peer: Peer, request: Message, version: int | None = None
) -> Message | KafkaError:
    answer: asyncio.Future[Message | KafkaError] = world.loop.create_future()
    tell(peer.ask(request, version=version), answer.set_result)
    return await answer


async def error_of(world: World, peer: Peer, request: Message) -> Error:
    answer = await asked(world, peer, request)
    assert isinstance(answer, KafkaError)
    return answer.error


def test_a_request_is_answered_in_the_latest_version_that_both_have() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machine = Machine(world, "one", PORT)
        assert await machine.start()
        peer = peer_in(world)
        assert peer.state is PeerState.APART
        for _ in range(20):
            answer = await asked(world, peer, MetadataRequest(topics=[]))
            assert isinstance(answer, MetadataResponse)
            assert [broker.port for broker in answer.brokers] == [PORT]
            assert peer.state is PeerState.FREE
        assert await error_of(world, peer, VoteRequest()) is Error.UNSUPPORTED_VERSION
        assert peer.state is PeerState.FREE
        by_an_old_one = await asked(world, peer, FetchRequest(replica_state=ReplicaState(replica_id=7)), 12)
        assert isinstance(by_an_old_one, KafkaError)
        assert by_an_old_one.error is Error.UNSUPPORTED_VERSION
        assert isinstance(await asked(world, peer, MetadataRequest(topics=[])), MetadataResponse)
        await machine.stop()

    run(main)


def test_an_absent_node_is_tried_again_after_a_while() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 2)
        world.network.is_calm = True
        peer = peer_in(world)
        for number in range(1, 5):
            assert await error_of(world, peer, MetadataRequest(topics=[])) is Error.NETWORK_EXCEPTION
            assert loop.time() >= (number - 1) * SETTINGS.reconnect_backoff_ms / 1000
        machine = Machine(world, "one", PORT)
        assert await machine.start()
        assert isinstance(await asked(world, peer, MetadataRequest(topics=[])), MetadataResponse)
        await machine.stop()

    run(main)


class Wire(asyncio.Transport):
    """Keeps what a peer sends; nobody reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent.append(bytes(data))

    def abort(self) -> None: ...


class Made:
    """A network whose connections the test answers itself."""

    def __init__(self) -> None:
        self.connections: list[asyncio.BufferedProtocol] = []

    def connect(
        self,
        host: str,
        port: int,
        make_protocol: Callable[[], asyncio.BufferedProtocol],
        failed: Callable[[OSError], None],
    ) -> None:
        self.connections.append(make_protocol())


def give(connection: asyncio.BufferedProtocol, frame: bytes) -> None:
    data = len(frame).to_bytes(4, "big") + frame
    while data:
        room = connection.get_buffer(-1)
        size = min(len(room), len(data))
        room[:size] = data[:size]
        data = data[size:]
        connection.buffer_updated(size)


def version_and_id(sent: bytes) -> tuple[int, bytes]:
    return int.from_bytes(sent[6:8], "big"), sent[8:12]


@pytest.mark.parametrize(
    ("known", "asked_next"), [([], 0), ([(18, 0, 2)], 2), ([(18, 0, 99)], 4), ([(3, 0, 5)], 0)]
)
def test_a_node_without_the_latest_version_is_asked_in_the_one_that_it_names(
    known: list[tuple[int, int, int]], asked_next: int
) -> None:
    """Kafka's brokers then answer in version 0; from 2.4 on with the versions that they know of this request."""

    async def main(loop: VirtualLoop) -> None:
        network, wire = Made(), Wire()
        told: list[object] = []
        peer = Peer("localhost", PORT, SETTINGS, network, NodeScheduler(loop))  # type: ignore[arg-type]
        tell(peer.ask(MetadataRequest(topics=[])), told.append)
        (connection,) = network.connections
        connection.connection_made(wire)
        version, correlation_id = version_and_id(wire.sent[-1])
        assert version == ApiVersionsRequest.VERSIONS[1] == 5
        refusal = ApiVersionsResponse(
            error_code=Error.UNSUPPORTED_VERSION,
            api_keys=[
                ApiVersion(api_key=key, min_version=first, max_version=last) for key, first, last in known
            ],
        )
        give(connection, correlation_id + encode(refusal, 0))
        version, correlation_id = version_and_id(wire.sent[-1])
        assert version == asked_next
        assert told == []
        answer = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=0, max_version=5)])
        give(connection, correlation_id + encode(answer, asked_next))
        assert wire.sent[-1][4:8] == bytes([0, 3, 0, 5])
        peer.stop()

    run(main)


def test_a_node_that_refuses_the_first_version_too_is_given_up() -> None:
    async def main(loop: VirtualLoop) -> None:
        network, wire = Made(), Wire()
        told: list[object] = []
        peer = Peer("localhost", PORT, SETTINGS, network, NodeScheduler(loop))  # type: ignore[arg-type]
        tell(peer.ask(MetadataRequest(topics=[])), told.append)
        (connection,) = network.connections
        connection.connection_made(wire)
        for _ in range(2):
            _, correlation_id = version_and_id(wire.sent[-1])
            refusal = ApiVersionsResponse(error_code=Error.UNSUPPORTED_VERSION, api_keys=[])
            give(connection, correlation_id + encode(refusal, 0))
        (error,) = told
        assert isinstance(error, KafkaError)
        assert error.error is Error.NETWORK_EXCEPTION

    run(main)


def test_the_time_between_attempts_doubles_up_to_a_bound_and_resets_after_a_success() -> None:
    async def main(loop: VirtualLoop) -> None:
        settings = replace(SETTINGS, reconnect_backoff_max_ms=500)
        world = World(loop, 2)
        world.network.is_calm = True
        peer = peer_in(world, settings)
        began_s = loop.time()
        waits = []
        for _ in range(7):
            assert await error_of(world, peer, MetadataRequest(topics=[])) is Error.NETWORK_EXCEPTION
            waits.append(round(loop.time() - began_s, 3))
            began_s = loop.time()
        assert waits == pytest.approx([0, 0.05, 0.1, 0.2, 0.4, 0.5, 0.5], abs=0.02)
        machine = Machine(world, "one", PORT)
        assert await machine.start()
        assert isinstance(await asked(world, peer, MetadataRequest(topics=[])), MetadataResponse)
        await machine.stop()
        began_s = loop.time()
        for _ in range(2):
            assert await error_of(world, peer, MetadataRequest(topics=[])) is Error.NETWORK_EXCEPTION
        assert loop.time() - began_s < 0.2

    run(main)


def test_a_node_that_dies_is_noticed_and_asked_again() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 3)
        machine = Machine(world, "one", PORT)
        assert await machine.start()
        peer = peer_in(world)
        assert isinstance(await asked(world, peer, MetadataRequest(topics=[])), MetadataResponse)
        machine.die(power_lost=False)
        assert await error_of(world, peer, MetadataRequest(topics=[])) is Error.NETWORK_EXCEPTION
        assert peer.state is PeerState.APART
        assert await machine.start()
        assert isinstance(await asked(world, peer, MetadataRequest(topics=[])), MetadataResponse)
        await machine.stop()

    run(main)


def test_a_silent_node_is_given_up_in_time() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 4)
        silent = world.network.of_node(NodeScheduler(loop)).bind("localhost", PORT, 1)
        peer = peer_in(world)
        began_s = loop.time()
        assert await error_of(world, peer, MetadataRequest(topics=[])) is Error.REQUEST_TIMED_OUT
        assert loop.time() - began_s == SETTINGS.request_timeout_ms / 1000
        assert peer.state is PeerState.APART
        silent.close()

    run(main)


def test_a_connection_that_is_not_used_ends_after_a_while() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 5)
        machine = Machine(world, "one", PORT)
        assert await machine.start()
        peer = peer_in(world)
        await asked(world, peer, MetadataRequest(topics=[]))
        await asyncio.sleep(SETTINGS.idle_ms / 1000 - 1)
        assert peer.state is PeerState.FREE
        await asyncio.sleep(2)
        assert peer.state is PeerState.APART
        assert isinstance(await asked(world, peer, MetadataRequest(topics=[])), MetadataResponse)
        await machine.stop()

    run(main)


def test_a_request_no_longer_wanted_calls_nobody_back() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 6)
        machine = Machine(world, "one", PORT)
        assert await machine.start()
        peer = peer_in(world)
        told: list[object] = []
        for wait_s in (0.0, 0.001, 0.005, 0.02, 0.5):
            tell(peer.ask(MetadataRequest(topics=[])), told.append)
            await asyncio.sleep(wait_s)
            expected = [*told]
            peer.forget()
            await asyncio.sleep(10)
            assert told == expected
        assert len(told) < 5
        count = len(told)
        assert await error_of(world, peer, VoteRequest()) is Error.UNSUPPORTED_VERSION
        tell(peer.ask(VoteRequest()), told.append)  # this is noticed at once
        peer.forget()
        tell(peer.ask(MetadataRequest(topics=[])), told.append)
        peer.stop()
        await asyncio.sleep(10)
        assert (peer.state, len(told)) == (PeerState.STOPPED, count)
        await machine.stop()

    run(main)


def test_a_refusal_that_comes_late_is_of_the_attempt_that_was_given_up() -> None:
    refusals: list[Callable[[OSError], None]] = []

    class Slow:
        """It reports late what became of an attempt."""

        def connect(
            self, host: str, port: int, make_protocol: object, failed: Callable[[OSError], None]
        ) -> None:
            refusals.append(failed)

    async def main(loop: VirtualLoop) -> None:
        peer = Peer("localhost", PORT, SETTINGS, Slow(), NodeScheduler(loop))  # type: ignore[arg-type]
        told: list[object] = []
        tell(peer.ask(MetadataRequest(topics=[])), told.append)
        peer.forget()
        tell(peer.ask(MetadataRequest(topics=[])), told.append)
        await asyncio.sleep(1)
        first, second = refusals
        first(ConnectionRefusedError())
        assert told == []
        second(ConnectionRefusedError())
        (error,) = told
        assert isinstance(error, KafkaError)
        assert error.error is Error.NETWORK_EXCEPTION

    run(main)
