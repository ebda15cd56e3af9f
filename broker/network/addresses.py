"""Host names to addresses, for limits that a user sets by either."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from broker.environment.network import Names
from broker.environment.threads import Asker, Computing, ComputingAtOnce, Outside

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
        self,
        hosts: Iterable[str],
        then: Callable[[Addresses], None],
        asker: Asker | None = None,
        most_names: int | None = None,
    ) -> Callable[[], None] | None:
        """`then` is called once with the addresses of all, in this call where they are few and no name service has to
        be asked. Else what is returned ends the look-up: `then` isn't called any more.

        Of what is no address `most_names` are looked up; the others aren't among those that `then` is given.
        """
        look_up = _LookUp(hosts, then, self._names, self._computing, asker, most_names)
        look_up.go_on()
        return look_up.end if look_up.is_under_way else None


class _LookUp:
    """One name at a time, so that those who ask for many take turns with others."""

    def __init__(
        self,
        hosts: Iterable[str],
        then: Callable[[Addresses], None],
        names: Names,
        computing: Computing,
        asker: Asker | None,
        most_names: int | None,
    ) -> None:
        self._hosts = iter(dict.fromkeys(hosts))
        self._names = names
        self._names_left = math.inf if most_names is None else most_names
        self._then: Callable[[Addresses], None] | None = then
        self._computing = computing
        self._asker = asker
        self._found: dict[str, str | None] = {}
        self._awaited: str | None = None
        self._is_going_on = False

    @property
    def is_under_way(self) -> bool:
        return self._then is not None

    def end(self) -> None:
        """Nobody wants to know any more."""
        self._then = None
        self._hosts = iter(())
        self._found = {}

    def go_on(self) -> None:
        if self._is_going_on:  # told in the same call: the loop below goes on
            return
        self._is_going_on = True
        done = 0
        while self._awaited is None:
            host = next(self._hosts, None)
            if host is None:
                then, self._then = self._then, None
                if then is not None:
                    then(self._found)
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
            if self._then is None or not self._names_left:
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
