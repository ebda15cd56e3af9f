"""`python -m tests.bench`: barnabas beside Apache Kafka in one run, in turns, with medians and spreads.

First each is launched afresh a few times, on an empty folder; so is kfake if there is Go to build it. This measures the
time from the start of the process until confluent-kafka has a record acknowledged, and the memory after idling. Then
one of each stays up, and every measurement is taken of each in turn, round for round, after a round for warming up that
doesn't count. The order alternates between rounds. Last come 5,000 partitions, 2,000 topics, and clusters of three
brokers, in fewer rounds, because Apache Kafka takes its time over them: `--only many-created` or `--only
cluster-launch` (or any other of their rows) measures all of these and nothing else.

`--beside CHECKOUT` measures the broker of another checkout in turn with this one's: what a change costs or gains.
`--watched` measures this one's once more with a metrics listener that is scraped every 5 seconds.
`--busy COUNT` has this many processes compute beside them, as other tests of a suite do.
`--other NAME=HOST:PORT` measures one that runs at an address, `--other "NAME=COMMAND"` one that a command starts
(`{port}` and `{folder}` in it are filled in). Neither gets 5,000 partitions or a cluster.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from tests.bench import (
    clusters,
    groups,
    heartbeats,
    kfake,
    latencies,
    launches,
    many,
    measures,
    shares,
    transactions,
)
from tests.bench.busy import busy
from tests.bench.checkouts import CONFIG, ROOT, START_TIMEOUT_S, OfCheckout, compile_checkout
from tests.bench.launches import MakeServer, running
from tests.bench.others import AtAddress, ByCommand
from tests.bench.report import Row, as_json, table
from tests.bench.watched import Watched
from tests.support.apache_kafka import why_unavailable
from tests.support.kafka_server import KafkaServer, Server

ROWS = [
    *launches.ROWS,
    Row("produce-raw", "produce, ready batches", "MB/s", 800),
    Row("produce", "produce, confluent-kafka", "MB/s"),
    Row("produce-idempotent", "produce, confluent-kafka, idempotent", "MB/s"),
    Row("fetch-raw", "fetch, raw client", "MB/s", 700),
    Row("fetch-8", "fetch, eight raw clients of one topic", "MB/s"),
    Row("fetch", "fetch, confluent-kafka", "MB/s"),
    Row("single", "one by one, confluent-kafka", "requests/s", 8_500),
    Row("single-raw", "one by one, raw client", "requests/s"),
    Row("produce-raw-cpu", "broker's processor time, produce", "s/GB", less_is_better=True, decimals=2),
    Row("fetch-raw-cpu", "broker's processor time, fetch", "s/GB", less_is_better=True, decimals=2),
    Row("single-raw-cpu", "broker's processor time, one by one", "µs/request", less_is_better=True),
    *latencies.ROWS,
    *transactions.ROWS,
    *groups.ROWS,
    *shares.ROWS,
    *heartbeats.ROWS,
    Row("rss-loaded", "memory after all of the above, RSS", "MB", less_is_better=True, decimals=1),
    *many.ROWS,
    *clusters.ROWS,
]

LAUNCHES = {row.key for row in launches.ROWS}
MANY = {row.key for row in many.ROWS}
CLUSTERS = {row.key for row in clusters.ROWS}
MANY_ROUNDS = 3
REMOVAL_S = 5.0

Figures = dict[str, list[float]]


def main() -> int:
    options = _options()
    compile_checkout(ROOT)
    makers: dict[str, MakeServer] = {"barnabas": partial(OfCheckout, ROOT)}
    if options.beside:
        compile_checkout(options.beside)
        makers["beside"] = partial(OfCheckout, options.beside)
    if options.watched:
        makers["watched"] = partial(Watched, ROOT)
    reason = "it was not asked for" if options.alone else why_unavailable()
    if reason:
        print(f"Apache Kafka is left out: {reason}")
    else:
        makers["Apache Kafka"] = lambda folder: KafkaServer(folder, CONFIG, start_timeout_s=START_TIMEOUT_S)

    checkouts_and_kafka = dict(makers)
    makers |= options.other
    sides: dict[str, Figures] = {side: {} for side in makers}
    load_before = os.getloadavg()
    with (
        busy(options.busy),
        tempfile.TemporaryDirectory(dir=options.folder, prefix="barnabas-bench-") as folder,
    ):
        if options.only is None or options.only & LAUNCHES:
            launched = {side: make for side, make in makers.items() if not _is_at_address(make)}
            start_kfake = None if options.alone else kfake.command(Path(folder) / "kfake-built")
            if start_kfake is not None:
                launched["kfake"] = partial(ByCommand, start_kfake)
                sides["kfake"] = {}
            _measure_launches(launched, Path(folder), options.rounds, sides)
        if options.only is None or options.only - LAUNCHES - MANY - CLUSTERS:
            _measure_speeds(makers, Path(folder), options.rounds, options.only, sides)
        few = min(options.rounds, MANY_ROUNDS)
        _measure_many(checkouts_and_kafka, Path(folder), few, options.only or MANY, sides)
        if options.only is None or options.only & CLUSTERS:
            _measure_clusters(Path(folder), few, sides)

    print()
    print(f"median of {options.rounds} rounds (least to most)")
    print(table(ROWS, sides))
    load = {"before": load_before, "after": os.getloadavg()}
    print("\nload of the machine in 1, 5 and 15 minutes", *(f"{when} {each}" for when, each in load.items()))
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    file.write_text(as_json(ROWS, sides, load) + "\n")
    print(f"\nEvery figure is in {file}.")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[row.key for row in ROWS], metavar="MEASURE")
    parser.add_argument("--beside", type=lambda text: Path(text).resolve(), metavar="CHECKOUT")
    parser.add_argument(
        "--watched", action="store_true", help="and this one, asked for metrics every 5 seconds"
    )
    parser.add_argument("--other", type=_other, action="append", metavar="NAME=WHERE", default=[])
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka")
    parser.add_argument(
        "--busy",
        type=int,
        default=0,
        metavar="COUNT",
        help="processes that compute all the while beside them",
    )
    parser.add_argument(
        "--folder", type=Path, help="where the data goes (default: the system's temporary folder)"
    )
    parser.add_argument("--output", type=Path, default=Path(".benchmarks"), help="where the JSON file goes")
    options = parser.parse_args()
    options.only = set(options.only) if options.only else None
    options.other = dict(options.other)
    return options


def _other(text: str) -> tuple[str, MakeServer]:
    name, equals, where = text.partition("=")
    if not (name and equals and where) or name in ("barnabas", "beside", "watched", "Apache Kafka"):
        raise argparse.ArgumentTypeError("expected NAME=HOST:PORT or NAME=COMMAND, with a name of its own")
    if " " in where:
        return name, partial(ByCommand, where)
    if not where.rpartition(":")[2].isdecimal():
        raise argparse.ArgumentTypeError(f"{where} is neither HOST:PORT nor a command with {{port}} in it")
    return name, partial(AtAddress, where)


def _is_at_address(make: MakeServer) -> bool:
    return isinstance(make, partial) and make.func is AtAddress


def _measure_launches(
    makers: dict[str, MakeServer], folder: Path, rounds: int, sides: dict[str, Figures]
) -> None:
    for number in range(rounds):
        for side in _turn(makers, number):
            for key, figure in launches.measure(makers[side], folder, f"{number}-{side.split()[0]}").items():
                sides[side].setdefault(key, []).append(figure)
                print(f"launch {number + 1}: {side} {key} {figure:.3f}", flush=True)


def _measure_speeds(
    makers: dict[str, MakeServer], folder: Path, rounds: int, only: set[str] | None, sides: dict[str, Figures]
) -> None:
    with contextlib.ExitStack() as stack:
        servers = {
            side: stack.enter_context(running(make(folder / side.split()[0])))
            for side, make in makers.items()
        }
        for number, group in itertools.product(range(rounds + 1), SPEEDS):
            wanted = group if only is None else _needed(group, only)
            for side in _turn(servers, number):
                topic = f"round-{number}-{group[0][0]}"
                for key, figure in _measure_group(servers[side], topic, wanted).items():
                    label = f"round {number}" if number else "warming up"
                    print(f"{label}: {side} {key} {figure:,.2f}", flush=True)
                    if number and (only is None or key.removesuffix("-cpu") in only):
                        sides[side].setdefault(key, []).append(figure)
        for side, server in servers.items():
            with contextlib.suppress(LookupError):
                if only is None or "rss-loaded" in only:
                    sides[side]["rss-loaded"] = [measures.memory_mb(server.pid)[0]]


def _measure_many(
    makers: dict[str, MakeServer], folder: Path, rounds: int, only: set[str], sides: dict[str, Figures]
) -> None:
    for number, (key, measure) in itertools.product(
        range(rounds), [("many", many.measure_partitions), ("topics", many.measure_topics)]
    ):
        if not any(wanted.split("-")[0] == key for wanted in only):
            continue
        for side in _turn(makers, number):
            figures = measure(makers[side](folder / f"{key}-{number}-{side.split()[0]}"))
            for name, figure in figures.items():
                print(f"round {number + 1}: {side} {name} {figure:,.2f}", flush=True)
                sides[side].setdefault(name, []).append(figure)


def _measure_clusters(folder: Path, rounds: int, sides: dict[str, Figures]) -> None:
    """Measure clusters of this checkout and of Apache Kafka: another checkout may not have clusters."""
    spawn = {"barnabas": clusters.ours, "Apache Kafka": clusters.kafkas}
    for number in range(rounds):
        for side in _turn([each for each in sides if each in spawn], number):
            figures = clusters.measure(folder / f"cluster-{number}-{side.split()[0]}", spawn[side])
            for name, figure in figures.items():
                print(f"round {number + 1}: {side} {name} {figure:,.2f}", flush=True)
                sides[side].setdefault(name, []).append(figure)


def _turn(sides: Iterable[str], number: int) -> list[str]:
    """Return the order of measurement in a round, which alternates: the next one benefits or suffers from the one
    before."""
    return [*sides][:: -1 if number % 2 else 1]


Speed = tuple[str, Callable[[str, str], measures.Pace | dict[str, float]]]

# Speeds of a group share a topic: the first one fills what the next ones read. One without a name is always needed.
SPEEDS: list[list[Speed]] = [
    [
        ("produce-raw", measures.produce_ready_batches),
        ("fetch-raw", measures.fetch_raw),
        ("fetch-8", measures.fetch_raw_by_eight),
        ("fetch", measures.fetch_with_confluent),
    ],
    [("produce", measures.produce_with_confluent)],
    [("produce-idempotent", partial(measures.produce_with_confluent, idempotent=True))],
    [("single", measures.single_records_with_confluent)],
    [("single-raw", measures.single_records_raw)],
    [("end-to-end", latencies.end_to_end)],
    [("transactions", transactions.one_producer)],
    [("transactions-8", transactions.eight_producers)],
    [("groups", groups.everything)],
    [
        ("", shares.fill),
        ("share-raw", shares.read_raw),
        ("share", shares.read_with_confluent),
    ],
    [
        ("settled", heartbeats.settle),
        *((f"beats-{kind}", heartbeats.beats(kind)) for kind in heartbeats.PROTOCOLS),
        ("", heartbeats.leave),
    ],
]

# The unit of the broker's processor time: a factor for the seconds per amount.
CPU = {
    "produce-raw-cpu": 1e3,
    "fetch-raw-cpu": 1e3,
    "single-raw-cpu": 1e6,
    "transactions-8-cpu": 1e6,
    "share-raw-cpu": 1e6,
    **{f"beats-{kind}-cpu": 1e6 for kind in heartbeats.PROTOCOLS},
}

# A measurement that returns several figures is named by any of them.
TAKEN_TOGETHER = {
    **dict.fromkeys(("commit-p50", "commit-p99"), "transactions"),
    **{row.key: "end-to-end" for row in latencies.ROWS},
    **{row.key: "groups" for row in groups.ROWS},
    **{f"settle-{kind}": "settled" for kind in heartbeats.PROTOCOLS},
}


def _needed(group: list[Speed], only: set[str]) -> list[Speed]:
    """Return the speeds asked for, and the first one if others need what it writes."""
    wanted = {TAKEN_TOGETHER.get(key, key) for key in only}
    if not any(key in wanted for key, _ in group):
        return []
    return [speed for speed in group if speed is group[0] or speed[0] in wanted or not speed[0]]


def _measure_group(server: Server, topic: str, group: list[Speed]) -> dict[str, float]:
    """Return each one's pace, and for those in `CPU` also the broker's processor time."""
    if not group:
        return {}
    measures.create_topic(server.bootstrap, topic)
    _touch_memory(server.data.parent / "touched", measures.PRODUCED_RAW_MB)
    # A garbage collection during a measurement would be the client's time, not the broker's.
    gc.collect()
    gc.disable()
    figures: dict[str, float] = {}
    try:
        for key, measure in group:
            before_s = _processor_s(server)
            try:
                pace = measure(server.bootstrap, topic)
            except Exception as error:
                if not isinstance(server, (AtAddress, ByCommand)):
                    raise
                print(f"{key or 'what others of it need'} can't be measured of {server.bootstrap}: {error}")
                continue
            used_s = _processor_s(server) - before_s
            if isinstance(pace, dict):
                figures |= pace
                continue
            figures[key] = pace.amount / pace.took_s
            if f"{key}-cpu" in CPU and used_s:
                # Per GB if the amount is in MB; otherwise in µs per request or transaction.
                figures[f"{key}-cpu"] = used_s / pace.amount * CPU[f"{key}-cpu"]
    finally:
        gc.enable()
        measures.delete_topic(server.bootstrap, topic)
        _wait_for_removal(server.data)
    return figures


def _processor_s(server: Server) -> float:
    """Return the processor time; 0 if the process isn't known."""
    try:
        return measures.processor_s(server.pid)
    except LookupError:
        return 0.0


def _touch_memory(file: Path, size_mb: int) -> None:
    """Fill and free as much of the page cache as the broker will. On a virtual machine, writing to memory that wasn't
    used for a while costs several times as much, and the first user pays for it."""
    megabyte = os.urandom(1_000_000)
    with file.open("wb", buffering=0) as written:
        for _ in range(size_mb):
            written.write(megabyte)
    file.unlink()


def _wait_for_removal(data: Path) -> None:
    """Wait until a deleted topic's files are gone, so that the next measurement has free pages and all the time."""
    deadline_s = time.monotonic() + REMOVAL_S
    while list(data.glob("*-delete")) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    os.sync()


if __name__ == "__main__":
    sys.exit(main())
