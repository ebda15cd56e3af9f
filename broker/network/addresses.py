"""Host names to addresses, for limits that a user sets by either."""

from __future__ import annotations

import socket

_LOOPBACK = "127.0.0.1"


def address_of(host: str) -> str | None:
    """The address of a host name or address, of IPv4 where it has one; None where it can't be resolved.

    It waits for the name service, where one is asked. No name at all is this machine. Source: Java's
    `InetAddress.getByName`, by which Kafka looks up whom a limit is for.
    """
    if not host:
        return _LOOPBACK
    if host.startswith("[") and host.endswith("]") and ":" in host:
        host = host[1:-1]
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # a name can be such that the name service isn't even asked
        return None
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    return str(found[0][4][0])
