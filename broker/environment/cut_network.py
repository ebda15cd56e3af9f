"""The network of a node that a test cuts off from other nodes: silently, as if somebody had pulled a cable.

Between two nodes the one that made a connection cuts it: bytes that it sends are held, bytes that come from the other
node aren't read, and new connections get no answer. So the node needn't know where incoming connections are from, and
clients are never cut off. As over a real network that is repaired, held bytes arrive, unless the connection was given
up.
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
    """How the way to another node is cut: whether bytes from there, or to there, are lost. Bytes to there that aren't
    lost arrive `delay_s` later."""

    incoming: bool
    outgoing: bool
    delay_s: float = 0.0

    @property
    def is_lossy(self) -> bool:
        """True if anything is lost."""
        return self.incoming or self.outgoing


_WHOLE = Cut(incoming=False, outgoing=False)

_Place = tuple[str, int]  # host and port, as they are connected to


class CuttableNetwork:
    """A `Network` whose ways to other nodes can be cut."""

    def __init__(self, network: Network, scheduler: Scheduler) -> None:
        self._network = network
        self._scheduler = scheduler
        self._cuts: Mapping[_Place, Cut] = {}
        self._ways: dict[_Place, list[_Way]] = {}
        self._attempts: dict[_Place, set[_Attempt]] = {}

    def bind(self, host: str, port: int, backlog: int) -> Bound:
        """See `Network`. Incoming connections are never cut here."""
        return self._network.bind(host, port, backlog)

    def connect(
        self, host: str, port: int, make_protocol: MakeProtocol, failed: Callable[[OSError], None]
    ) -> None:
        """See `Network`. If either direction is cut, this fails after the setup timeout, or connects once neither
        is."""
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
        """Cut these ways from now on, and no others."""
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
    """An attempt to connect that gets no answer for now."""

    def __init__(self, make_protocol: MakeProtocol, failed: Callable[[OSError], None]) -> None:
        self.make_protocol = make_protocol
        self.failed = failed
        self.timer: Scheduled | None = None


class _Way(asyncio.Transport):
    """A connection that this node has made: the transport that its protocol gets. While nothing is cut, incoming bytes
    go to the protocol directly."""

    def __init__(self, protocol: asyncio.BufferedProtocol, cut: Cut, scheduler: Scheduler) -> None:
        super().__init__()
        self._protocol = protocol
        self._cut = cut
        self._scheduler = scheduler
        self._transport: asyncio.Transport | None = None
        self._to_send: list[bytes] = []
        self._came = bytearray()
        self._is_aborted = False  # this side has ended it, and the other doesn't know yet
        self._lost: list[Exception | None] = []  # the other side has ended it, and this one doesn't know yet
        self._under_way: deque[bytes] = deque()  # delayed bytes
        self._closes = False  # once the delayed bytes have arrived

    @property
    def is_over(self) -> bool:
        """True if the connection has ended on both sides."""
        return self._transport is not None and self._transport.is_closing() and not self._lost

    def begin(self, transport: asyncio.Transport) -> None:
        """The connection is made."""
        self._transport = transport
        self._protocol.connection_made(self)
        self._listen()
        # uvloop begins to read in any case, after it has called `connection_made`
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
        """Send the first delayed bytes. The order stays, even if the delay has changed meanwhile."""
        data = self._under_way.popleft()
        assert self._transport is not None
        if self._cut.outgoing:
            self._to_send.append(data)
        elif not self._transport.is_closing():
            self._transport.write(data)
        if self._closes and not self._under_way:
            self._transport.close()

    def close(self) -> None:
        """Close once the written bytes are sent, if they can be."""
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

    # --- what the network does ------------------------------------------------------------------------------

    def cut(self, cut: Cut) -> None:
        """Cut the connection so from now on."""
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
        """Keep bytes while the connection is cut."""
        self._came += data

    def lost(self, reason: Exception | None) -> None:
        """Keep the end of the connection while it is cut."""
        self._lost.append(reason)

    def _listen(self) -> None:
        """Give incoming bytes to the protocol, or stop reading."""
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
        """Give the protocol what has come meanwhile."""
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
    """The protocol of a connection that is being made."""

    def __init__(self, way: _Way) -> None:
        self._way = way

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._way.begin(cast("asyncio.Transport", transport))  # uvloop's doesn't derive from it


class _Deaf(asyncio.Protocol):
    """The protocol of a connection whose incoming bytes are cut."""

    def __init__(self, way: _Way) -> None:
        self._way = way

    def data_received(self, data: bytes) -> None:
        self._way.came(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._way.lost(exc)
