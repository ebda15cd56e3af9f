"""`python -m tests.clients.consume_transform_produce`: kill workers and broker, and account for every input.

Ends with status 1 if an input is missing from the output, or doubled.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.clients.consume_transform_produce.crew import BROKER, Crew, Report
from tests.clients.transactions import running_server


def main() -> int:
    options = _options()
    if options.kafka:
        os.environ["BARNABAS_CLIENTS_KAFKA"] = "1"
    print(f"seed {options.seed}", flush=True)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder, "server")) as server:
        report = Crew(server, options.seed, _say).run(options.kills)
    _tell(report, time.monotonic() - began_s)
    return 1 if report.found else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.clients.consume_transform_produce", description=__doc__
    )
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kills", type=int, default=200, help="(%(default)s)")
    parser.add_argument("--kafka", action="store_true", help="with Apache Kafka, to judge the judge")
    return parser.parse_args()


def _tell(report: Report, took_s: float) -> None:
    print()
    _say(f"{report.inputs:,} inputs, {report.outputs:,} outputs; {took_s:.0f} s")
    _say(
        f"{report.killed} kills: {report.kills[BROKER]} × the broker; a worker, by what it had last done: "
        + _counted(Counter({key: count for key, count in report.kills.items() if key != BROKER}))
    )
    _say(f"{report.freezes} × a worker was frozen until its session was over")
    _say(
        f"{report.transactions:,} transactions; {report.aborted_outputs:,} records of aborted ones, seen by nobody"
    )
    _say(f"refused and aborted: {_counted(report.refusals)}; ended: {_counted(report.deaths)}")
    for kind in ("missing", "doubled", "invented", "wrong", "torn", "lost"):
        sentences = report.found.get(kind, [])
        _say(f"{kind}: {len(sentences):,}")
        for sentence in sentences[:20]:
            print(f"             {sentence}")


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{count:,} × {name}" for name, count in counter.most_common()) or "none"


_began_s = time.monotonic()


def _say(what: str) -> None:
    print(f"{time.monotonic() - _began_s:7.1f} s  {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
