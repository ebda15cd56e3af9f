"""Names of hosts: a limit may be set by a name, and holds for its address."""

from __future__ import annotations

import socket
from typing import Protocol

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
