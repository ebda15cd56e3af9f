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


def draw(seed: int, batches: int, of_each: int, with_workers: int | None = None) -> list[Kill]:
    """Kills of each victim so many times, spread over the batches, in order. ValueError for more kills than batches.

    with_workers: how many batches, the first ones, Python workers have a part in; all unless told.
    """
    chance = random.Random(seed)
    places = {"worker": chance.sample(range(batches if with_workers is None else with_workers), of_each)}
    others = chance.sample([place for place in range(batches) if place not in places["worker"]], 2 * of_each)
    places["driver"], places["broker"] = others[:of_each], others[of_each:]
    kills = [Kill(victim, place, chance.uniform(0, 1.1)) for victim in VICTIMS for place in places[victim]]
    return sorted(kills, key=lambda kill: kill.at)
