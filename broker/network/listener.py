"""One listener: where clients connect, under which address they are told to come back, and who is connected."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.network.addresses import address_of
from broker.network.connection import Connection

if TYPE_CHECKING:
    from broker.environment.clock import Clock
    from broker.environment.network import Bound, Network
    from broker.environment.scheduler import Scheduler
    from broker.network.dispatch import Dispatcher
    from broker.quotas.client_quotas import ConnectionRates

log = logging.getLogger("barnabas.listener")

BACKLOG = 50  # socket.listen.backlog.size


class Listener:
    """Accepts connections at one address. Limits count over all listeners of a broker, as in Kafka."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        advertised: tuple[str, int] | None,
        dispatcher: Dispatcher,
        limits: ConnectionLimits,
        rates: ConnectionRates,
        clock: Clock,
        scheduler: Scheduler,
        network: Network,
        max_frame_bytes: int,
        backlog: int = BACKLOG,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self._advertised = advertised
        self.connections: set[Connection] = set()
        self._dispatcher = dispatcher
        self._limits = limits
        self._rates = rates
        self._clock = clock
        self._scheduler = scheduler
        self._network = network
        self._max_frame_bytes = max_frame_bytes
        self._backlog = backlog
        self.accepts = False
        self._bound: Bound | None = None

    @property
    def advertised(self) -> tuple[str, int] | None:
        """(host, port) that clients are told, None where they aren't told of this listener.

        A configured port 0 stands for the one that was bound.
        """
        if self._advertised is None:
            return None
        host, port = self._advertised
        return host, port or self.port

    @property
    def address(self) -> str:
        """What is advertised, or else what is bound, as text: IPv6 addresses in brackets."""
        host, port = self.advertised or (self.host, self.port)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def bind(self) -> None:
        """Who connects waits until `listen` serves them. Raises OSError."""
        self._bound = self._network.bind(self.host, self.port, self._backlog)
        self.port = self._bound.port

    async def listen(self) -> None:
        assert self._bound is not None
        await self._bound.serve(self._connection)
        self.accepts = True

    def _connection(self) -> Connection:
        return Connection(self, self._dispatcher, self._scheduler, self._max_frame_bytes)

    def admit(self, connection: Connection) -> str | None:
        """Count a connection in; why it has to close, where there are too many."""
        self.connections.add(connection)
        delay_ms = self._rates.charge(connection.peer_host, self._clock.now_ms())
        if delay_ms > 0:
            connection.refuse_after(delay_ms)
        return self._limits.admit(connection.peer_host)

    def forget(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.discard(connection)
            self._limits.forget(connection.peer_host)

    def close_idle(self, before_s: float, max_idle_ms: int) -> None:
        """Close connections that nothing was read from or written to since `before_s` (loop time)."""
        for connection in [*self.connections]:
            if connection.last_active_s < before_s:
                connection.abort(f"idle for more than {max_idle_ms} ms (connections.max.idle.ms)")

    def stop_accepting(self) -> None:
        self.accepts = False
        if self._bound is not None:
            self._bound.close()
            self._bound = None

    def close_connections(self) -> None:
        for connection in [*self.connections]:
            if connection.transport is not None:
                connection.transport.close()


class ConnectionLimits:
    """How many connections there are, in all and by address (Kafka: `ConnectionQuotas`).

    `unresolved`: the hosts that keep the overrides that were last wanted from being in force.
    """

    def __init__(self, max_connections: int, max_per_ip: int, per_ip_overrides: Mapping[str, int]) -> None:
        self.unresolved: list[str] = []
        self._count = 0
        self._by_ip: Counter[str] = Counter()
        self._wanted: Mapping[str, int] = {}
        self._resolved: dict[str, str] = {}
        self._overrides: dict[str, int] = {}
        self.configure(max_connections, max_per_ip, per_ip_overrides)

    def configure(self, max_connections: int, max_per_ip: int, per_ip_overrides: Mapping[str, int]) -> None:
        """The overrides are by host name or address. A name is looked up once, when it comes; where one can't be
        resolved all overrides stay as they were, as in Kafka.

        What is lower than before lets nobody in, and closes no connection that there is.
        """
        self.max_connections = max_connections
        self.max_per_ip = max_per_ip
        if per_ip_overrides == self._wanted:
            return
        self._wanted = per_ip_overrides
        found = {host: self._resolved.get(host) or address_of(host) for host in per_ip_overrides}
        self.unresolved = [host for host, address in found.items() if address is None]
        if self.unresolved:
            log.warning(
                "max.connections.per.ip.overrides: not in force, since these hosts can't be resolved: %s",
                ", ".join(self.unresolved),
            )
            return
        self._resolved = {host: address for host, address in found.items() if address is not None}
        self._overrides = {self._resolved[host]: limit for host, limit in per_ip_overrides.items()}

    def admit(self, host: str) -> str | None:
        """Counts the connection in any case: `forget` follows when it is closed."""
        self._count += 1
        self._by_ip[host] += 1
        limit = self._overrides.get(host, self.max_per_ip)
        if self._by_ip[host] > limit:
            return f"more than {limit} connections from {host} (max.connections.per.ip)"
        if self._count > self.max_connections:
            return f"more than {self.max_connections} connections (max.connections)"
        return None

    def forget(self, host: str) -> None:
        self._count -= 1
        self._by_ip[host] -= 1
        if not self._by_ip[host]:
            del self._by_ip[host]
