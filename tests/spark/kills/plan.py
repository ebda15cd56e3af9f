"""When to kill what: drawn from a seed."""

from __future__ import annotations

import random
from typing import NamedTuple

VICTIMS = ("worker", "driver", "broker")


class Kill(NamedTuple):
    """at: the first micro-batch of the run, counted over both queries, at which it may strike.
    after: how long after that batch began, in durations of a batch.
    """

    victim: str
    at: int
    after: float


def draw(seed: int, batches: int, of_each: int) -> list[Kill]:
    """Kills of each victim so many times, spread over the batches, in order. ValueError for more kills than batches."""
    chance = random.Random(seed)
    victims = list(VICTIMS) * of_each
    chance.shuffle(victims)
    places = sorted(chance.sample(range(batches), len(victims)))
    return [
        Kill(victim, place, chance.uniform(0, 1.1)) for victim, place in zip(victims, places, strict=True)
    ]
