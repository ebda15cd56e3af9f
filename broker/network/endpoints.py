"""The addresses that a node binds, and those that it advertises to clients (Kafka: `advertised.listeners`)."""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from broker.config.definitions import StartError
from broker.config.listeners import SECURITY_PROTOCOLS
from broker.environment.network import Names
from broker.environment.threads import Asker, Computing, ComputingAtOnce, Outside
from protocol.waiting import Later

if TYPE_CHECKING:
    from broker.config.listeners import ListenerConfig
    from broker.environment.network import Bound, Network


# --- Looking up host names, for limits that a user sets by name or address -------------------------------------

log = logging.getLogger("barnabas.server")

Addresses = Mapping[str, str | None]
"""The address of each host; None if it can't be resolved."""


AT_ONCE = 100
"""Addresses that one turn of the loop goes through, at some 10 µs each."""


class HostNames:
    """Looks hosts up beside the loop: a name service may take seconds to answer."""

    __slots__ = ("_computing", "_names")

    def __init__(self, names: Names, computing: Computing | None = None) -> None:
        """Without `computing` a look-up blocks its caller."""
        self._names = names
        self._computing: Computing = computing or ComputingAtOnce()

    def waited_for(self, hosts: Iterable[str]) -> Addresses:
        """The addresses of all hosts. This blocks until the name service has answered; only a start may do that."""
        return {host: self._names.address_of(host) for host in hosts}

    def look_up(
        self, hosts: Iterable[str], asker: Asker | None = None, most_names: int | None = None
    ) -> Later[Addresses]:
        """The addresses of all hosts: within this call if they are few and need no name service. It can be abandoned.

        At most `most_names` host names are looked up; the result leaves out the others.
        """
        look_up = _LookUp(hosts, self._names, self._computing, asker, most_names)
        look_up.go_on()
        return look_up.addresses


class _LookUp:
    """Looks up one name at a time, so that a request with many takes turns with others."""

    def __init__(
        self,
        hosts: Iterable[str],
        names: Names,
        computing: Computing,
        asker: Asker | None,
        most_names: int | None,
    ) -> None:
        self.addresses: Later[Addresses] = Later()
        self.addresses.on_abandon = self._end
        self._hosts = iter(dict.fromkeys(hosts))
        self._names = names
        self._names_left = math.inf if most_names is None else most_names
        self._computing = computing
        self._asker = asker
        self._found: dict[str, str | None] = {}
        self._awaited: str | None = None
        self._is_wanted = True
        self._is_going_on = False

    def _end(self) -> None:
        """The caller has abandoned it."""
        self._is_wanted = False
        self._hosts = iter(())

    def go_on(self) -> None:
        if self._is_going_on:  # the result came within the same call: the loop below goes on
            return
        self._is_going_on = True
        done = 0
        while self._awaited is None:
            host = next(self._hosts, None)
            if host is None:
                if self._is_wanted:
                    self.addresses.reply(self._found)
                return
            done += 1
            if done > AT_ONCE or not self._is_done_at_once(host):  # other requests are served meanwhile
                done = 0
                self._awaited = host
                self._computing(Outside(partial(self._address_of, host)), self._told, self._asker)
        self._is_going_on = False

    def _is_done_at_once(self, host: str) -> bool:
        try:
            self._found[host] = self._names.address_at_once(host)
        except LookupError:
            return not self._names_left
        return True

    def _address_of(self, host: str) -> str | None:
        """Called beside the loop, one host at a time. Raises LookupError for a name beyond the limit."""
        try:
            return self._names.address_at_once(host)
        except LookupError:
            if not self._is_wanted or not self._names_left:
                raise
        self._names_left -= 1
        return self._names.address_of(host)

    def _told(self, address: str | None, error: BaseException | None) -> None:
        host, self._awaited = self._awaited, None
        assert host is not None
        if not isinstance(error, LookupError):
            if error is not None:
                log.error("%s can't be looked up: %s", host, error)
            self._found[host] = address
        self.go_on()


# --------------------------------------------------------------------------------------------------------------

_HINTS = {
    errno.EADDRINUSE: "; --port takes another one, --port 0 any that is free",
    errno.EACCES: "; --port takes one above 1023, which need no rights",
}

Address = tuple[str, int]
"""Host and port."""


class BoundEndpoint:
    """The address of one listener. Clients that connect wait until they are served."""

    __slots__ = ("_advertised", "bound", "host", "name", "port", "security_protocol")

    def __init__(self, config: ListenerConfig, bound: Bound) -> None:
        self.name = config.name
        self.security_protocol = config.security_protocol
        self.host = config.host
        self.port = bound.port
        self.bound = bound
        self._advertised = config.advertised

    @property
    def advertised(self) -> Address | None:
        """The address that clients get; None if this listener isn't advertised.

        A configured port 0 means the port that was bound.
        """
        if self._advertised is None:
            return None
        host, port = self._advertised
        return host, port or self.port

    @property
    def text(self) -> str:
        """The advertised address, or else the bound one, as host:port. IPv6 addresses are in brackets."""
        host, port = self.advertised or (self.host, self.port)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Endpoints:
    """The endpoints of all listeners of a node."""

    def __init__(self, all_bound: Sequence[BoundEndpoint]) -> None:
        self._by_listener = {endpoint.name: endpoint for endpoint in all_bound}

    def __iter__(self) -> Iterator[BoundEndpoint]:
        return iter(self._by_listener.values())

    def advertised(self, listener_name: str) -> Address | None:
        """The address that clients of this listener get; None if it isn't advertised."""
        return self._by_listener[listener_name].advertised

    def all_advertised(self) -> Iterator[tuple[str, str, int, int]]:
        """(listener's name, host, port, id of the security protocol) of each advertised listener. There is at least
        one."""
        for endpoint in self:
            told = endpoint.advertised
            if told is not None:
                yield endpoint.name, *told, SECURITY_PROTOCOLS.index(endpoint.security_protocol)

    @property
    def first_advertised(self) -> Address:
        _, host, port, _ = next(self.all_advertised())
        return host, port

    @property
    def bootstrap(self) -> str:
        """host:port of the first advertised listener."""
        return next(endpoint.text for endpoint in self if endpoint.advertised is not None)

    def refuse(self) -> None:
        """Refuse connections for now, so that clients go to another node at once. Raises StartError."""
        for endpoint in self:
            with _told(endpoint.name, endpoint.host, endpoint.port):
                endpoint.bound.refuse()

    def listen(self) -> None:
        """Accept connections; they wait until they are served. Raises StartError."""
        for endpoint in self:
            with _told(endpoint.name, endpoint.host, endpoint.port):
                endpoint.bound.listen()

    def close(self) -> None:
        """Accept no more connections."""
        for endpoint in self:
            endpoint.bound.close()


def bind_all(configs: Sequence[ListenerConfig], network: Network, backlog: int) -> Endpoints:
    """Bind the addresses of all listeners. Raises StartError if one can't be bound; then none is."""
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
    """Turn an error of the system about the address into a StartError."""
    try:
        yield
    except OSError as error:
        hint = _HINTS.get(error.errno or 0, "")
        raise StartError(
            f"listener {name}: can't listen on {host or '*'}:{port}: {error.strerror or error}{hint}"
        ) from error
