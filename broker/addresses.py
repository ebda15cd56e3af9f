"""Host names to addresses, for limits that a user sets by either."""

from __future__ import annotations

import socket


def addresses_of(host: str) -> set[str]:
    """The addresses of a host name or address; none where it can't be resolved."""
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return set()
