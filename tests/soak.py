"""Runs tests again and again, each time in another order, while every core is busy with something else.

What fails once in many runs waits for a time and not for a condition; this finds it. The seed that pytest printed
repeats the order: `make quick ARGS="--randomly-seed=…"`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

BUSY = "while True: sum(range(10_000))"


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """So many processes that only count, for as long as this lasts; they end with us, whatever ends us."""
    program = (
        f"import os, threading\nthreading.Thread(target=lambda: (os.read(0, 1), os._exit(0))).start()\n{BUSY}"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.communicate()


def run(arguments: list[str], number: int, times: int) -> bool:
    """One run of pytest; what it printed is shown where it failed."""
    began_s = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "loadgroup", *arguments]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    seed = re.search(r"--randomly-seed=(\d+)", ended.stdout)
    last = ended.stdout.strip().rpartition("\n")[2].strip("= ")
    told = (
        f"{number} of {times}: {last}; seed {seed[1] if seed else 'none'}, {time.monotonic() - began_s:.0f} s"
    )
    print(told if ended.returncode == 0 else f"{ended.stdout}\n{told}", flush=True)
    return ended.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--times", type=int, default=50, help="how many runs (50)")
    parser.add_argument(
        "--busy", type=int, default=os.cpu_count(), help="how many processes keep the cores busy (one a core)"
    )
    options, arguments = parser.parse_known_args()
    with busy(options.busy):
        failed = [
            number for number in range(1, options.times + 1) if not run(arguments, number, options.times)
        ]
    if failed:
        sys.exit(f"{len(failed)} of {options.times} runs failed: {', '.join(map(str, failed))}")


if __name__ == "__main__":
    main()
