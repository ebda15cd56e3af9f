"""The links between hosts, each direction by itself. What is sent may arrive late, or only when the link is open again.

As with TCP, nothing on a connection is lost, doubled or overtaken by later data. Data on different connections may
overtake each other.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

LONGEST_DELAY_S = 0.4
CALM_DELAY_S = (0.0001, 0.004)


class Link(NamedTuple):
    """From one host to another, by name."""

    source: str
    target: str

    @property
    def back(self) -> Link:
        return Link(self.target, self.source)


class Links:
    def __init__(self, loop: asyncio.AbstractEventLoop, luck: random.Random) -> None:
        self.is_calm = False
        """True when nothing is late any more."""
        self._loop = loop
        self._luck = luck
        self._closed: Counter[Link] = Counter()
        """The number of faults that close each link: several may last at the same time."""
        self._slow: Counter[Link] = Counter()
        self._held: dict[Link, list[tuple[Callable[..., object], tuple[Any, ...]]]] = {}

    def delay_s(self, link: Link) -> float:
        luck = self._luck
        if self.is_calm:
            return luck.uniform(*CALM_DELAY_S)
        if self._slow[link] > 0:
            return luck.uniform(0.05, LONGEST_DELAY_S)
        if luck.random() < 0.97:
            return luck.uniform(*CALM_DELAY_S)
        return luck.uniform(CALM_DELAY_S[1], LONGEST_DELAY_S)

    def is_open(self, link: Link) -> bool:
        return self._closed[link] <= 0

    def carry(self, link: Link, arrival_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Call it when it has arrived."""
        self._loop.call_later(arrival_s - self._loop.time(), self._arrived, link, callback, args)

    def _arrived(self, link: Link, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self.is_open(link):
            callback(*args)
        else:
            self._held.setdefault(link, []).append((callback, args))

    # --- faults ---------------------------------------------------------------------------------------------

    def close(self, links: Iterable[Link]) -> None:
        """Let nothing arrive there. Waiting clients aren't told."""
        for link in links:
            self._closed[link] += 1

    def open(self, links: Iterable[Link]) -> None:
        """Undo `close`: what was sent meanwhile arrives."""
        for link in links:
            self._closed[link] -= 1
            if self.is_open(link):
                for callback, args in self._held.pop(link, ()):
                    # in the order of arrival, before anything that comes from now on
                    self._loop.call_soon(callback, *args)

    def slow_down(self, links: Iterable[Link]) -> None:
        self._slow.update(links)

    def speed_up(self, links: Iterable[Link]) -> None:
        self._slow.subtract(links)
