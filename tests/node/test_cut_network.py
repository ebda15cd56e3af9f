"""Connections to another node that are cut silently, over asyncio's sockets and over uvloop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from broker.environment import cut_network
from broker.environment.cut_network import Cut, CuttableNetwork
from broker.environment.network import SocketNetwork
from broker.environment.scheduler import LoopScheduler

BOTH = Cut(incoming=True, outgoing=True)
OUTGOING = Cut(incoming=False, outgoing=True)
INCOMING = Cut(incoming=True, outgoing=False)

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    return asyncio.run if request.param == "asyncio" else uvloop.run


class There(asyncio.Protocol):
    """The other node. It sends one line first, and then answers each line."""

    def __init__(self) -> None:
        self.came = b""
        self.lost = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]
        self.transport.write(b"welcome\n")  # type: ignore[union-attr]

    def data_received(self, data: bytes) -> None:
        self.came += data
        assert self.transport is not None
        self.transport.write(data.upper())

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Here(asyncio.BufferedProtocol):
    """This node's end of the connection."""

    def __init__(self) -> None:
        self.came = b""
        self.lost = 0
        self.transport: asyncio.Transport | None = None
        self._buffer = bytearray(4)  # so that what was held comes in pieces

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.say(b"hello\n")

    def say(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.came += self._buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost += 1


class Late(LoopScheduler):
    """A scheduler that calls only what the test fires."""

    def __init__(self) -> None:
        super().__init__()
        self.due: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Any:
        self.due.append((delay_s, lambda: callback(*args)))

    def fire(self) -> list[float]:
        """Call everything that was due. Returns the delays."""
        due, self.due = self.due, []
        for _, call in due:
            call()
        return [delay_s for delay_s, _ in due]


class Between:
    """Both ends of a connection, and this node's network."""

    def __init__(self, scheduler: LoopScheduler | None = None) -> None:
        self.scheduler = scheduler

    async def __aenter__(self) -> Between:
        loop = asyncio.get_running_loop()
        self.ends: list[There] = []
        self.server = await loop.create_server(self._there, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.network = CuttableNetwork(SocketNetwork(), self.scheduler or LoopScheduler())
        self.here = Here()
        self.failures: list[OSError] = []
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut(None)
        if self.here.transport is not None:
            self.here.transport.abort()
        self.server.close()
        for end in self.ends:
            await reached(lambda end=end: end.lost)

    def _there(self) -> There:
        self.ends.append(There())
        return self.ends[-1]

    def connect(self) -> None:
        self.network.connect("127.0.0.1", self.port, lambda: self.here, self.failures.append)

    def cut(self, cut: Cut | None) -> None:
        self.network.cut({} if cut is None else {("127.0.0.1", self.port): cut})

    @property
    def there(self) -> There:
        return self.ends[-1]


async def reached(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def a_while() -> None:
    """Wait until everything that comes at once has come."""
    for _ in range(50):
        await asyncio.sleep(0)


GREETED = b"welcome\nHELLO\n"


def test_an_uncut_link_passes_bytes_and_ends_both_ways(run: Run) -> None:
    async def told() -> None:
        async with Between() as between:
            between.cut(None)
            between.connect()
            await reached(lambda: between.here.came == GREETED)
            assert between.there.transport is not None
            between.there.transport.abort()
            await reached(lambda: between.here.lost == 1)

    run(told())


def test_outgoing_bytes_are_held_until_the_link_is_whole(run: Run) -> None:
    async def told() -> None:
        async with Between() as between:
            between.connect()
            await reached(lambda: between.here.came == GREETED)
            between.cut(OUTGOING)
            between.here.say(b"one\n")
            between.here.say(b"two\n")
            assert between.there.transport is not None
            between.there.transport.write(b"heard\n")  # the other direction isn't cut
            await reached(lambda: between.here.came == GREETED + b"heard\n")
            assert between.there.came == b"hello\n"
            between.cut(None)
            await reached(lambda: between.here.came == GREETED + b"heard\nONE\nTWO\n")

    run(told())


def test_incoming_bytes_stay_unread_until_the_link_is_whole(run: Run) -> None:
    async def told() -> None:
        async with Between() as between:
            between.connect()
            await reached(lambda: between.here.came == GREETED)
            between.cut(INCOMING)
            between.here.say(b"one\n")
            await reached(lambda: between.there.came == b"hello\none\n")  # the other direction isn't cut
            await a_while()
            assert between.here.came == GREETED
            between.cut(None)
            await reached(lambda: between.here.came == GREETED + b"ONE\n")

    run(told())


def test_neither_side_notices_the_others_end_while_the_link_is_cut(run: Run) -> None:
    async def told() -> None:
        async with Between() as between:
            between.connect()
            await reached(lambda: between.here.came == GREETED)
            between.cut(BOTH)
            assert between.there.transport is not None
            between.there.transport.abort()
            await reached(lambda: between.there.lost)
            between.here.say(b"into the void\n")
            await a_while()
            assert between.here.lost == 0
            between.cut(None)
            await reached(lambda: between.here.lost == 1)

    run(told())


def test_giving_up_a_cut_connection_is_not_noticed_by_the_peer(run: Run) -> None:
    async def told() -> None:
        async with Between() as between:
            between.connect()
            await reached(lambda: between.here.came == GREETED)
            between.cut(OUTGOING)
            assert between.here.transport is not None
            between.here.transport.abort()
            between.here.transport.abort()
            await reached(lambda: between.here.lost == 1)
            assert between.there.transport is not None
            between.there.transport.write(b"still there?\n")
            await a_while()
            assert not between.there.lost
            assert between.here.came == GREETED
            between.cut(None)
            await reached(lambda: between.there.lost)
            await a_while()
            assert between.here.lost == 1

    run(told())


def test_a_connection_that_is_made_as_the_way_is_cut_stands_and_carries_nothing(run: Run) -> None:
    async def told() -> None:
        async with Between() as between:
            between.connect()
            between.cut(BOTH)
            await reached(lambda: between.here.transport is not None)
            await a_while()
            assert between.here.came == b""
            assert between.there.came == b""
            between.cut(None)
            await reached(lambda: between.here.came == GREETED)

    run(told())


@pytest.mark.parametrize("cut", [INCOMING, OUTGOING, BOTH])
def test_a_new_connection_comes_to_nothing_until_the_way_is_whole(run: Run, cut: Cut) -> None:
    async def told() -> None:
        async with Between() as between:
            between.cut(cut)
            between.connect()
            await a_while()
            assert between.ends == []
            assert between.failures == []
            between.cut(None)
            await reached(lambda: between.here.came == GREETED)

    run(told())


def test_a_new_connection_times_out_as_one_that_nobody_answers(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_network, "CONNECTION_SETUP_TIMEOUT_S", 0.01)

    async def told() -> None:
        async with Between() as between:
            between.cut(BOTH)
            between.connect()
            await reached(lambda: between.failures)
            assert isinstance(between.failures[0], TimeoutError)
            between.cut(None)
            await a_while()
            assert between.ends == []

    run(told())


def test_other_places_are_not_cut(run: Run) -> None:
    async def told() -> None:
        async with Between() as between:
            between.network.cut({("127.0.0.1", 1): BOTH})
            between.connect()
            await reached(lambda: between.here.came == GREETED)

    run(told())


SLOW = Cut(incoming=False, outgoing=False, delay_s=0.5)


def test_outgoing_bytes_on_a_slow_link_arrive_later_and_in_order(run: Run) -> None:
    async def told() -> None:
        late = Late()
        async with Between(late) as between:
            between.connect()
            await reached(lambda: between.here.came == GREETED)
            between.cut(SLOW)
            between.here.say(b"one\n")
            between.cut(None)  # what is said from now on isn't slowed, but still comes after it
            between.here.say(b"two\n")
            await a_while()
            assert between.there.came == b"hello\n"
            assert late.fire() == [0.5, 0.0]
            await reached(lambda: between.there.came == b"hello\none\ntwo\n")
            between.here.say(b"three\n")
            await reached(lambda: between.there.came.endswith(b"three\n"))

    run(told())


def test_closing_a_slow_link_first_delivers_everything_sent(run: Run) -> None:
    async def told() -> None:
        late = Late()
        async with Between(late) as between:
            between.connect()
            await reached(lambda: between.here.came == GREETED)
            between.cut(SLOW)
            between.here.say(b"last\n")
            assert between.here.transport is not None
            between.here.transport.close()
            await a_while()
            assert not between.there.lost
            late.fire()
            await reached(lambda: between.there.lost)
            assert between.there.came == b"hello\nlast\n"

    run(told())


def test_a_slow_way_can_be_connected_to(run: Run) -> None:
    async def told() -> None:
        async with Between() as between:
            between.cut(Cut(incoming=False, outgoing=False, delay_s=0.001))
            between.connect()
            await reached(lambda: between.here.came == GREETED)

    run(told())
