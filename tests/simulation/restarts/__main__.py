"""`python -m tests.simulation.restarts`: many histories, or one seed's."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from tests.simulation.restarts import on_disk, simulated

SHOWN_EVERY_S = 10.0


class Tried(NamedTuple):
    seed: int
    anomalies: list[str]
    counts: Counter[str]
    lines: list[str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.restarts")
    parser.add_argument("seed", type=int, nargs="?", help="show what happens with this one")
    parser.add_argument("--seeds", type=int, default=200, help="how many to try (default: 200)")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--cluster", action="store_true", help="three brokers and their controller")
    parser.add_argument("--disk", action="store_true", help="processes of their own on a real disk")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="how many at a time")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    where = on_disk if arguments.disk else simulated
    play = partial(_try, where.play_cluster if arguments.cluster else where.play)
    if arguments.seed is not None:
        tried = play(arguments.seed)
        print(*tried.lines, *(f"ANOMALY: {each}" for each in tried.anomalies), sep="\n")
        return 1 if tried.anomalies else 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    return _all(play, seeds, arguments.jobs, "--disk " * arguments.disk + "--cluster " * arguments.cluster)


def _all(play: Callable[[int], Tried], seeds: range, jobs: int, kind: str) -> int:
    began_s = shown_s = time.monotonic()
    failed, counts = 0, Counter[str]()
    for number, tried in enumerate(_tried(play, seeds, jobs), 1):
        counts += tried.counts
        if tried.anomalies:
            failed += 1
            print(f"seed {tried.seed}: {len(tried.anomalies)} differences", flush=True)
            for anomaly in tried.anomalies[:6]:
                print(f"    {anomaly[:1000]}")
            print(f"  again: python -m tests.simulation.restarts {kind}{tried.seed}", flush=True)
        if time.monotonic() > shown_s + SHOWN_EVERY_S or number == len(seeds):
            shown_s = time.monotonic()
            told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
            passed_s = shown_s - began_s
            print(
                f"{number} of {len(seeds)} seeds in {passed_s:.0f} s, {failed} with differences; {told}",
                flush=True,
            )
    return 1 if failed else 0


def _tried(play: Callable[[int], Tried], seeds: range, jobs: int) -> Iterator[Tried]:
    if jobs == 1:
        yield from map(play, seeds)
        return
    with ProcessPoolExecutor(jobs) as executor:
        yield from executor.map(play, seeds)


def _try(play: Callable[[int], simulated.History], seed: int) -> Tried:
    try:
        history = play(seed)
    except Exception:
        return Tried(seed, [traceback.format_exc(limit=-12)], Counter(), [])
    return Tried(seed, history.anomalies, history.counts, history.lines)


if __name__ == "__main__":
    sys.exit(main())
