"""Nothing that is done with a transport that has just closed raises, with asyncio's transports or with uvloop's."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from broker.environment import network
from broker.environment.cut_network import Cut, CuttableNetwork
from broker.environment.network import SocketNetwork
from broker.environment.scheduler import LoopScheduler
from broker.network.connection import Connection
from broker.network.memory import Memory
from broker.peers.peer import PeerConnection
from tests.node.test_connection import MAX_FRAME_BYTES, FakeDispatcher, FakeListener, frame
from tests.node.test_cut_network import reached

Run = Callable[[Coroutine[Any, Any, None]], None]

BOTH = Cut(incoming=True, outgoing=True)


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    run: Run = request.param
    return run


class Heard(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.lost = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost += 1


class HeardFrames(Heard, asyncio.BufferedProtocol):
    """One end of a connection that reads into a buffer, as nodes do."""

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray(100)

    def buffer_updated(self, nbytes: int) -> None:
        pass


class Ends:
    """A server that lists the connections that come in."""

    async def __aenter__(self) -> Ends:
        self.there: list[Heard] = []
        self.server = await asyncio.get_running_loop().create_server(self._come, "127.0.0.1", 0)
        self.port: int = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        for each in self.there:
            each.transport.abort()
            await reached(lambda each=each: each.lost)

    def _come(self) -> Heard:
        self.there.append(Heard())
        return self.there[-1]


def reset(transport: Any) -> None:
    """Close the transport so that the other side gets an error."""
    how = struct.pack("ii", 1, 0)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, how)
    transport.abort()


OPERATIONS: dict[str, Callable[[Any], object]] = {
    "write": lambda transport: transport.write(b"x"),
    "writelines": lambda transport: transport.writelines([b"x", b"y"]),
    "pause_reading": lambda transport: transport.pause_reading(),
    "resume_reading": lambda transport: transport.resume_reading(),
    "set_write_buffer_limits": lambda transport: transport.set_write_buffer_limits(high=1),
    "get_write_buffer_size": lambda transport: transport.get_write_buffer_size(),
    "get_extra_info": lambda transport: [
        transport.get_extra_info(each) for each in ("peername", "sslcontext")
    ],
    "set_protocol": lambda transport: transport.set_protocol(Heard()),
    "is_closing": lambda transport: transport.is_closing(),
    "close": lambda transport: transport.close(),
    "abort": lambda transport: transport.abort(),
}
"""Everything that the broker does with a transport."""


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("end", ["close", "abort"])
def test_every_use_of_a_transport_is_safe_between_its_end_and_the_report_of_it(
    run: Run, end: str, operation: str
) -> None:
    """Whoever has a transport relies on this. He may use it until he is told of its end, and forgets it then."""

    async def told() -> None:
        async with Ends() as ends:
            loop = asyncio.get_running_loop()
            transport, here = await loop.create_connection(Heard, "127.0.0.1", ends.port)
            transport.write(b"x" * 10_000_000)  # an orderly end takes a while then
            getattr(transport, end)()
            assert not here.lost
            OPERATIONS[operation](transport)
            transport.abort()
            await asyncio.sleep(0)

    run(told())


def test_a_connection_established_as_its_time_is_over_stays(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop is so busy that the connection and the timeout come in one turn. uvloop closed the connection then, and
    told nobody."""
    monkeypatch.setattr(network, "CONNECTION_SETUP_TIMEOUT_S", 0.3)  # a busy machine takes a while

    class Slow(HeardFrames):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            loop = asyncio.get_running_loop()
            over_s = loop.time() + 0.35
            while loop.time() < over_s:  # busy
                pass

    async def told() -> None:
        async with Ends() as ends:
            here, failures = Slow(), list[OSError]()
            SocketNetwork().connect("127.0.0.1", ends.port, lambda: here, failures.append)
            await reached(lambda: not network._CONNECTING)
            assert here.transport is not None
            assert failures == []
            here.transport.resume_reading()
            here.transport.write(b"x")
            here.transport.abort()
            await reached(lambda: here.lost == 1)

    run(told())


