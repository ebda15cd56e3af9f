"""`python -m tests.bench.spark_memory`: what the exactly-once sink holds in memory, beside Spark's own.

Each job runs in a Spark of its own, on two cores with a heap of 1 GB for driver and executors together, first by one
sink and then by the other: records of 10 MB, a topic of 1,000 partitions, and as many rows as `--rows` says (10 million
for the long form). The figures are the JVM's largest resident set, and the most that its Python workers
held together. Theirs is sampled; pages that several of them share count once. Spark's own sink has no workers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import barnabas
from tests.support.spark_session import make_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIDES = ("exactly-once", "own")
AIM = 1.3
HEAP = "1g"
LARGE = 10_000_000
LARGEST = LARGE + 100_000
SAMPLE_S = 0.05

# columns, rows (None: as many as requested), partitions
JOBS: dict[str, tuple[list[str], int | None, int]] = {
    "records of 10 MB": ([f"repeat('x', {LARGE}) value"], 60, 6),
    "records of 10 MB by key": (["cast(id as string) key", f"repeat('x', {LARGE}) value"], 60, 6),
    "1,000 partitions": (
        ["cast(id as string) key", "rpad(cast(id as string), 100, 'abcdefghij') value"],
        200_000,
        1000,
    ),
    "many rows": (["rpad(cast(id as string), 100, 'abcdefghij') value"], None, 6),
    "many rows by key": (
        ["cast(id as string) key", "rpad(cast(id as string), 100, 'abcdefghij') value"],
        None,
        6,
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.spark_memory", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the jobs that have many")
    parser.add_argument("--only", choices=list(JOBS), nargs="*", default=list(JOBS))
    parser.add_argument("--run", nargs=3, metavar=("JOB", "SIDE", "BOOTSTRAP"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        job, side, bootstrap = options.run
        print(json.dumps(_run(job, side, bootstrap, options.rows)))
        return 0
    is_within = True
    with tempfile.TemporaryDirectory(prefix="barnabas-memory-") as folder:
        for number, job in enumerate(options.only):
            with barnabas.Broker(data=Path(folder) / str(number)) as broker:
                found = {side: _measured(job, side, broker.bootstrap, options.rows) for side in SIDES}
            ours, own = (found[side] for side in SIDES)
            ratio = (ours["jvm"] + ours["workers"]) / (own["jvm"] + own["workers"])
            is_within &= ratio <= AIM
            print(
                f"{job}: JVM {ours['jvm']:.0f} and workers {ours['workers']:.0f} MB beside {own['jvm']:.0f} MB of "
                f"Spark's own; ratio {ratio:.2f}, of the JVM alone {ours['jvm'] / own['jvm']:.2f}, aim {AIM}; "
                f"{ours['s']:.1f} beside {own['s']:.1f} s",
                flush=True,
            )
    return 0 if is_within else 1


def _measured(job: str, side: str, bootstrap: str, rows: int) -> dict[str, float]:
    command = [sys.executable, "-m", __spec__.name, "--rows", str(rows), "--run", job, side, bootstrap]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _run(job: str, side: str, bootstrap: str, rows: int) -> dict[str, float]:
    from barnabas.spark.wire import Wire

    columns, fixed, partitions = JOBS[job]
    topic = f"{side}-{partitions}"
    connection = Wire(bootstrap, {}, 60_000)
    connection.create_topic(topic, partitions, {"max.message.bytes": str(LARGEST + 1_000_000)})
    connection.close()
    with tempfile.TemporaryDirectory(prefix="barnabas-memory-") as folder:
        spark = _session(Path(folder))
        # four tasks: each core has a second one
        batch = spark.range(0, fixed or rows, 1, 4).selectExpr(*columns)
        with _workers_watched() as most:
            started_s = time.perf_counter()
            _write(side, bootstrap, topic, batch)
            took_s = time.perf_counter() - started_s
        jvm = _status_mb(_jvm(), "VmHWM")
        spark.stop()
    return {"jvm": jvm, "workers": most[0], "s": took_s}


def _session(folder: Path) -> SparkSession:
    session = make_session(folder, **{"spark.driver.memory": HEAP})
    session.sparkContext.setLogLevel("ERROR")
    return session


def _write(side: str, bootstrap: str, topic: str, batch: DataFrame) -> None:
    if side == "exactly-once":
        from barnabas.spark import ExactlyOnceKafkaSink

        sink = ExactlyOnceKafkaSink(
            bootstrap, query="memory", topic=topic, max_tries=1, transaction_timeout_ms=900_000
        )
        sink.write(batch, time.time_ns())
        sink.close()
        return
    (
        batch.write.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.max.request.size", LARGEST + 1_000_000)
        .option("topic", topic)
        .save()
    )


def _jvm() -> int:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    return int(gateway.proc.pid)


@contextmanager
def _workers_watched() -> Iterator[list[float]]:
    """Yield the most memory in MB that the JVM's descendants held together."""
    import psutil

    most, done = [0.0], threading.Event()
    jvm = psutil.Process(_jvm())

    def watch() -> None:
        while not done.wait(SAMPLE_S):
            most[0] = max(most[0], sum(_shared_mb(one.pid) for one in jvm.children(recursive=True)))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def _shared_mb(process: int) -> float:
    """Return its proportional set: only its part of shared pages. 0 for a process that has ended."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


def _status_mb(process: int, name: str) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    sys.exit(main())
