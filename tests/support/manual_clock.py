"""A clock for tests."""


class ManualClock:
    """A clock that stands still until it is moved."""

    __slots__ = ("_now_ms", "_start_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = now_ms
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def time_ns(self) -> int:
        return self.now_ms() * 1_000_000

    def monotonic_s(self) -> float:
        return (self._now_ms - self._start_ms) / 1000

    def advance_ms(self, by_ms: int) -> None:
        self._now_ms += by_ms
