"""The network of a node that is cut off from others for a test: without a word, as where a cable is pulled.

Between two nodes each connection is cut by the one that made it: what it sends there is held, what comes from there is
left where it is, and a new connection comes to nothing. So nothing has to be known of who comes in, and clients are
never cut off. As over a real network that is whole again, what was held arrives, unless the connection was given up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from broker.environment.network import CONNECTION_SETUP_TIMEOUT_S, Bound, MakeProtocol, Network

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled, Scheduler


class Cut(NamedTuple):
    """What is lost between this node and another one: what comes from there, and what goes there. What goes there and
    isn't lost arrives `delay_s` later."""

    incoming: bool
    outgoing: bool
    delay_s: float = 0.0

    @property
    def is_lossy(self) -> bool:
        """Whether anything is lost."""
        return self.incoming or self.outgoing


_WHOLE = Cut(incoming=False, outgoing=False)

_Place = tuple[str, int]  # host and port, as they are connected to


class CuttableNetwork:
    """A `Network` of which ways to others can be cut."""

    def __init__(self, network: Network, scheduler: Scheduler) -> None:
        self._network = network
        self._scheduler = scheduler
        self._cuts: Mapping[_Place, Cut] = {}
        self._ways: dict[_Place, list[_Way]] = {}
        self._attempts: dict[_Place, set[_Attempt]] = {}

    def bind(self, host: str, port: int, backlog: int) -> Bound:
        """See `Network`. Who comes in is never cut off here."""
        return self._network.bind(host, port, backlog)

    def connect(
        self, host: str, port: int, make_protocol: MakeProtocol, failed: Callable[[OSError], None]
    ) -> None:
        """See `Network`. Where either way is cut it fails as late as what nobody answers, or begins once none is."""
        place = host, port
        if not self._cut_of(place).is_lossy:
            self._network.connect(host, port, partial(self._way, place, make_protocol), failed)
            return
        attempts = self._attempts.setdefault(place, set())
        attempt = _Attempt(make_protocol, failed)
        attempts.add(attempt)

        def give_up() -> None:
            attempts.discard(attempt)
            failed(TimeoutError(f"{host}:{port} hasn't answered"))

        attempt.timer = self._scheduler.call_later(CONNECTION_SETUP_TIMEOUT_S, give_up)

    def cut(self, cuts: Mapping[_Place, Cut]) -> None:
        """From now on these are cut, and no others."""
        self._cuts = cuts
        for place, ways in self._ways.items():
            for way in ways:
                way.cut(self._cut_of(place))
        for place in [place for place in self._attempts if not self._cut_of(place).is_lossy]:
            for attempt in self._attempts.pop(place):
                assert attempt.timer is not None
                attempt.timer.cancel()
                self.connect(*place, attempt.make_protocol, attempt.failed)

    def _cut_of(self, place: _Place) -> Cut:
        return self._cuts.get(place, _WHOLE)

    def _way(self, place: _Place, make_protocol: MakeProtocol) -> asyncio.BufferedProtocol:
        way = _Way(make_protocol(), self._cut_of(place), self._scheduler)
        self._ways[place] = [way, *(each for each in self._ways.get(place, ()) if not each.is_over)]
        return _Entrance(way)


class _Attempt:
    """To connect, which comes to nothing for now."""

    def __init__(self, make_protocol: MakeProtocol, failed: Callable[[OSError], None]) -> None:
        self.make_protocol = make_protocol
        self.failed = failed
        self.timer: Scheduled | None = None


