"""Ports that brokers have from before their first start to the end, whether they run or not."""

from __future__ import annotations

import socket
import sys
import weakref
from collections.abc import Sequence
from typing import Any


class HeldPorts:
    """A free one of each of these hosts, which may be the same. On Linux nobody else is given one of them as long as
    they are held: a socket is bound to it and doesn't listen, beside which a node, and only who asks for this very
    port, can bind its own."""

    def __init__(self, hosts: Sequence[str]) -> None:
        """An empty host is every interface. Raises OSError where a host isn't this machine's."""
        sockets: list[socket.socket] = []
        self.let_go = weakref.finalize(self, _close, sockets)
        """Anybody may have them."""
        try:
            for host in hosts:
                family, *_, address = _address(host)
                sockets.append(socket.socket(family, socket.SOCK_STREAM))
                sockets[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sockets[-1].bind(address)
            self.numbers = [int(each.getsockname()[1]) for each in sockets]
        except OSError:
            self.let_go()
            raise
        if sys.platform != "linux":  # elsewhere two can't be bound
            self.let_go()


def _address(host: str) -> tuple[Any, ...]:
    return socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()
