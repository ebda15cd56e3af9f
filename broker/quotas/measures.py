"""What each client used lately, and until when that is kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from broker.quotas.rates import Rate, TokenBucket

IDLE_MS = 3_600_000  # ClientQuotaManager.INACTIVE_SENSOR_EXPIRATION_TIME_SECONDS
MEASURES_BEFORE_SWEEP = 1000

M = TypeVar("M", Rate, TokenBucket)


class Measures(Generic[M]):
    """What each client used lately."""

    __slots__ = ("_by_client", "_make", "_sweep_at", "sweeps")

    def __init__(self, make: Callable[[], M]) -> None:
        self._make: Callable[[], M] = make
        self._by_client: dict[Hashable, tuple[M, int]] = {}
        self._sweep_at = MEASURES_BEFORE_SWEEP
        self.sweeps = 0

    def __len__(self) -> int:
        return len(self._by_client)

    def of(self, client: Hashable, now_ms: int) -> M:
        """The measure of a client; those that weren't looked at for an hour are forgotten in time."""
        found = self._by_client.get(client)
        if found is None and len(self._by_client) >= self._sweep_at:
            self._by_client = {
                key: each for key, each in self._by_client.items() if now_ms - each[1] < IDLE_MS
            }
            self.sweeps += 1
            # Where most are in use, looking at all of them again would find as little.
            self._sweep_at = max(MEASURES_BEFORE_SWEEP, 2 * len(self._by_client))
        measure = self._make() if found is None else found[0]
        self._by_client[client] = measure, now_ms
        return measure
