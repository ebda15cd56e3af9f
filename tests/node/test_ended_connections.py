"""A request that a client has sent completely counts, even if it ends the connection before the request is served."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from broker.environment.scheduler import TURN_S, LoopScheduler
from broker.network.connection import Connection
from broker.network.memory import Memory
from tests.node.test_connection import MAX_FRAME_BYTES, Client, FakeDispatcher, FakeListener, frame

RUNS = [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop")]
PATIENCE_S = 60
RESET = ConnectionResetError("by the client")


def silent(number: int) -> bytes:
    """Return a frame that begins as a Produce does."""
    return b"\0\0silent%d" % number


def waiting(number: int) -> bytes:
    return b"\0\0wait%d" % number


def of_turns() -> Client:
    """Return a client whose requests take a whole turn each."""
    client = Client().connect()
    client.transport.protocol = client.connection
    client.dispatcher.takes_s = TURN_S * 1.1
    return client


async def turns_of_the_loop() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_requests_waiting_for_their_turn_are_answered_after_the_end_and_then_it_closes() -> None:
    client = of_turns()
    client.send(b"".join(map(frame, [b"a", b"b", b"c"])) + frame(b"part")[:-1])
    assert client.connection.eof_received()
    assert client.dispatcher.served == [b"a"]
    await turns_of_the_loop()
    assert client.dispatcher.served == [b"a", b"b", b"c"]
    assert client.transport.written == b"<a><b><c>"
    assert client.transport.closing


async def test_requests_after_one_in_work_are_served_after_the_end() -> None:
    client = Client().connect()
    client.send(frame(b"wait") + frame(b"silent"))
    assert client.connection.eof_received()
    await turns_of_the_loop()
    assert not client.transport.closing
    client.dispatcher.waiting[0].set_result([b"answer"])
    await turns_of_the_loop()
    assert client.dispatcher.served == [b"wait", b"silent"]
    assert client.transport.written == b"answer"
    assert client.transport.closing
    assert not client.dispatcher.waiting[0].cancelled()


async def test_with_everything_served_the_end_closes_at_once() -> None:
    client = Client().connect()
    client.send(frame(b"a") + frame(b"part")[:-1])
    assert not client.connection.eof_received()


async def test_the_end_does_not_end_a_throttle() -> None:
    client = Client().connect()
    client.connection.mute(1_000_000)
    client.send(frame(b"silent"))
    assert client.connection.eof_received()
    assert client.dispatcher.served == []
    assert client.connection._throttle is not None
    client.connection._throttle.cancel()
    client.connection._unmute()
    assert client.dispatcher.served == [b"silent"]
    assert client.transport.closing


async def test_a_half_closed_client_that_reads_nothing_is_served_no_further_until_it_does() -> None:
    client = of_turns()
    client.transport.unread_limit = 0
    client.send(frame(b"a") + frame(b"b"))
    assert client.connection.eof_received()
    await turns_of_the_loop()
    assert client.dispatcher.served == [b"a"]
    assert not client.transport.closing
    client.connection.abort("idle")
    client.connection.connection_lost(None)
    await turns_of_the_loop()
    assert client.dispatcher.served == [b"a"]
    assert client.listener.connections == set()


async def test_after_a_reset_requests_are_carried_out_up_to_the_first_that_is_answered() -> None:
    client = of_turns()
    client.dispatcher.takes_s = TURN_S * 0.6
    sent = [silent(number) for number in range(7)] + [b"\0\0a", silent(7)]
    client.send(b"".join(map(frame, sent)))
    client.connection.connection_lost(RESET)
    assert client.listener.connections == {client.connection}
    await turns_of_the_loop()
    assert client.dispatcher.served == sent[:8]
    assert client.listener.connections == set()


async def test_after_a_reset_a_request_in_work_is_waited_for_if_another_follows_it() -> None:
    client = Client().connect()
    client.send(frame(waiting(0)) + frame(waiting(1)) + frame(silent(2)) + frame(silent(3))[:-1])
    client.connection.connection_lost(RESET)
    for number in range(2):
        assert not client.dispatcher.waiting[number].cancelled()
        client.dispatcher.waiting[number].set_result(None)  # type: ignore[arg-type]  # as with acks=0
        await turns_of_the_loop()
    assert client.dispatcher.served == [waiting(0), waiting(1), silent(2)]
    assert client.listener.connections == set()


@pytest.mark.parametrize("behind", [b"", frame(silent(1))[:-1], frame(b"\0\1other")])
async def test_after_a_reset_a_request_in_work_is_abandoned_if_no_produce_follows_it(behind: bytes) -> None:
    client = Client().connect()
    client.send(frame(b"wait") + behind)
    client.connection.connection_lost(RESET)
    assert client.dispatcher.waiting[0].cancelled()
    assert client.listener.connections == set()


@pytest.mark.parametrize(
    "end", [lambda connection: connection.hang_up(), lambda connection: connection.abort("idle")]
)
async def test_an_idle_limit_and_a_stop_end_the_work_for_a_gone_client(
    end: Callable[[Connection], None],
) -> None:
    client = Client().connect()
    client.send(frame(b"wait") + frame(silent(1)))
    client.connection.connection_lost(RESET)
    assert client.listener.connections == {client.connection}
    end(client.connection)
    assert client.dispatcher.waiting[0].cancelled()
    assert client.listener.connections == set()
    await turns_of_the_loop()
    assert client.dispatcher.served == [b"wait"]


async def test_after_a_reset_nothing_follows_a_request_that_closes_the_connection() -> None:
    client = Client().connect()
    client.send(frame(b"nonsense") + frame(silent(1)))
    client.connection.connection_lost(RESET)
    await turns_of_the_loop()
    assert client.dispatcher.served == [b"nonsense"]


@pytest.mark.parametrize("wrong", [b"nonsense", b"fault"])
async def test_an_error_ends_the_work_for_a_gone_client_and_a_fault_of_ours_is_reported(wrong: bytes) -> None:
    client = Client().connect()
    client.send(frame(b"wait") + frame(silent(1)) + frame(silent(2)))
    client.connection.connection_lost(RESET)
    serve = client.dispatcher.serve

    def failing(connection: Connection, data: memoryview) -> Any:
        return serve(connection, memoryview(wrong) if bytes(data) == silent(1) else data)

    client.dispatcher.serve = failing  # type: ignore[method-assign]
    client.dispatcher.waiting[0].set_result(None)  # type: ignore[arg-type]
    await turns_of_the_loop()
    assert client.dispatcher.served == [b"wait", wrong]
    assert len(client.dispatcher.failures) == (wrong == b"fault")
    assert client.listener.connections == set()


async def test_a_client_that_reads_its_answers_first_waits_for_one_turn() -> None:
    client = of_turns()
    client.transport.unread_limit = 0
    client.send(b"".join(map(frame, [b"a", b"b", b"c"])))
    client.transport.unread_limit = 1 << 62
    client.connection.resume_writing()
    assert client.dispatcher.served == [b"a"]
    for served in ([b"a", b"b"], [b"a", b"b", b"c"]):
        await asyncio.sleep(0)
        assert client.dispatcher.served == served[:-1]  # the loop looks at the others first
        await asyncio.sleep(0)
        assert client.dispatcher.served == served


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize("run", RUNS)
def test_everything_that_a_client_sends_before_it_closes_is_served(
    run: Callable[..., Any], is_reset: bool
) -> None:
    async def sent() -> None:
        loop = asyncio.get_running_loop()
        dispatcher, listener, gone = FakeDispatcher(), FakeListener(), asyncio.Event()
        dispatcher.takes_s = TURN_S * 1.1
        forget = listener.forget
        listener.forget = lambda connection: (forget(connection), gone.set())  # type: ignore[assignment,func-returns-value]

        def connection() -> Connection:
            memory = Memory.of(LoopScheduler(), MAX_FRAME_BYTES, -1)
            return Connection(listener, dispatcher, LoopScheduler(), memory)  # type: ignore[arg-type]

        server = await loop.create_server(connection, "127.0.0.1", 0)
        client = socket.create_connection(server.sockets[0].getsockname())
        if is_reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        frames = [silent(number) for number in range(300)]
        client.sendall(b"".join(map(frame, frames)))
        client.close()
        await asyncio.wait_for(gone.wait(), PATIENCE_S)
        assert dispatcher.served == frames
        server.close()

    run(sent())
