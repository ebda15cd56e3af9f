"""The way to a controller, and time, as a test lets them come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Timers:
    """Callbacks that are to come; a test lets the next one come."""

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
        """The first one comes. Returns after how many ms."""
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
    """What was asked last, until it is answered."""

    def __init__(self) -> None:
        self.request: Any = None
        self.reply: Any = None
        self.timeout_ms: int | None = 0
        self.trouble = ""
        self.versions: dict[int, tuple[int, int]] = {}

    @property
    def is_busy(self) -> bool:
        return self.reply is not None

    def ask(self, request: Any, reply: Any, *, timeout_ms: int | None) -> None:
        assert self.reply is None
        self.request, self.reply, self.timeout_ms = request, reply, timeout_ms

    def stop(self) -> None:
        self.request = self.reply = None

    def answer(self, answer: Any) -> None:
        reply, self.request, self.reply = self.reply, None, None
        reply(answer)
