"""The throttling of addresses that connect too often. Source: KIP-612, `ConnectionQuotas`."""

from __future__ import annotations

from broker.quotas.measures import Measures
from broker.quotas.rates import Rate, Windows


class ConnectionRates:
    """How many connections per second an address may make (KIP-612)."""

    __slots__ = ("_measures", "_window_ms", "default", "limits")

    def __init__(self, windows: Windows) -> None:
        self.limits: dict[str, float] = {}
        self.default: float | None = None
        self._window_ms = windows.window_ms
        self._measures = Measures(lambda: Rate(windows))

    def charge(self, address: str, now_ms: int) -> int:
        """For how long a new connection of this address is kept before it is closed; 0 lets it in."""
        limit = self.limits.get(address, self.default)
        if limit is None:
            return 0
        rate = self._measures.of(address, now_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(limit, now_ms), self._window_ms)
        if throttle_ms > 0:
            rate.record(-1, now_ms)  # it isn't let in
        return throttle_ms
