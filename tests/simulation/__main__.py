"""`python -m tests.simulation`: many seeds, or the history of one."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation.cluster import cluster_simulation
from tests.simulation.course import Result
from tests.simulation.simulation import simulate

LIMIT_S = 120
"""The processor time of one seed, whatever else the machine does: one that never ended would hide all after it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("seed", type=int, nargs="?", help="show what happens with this one")
    parser.add_argument("--seeds", type=int, default=500, help="how many to try (default: 500)")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--cluster", action="store_true", help="three brokers and their controller")
    parser.add_argument("--shares", action="store_true", help="with share groups")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if arguments.seed is not None:
        return _show(arguments.seed, _play(arguments.seed, arguments.cluster, arguments.shares))
    began_s = time.monotonic()
    failed = 0
    counts: Counter[str] = Counter()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with ProcessPoolExecutor(os.cpu_count()) as executor:
        for seed, what, anomalies, counted in executor.map(
            partial(_try, is_cluster=arguments.cluster, shares=arguments.shares), seeds
        ):
            counts += counted
            if anomalies:
                failed += 1
                print(f"seed {seed} ({what}): {anomalies[0]}", flush=True)
                for anomaly in anomalies[1:5]:
                    print(f"    {anomaly}")
                kind = "--cluster " * arguments.cluster + "--shares " * arguments.shares
                print(f"  again: python -m tests.simulation {kind}{seed}")
    print(_told(counts))
    print(f"{len(seeds)} seeds in {time.monotonic() - began_s:.0f} s, {failed} with anomalies")
    return 1 if failed else 0


def _play(seed: int, is_cluster: bool, shares: bool) -> Result:
    return (cluster_simulation.simulate if is_cluster else simulate)(seed, shares=shares)


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))


class _TakesTooLongError(SystemExit):
    """An error that the loop lets through, whatever it calls."""


def _stop(*_: object) -> None:
    raise _TakesTooLongError(f"not at its end after {LIMIT_S} s")


def _try(seed: int, *, is_cluster: bool, shares: bool) -> tuple[int, str, list[str], Counter[str]]:
    signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S, 1)  # and again, in case it is caught
    try:
        result = _play(seed, is_cluster, shares)
    except BaseException as error:
        signal.setitimer(signal.ITIMER_PROF, 0)
        return seed, "", [traceback.format_exc(limit=-12) or repr(error)], Counter()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return seed, result.deaths.value, result.anomalies, result.work.counts


def _show(seed: int, result: Result) -> int:
    for line in result.history.lines:
        print(line)
    for anomaly in result.anomalies:
        print(f"ANOMALY: {anomaly}")
    print(_told(result.work.counts))
    print(f"seed {seed}: {result.deaths.value}, {result.virtual_s:.1f} s, {result.history.digest}")
    return 1 if result.anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
