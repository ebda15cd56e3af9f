"""`python -m tests.fuzz`: two million damaged inputs for the parsers that stand before a client is known."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.doors import doors
from tests.fuzz.trial import tried

LONGEST_S = 5
"""A hang: a rule of an administrator takes a second to compile where it repeats what repeats; all else some ms."""
MOST_BLOCKS = 1_000
"""Of a door with a hundred thousand inputs and more: caches that fill slowly keep some hundred."""
MOST_KILOBYTES = 64 * 1024
"""The most that the process had at a time: one rule may be much to compile, and is gone behind that."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=2_000_000, help="in total")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="DOOR")
    options = parser.parse_args()
    chosen = [each for each in doors() if not options.only or each.name in options.only]
    shares = sum(each.share for each in chosen)
    total = 0
    for door in chosen:
        count = max(1, round(options.inputs * door.share / shares))
        began_s = time.perf_counter()
        trial = tried(door, count, options.seed)
        total += count
        print(
            f"{door.name:16}{count:>10,} inputs {time.perf_counter() - began_s:7.1f} s, the longest "
            f"{trial.longest_s * 1000:8.2f} ms, blocks kept {trial.blocks_kept:5}, memory kept "
            f"{trial.kilobytes_kept:6} KB",
            flush=True,
        )
        if (
            trial.longest_s > LONGEST_S
            or trial.blocks_kept > MOST_BLOCKS
            or trial.kilobytes_kept > MOST_KILOBYTES
        ):
            print(f"{door.name}: too long, or memory was kept", file=sys.stderr)
            return 1
    print(f"{total:,} inputs, no crash, no hang, nothing kept")
    return 0


if __name__ == "__main__":
    sys.exit(main())
