"""`python -m tests.bench.command_line`: `barnabas produce` and `consume` beside kcat, in turns, on one broker.

Lines of 1 KiB are read from a file, and written to nowhere. The whole process counts, including its start and end. Ours
is an idempotent producer. kcat isn't by default, so it is measured both ways.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import barnabas
from tests.bench import measures
from tests.bench.checkouts import ROOT

LINE = b"x" * (measures.RECORD_BYTES - 1) + b"\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.command_line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=400_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder, barnabas.Broker() as broker:
        lines = Path(folder) / "lines"
        with lines.open("wb") as file:
            for _ in range(options.records // 1000):
                file.write(LINE * 1000)
        for name, commands in _commands(broker.bootstrap, lines).items():
            print(name)
            _compare(broker.bootstrap, name, commands, options)
    return 0


def _commands(bootstrap: str, lines: Path) -> dict[str, dict[str, list[str]]]:
    ours = [sys.executable, "-m", "barnabas"]
    kcat = ["kcat", "-b", bootstrap]
    asked = ["--bootstrap", bootstrap]
    return {
        "produce": {
            "barnabas": [*ours, "produce", "produce-0", str(lines), *asked],
            "kcat": [*kcat, "-P", "-t", "produce-1", "-l", str(lines)],
            "kcat -X": [*kcat, "-P", "-t", "produce-2", "-l", str(lines), "-X", "enable.idempotence=true"],
        },
        "consume": {
            "barnabas": [*ours, "consume", "produce-1", "-e", *asked, "-n"],
            "kcat": [*kcat, "-C", "-q", "-e", "-o", "beginning", "-t", "produce-1", "-c"],
        },
    }


def _compare(bootstrap: str, name: str, commands: dict[str, list[str]], options: argparse.Namespace) -> None:
    times: dict[str, list[float]] = {who: [] for who in commands}
    for number in range(options.rounds + 1):  # the first one warms up
        for who in [*commands][:: 1 if number % 2 else -1]:
            command = commands[who]
            if name == "consume":
                command = [*command, str(options.records)]
            elif number == 0:
                measures.create_topic(bootstrap, command[4 if who == "barnabas" else 5], 1)
            began_s = time.perf_counter()
            subprocess.run(
                command,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
            if number:
                times[who].append(time.perf_counter() - began_s)
    for who, each in times.items():
        rates = sorted(options.records / seconds for seconds in each)
        print(
            f"  {who:<12} {statistics.median(rates):>9,.0f} records/s ({rates[0]:,.0f} to {rates[-1]:,.0f})"
        )
    for who, each in times.items():
        ratios = [theirs / ours for theirs, ours in zip(each, times["barnabas"], strict=True)]
        if who != "barnabas":
            print(f"  to {who:<9}{statistics.median(ratios):.2f}")


if __name__ == "__main__":
    sys.exit(main())
