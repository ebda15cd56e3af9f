"""The addresses that a node has bound, and those that its clients are told (Kafka: `advertised.listeners`)."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from broker.config.errors import StartError

if TYPE_CHECKING:
    from broker.config.listeners import ListenerConfig
    from broker.environment.network import Bound, Network

_HINTS = {
    errno.EADDRINUSE: "; --port takes another one, --port 0 any that is free",
    errno.EACCES: "; --port takes one above 1023, which need no rights",
}

Address = tuple[str, int]
"""Host and port."""


class BoundEndpoint:
    """The address of one listener. Who connects waits until it is served."""

    __slots__ = ("_advertised", "bound", "host", "name", "port")

    def __init__(self, config: ListenerConfig, bound: Bound) -> None:
        self.name = config.name
        self.host = config.host
        self.port = bound.port
        self.bound = bound
        self._advertised = config.advertised

    @property
    def advertised(self) -> Address | None:
        """What clients are told, None where they aren't told of this listener.

        A configured port 0 stands for the one that was bound.
        """
        if self._advertised is None:
            return None
        host, port = self._advertised
        return host, port or self.port

    @property
    def text(self) -> str:
        """What is advertised, or else what is bound, as host:port: IPv6 addresses in brackets."""
        host, port = self.advertised or (self.host, self.port)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Endpoints:
    """Those of all listeners of a node."""

    def __init__(self, all_bound: Sequence[BoundEndpoint]) -> None:
        self._by_listener = {endpoint.name: endpoint for endpoint in all_bound}

    def __iter__(self) -> Iterator[BoundEndpoint]:
        return iter(self._by_listener.values())

    def advertised(self, listener_name: str) -> Address | None:
        """What a client of this listener is told to connect to; None where it isn't advertised."""
        return self._by_listener[listener_name].advertised

    def all_advertised(self) -> Iterator[tuple[str, str, int]]:
        """(listener's name, host, port) of each that clients are told of; there is one at least."""
        for endpoint in self:
            told = endpoint.advertised
            if told is not None:
                yield endpoint.name, *told

    @property
    def first_advertised(self) -> Address:
        _, host, port = next(self.all_advertised())
        return host, port

    @property
    def bootstrap(self) -> str:
        """host:port of the first listener that clients are told of."""
        return next(endpoint.text for endpoint in self if endpoint.advertised is not None)

    def refuse(self) -> None:
        """Who connects is refused for now, and goes to another node at once. Raises StartError."""
        for endpoint in self:
            with _told(endpoint.name, endpoint.host, endpoint.port):
                endpoint.bound.refuse()

    def listen(self) -> None:
        """Who connects waits until it is served. Raises StartError."""
        for endpoint in self:
            with _told(endpoint.name, endpoint.host, endpoint.port):
                endpoint.bound.listen()

    def close(self) -> None:
        """Nobody else comes in."""
        for endpoint in self:
            endpoint.bound.close()


def bind_all(configs: Sequence[ListenerConfig], network: Network, backlog: int) -> Endpoints:
    """Raises StartError where one of the addresses isn't to be had; none is bound then."""
    found: list[BoundEndpoint] = []
    for config in configs:
        try:
            with _told(config.name, config.host, config.port):
                bound = network.bind(config.host, config.port, backlog)
        except StartError:
            Endpoints(found).close()
            raise
        found.append(BoundEndpoint(config, bound))
    return Endpoints(found)


@contextmanager
def _told(name: str, host: str, port: int) -> Iterator[None]:
    """Raises StartError for what the system says of the address."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "")
        raise StartError(
            f"listener {name}: can't listen on {host or '*'}:{port}: {error.strerror or error}{hint}"
        ) from error
