"""One random request after the other, of every API that changes something. What is refused is no wish that was granted:
names are few, so that most are met again, deleted and made anew."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from tests.simulation.restarts.nodes import Nodes

TOPICS = ("a", "b", "c")
MOST_PARTITIONS = 3


class Wish(NamedTuple):
    """`words` of a picture's keys that it may change."""

    what: str
    words: frozenset[str]
    grant: Callable[[], Awaitable[Any]]


class Wishes:
    """Of one kind. `made` is each of its wishes, with how often it is drawn."""

    def __init__(self, nodes: Nodes, luck: random.Random) -> None:
        self.nodes = nodes
        self.luck = luck

    def made(self) -> Sequence[tuple[int, Callable[[], Wish]]]:
        raise NotImplementedError

    @property
    def topic(self) -> str:
        """Mostly one that there is."""
        known = [name for name in TOPICS if name in self.nodes.known]
        return self.luck.choice(known if known and self.luck.random() < 0.9 else TOPICS)

    @property
    def missing_topic(self) -> str:
        """Mostly one that there isn't."""
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
