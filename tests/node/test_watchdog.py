"""A step that holds the loop for long is logged, and a connection that sends much at once lets others in between."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import pytest

from broker.environment.scheduler import (
    IN_A_ROW_S,
    LONGEST_HOLD_S,
    QUIET_S,
    TURN_S,
    LoopScheduler,
    LoopTimers,
    Watchdog,
)
from broker.network.connection import Connection
from broker.network.memory import Memory
from broker.network.turns import Turns
from broker.server import Server
from protocol.messages.metadata import MetadataRequest
from protocol.waiting import turn
from tests.node.test_connection import MAX_FRAME_BYTES, FakeDispatcher, FakeListener, frame
from tests.node.test_connection import Client as Fed
from tests.node.test_ended_connections import PATIENCE_S, RUNS
from tests.support.manual_clock import ManualClock
from tests.support.straight import Straight
from tests.support.wire import Client


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "barnabas.watchdog"]


async def turns_of_the_loop() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


class Time:
    """A clock that moves on by one step with each reading."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.step_s = 0.0

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


@pytest.mark.limit("broker.environment.scheduler.LONGEST_HOLD_S")
def test_a_long_request_is_logged_with_its_sender(
    node: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    time = Time()
    monkeypatch.setattr(node.dispatcher, "monotonic_s", time)
    client = Client(Straight(node), client_id="me")
    client.ask(MetadataRequest(topics=[]), 12)
    assert not lines(caplog)
    time.step_s = LONGEST_HOLD_S * 2
    client.ask(MetadataRequest(topics=[]), 12)
    [line] = lines(caplog)
    assert line == "Metadata v12 of 127.0.0.1:1 client me held up everybody for 100 ms"


def test_frequent_long_requests_are_logged_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    watchdog = Watchdog(time)
    for took_s in (0.1, 0.2, 0.9, 0.3):
        watchdog.held("Fetch v12", " of me", took_s)
    watchdog.held("Produce v9", "", 0.06)
    time.now_s = QUIET_S
    watchdog.held("Fetch v12", " of you", 0.1)
    assert lines(caplog) == [
        "Fetch v12 of me held up everybody for 100 ms",
        "Produce v9 held up everybody for 60 ms",
        "Fetch v12 of you held up everybody for 100 ms; 3 others of its kind did before, for up to 900 ms",
    ]


async def test_a_turn_of_a_long_request_and_a_timer_are_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    watchdog = Watchdog(time)
    turns = Turns(LoopScheduler(), None, watchdog)

    async def steps() -> None:
        await turn()
        time.now_s += 0.2

    turns.answer(steps())
    await turns_of_the_loop()
    assert not turns.is_over
    clock = ManualClock()
    timers = LoopTimers(clock, LoopScheduler(), lambda error: None, watchdog)

    def slow() -> None:
        time.now_s += 0.3

    timers.schedule("a", 0, slow)
    timers.fire_due()
    assert lines(caplog) == [
        "A turn of a request held up everybody for 200 ms",
        "A timer held up everybody for 300 ms",
    ]


@pytest.mark.parametrize("is_first_step", [False, True])
async def test_work_for_another_request_within_a_turn_belongs_to_that_turn(
    caplog: pytest.LogCaptureFixture, is_first_step: bool
) -> None:
    time = Time()
    turns = Turns(LoopScheduler(), None, Watchdog(time))
    over: list[bool] = []

    async def other() -> None:
        over.append(turns.is_over)
        await turn()
        over.append(turns.is_over)

    async def steps() -> None:
        if not is_first_step:
            await turn()
        time.now_s += LONGEST_HOLD_S
        turns.answer(other())
        time.now_s += LONGEST_HOLD_S
        over.append(turns.is_over)

    turns.answer(steps())
    await turns_of_the_loop()
    assert over == [True, True, False]
    told = [] if is_first_step else ["A turn of a request held up everybody for 100 ms"]
    assert lines(caplog) == told


async def test_a_connection_that_has_sent_much_lets_others_in_between() -> None:
    client = Fed().connect()
    client.dispatcher.takes_s = TURN_S * 0.6
    client.send(b"".join(frame(b"%d" % number) for number in range(5)))
    assert client.dispatcher.served == [b"0", b"1"]
    client.send(frame(b"5"))
    assert client.dispatcher.served == [b"0", b"1"]
    await turns_of_the_loop()
    assert client.dispatcher.served == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert not client.connection.reading_paused


async def test_beside_others_a_connection_is_served_for_less() -> None:
    client = Fed().connect()
    client.listener.connections.add(Fed().connect().connection)
    client.dispatcher.takes_s = IN_A_ROW_S * 0.6
    client.send(b"".join(frame(b"%d" % number) for number in range(5)))
    assert client.dispatcher.served == [b"0", b"1"]
    await turns_of_the_loop()
    assert client.dispatcher.served == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("run", RUNS)
def test_a_request_during_anothers_turn_is_served_before_the_next(run: Callable[..., Any]) -> None:
    """The loop finds a connection with more to read before one that has sent something since."""

    async def asked() -> None:
        loop = asyncio.get_running_loop()
        dispatcher, listener, all_served = FakeDispatcher(), FakeListener(), asyncio.Event()
        dispatcher.takes_s = IN_A_ROW_S * 0.6
        serve = dispatcher.serve

        def serve_and_ask(connection: Connection, data: memoryview) -> Any:
            if len(dispatcher.served) == 1:
                asking.sendall(frame(b"asked"))
            answer = serve(connection, data)
            if len(dispatcher.served) == len(sent) + 1:
                all_served.set()
            return answer

        dispatcher.serve = serve_and_ask  # type: ignore[method-assign]

        def connection() -> Connection:
            memory = Memory.of(LoopScheduler(), MAX_FRAME_BYTES, -1)
            return Connection(listener, dispatcher, LoopScheduler(), memory)  # type: ignore[arg-type]

        server = await loop.create_server(connection, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        sent = [b"%d" % number + bytes(9_000) for number in range(8)]
        with socket.create_connection(address) as asking, socket.create_connection(address) as sending:
            while len(listener.connections) < 2:
                await asyncio.sleep(0)
            sending.sendall(b"".join(map(frame, sent)))
            await asyncio.wait_for(all_served.wait(), PATIENCE_S)
        server.close()
        assert dispatcher.served == [*sent[:2], b"asked", *sent[2:]]

    run(asked())


async def test_bytes_read_before_other_connections_are_looked_at_belong_to_one_turn() -> None:
    """libuv reads on if a read has filled the room for it."""
    client = Fed().connect()
    client.dispatcher.takes_s = TURN_S * 0.6
    sent = [b"%d" % number + bytes(9_000) for number in range(8)]
    client.send(b"".join(map(frame, sent[:4])))  # reads of 16 KiB, and of what a frame lacks
    assert client.dispatcher.served == sent[:2]
    await turns_of_the_loop()
    assert client.dispatcher.served == sent[:4]
    client.dispatcher.now_s += 2 * IN_A_ROW_S
    client.send(b"".join(map(frame, sent[4:])))
    assert client.dispatcher.served == sent[:6]
    await turns_of_the_loop()
    assert client.dispatcher.served == sent


async def test_bytes_read_right_after_a_turn_belong_to_it() -> None:
    """The loop serves what is at hand, then looks at its sockets, and finds this one first."""
    client = Fed().connect()
    client.dispatcher.takes_s = TURN_S * 0.6
    sent = [b"%d" % number + bytes(9_000) for number in range(6)]
    client.send(b"".join(map(frame, sent[:4])))
    await turns_of_the_loop()
    assert client.dispatcher.served == sent[:4]
    client.send(b"".join(map(frame, sent[4:])))
    assert client.dispatcher.served == sent[:4]
    await turns_of_the_loop()
    assert client.dispatcher.served == sent


async def test_bytes_of_a_later_turn_are_not_counted_with_earlier_ones() -> None:
    client = Fed().connect()
    sent = [bytes(9_000), b"1" + bytes(9_000), b"2"]
    client.send(
        b"".join(map(frame, sent))
    )  # the first reads fill the room for them, and the last one doesn't
    assert client.dispatcher.served == sent
    client.dispatcher.now_s += 1
    client.send(frame(b"later"))
    assert client.dispatcher.served[3:] == [b"later"]


async def test_a_client_with_one_request_at_a_time_needs_no_other_turn() -> None:
    client = Fed().connect()
    client.dispatcher.takes_s = TURN_S * 0.6
    for number in range(5):
        client.send(frame(b"%d" % number + bytes(9_000)))
        assert len(client.dispatcher.served) == number + 1


async def test_a_connection_waiting_for_its_turn_is_read_into_the_room_left() -> None:
    client = Fed().connect()
    client.dispatcher.takes_s = TURN_S * 0.6
    client.send(frame(bytes(40_000)) * 3)
    assert len(client.dispatcher.served) == 2
    assert not client.connection.reading_paused


async def test_bytes_waiting_for_their_turn_are_bounded() -> None:
    client = Fed().connect()
    client.dispatcher.takes_s = TURN_S
    many = b"".join(frame(bytes(1000)) for _ in range(16))
    for _ in range(3):  # more than the buffer has room for, once it has grown
        client.send(many)
    assert client.connection.reading_paused
    await turns_of_the_loop()
    assert len(client.dispatcher.served) == 48
    assert not client.connection.reading_paused


async def test_a_long_nonsense_request_is_logged_as_well() -> None:
    client = Fed().connect()
    client.dispatcher.takes_s = LONGEST_HOLD_S * 2
    client.send(frame(b"nonsense"))
    assert client.dispatcher.holds == [(b"nonsense", pytest.approx(0.1))]


def test_the_lines_go_out_as_warnings(caplog: pytest.LogCaptureFixture) -> None:
    Watchdog(Time()).held("Fetch v12", "", 1)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
