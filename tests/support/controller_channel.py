"""The channel to a controller, and time, both controlled by a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from protocol.errors import KafkaError
from protocol.waiting import Later


class Timers:
    """Callbacks that wait until a test runs the next one."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waiting: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> Any:
        raise AssertionError("nothing is to be done soon")

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Any:
        timer = (self.now_s + delay_s, lambda: callback(*args))
        self.waiting.append(timer)
        return _Timer(self, timer)

    def tell_failures(self, failed: Any) -> Callable[[], None]:
        raise AssertionError("nobody asks")

    def next(self) -> float:
        """Run the first callback. Return how many ms it waited."""
        timer = min(self.waiting, key=lambda each: each[0])
        self.waiting.remove(timer)
        waited_s = timer[0] - self.now_s
        self.now_s = timer[0]
        timer[1]()
        return round(waited_s * 1000)


class _Timer:
    def __init__(self, timers: Timers, timer: tuple[float, Callable[[], object]]) -> None:
        self._timers, self._timer = timers, timer

    def cancel(self) -> None:
        if self._timer in self._timers.waiting:
            self._timers.waiting.remove(self._timer)


class Channel:
    """Keeps the last question until it is answered."""

    def __init__(self) -> None:
        self.request: Any = None
        self.asked: Later[Any] | None = None
        self.timeout_ms: int | None = 0
        self.trouble = ""
        self.versions: dict[int, tuple[int, int]] = {}

    @property
    def is_busy(self) -> bool:
        return self.asked is not None

    async def ask(self, request: Any, *, timeout_ms: int | None) -> Any:
        assert self.asked is None
        self.request, self.asked, self.timeout_ms = request, Later(), timeout_ms
        return await self.asked

    def stop(self) -> None:
        if self.asked is not None:
            self.asked.abandon()
        self.request = self.asked = None

    def answer(self, answer: Any) -> None:
        asked, self.request, self.asked = self.asked, None, None
        assert asked is not None
        if isinstance(answer, KafkaError):
            asked.fail(answer)
        else:
            asked.reply(answer)
