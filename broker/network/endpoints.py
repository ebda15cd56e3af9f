"""Where clients are told to connect, by the listener that they come through (Kafka: `advertised.listeners`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.network.listener import Listener

Address = tuple[str, int]
"""Host and port."""


class Endpoints:
    """The addresses of this node's listeners."""

    def __init__(self, listeners: Mapping[str, Listener]) -> None:
        self._listeners = listeners

    def advertised(self, listener_name: str) -> Address | None:
        """What a client of this listener is told to connect to; None where it isn't advertised."""
        return self._listeners[listener_name].advertised

    def all_advertised(self) -> Iterator[tuple[str, str, int]]:
        """(listener's name, host, port) of each that clients are told of; there is one at least."""
        for name, listener in self._listeners.items():
            told = listener.advertised
            if told is not None:
                yield name, *told

    @property
    def first_advertised(self) -> Address:
        _, host, port = next(self.all_advertised())
        return host, port

    @property
    def bootstrap(self) -> str:
        """host:port of the first listener that clients are told of; IPv6 addresses in brackets."""
        return next(each.address for each in self._listeners.values() if each.advertised is not None)
