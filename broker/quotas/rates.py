"""What a quota is held against: a rate over sliding windows, and a bucket of tokens.

Both say how long a client has to be kept waiting for its average to be back within the quota. Source: Kafka's
`SampledStat`, `Rate`, `SimpleRate`, `TokenBucket`, `QuotaUtils`.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

MAX_THROTTLE_MS = 2**31 - 1  # an answer has no room for more; Kafka's number would turn negative


@dataclass(frozen=True, slots=True)
class Windows:
    """How many windows of which length are looked at (`quota.window.num`, `quota.window.size.seconds`)."""

    samples: int
    window_ms: int


class _Sample:
    __slots__ = ("last_event_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.value = 0.0
        self.start_ms = now_ms
        self.last_event_ms = now_ms


class Rate:
    """Something per second, over the windows."""

    __slots__ = ("_current", "_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """`value` may be negative, to take back what was recorded."""
        windows = self._windows
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= windows.window_ms:
            # One more than the windows: the oldest may reach into the time that is looked at.
            self._current = (self._current + 1) % (windows.samples + 1)
            if self._current == len(self._samples):
                self._samples.append(_Sample(now_ms))
            sample = self._samples[self._current]
            sample.reset(now_ms)
        sample.value += value
        sample.last_event_ms = now_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing must come for the rate to be back at `limit` (per second); 0 where it isn't above it."""
        rate = self.per_second(now_ms)
        window_ms = self._elapsed_ms(now_ms)
        if not rate > limit:  # nor where the limit is no number
            return 0
        return _milliseconds((rate - limit) / limit * window_ms if limit else math.inf)

    def per_second(self, now_ms: int) -> float:
        """What came, by the time that counts as elapsed."""
        self._purge(now_ms)
        return sum(sample.value for sample in self._samples) / (self._elapsed_ms(now_ms) / 1000)

    def _purge(self, now_ms: int) -> None:
        expiry_ms = self._windows.samples * self._windows.window_ms
        for sample in self._samples:
            if now_ms - sample.last_event_ms >= expiry_ms:
                sample.reset(now_ms)

    def _elapsed_ms(self, now_ms: int) -> int:
        """The time since the oldest sample, and never less than all windows but one: a burst at the beginning is no
        high rate yet."""
        windows = self._windows
        elapsed_ms = now_ms - min((sample.start_ms for sample in self._samples), default=now_ms)
        missing = windows.samples - 1 - elapsed_ms // windows.window_ms
        if missing > 0:
            elapsed_ms += missing * windows.window_ms
        return max(elapsed_ms, 1)


class SimpleRate(Rate):
    """By the time that has passed, of which one window counts at least: the first bytes may make a high rate. Who asks
    before anything came begins that time."""

    __slots__ = ()

    def _elapsed_ms(self, now_ms: int) -> int:
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        return max(now_ms - min(sample.start_ms for sample in self._samples), self._windows.window_ms)


class TokenBucket:
    """Tokens that come back at the quota's rate, up to what all windows together allow; below zero it is exhausted."""

    __slots__ = ("_last_update_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = 0.0
        self._last_update_ms = 0  # of the epoch: it begins full

    def record(self, value: float, limit: float, now_ms: int) -> None:
        self._refill(limit, now_ms)
        self._tokens = min(self._burst(limit), self._tokens - value)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long until no token is owed; `limit` in tokens per second."""
        self._refill(limit, now_ms)
        return _milliseconds(-self._tokens / limit * 1000) if self._tokens < 0 else 0

    def _refill(self, limit: float, now_ms: int) -> None:
        earned = limit * (now_ms - self._last_update_ms) / 1000
        self._tokens = min(self._burst(limit), self._tokens + earned)
        self._last_update_ms = now_ms

    def _burst(self, limit: float) -> float:
        return self._windows.samples * self._windows.window_ms / 1000 * limit


def _milliseconds(value: float) -> int:
    return min(int(min(value, MAX_THROTTLE_MS) + 0.5), MAX_THROTTLE_MS)


# --- What each client used lately, and until when that is kept ----------------------------------------------

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
