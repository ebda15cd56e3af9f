"""`python -m tests.bench.spark`: the exactly-once sink beside Spark's own, on barnabas and on Apache Kafka.

Both sinks write the same rows, which are in Spark's memory beforehand. Their order alternates from round to round,
after a round for warming up that doesn't count. Spark's own sink is at least once, without transactions, so the
difference is the price of exactly once. Then come micro-batches of one row: their duration, what transactions cost
beside the Spark job, and the platform's minimum, a row that goes through a Python worker and back.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import barnabas
from tests.support.apache_kafka import why_unavailable
from tests.support.kafka_server import KafkaServer, Server
from tests.support.spark_session import make_session

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from barnabas.spark import ExactlyOnceKafkaSink
from barnabas.spark.errors import LEADER_MOVES, ResponseError
from barnabas.spark.wire_log import RawLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 6
MANY_PARTITIONS = 1000
VALUE = "rpad(cast(id as string), 100, 'abcdefghij') value"
KEY = "cast(id % 100003 as string) key"
# columns, partitions, and the fraction of the requested rows: one of this many
SHAPES = {
    "without keys": ([VALUE], PARTITIONS, 1),
    "by key": ([KEY, VALUE], PARTITIONS, 1),
    "by key to 1,000 partitions": ([KEY, VALUE], MANY_PARTITIONS, 50),
}
AIMS = {"without keys": 1.0, "by key": 0.9, "by key to 1,000 partitions": 0.7}
COMMITS = 30
OWN = "Spark's own"

Write = Callable[[str, "DataFrame", int], None]


def main() -> int:
    options = _options()
    makers: dict[str, Callable[[Path], Server]] = {"barnabas": lambda folder: barnabas.Broker(data=folder)}
    if reason := why_unavailable():
        print(f"Apache Kafka is left out: {reason}")
    else:
        makers["Apache Kafka"] = lambda folder: KafkaServer(folder)
    if options.only:
        makers = {name: make for name, make in makers.items() if name.split()[-1].lower() == options.only}
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-", dir=options.folder) as folder:
        spark = _session(Path(folder))
        try:
            for name, make in makers.items():
                server = make(Path(folder) / name.split()[0])
                server.start()
                try:
                    found[name] = _measure(spark, server.bootstrap, options, name)
                finally:
                    server.stop()
        finally:
            spark.stop()
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / f"spark-{time.strftime('%Y%m%d-%H%M%S')}.json"
    file.write_text(json.dumps({"rows": options.rows, "cores": os.cpu_count(), **found}, indent=1) + "\n")
    print(f"\nEvery figure is in {file}.")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--shapes", choices=list(SHAPES), nargs="*", default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compression", default="none")
    parser.add_argument("--only", choices=["barnabas", "kafka"])
    parser.add_argument(
        "--folder", type=Path, help="where the data goes (default: the system's temporary folder)"
    )
    parser.add_argument("--output", type=Path, default=Path(".benchmarks"), help="where the JSON file goes")
    return parser.parse_args()


def _session(folder: Path) -> SparkSession:
    session = make_session(folder, **{"spark.driver.memory": "2g"})
    session.sparkContext.setLogLevel("ERROR")
    return session


def _measure(
    spark: SparkSession, bootstrap: str, options: argparse.Namespace, name: str
) -> dict[str, object]:
    connection = RawLog(bootstrap, {}, 60_000)
    figures: dict[str, object] = {}
    for shape in options.shapes:
        columns, partitions, share = SHAPES[shape]
        count = options.rows // share
        rows = spark.range(0, count, 1, 2).selectExpr(*columns).persist()
        rows.count()
        sides: dict[str, Write] = {
            "exactly once": _exactly_once(bootstrap, options),
            OWN: _own(bootstrap, options),
        }
        rates: dict[str, list[float]] = {side: [] for side in sides}
        for number in range(options.rounds + 1):
            for side in list(sides) if number % 2 else reversed(sides):
                topic = f"{name.split()[0]}-{shape.replace(' ', '-').replace(',', '')}-{number}-{side[0]}"
                connection.create_topic(topic, partitions, {})
                _until_led(connection, topic)
                started_s = time.perf_counter()
                sides[side](topic, rows, number)
                rate = count / (time.perf_counter() - started_s)
                if number:
                    rates[side].append(rate)
                print(
                    f"{name}, {shape}, round {number or 'to warm up'}: {side} {rate:,.0f} rows/s", flush=True
                )
        rows.unpersist()
        medians = {side: statistics.median(of) for side, of in rates.items()}
        ratios = [ours / own for ours, own in zip(rates["exactly once"], rates[OWN], strict=True)]
        ratio = statistics.median(ratios)
        print(
            f"{name}, {shape}: {medians['exactly once']:,.0f} beside {medians[OWN]:,.0f} rows/s; "
            f"ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), aim {AIMS[shape]}",
            flush=True,
        )
        figures[shape] = {"rows/s": rates, "ratio": ratio}
    figures["small batches"] = floor = _small_batches(spark, bootstrap, connection)
    told = {what: statistics.median(taken) for what, taken in floor.items()}
    print(
        f"{name}: a batch of one row takes {told['batch ms']:.0f} ms, {told['transaction ms']:.1f} of them beside the "
        f"Spark job (aim 50); a row through a Python worker alone takes {told['worker ms']:.0f}, and one that stays in "
        f"the JVM {told['JVM ms']:.0f}"
    )
    connection.close()
    return figures


def _until_led(connection: RawLog, topic: str) -> None:
    """Kafka creates partitions after its answer. If a thousand aren't all there yet, Spark's own sink waits two minutes
    for some of them, and gives up."""
    deadline_s = time.monotonic() + 60
    while True:
        try:
            connection.bounds([topic])
            return
        except ResponseError as error:
            if error.code not in LEADER_MOVES or time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


def _exactly_once(bootstrap: str, options: argparse.Namespace) -> Write:
    def write(topic: str, rows: DataFrame, number: int) -> None:
        sink = ExactlyOnceKafkaSink(bootstrap, query="bench", topic=topic, compression=options.compression)
        # each run needs a marker of its own: numbers grow from shape to shape
        sink.write(rows, time.time_ns())
        sink.close()

    return write


def _own(bootstrap: str, options: argparse.Namespace) -> Write:
    def write(topic: str, rows: DataFrame, number: int) -> None:
        (
            rows.write.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("kafka.compression.type", options.compression)
            .option("topic", topic)
            .save()
        )

    return write


def _small_batches(spark: SparkSession, bootstrap: str, connection: RawLog) -> dict[str, list[float]]:
    """Measure each in turn with the others."""
    connection.create_topic("commits", PARTITIONS, {})
    row = spark.range(1).selectExpr("cast(id as string) value")
    sink = ExactlyOnceKafkaSink(bootstrap, query="commits", topic="commits")
    found: dict[str, list[float]] = {
        kind: [] for kind in ("batch ms", "transaction ms", "worker ms", "JVM ms")
    }
    for number in range(COMMITS + 5):
        started_s = time.perf_counter()
        report = sink.write(row, number)
        ended_s = time.perf_counter()
        row.coalesce(1).mapInArrow(_unchanged, "value string").collect()
        through_s = time.perf_counter()
        row.coalesce(1).collect()
        found["batch ms"].append((ended_s - started_s) * 1000)
        found["transaction ms"].append(report.prepare_ms + report.check_ms + report.commit_ms)
        found["worker ms"].append((through_s - ended_s) * 1000)
        found["JVM ms"].append((time.perf_counter() - through_s) * 1000)
    sink.close()
    return {kind: taken[5:] for kind, taken in found.items()}


def _unchanged(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


if __name__ == "__main__":
    sys.exit(main())
