"""One listener: who connects at its address is let in, counted and served."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from broker.network.connection import Connection

if TYPE_CHECKING:
    from broker.environment.clock import Clock
    from broker.environment.scheduler import Scheduler
    from broker.network.connection_limits import ConnectionLimits
    from broker.network.dispatch import Dispatcher
    from broker.network.endpoints import BoundEndpoint
    from broker.network.memory import Memory
    from broker.quotas.connection_rates import ConnectionRates

log = logging.getLogger("barnabas.connection")

QUIET_S = 10.0
"""Between two lines about connections that are too many."""


class Admission(NamedTuple):
    """Who is let in. It counts over all listeners of a node, as in Kafka (`ConnectionQuotas`)."""

    limits: ConnectionLimits
    rates: ConnectionRates
    clock: Clock


class Listener:
    """The connections of one address."""

    def __init__(
        self,
        endpoint: BoundEndpoint,
        dispatcher: Dispatcher,
        admission: Admission,
        scheduler: Scheduler,
        memory: Memory,
    ) -> None:
        self.name = endpoint.name
        self.endpoint = endpoint
        self.connections: dict[Connection, None] = {}
        self.accepts = False
        self._quiet_until_s = 0.0
        self._untold = 0
        self._dispatcher = dispatcher
        self._admission = admission
        self._scheduler = scheduler
        self._memory = memory

    @property
    def port(self) -> int:
        """The one that is bound."""
        return self.endpoint.port

    async def listen(self) -> None:
        """Serve who connects, and who has connected since the address was bound."""
        await self.endpoint.bound.serve(self._connection)
        self.accepts = True

    def _connection(self) -> Connection:
        return Connection(self, self._dispatcher, self._scheduler, self._memory)

    def admit(self, connection: Connection) -> str | None:
        """Count a connection in; why it has to close, where there are too many. That is logged, now and then."""
        self.connections[connection] = None
        limits, rates, clock = self._admission
        delay_ms = rates.charge(connection.peer_host, clock.now_ms())
        if delay_ms > 0:
            connection.refuse_after(delay_ms)
        refusal = limits.admit(connection.peer_host)
        if refusal is not None:
            self._tell(connection, refusal)
        return refusal

    def _tell(self, connection: Connection, refusal: str) -> None:
        now_s = self._scheduler.time()
        if now_s < self._quiet_until_s:
            self._untold += 1
            return
        others = f"; {self._untold} others were closed since the last line" if self._untold else ""
        log.info("closing the connection of %s: %s%s", connection, refusal, others)
        self._quiet_until_s, self._untold = now_s + QUIET_S, 0

    def forget(self, connection: Connection) -> None:
        if connection in self.connections:
            del self.connections[connection]
            self._admission.limits.forget(connection.peer_host)

    def close_idle(self, before_s: float, max_idle_ms: int) -> None:
        """Close connections that nothing was read from or written to since `before_s` (scheduler's time)."""
        for connection in [*self.connections]:
            if connection.last_active_s < before_s:
                connection.abort(f"idle for more than {max_idle_ms} ms (connections.max.idle.ms)")

    def stop_accepting(self) -> None:
        self.accepts = False
        self.endpoint.bound.close()

    def close_connections(self) -> None:
        for connection in [*self.connections]:
            connection.hang_up()
