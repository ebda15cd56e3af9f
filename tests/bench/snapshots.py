"""What reset, fork and snapshot cost: `python -m tests.bench.snapshots`.

A reset is measured on an empty broker and on one with a topic; a fork until its first answer. The broker of the
snapshot has a gigabyte of records and a hundred open transactions; another client sends a request each millisecond, and
the longest that it waits is how long the snapshot holds others. The same pause without a snapshot stands beside it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

from confluent_kafka import Producer

import barnabas
from tests.bench import measures
from tests.bench.pinging import pinging

RESETS = 100
FORKS = 20
SNAPSHOTS = 10
OPEN = 100
MIB = 1024 * 1024


def _took_ms(do: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    do()
    return (time.perf_counter() - began_s) * 1000


def _print(title: str, found_ms: list[float]) -> None:
    median, most = statistics.median(found_ms), max(found_ms)
    print(f"{title}: {median:.1f} ms, at most {most:.1f} ms ({len(found_ms)} times)", flush=True)


def _resets() -> None:
    with barnabas.Broker() as broker:
        _print("reset of an empty broker", [_took_ms(broker.reset) for _ in range(RESETS)])
        found = []
        for _ in range(RESETS):
            broker.create_topics({"orders": 3})
            found.append(_took_ms(broker.reset))
        _print("reset of a broker with a topic", found)


def _forks() -> None:
    found = []
    with barnabas.Broker(topics={"orders": 3}) as broker:
        for _ in range(FORKS + 1):
            began_s = time.perf_counter()
            with broker.fork() as other:
                assert other.records("orders") == []
                found.append((time.perf_counter() - began_s) * 1000)
    print(f"first fork, to its first answer: {found[0]:.1f} ms")
    _print("each further fork", found[1:])


def _snapshots(megabytes: int) -> None:
    with barnabas.Broker(topics={"large": 1, "orders": OPEN}) as broker:
        measures.produce_ready_batches(broker.bootstrap, "large", megabytes)
        producers = [
            Producer(
                {"bootstrap.servers": broker.bootstrap, "transactional.id": f"open-{number}", "log_level": 0}
            )
            for number in range(OPEN)
        ]
        for number, producer in enumerate(producers):
            producer.init_transactions(measures.PATIENCE_S)
            producer.begin_transaction()
            producer.produce("orders", b"v", partition=number)
            producer.flush(measures.PATIENCE_S)
        assert len(broker.transactions()) == OPEN
        took_ms, with_ms, without_ms = [], [], []
        for _ in range(SNAPSHOTS):
            with pinging(broker.bootstrap) as pings:
                time.sleep(0.05)
                took_ms.append(_took_ms(broker.snapshot))
            with_ms.append(max(pings.took_ms))
            with pinging(broker.bootstrap) as pings:
                time.sleep(0.05 + took_ms[-1] / 1000)
            without_ms.append(max(pings.took_ms))
        size = sum(each.stat().st_size for each in broker.data.rglob("*.log"))
        _print(f"snapshot of {size / MIB:,.0f} MiB with {OPEN} open transactions", took_ms)
        _print("the longest that another client waits meanwhile", with_ms)
        _print("the longest that it waits without a snapshot", without_ms)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.snapshots", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1074, help="of records in the snapshot")
    options = parser.parse_args()
    _resets()
    _forks()
    _snapshots(options.megabytes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
