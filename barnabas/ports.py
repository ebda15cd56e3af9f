"""Ports that a cluster's nodes have from before their first start to the end, whether they run or not."""

from __future__ import annotations

import socket
import sys
import weakref


class HeldPorts:
    """So many free ones of a host. On Linux nobody else is given one of them as long as they are held: a socket is
    bound to it and doesn't listen, beside which a node, and only who asks for this very port, can bind its own."""

    def __init__(self, host: str, count: int) -> None:
        """Raises OSError where the host isn't this machine's."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sockets = [socket.socket(family, socket.SOCK_STREAM) for _ in range(count)]
        self.let_go = weakref.finalize(self, _close, sockets)
        """Anybody may have them."""
        try:
            for each in sockets:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                each.bind((host, 0))
            self.numbers = [int(each.getsockname()[1]) for each in sockets]
        except OSError:
            self.let_go()
            raise
        if sys.platform != "linux":  # elsewhere two can't be bound
            self.let_go()


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()
