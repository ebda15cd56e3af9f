"""`python -m tests.bench.instructions --beside CHECKOUT`: what a request costs in processor instructions.

Valgrind counts the instructions of the broker's process outside of the kernel. They vary by less than one in a
thousand, whatever else the machine does. So a change of a hundredth shows, which no clock can show on a shared machine.
Waiting, the kernel and memory access cost as well, and aren't included.

Each thing is done a few times by one broker, and many times by another: the difference is its cost.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.bench import groups, measures, transactions
from tests.bench.checkouts import ROOT, OfCheckout, compile_checkout
from tests.bench.watched import LISTENER
from tests.support.ready_requests import fetch_batches
from tests.support.wire import Client

Do = Callable[[str, str, int], object]
"""Takes the broker's address, a topic, and how many times."""


Side = tuple[Path, Mapping[str, object]]
"""A checkout, and additional settings."""


@dataclass(frozen=True, slots=True)
class Counted:
    """An exchange that is done `few` and `many` times."""

    title: str
    do: Do
    few: int
    many: int


def _fetched(bootstrap: str, topic: str, times: int) -> None:
    measures.produce_ready_batches(bootstrap, topic, 10)
    _fetch(bootstrap, topic, times, measures.end_offset(bootstrap, topic))


def _fetched_one(bootstrap: str, topic: str, times: int) -> None:
    groups.one_record(bootstrap, topic)
    _fetch(bootstrap, topic, times, 1)


def _fetch(bootstrap: str, topic: str, times: int, end_offset: int) -> None:
    client = Client.of(bootstrap)
    for _ in range(times):
        for _ in fetch_batches(client, topic, end_offset, measures.PARTITION_MAX_BYTES):
            pass
    client.close()


def _committed(bootstrap: str, topic: str, commits: int) -> None:
    groups.one_record(bootstrap, topic)
    groups.commits(bootstrap, topic, commits)


def _nothing(bootstrap: str, topic: str, times: int) -> None:
    """Only a start, one topic, and a stop."""


COUNTED = {
    "produce-raw": Counted("produce, ready batches, each MB", measures.produce_ready_batches, 20, 220),
    "fetch-raw": Counted("fetch, raw client, each 10 MB", _fetched, 2, 22),
    "fetch-one": Counted("fetch of one record, each", _fetched_one, 500, 3500),
    "single-raw": Counted("one record a request, each", measures.single_records_raw, 500, 3500),
    "commits": Counted("commit of an offset, each", _committed, 200, 1200),
    "transactions": Counted("transaction of one record, each", transactions.some, 100, 600),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.instructions", description=__doc__)
    parser.add_argument("--beside", type=lambda text: Path(text).resolve(), metavar="CHECKOUT")
    parser.add_argument("--only", nargs="+", choices=[*COUNTED], metavar="MEASURE", default=[*COUNTED])
    parser.add_argument("--watched", action="store_true", help="and here with a listener for metrics")
    parser.add_argument("--journaled", action="store_true", help="and here with a journal of requests")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("valgrind isn't there: install it by the package of that name", file=sys.stderr)
        return 2
    sides: list[Side] = [(ROOT, {}), *([(options.beside, {})] if options.beside else [])]
    if options.watched:
        sides.append((ROOT, {LISTENER: "127.0.0.1:0"}))
    if options.journaled:
        sides.append((ROOT, {"barnabas.journal.size": 100}))  # full before anything is counted
    for checkout, _ in sides:
        compile_checkout(checkout)
    figures = [_count(side, _nothing, 0) for side in sides]
    _print("start and stop", figures)
    for key in options.only:
        counted = COUNTED[key]
        figures = []
        for side in sides:
            few, many = (_count(side, counted.do, times) for times in (counted.few, counted.many))
            figures.append((many - few) // (counted.many - counted.few))
        _print(counted.title, figures)
    return 0


def _print(title: str, figures: list[int]) -> None:
    first, *others = figures
    cells = "".join(f"{other:16,}  {(first - other) / other:+.1%}" for other in others)
    print(f"{title:34}{first:16,}{cells}", flush=True)


def _count(side: Side, do: Do, times: int) -> int:
    """Count the instructions of one broker, from its start to its end."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
        written = Path(folder) / "counted"
        under = ("valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={written}")
        checkout, settings = side
        broker = OfCheckout(checkout, Path(folder) / "data", under, settings)
        broker.start()
        try:
            measures.create_topic(broker.bootstrap, "counted")
            do(broker.bootstrap, "counted", times)
        finally:
            broker.stop()
        for line in written.read_text().splitlines():
            if line.startswith("summary:"):
                return int(line.split()[1])
    raise RuntimeError("valgrind has counted nothing")


if __name__ == "__main__":
    os.environ["PYTHONHASHSEED"] = "0"  # makes brokers' sets and dictionaries the same
    sys.exit(main())
