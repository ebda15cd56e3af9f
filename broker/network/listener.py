"""One listener: it lets in, counts and serves the connections to its address."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from broker.network.connection import Connection

if TYPE_CHECKING:
    import asyncio

    from broker.environment.scheduler import Clock, Scheduler
    from broker.network.connection_limits import ConnectionLimits
    from broker.network.dispatch import Dispatcher
    from broker.network.endpoints import BoundEndpoint
    from broker.network.memory import Memory
    from broker.network.sasl_gate import SaslSettings
    from broker.network.tls_gate import Encryption, Handshakes, TlsGate
    from broker.quotas import ConnectionRates

log = logging.getLogger("barnabas.connection")

QUIET_S = 10.0
"""Time between two lines of one kind about connections: clients try again and again."""

_LONGEST_REASON = 200  # characters; a reason may have a name that the client chose
_MECHANISM_CHARACTERS = 50  # the client's name of a mechanism may be of any length


class Admission(NamedTuple):
    """The limits for connections. They count over all listeners of a node, as in Kafka (`ConnectionQuotas`)."""

    limits: ConnectionLimits
    rates: ConnectionRates
    clock: Clock


class Security(NamedTuple):
    """How one listener is secured. `sasl`: how clients sign in, if they have to; `encryption`: its keys, if it has any.

    A client that fails at either is kept waiting for `failure_delay_ms`."""

    sasl: SaslSettings | None = None
    encryption: Encryption | None = None
    failure_delay_ms: int = 0


OPEN = Security()


class Listener:
    """The connections of one address."""

    def __init__(
        self,
        endpoint: BoundEndpoint,
        dispatcher: Dispatcher,
        admission: Admission,
        scheduler: Scheduler,
        memory: Memory,
        security: Security = OPEN,
    ) -> None:
        self.name = endpoint.name
        self.endpoint = endpoint
        self.connections: dict[Connection, None] = {}
        self.gates: dict[TlsGate, None] = {}  # of connections that aren't encrypted yet
        self.accepts = False
        self.connected = 0
        """Connections since the start."""
        self.failed_authentications: Counter[str] = Counter()
        """Refused connections, by SASL mechanism or `TLS`; `unknown` if no mechanism was agreed on."""
        self._handshakes: Handshakes | None = None
        self._quiet_until_s: dict[str, float] = {}
        self._untold: Counter[str] = Counter()
        self._dispatcher = dispatcher
        self._admission = admission
        self._scheduler = scheduler
        self._memory = memory
        self._security = security

    @property
    def port(self) -> int:
        """The bound port."""
        return self.endpoint.port

    async def listen(self) -> None:
        """Serve new connections, and those that were made since the address was bound."""
        await self.endpoint.bound.serve(self._protocol)
        self.accepts = True

    def _protocol(self) -> asyncio.BufferedProtocol:
        connection = self._connection()
        _, encryption, failure_delay_ms = self._security
        if encryption is None:
            return connection
        # Imported here, so that a plaintext listener imports only what it needs.
        from broker.network.tls_gate import Handshakes, TlsGate

        if self._handshakes is None:
            self._handshakes = Handshakes()
        return TlsGate(connection, encryption, self, self._scheduler, failure_delay_ms, self._handshakes)

    def _connection(self) -> Connection:
        connection = Connection(self, self._dispatcher, self._scheduler, self._memory)
        sasl = self._security.sasl
        if sasl is not None:
            from broker.network.sasl_gate import SaslGate

            gate = SaslGate(sasl, self._dispatcher, self._scheduler)
            connection.pass_through(gate, sasl.max_receive_bytes)
            gate.begin(connection)
        return connection

    def admit(self, connection: Connection) -> str | None:
        """Count a connection. Returns why it has to close, if there are too many, and logs it now and then."""
        self.connections[connection] = None
        self.connected += 1
        limits, rates, clock = self._admission
        delay_ms = rates.charge(connection.peer_host, clock.now_ms())
        if delay_ms > 0:
            connection.refuse_after(delay_ms)
        refusal = limits.admit(connection.peer_host)
        if refusal is not None:
            self._tell("too many", f"closing the connection of {connection}: {refusal}")
        return refusal

    def refused_sasl(self, client: str, mechanism: str) -> None:
        """Log, now and then, that a client wants SASL at a listener without it: the client itself may not say so."""
        asked = f"SASL ({mechanism[:_MECHANISM_CHARACTERS]})" if mechanism else "SASL"
        self._tell(
            "SASL",
            f"the client{client} asks for {asked}, but listener {self.name} doesn't use SASL: it is for "
            f"clients with security.protocol={self.endpoint.security_protocol}",
        )

    def not_signed_in(self, client: str, mechanism: str, why: str) -> None:
        """Log, now and then, that a client couldn't sign in: it may try again and again.

        The mechanism is one of this listener's, or empty."""
        self.failed_authentications[mechanism or "unknown"] += 1
        self._tell(
            "sign-in",
            f"the client of {client} can't sign in to listener {self.name}: {why[:_LONGEST_REASON]}",
        )

    def not_encrypted(self, client: str, why: str) -> None:
        """Log, now and then, that a TLS handshake failed: the client may try again and again."""
        self.failed_authentications["TLS"] += 1
        self._tell("TLS", f"no encryption with the client of {client} at listener {self.name}: {why}")

    def _tell(self, kind: str, line: str) -> None:
        now_s = self._scheduler.time()
        if now_s < self._quiet_until_s.get(kind, 0.0):
            self._untold[kind] += 1
            return
        untold = self._untold.pop(kind, 0)
        others = f"; {untold} others since the last such line" if untold else ""
        log.info("%s%s", line, others)
        self._quiet_until_s[kind] = now_s + QUIET_S

    def forget(self, connection: Connection) -> None:
        if connection.gate is not None:
            connection.gate.end()
        if connection in self.connections:
            del self.connections[connection]
            self._admission.limits.forget(connection.peer_host)

    def close_idle(self, before_s: float, max_idle_ms: int) -> None:
        """Close connections that have neither read nor written since `before_s` (the scheduler's time)."""
        for connection in [*self.connections]:
            if connection.last_active_s < before_s:
                connection.abort(f"idle for more than {max_idle_ms} ms (connections.max.idle.ms)")

    def stop_accepting(self) -> None:
        self.accepts = False
        self.endpoint.bound.close()

    def close_connections(self) -> None:
        for gate in [*self.gates]:
            gate.abort("the broker stops")
        for connection in [*self.connections]:
            connection.hang_up()
