"""Limits on the number of connections, in all and from one address."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

from broker.environment.network import asking_for
from broker.network.endpoints import Addresses, HostNames
from protocol.waiting import carry_on

log = logging.getLogger("barnabas.listener")


class ConnectionLimits:
    """Counts connections, in all and by address, against their limits (Kafka: `ConnectionQuotas`).

    `unresolved`: the hosts because of which the latest overrides aren't in force.
    """

    def __init__(
        self,
        max_connections: int,
        max_per_ip: int,
        per_ip_overrides: Mapping[str, int],
        names: HostNames,
        descriptors: int,
    ) -> None:
        """Waits for the name service if an override names a host. Later changes look names up beside the loop.

        `descriptors`: how many connections the process can have, whatever the settings say."""
        self.unresolved: list[str] = []
        self.max_connections = max_connections
        self.max_per_ip = max_per_ip
        self._descriptors = descriptors
        self._count = 0
        self._by_ip: Counter[str] = Counter()
        self._names = names
        self._wanted = per_ip_overrides
        self._resolved: dict[str, str] = {}
        self._overrides: dict[str, int] = {}
        if per_ip_overrides:
            with asking_for(", ".join(per_ip_overrides)):
                self._put_in_force(per_ip_overrides, names.waited_for(per_ip_overrides))

    def configure(self, max_connections: int, max_per_ip: int, per_ip_overrides: Mapping[str, int]) -> None:
        """Change the limits. Overrides are by host name or address.

        A new name is looked up once. Until it is resolved all overrides stay as they were. They stay so for good if a
        name can't be resolved, as in Kafka. A lower limit keeps new connections out and closes none.
        """
        self.max_connections = max_connections
        self.max_per_ip = max_per_ip
        if per_ip_overrides == self._wanted:
            return
        self._wanted = per_ip_overrides
        carry_on(self._look_up(per_ip_overrides))

    async def _look_up(self, overrides: Mapping[str, int]) -> None:
        looked_up = await self._names.look_up([host for host in overrides if host not in self._resolved])
        self._put_in_force(overrides, looked_up)

    def _put_in_force(self, overrides: Mapping[str, int], looked_up: Addresses) -> None:
        if overrides is not self._wanted:
            return  # newer overrides have replaced these
        found = {host: self._resolved.get(host) or looked_up[host] for host in overrides}
        self.unresolved = [host for host, address in found.items() if address is None]
        if self.unresolved:
            log.warning(
                "max.connections.per.ip.overrides: not in force, since these hosts can't be resolved: %s",
                ", ".join(self.unresolved),
            )
            return
        self._resolved = {host: address for host, address in found.items() if address is not None}
        self._overrides = {self._resolved[host]: limit for host, limit in overrides.items()}

    def admit(self, host: str) -> str | None:
        """Count the connection; `forget` follows when it closes. Returns why it has to close now, or None."""
        self._count += 1
        self._by_ip[host] += 1
        limit = self._overrides.get(host, self.max_per_ip)
        if self._by_ip[host] > limit:
            return f"more than {limit} connections from {host} (max.connections.per.ip)"
        if self._count > self.max_connections:
            return f"more than {self.max_connections} connections (max.connections)"
        if self._count > self._descriptors:
            return f"more than {self._descriptors} connections: the process may have no more files open (ulimit -n)"
        return None

    def forget(self, host: str) -> None:
        self._count -= 1
        self._by_ip[host] -= 1
        if not self._by_ip[host]:
            del self._by_ip[host]
