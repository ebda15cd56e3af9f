"""What each client used lately, and until when that is kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from broker.quotas.rates import Rate, TokenBucket

IDLE_MS = 3_600_000  # ClientQuotaManager.INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS
MOST_MEASURED = 5_000
"""Clients of one quota: who comes is measured, and who was idle for the longest isn't any more."""

M = TypeVar("M", Rate, TokenBucket)


class Measures(Generic[M]):
    """What each client used lately."""

    __slots__ = ("_by_client", "_make")

    def __init__(self, make: Callable[[], M]) -> None:
        self._make: Callable[[], M] = make
        self._by_client: OrderedDict[Hashable, tuple[M, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_client)

    def of(self, client: Hashable, now_ms: int) -> M:
        """The measure of a client; those that weren't looked at for an hour are forgotten in time."""
        clients = self._by_client
        found = clients.get(client)
        measure = self._make() if found is None else found[0]
        clients[client] = measure, now_ms
        clients.move_to_end(client)
        idle = next(iter(clients))  # the longest
        if now_ms - clients[idle][1] >= IDLE_MS or len(clients) > MOST_MEASURED:
            del clients[idle]
        return measure