def test_a_connection_that_times_out_before_it_is_reported_never_existed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Over:
        """Behaves like an `asyncio.Timeout` in the turn in which it expires."""

        def reschedule(self, when: float | None) -> None:
            raise RuntimeError("Cannot change state of expiring Timeout")

    async def told() -> None:
        async with Ends() as ends:
            here = HeardFrames()
            attempt = network._UntilConnected(here, Over())  # type: ignore[arg-type]
            await asyncio.get_running_loop().create_connection(lambda: attempt, "127.0.0.1", ends.port)
            await reached(lambda: ends.there and ends.there[0].lost)
            assert here.transport is None

    run(told())


@pytest.mark.parametrize("cut", [None, BOTH])
@pytest.mark.parametrize("end", ["here", "there", "reset"])
def test_ways_are_cut_and_made_whole_whatever_has_become_of_their_connections(
    run: Run, end: str, cut: Cut | None
) -> None:
    async def told() -> None:
        async with Ends() as ends:
            place = ("127.0.0.1", ends.port)
            ways = CuttableNetwork(SocketNetwork(), LoopScheduler())
            here = HeardFrames()
            ways.connect(*place, lambda: here, lambda error: None)
            await reached(lambda: here.transport is not None and ends.there and ends.there[0].transport)
            ways.cut({} if cut is None else {place: cut})
            if end == "here":
                here.transport.abort()
            else:
                transport = ends.there[0].transport
                if end == "reset":
                    reset(transport)
                transport.abort()
            for _ in range(20):
                for now in ({place: BOTH}, {}, {place: Cut(False, True)}, {place: Cut(True, False)}, {}):
                    ways.cut(now)
                    here.transport.write(b"x")
                    await asyncio.sleep(0)
            await reached(lambda: here.lost == 1)
            ways.cut({place: BOTH})
            here.transport.write(b"x")
            here.transport.abort()
            ways.cut({})

    run(told())


def test_bytes_of_a_peers_ended_connection_go_nowhere(run: Run) -> None:
    async def told() -> None:
        async with Ends() as ends:
            reasons: list[str] = []
            peer = PeerConnection(lambda: None, lambda frame: None, reasons.append)
            SocketNetwork().connect("127.0.0.1", ends.port, lambda: peer, lambda error: None)
            await reached(lambda: ends.there and ends.there[0].transport)
            ends.there[0].transport.abort()
            await reached(lambda: reasons)
            peer.send(b"x")
            peer.close()
            peer.send(b"x")
            assert len(reasons) == 1

    run(told())


def test_nothing_that_comes_late_to_a_clients_connection_touches_its_transport(run: Run) -> None:
    """Answers, room in memory and the end of a throttle come late, by timers or because other connections end."""

    async def told() -> None:
        loop = asyncio.get_running_loop()
        memory = Memory.of(LoopScheduler(), MAX_FRAME_BYTES, -1)
        listener, dispatcher = FakeListener(), FakeDispatcher()
        connection = Connection(listener, dispatcher, LoopScheduler(), memory)  # type: ignore[arg-type]
        server = await loop.create_server(lambda: connection, "127.0.0.1", 0)
        client, _ = await loop.create_connection(Heard, "127.0.0.1", server.sockets[0].getsockname()[1])
        client.write(frame(b"wait"))
        await reached(lambda: connection._pending is not None)
        reset(client)
        await reached(lambda: connection.transport is None)
        connection._write([b"late"])
        connection._may_serve()
        connection._serve()
        connection._send_on()
        connection._bound_backlog()
        assert connection.unread_bytes() == 0
        connection.close("too late")
        connection.hang_up()
        connection.abort("too late")
        server.close()

    run(told())
