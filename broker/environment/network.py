"""The network between clients, this node and other nodes: an asyncio protocol serves each connection. Also host
names: a limit for a name applies to its address.
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
    """Looks up host names. An address may be in brackets; an empty name means this machine."""

    def address_of(self, host: str) -> str | None:
        """The address of a host name or address, the IPv4 address if there is one. None if it can't be resolved.

        This blocks if the name service has to be asked, and may be called in any thread. Source: Java's
        `InetAddress.getByName`, by which Kafka looks up the host of a limit.
        """
        ...

    def address_at_once(self, host: str) -> str | None:
        """As `address_of`, for addresses and for names that can't exist. Raises LookupError if the name service has to
        be asked."""
        ...


class SystemNames:
    """The machine's names."""

    __slots__ = ()

    def address_of(self, host: str) -> str | None:
        return _found(host, 0)

    def address_at_once(self, host: str) -> str | None:
        try:
            return _found(host, socket.AI_NUMERICHOST)
        except LookupError:
            raise LookupError(host) from None


def plain_host(host: str) -> str:
    """The host without the brackets of an IPv6 address. An empty name means this machine."""
    if not host:
        return _LOOPBACK
    return host[1:-1] if host.startswith("[") and host.endswith("]") and ":" in host else host


def _found(host: str, flags: int) -> str | None:
    try:
        found = socket.getaddrinfo(plain_host(host), None, type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror as error:
        if flags and error.errno == socket.EAI_NONAME:
            raise LookupError from None  # it isn't an address, but may be a name
        return None
    except (OSError, ValueError):  # for some invalid names the name service isn't even asked
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
    """Log that the start waits for the name service, if that takes long."""
    timer = threading.Timer(
        TOLD_AFTER_S, log.warning, ("the start waits for the name service to look up %s", what)
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Bound(Protocol):
    """A bound address. Connections to it wait until they are served, unless they are refused."""

    port: int
    """The requested port, or for 0 the port that was found."""

    def refuse(self) -> None:
        """Refuse waiting and new connections until `listen`. Raises OSError."""
        ...

    def listen(self) -> None:
        """Let connections wait again. Raises OSError: another process could take the address meanwhile."""
        ...

    async def serve(self, make_protocol: MakeProtocol) -> None:
        """Serve waiting and new connections, each with a protocol of its own."""
        ...

    def close(self) -> None:
        """Accept no more connections. Present ones stay."""
        ...


class Network(Protocol):
    """Binds addresses, and connects to them."""

    def bind(self, host: str, port: int, backlog: int) -> Bound:
        """Bind an address. Raises OSError if that isn't possible. An empty host means all interfaces."""
        ...

    def connect(
        self, host: str, port: int, make_protocol: MakeProtocol, failed: Callable[[OSError], None]
    ) -> None:
        """Connect. In a later turn the protocol is connected, or `failed` gets the error."""
        ...


class SocketNetwork:
    """The machine's network."""

    __slots__ = ()

    def bind(self, host: str, port: int, backlog: int) -> Bound:
        """This also listens. Binding alone doesn't show that another process has the port: with SO_REUSEADDR both can
        bind it, until one listens."""
        infos = _addresses_of(host, port)
        sockets: list[socket.socket] = []
        try:
            for family, _, _, _, address in infos:
                if port and sockets:
                    address = (address[0], port, *address[2:])
                # "::" means all interfaces, those of IPv4 as well; otherwise each address has its own socket.
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
        """Look a name up beside the loop, and try each of its addresses."""
        connecting = asyncio.ensure_future(_connected(host, port, make_protocol, failed))
        _CONNECTING.add(connecting)
        connecting.add_done_callback(_CONNECTING.discard)


_CONNECTING: set[asyncio.Future[None]] = set()  # keeps them alive: the loop has only weak references


async def _connected(
    host: str, port: int, make_protocol: MakeProtocol, failed: Callable[[OSError], None]
) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECTION_SETUP_TIMEOUT_S) as limit:
            await loop.create_connection(lambda: _UntilConnected(make_protocol(), limit), host, port)
    except OSError as error:  # timeouts are OSErrors, too
        failed(error)
    except ValueError as error:  # an invalid name
        failed(OSError(f"{host!r}: {error}"))


class _UntilConnected(asyncio.BufferedProtocol):
    """Takes the place of a protocol until it is connected. Then the attempt has succeeded, and no timeout ends it.

    If a connection is given up in the very turn in which it is made, uvloop closes it without telling its protocol,
    which is connected by then. `is_closing` of such a transport returns False.
    """

    def __init__(self, protocol: asyncio.BufferedProtocol, limit: asyncio.Timeout) -> None:
        self._protocol = protocol
        self._limit = limit

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)  # uvloop's doesn't derive from it
        try:
            self._limit.reschedule(None)
        except RuntimeError:  # its time is over already, and `failed` will be called
            made.abort()
            return
        made.set_protocol(self._protocol)
        self._protocol.connection_made(made)


def _addresses_of(host: str, port: int) -> list[tuple[int, int, int, str, Any]]:
    """The addresses that `getaddrinfo` finds. It asks the name service if the host is a name."""
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
    """One socket for each address of the host."""

    def __init__(self, sockets: list[socket.socket], port: int, backlog: int) -> None:
        self.port = port
        self._backlog = backlog
        self._sockets = sockets
        self._servers: list[asyncio.Server] = []

    def refuse(self) -> None:
        # A socket stops listening only when it is closed. A bound socket that doesn't listen keeps the system from
        # giving the port away by itself, but another process can still ask for it.
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
            # the backlog is given again, since asyncio calls listen() again
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