class _Way(asyncio.Transport):
    """A connection of this node's: the transport that its protocol is given. While all is whole, what comes goes to the
    protocol as without it."""

    def __init__(self, protocol: asyncio.BufferedProtocol, cut: Cut, scheduler: Scheduler) -> None:
        super().__init__()
        self._protocol = protocol
        self._cut = cut
        self._scheduler = scheduler
        self._transport: asyncio.Transport | None = None
        self._to_send: list[bytes] = []
        self._came = bytearray()
        self._is_aborted = False  # here, and nobody there has heard of it
        self._lost: list[Exception | None] = []  # there, and nobody here has heard of it
        self._under_way: deque[bytes] = deque()  # what arrives later
        self._closes = False  # once they have

    @property
    def is_over(self) -> bool:
        """Whether nothing comes of it any more."""
        return self._transport is not None and self._transport.is_closing() and not self._lost

    def begin(self, transport: asyncio.Transport) -> None:
        """It stands."""
        self._transport = transport
        self._protocol.connection_made(self)
        self._listen()
        # uvloop begins to read in any case, once it has told that the connection is made
        self._scheduler.call_soon(self._listen)

    # --- what the protocol does -----------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert self._transport is not None
        if self._cut.outgoing:
            self._to_send.append(bytes(data))
        elif self._cut.delay_s or self._under_way:
            self._under_way.append(bytes(data))
            self._scheduler.call_later(self._cut.delay_s, self._arrives)
        elif not self._transport.is_closing():
            self._transport.write(data)

    def _arrives(self) -> None:
        """The first of what is under way: the order stays, whatever was said of the delay meanwhile."""
        data = self._under_way.popleft()
        assert self._transport is not None
        if self._cut.outgoing:
            self._to_send.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)
        if self._closes and not self._under_way:
            self._transport.close()

    def close(self) -> None:
        """What was written goes out where it can."""
        assert self._transport is not None
        if self._cut.outgoing:
            self.abort()
        elif self._under_way:
            self._closes = True
        else:
            self._transport.close()

    def abort(self) -> None:
        assert self._transport is not None
        if not self._cut.outgoing:
            self._transport.abort()
        elif not self._is_aborted:
            self._is_aborted = True
            self._listen()
            self._scheduler.call_soon(self._protocol.connection_lost, None)

    # --- what becomes of it ---------------------------------------------------------------------------------

    def cut(self, cut: Cut) -> None:
        """From now on it is cut so."""
        self._cut = cut
        transport = self._transport
        if transport is None:
            return
        self._listen()
        if not cut.outgoing:
            to_send, self._to_send = self._to_send, []
            if self._is_aborted:
                transport.abort()
            elif to_send and not transport.is_closing():
                transport.write(b"".join(to_send))

    def came(self, data: bytes) -> None:
        """Nobody listens for now."""
        self._came += data

    def lost(self, reason: Exception | None) -> None:
        """It has ended, and nobody listens for now."""
        self._lost.append(reason)

    def _listen(self) -> None:
        """To what comes, or to nothing."""
        transport = self._transport
        assert transport is not None
        is_deaf = self._cut.incoming or self._is_aborted
        if not transport.is_closing():
            transport.set_protocol(_Deaf(self) if is_deaf else self._protocol)
            if is_deaf:
                transport.pause_reading()
        if not is_deaf:
            self._hear()
            if not transport.is_closing():
                transport.resume_reading()

    def _hear(self) -> None:
        """What has come meanwhile."""
        came, self._came = memoryview(self._came), bytearray()
        while came:
            room = memoryview(self._protocol.get_buffer(len(came)))
            count = min(len(room), len(came))
            room[:count] = came[:count]
            self._protocol.buffer_updated(count)
            came = came[count:]
        for reason in self._lost:
            self._protocol.connection_lost(reason)
        self._lost.clear()


class _Entrance(asyncio.BufferedProtocol):
    """Of a connection that is being made."""

    def __init__(self, way: _Way) -> None:
        self._way = way

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._way.begin(cast("asyncio.Transport", transport))  # uvloop's is none by its class


class _Deaf(asyncio.Protocol):
    """Of a connection by which nothing comes."""

    def __init__(self, way: _Way) -> None:
        self._way = way

    def data_received(self, data: bytes) -> None:
        self._way.came(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._way.lost(exc)
