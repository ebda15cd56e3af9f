"""The addresses that a node has bound, and those that its clients are told (Kafka: `advertised.listeners`)."""

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


# --- Host names to addresses, for limits that a user sets by either -------------------------------------------

log = logging.getLogger("barnabas.server")

Addresses = Mapping[str, str | None]
"""By host, None where it can't be resolved."""


AT_ONCE = 100
"""So many addresses are gone through in one turn of the loop, at some 10 µs each."""


class HostNames:
    """Looks hosts up beside the loop: a name service may take seconds to answer."""

    __slots__ = ("_computing", "_names")

    def __init__(self, names: Names, computing: Computing | None = None) -> None:
        """Without `computing` whoever asks waits."""
        self._names = names
        self._computing: Computing = computing or ComputingAtOnce()

    def waited_for(self, hosts: Iterable[str]) -> Addresses:
        """The addresses of all, for a start, which can't go on without: it waits for the name service."""
        return {host: self._names.address_of(host) for host in hosts}

    def look_up(
        self, hosts: Iterable[str], asker: Asker | None = None, most_names: int | None = None
    ) -> Later[Addresses]:
        """The addresses of all, in this call where they are few and no name service has to be asked. Who asked for
        many may abandon it.

        Of what is no address `most_names` are looked up; the others aren't among those that are answered.
        """
        look_up = _LookUp(hosts, self._names, self._computing, asker, most_names)
        look_up.go_on()
        return look_up.addresses


class _LookUp:
    """One name at a time, so that those who ask for many take turns with others."""

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
        """Nobody wants to know any more."""
        self._is_wanted = False
        self._hosts = iter(())

    def go_on(self) -> None:
        if self._is_going_on:  # told in the same call: the loop below goes on
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
            if done > AT_ONCE or not self._is_done_at_once(host):  # others are served meanwhile
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
        """Called beside the loop, for one at a time. Raises LookupError for a name that isn't looked up."""
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
    """The address of one listener. Who connects waits until it is served."""

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

    def all_advertised(self) -> Iterator[tuple[str, str, int, int]]:
        """(listener's name, host, port, id of the security protocol) of each that clients are told of; there is one at
        least."""
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
