"""When to kill what: drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import NamedTuple

VICTIMS = ("worker", "driver", "broker")


class Kill(NamedTuple):
    """at: the first micro-batch of the run, counted over all queries, at which it may strike.
    after: how long after that batch began, in durations of a batch.
    """

    victim: str
    at: int
    after: float


def draw(seed: int, batches: int, counts: Mapping[str, int], with_workers: int | None = None) -> list[Kill]:
    """Kills of each victim so many times, spread over the batches, in order. ValueError for more kills than batches.

    with_workers: how many batches, the first ones, Python workers have a part in; all unless told.
    """
    chance = random.Random(seed)
    workers = chance.sample(range(batches if with_workers is None else with_workers), counts["worker"])
    left = [place for place in range(batches) if place not in workers]
    others = iter(chance.sample(left, sum(counts.values()) - len(workers)))
    places = {
        victim: workers if victim == "worker" else [next(others) for _ in range(count)]
        for victim, count in counts.items()
    }
    kills = [Kill(victim, place, chance.uniform(0, 1.1)) for victim in places for place in places[victim]]
    return sorted(kills, key=lambda kill: kill.at)
