"""How clients reach a node, and it reaches other nodes: each connection is served by a protocol of asyncio. And names
of hosts: a limit may be set by a name, and holds for its address.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

log = logging.getLogger("barnabas.server")


_LOOPBACK = "127.0.0.1"


class Names(Protocol):
    """Who has a name. An address in its brackets is that address; no name at all is this machine."""

    def address_of(self, host: str) -> str | None:
        """The address of a host name or address, of IPv4 where it has one; None where it can't be resolved.

        It waits for the name service, where one is asked, and may be called in any thread. Source: Java's
        `InetAddress.getByName`, by which Kafka looks up whom a limit is for.
        """
        ...

    def address_at_once(self, host: str) -> str | None:
        """As `address_of`, of what is an address itself, or can't be a name; raises LookupError where the name service
        has to be asked."""
        ...


class SystemNames:
    """The machine's own."""

    __slots__ = ()

    def address_of(self, host: str) -> str | None:
        return _found(host, 0)

    def address_at_once(self, host: str) -> str | None:
        try:
            return _found(host, socket.AI_NUMERICHOST)
        except LookupError:
            raise LookupError(host) from None


def plain_host(host: str) -> str:
    """An address of IPv6 may stand in brackets, and no name at all is this machine."""
    if not host:
        return _LOOPBACK
    return host[1:-1] if host.startswith("[") and host.endswith("]") and ":" in host else host


def _found(host: str, flags: int) -> str | None:
    try:
        found = socket.getaddrinfo(plain_host(host), None, type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror as error:
        if flags and error.errno == socket.EAI_NONAME:
            raise LookupError from None  # no address, but it may be a name
        return None
    except (OSError, ValueError):  # a name can be such that the name service isn't even asked
        return None
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    return str(found[0][4][0])


# --- Connections --------------------------------------------------------------------------------------------


MakeProtocol = Callable[[], asyncio.BufferedProtocol]


TOLD_AFTER_S = 2

CONNECTION_SETUP_TIMEOUT_S = 10.0
"""Kafka: `socket.connection.setup.timeout.ms`."""


@contextmanager
def asking_for(what: str) -> Iterator[None]:
    """A start has to wait for the name service: where that takes long, it says so."""
    timer = threading.Timer(
        TOLD_AFTER_S, log.warning, ("the start waits for the name service, which is asked for %s", what)
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Bound(Protocol):
    """An address that is ours. Who connects waits until it is served, or is refused meanwhile."""

    port: int
    """The one that was asked for, or for 0 the one that was found."""

    def refuse(self) -> None:
        """Who connects is refused until `listen`, or who waits. Raises OSError."""
        ...

    def listen(self) -> None:
        """Who connects waits again. Raises OSError: while nobody listened another could take the address."""
        ...

    async def serve(self, make_protocol: MakeProtocol) -> None:
        """Each connection, from now on and of those that wait, gets a protocol of its own."""
        ...

    def close(self) -> None:
        """Nobody else comes in; who is connected stays."""
        ...


class Network(Protocol):
    """Where addresses are to be had."""

    def bind(self, host: str, port: int, backlog: int) -> Bound:
        """Raises OSError where the address isn't to be had. An empty host stands for every interface."""
        ...

    def connect(
        self, host: str, port: int, make_protocol: MakeProtocol, failed: Callable[[OSError], None]
    ) -> None:
        """In a later turn the protocol is connected, or `failed` told why not."""
        ...


class SocketNetwork:
    """The machine's own."""

    __slots__ = ()

    def bind(self, host: str, port: int, backlog: int) -> Bound:
        """Binding alone doesn't tell that the port is another's: with SO_REUSEADDR both can, until one listens."""
        infos = _addresses_of(host, port)
        sockets: list[socket.socket] = []
        try:
            for family, _, _, _, address in infos:
                if port and sockets:
                    address = (address[0], port, *address[2:])
                # "::" alone stands for every interface, of IPv4 too; beside 0.0.0.0 each has its own socket.
                bound = _bound_socket(family, address, is_v6_alone=host != "::")
                sockets.append(bound)
                bound.listen(backlog)
                port = bound.getsockname()[1]
        except OSError:
            for opened in sockets:
                opened.close()
            raise
        return _Sockets(sockets, port, backlog)

    def connect(
        self, host: str, port: int, make_protocol: MakeProtocol, failed: Callable[[OSError], None]
    ) -> None:
        """A name is looked up beside the loop, and each of its addresses tried."""
        connecting = asyncio.ensure_future(_connected(host, port, make_protocol, failed))
        _CONNECTING.add(connecting)
        connecting.add_done_callback(_CONNECTING.discard)


_CONNECTING: set[asyncio.Future[None]] = set()  # which the loop itself holds weakly


async def _connected(
    host: str, port: int, make_protocol: MakeProtocol, failed: Callable[[OSError], None]
) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECTION_SETUP_TIMEOUT_S) as limit:
            await loop.create_connection(lambda: _UntilConnected(make_protocol(), limit), host, port)
    except OSError as error:  # a timeout is one
        failed(error)
    except ValueError as error:  # a name that can't be one
        failed(OSError(f"{host!r}: {error}"))


class _UntilConnected(asyncio.BufferedProtocol):
    """In the place of a protocol until it is connected: then the attempt has come to something, and no time ends it.

    A connection that was given up in the very turn in which it was made uvloop closed without a word to its protocol,
    which was connected by then; and of such a transport `is_closing` says no.
    """

    def __init__(self, protocol: asyncio.BufferedProtocol, limit: asyncio.Timeout) -> None:
        self._protocol = protocol
        self._limit = limit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        try:
            self._limit.reschedule(None)
        except RuntimeError:  # its time is over already, and `failed` will be told
            made.abort()
            return
        made.set_protocol(self._protocol)
        self._protocol.connection_made(made)


def _addresses_of(host: str, port: int) -> list[tuple[int, int, int, str, Any]]:
    """As `getaddrinfo` finds them, which asks the name service where the host is a name."""
    try:
        return _asked(host, port, socket.AI_NUMERICHOST)
    except socket.gaierror:
        with asking_for(host):
            return _asked(host, port, 0)


def _asked(host: str, port: int, flags: int) -> list[tuple[int, int, int, str, Any]]:
    return [*socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | flags)]


def _bound_socket(family: int, address: Any, *, is_v6_alone: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # accepted sockets inherit it
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(is_v6_alone))
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


class _Sockets:
    """One socket for each address that the host has."""

    def __init__(self, sockets: list[socket.socket], port: int, backlog: int) -> None:
        self.port = port
        self._backlog = backlog
        self._sockets = sockets
        self._servers: list[asyncio.Server] = []

    def refuse(self) -> None:
        # A socket doesn't stop listening but by its end. One that is bound alone keeps the system from giving the port
        # to others, but not from letting them ask for it.
        for place, listening in enumerate(self._sockets):
            family, address = listening.family, listening.getsockname()
            is_v6_alone = family == socket.AF_INET6 and bool(
                listening.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            )
            listening.close()
            self._sockets[place] = _bound_socket(family, address, is_v6_alone=is_v6_alone)

    def listen(self) -> None:
        for bound in self._sockets:
            bound.listen(self._backlog)

    async def serve(self, make_protocol: MakeProtocol) -> None:
        loop = asyncio.get_running_loop()
        while self._sockets:
            # the backlog again, since asyncio listens anew
            server = await loop.create_server(make_protocol, sock=self._sockets[0], backlog=self._backlog)
            self._servers.append(server)
            del self._sockets[0]

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for unserved in self._sockets:
            unserved.close()
        self._servers.clear()
        self._sockets.clear()
