"""A client on the wire: one request at a time, over connections that may break."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from protocol.apis import APIS
from protocol.errors import Error
from protocol.wire.codec import decode, encode
from tests.simulation.history import short
from tests.simulation.virtual_links import LONGEST_DELAY_S
from tests.simulation.virtual_network import VirtualNetwork
from tests.simulation.virtual_scheduler import BEGIN_MS
from tests.simulation.virtual_transports import ClientConnection

PATIENCE_S = 20.0
BACKOFF_S = 0.1

NOT_YET = frozenset(
    {
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.CONCURRENT_TRANSACTIONS,
        Error.KAFKA_STORAGE_ERROR,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.LEADER_NOT_AVAILABLE,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.NETWORK_EXCEPTION,
        Error.REQUEST_TIMED_OUT,
        Error.NOT_ENOUGH_REPLICAS,
        Error.OFFSET_NOT_AVAILABLE,
        Error.UNSTABLE_OFFSET_COMMIT,
        Error.REBALANCE_IN_PROGRESS,
    }
)
"""Errors after which the client tries again."""


class NoAnswer(Exception):
    """The connection broke, or patience ran out: the request may have been served or not."""


class WireClient:
    patience_s = PATIENCE_S
    reads_anywhere = False
    """True if it also fetches from followers, if there are any."""

    def __init__(self, network: VirtualNetwork, name: str, port: int, luck: random.Random) -> None:
        self.name = name
        self.luck = luck
        self._network = network
        self._port = port
        self._connection: ClientConnection | None = None
        self._closed: list[ClientConnection] = []
        self.asked_in: object = ""
        """The broker's run and leadership from which the last answer came; None if it isn't the present one, and the
        answer may be old."""
        self._correlation_id = 0

    def note(self, what: str) -> None:
        self._network.history.note(self.name, what)

    def now_s(self) -> float:
        return self._network.loop.time()

    def now_ms(self) -> int:
        return BEGIN_MS + int(self.now_s() * 1000)

    @property
    def is_connected(self) -> bool:
        """True if the next request uses the connection of the last answer."""
        return self._connection is not None and not self._connection.has_ended

    async def wait_out(self) -> None:
        """Wait until everything sent on a broken connection has arrived, if it ever will."""
        await asyncio.sleep(2 * LONGEST_DELAY_S)
        while any(not connection.is_let_go for connection in self._closed):
            await asyncio.sleep(0.1)
        self._closed.clear()

    async def ask(self, request: Any, version: int) -> Any:
        """Return the answer. Raises NoAnswer."""
        try:
            return await asyncio.wait_for(self._ask(request, version), self.patience_s)
        except (TimeoutError, ConnectionError) as error:
            self.note(f"no answer to {type(request).__name__}: {type(error).__name__} {error}")
            self.close()
            raise NoAnswer from error

    async def _ask(self, request: Any, version: int) -> Any:
        if self._connection is None:
            self._connection = await self._network.connect(self._port)
        connection = self._connection
        api = APIS[type(request).API_KEY]
        self._correlation_id += 1
        head = struct.pack(">hhih", api.key, version, self._correlation_id, -1)
        if api.request_header_version(version) >= 2:
            head += b"\0"
        body = encode(request, version)
        self.note(f"asks {api.name} v{version} {self._correlation_id} {short(body)}")
        connection.send(struct.pack(">i", len(head) + len(body)) + head + body)
        if not self._network.is_calm and self.luck.random() < 0.01:
            await asyncio.sleep(self.luck.expovariate(300))
            connection.close(reset=self.luck.random() < 0.5)
        frame = await connection.receive()
        assert int.from_bytes(frame[:4], "big") == self._correlation_id, "an answer to another request"
        return decode(api.response, version, frame, 5 if api.response_header_version(version) >= 1 else 4)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._closed.append(self._connection)
            self._connection = None

    async def insist(
        self, ask: Callable[[], Awaitable[Error]], tries: int = 200, also: frozenset[Error] = frozenset()
    ) -> Error | None:
        """Repeat a request that may be sent again. Return the final answer, or None if there never is one."""
        error: Error | None = None
        for _ in range(tries):
            try:
                error = await ask()
            except NoAnswer:
                error = None
            else:
                if error not in NOT_YET and error not in also:
                    return error
            await asyncio.sleep(BACKOFF_S * self.luck.uniform(0.5, 2))
        return error
