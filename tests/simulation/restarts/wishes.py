"""Random requests, one after the other, to every API that changes something. Refused ones don't count. Names are few,
so most of them are used again, deleted and created again."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from tests.simulation.restarts.nodes import Nodes

TOPICS = ("a", "b", "c")
MOST_PARTITIONS = 3


class Wish(NamedTuple):
    """`words`: keys of a picture with these words may change."""

    what: str
    words: frozenset[str]
    grant: Callable[[], Awaitable[Any]]


class Wishes:
    """Wishes of one kind. `made` returns each of them with its weight."""

    def __init__(self, nodes: Nodes, luck: random.Random) -> None:
        self.nodes = nodes
        self.luck = luck

    def made(self) -> Sequence[tuple[int, Callable[[], Wish]]]:
        raise NotImplementedError

    @property
    def topic(self) -> str:
        """A topic that mostly exists."""
        known = [name for name in TOPICS if name in self.nodes.known]
        return self.luck.choice(known if known and self.luck.random() < 0.9 else TOPICS)

    @property
    def missing_topic(self) -> str:
        """A topic that mostly doesn't exist."""
        missing = [name for name in TOPICS if name not in self.nodes.known]
        return self.luck.choice(missing if missing and self.luck.random() < 0.9 else TOPICS)

    @property
    def place(self) -> tuple[str, int]:
        name = self.topic
        return name, self.luck.randrange(self.nodes.known.get(name, 1))


def wish(what: str, grant: Callable[[], Awaitable[Any]], *words: str) -> Wish:
    return Wish(f"{what} {' '.join(words)}", frozenset(words), grant)


async def draw(kinds: Sequence[Wishes], luck: random.Random) -> Wish:
    await kinds[0].nodes.topics()
    weights, makers = zip(*(each for kind in kinds for each in kind.made()), strict=True)
    [make] = luck.choices(makers, weights)
    return make()
