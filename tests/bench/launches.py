"""A fresh broker on an empty folder: how soon it serves, what it holds and does when idle, and a small suite of tests.

What a suite does is what most do: some topics, some records, a group, a transaction; and all of it is gone afterwards.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer

from tests.bench import groups, measures, transactions
from tests.bench.report import Row
from tests.support.kafka_server import Server

ROWS = [
    Row("launch", "launch to first acknowledged record", "s", 0.25, less_is_better=True, decimals=3),
    Row("launch-commit", "launch to first committed transaction", "s", 0.3, less_is_better=True, decimals=3),
    Row("launch-group", "first group's first record", "s", 0.4, less_is_better=True, decimals=3),
    Row("suite", "a suite, launch to stop", "s", less_is_better=True, decimals=2),
    Row("rss", "idle memory, RSS", "MB", 40, less_is_better=True, decimals=1),
    Row("pss", "idle memory, PSS", "MB", less_is_better=True, decimals=1),
    Row("idle-cpu", "broker's processor time, idle", "ms/s", less_is_better=True, decimals=1),
]

IDLE_S = 3.0
SUITE_TOPICS = 5
SUITE_RECORDS = 100  # of each topic
SUITE_TRANSACTIONS = 10

MakeServer = Callable[[Path], Server]


def measure(make: MakeServer, folder: Path, name: str) -> dict[str, float]:
    """All rows of this file; `name` tells apart what is launched in `folder`."""
    figures = {}
    server = make(folder / f"launch-{name}")
    started_s = time.perf_counter()
    with running(server):
        measures.first_acknowledged(server.bootstrap)
        figures["launch"] = time.perf_counter() - started_s
        used_s = measures.processor_s(server.pid)
        time.sleep(IDLE_S)
        figures["idle-cpu"] = (measures.processor_s(server.pid) - used_s) / IDLE_S * 1000
        figures["rss"], figures["pss"] = measures.memory_mb(server.pid)
        figures["launch-group"] = groups.first_record(server.bootstrap, "first")
    server = make(folder / f"launch-commit-{name}")
    started_s = time.perf_counter()
    with running(server):
        transactions.first_committed(server.bootstrap)
        figures["launch-commit"] = time.perf_counter() - started_s
    server = make(folder / f"suite-{name}")
    started_s = time.perf_counter()
    with running(server):
        _suite(server.bootstrap)
    figures["suite"] = time.perf_counter() - started_s
    return figures


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _suite(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    for number in range(SUITE_TOPICS):
        topic = f"suite-{number}"
        measures.create_topic(bootstrap, topic, 3)
        for _ in range(SUITE_RECORDS):
            producer.produce(topic, b"x" * measures.RECORD_BYTES)
        assert producer.flush(measures.PATIENCE_S) == 0
        _read(bootstrap, topic, SUITE_RECORDS)
    measures.create_topic(bootstrap, "suite-transactions", 1)
    transactions.some(bootstrap, "suite-transactions", SUITE_TRANSACTIONS)
    _read(bootstrap, "suite-transactions", SUITE_TRANSACTIONS)


def _read(bootstrap: str, topic: str, count: int) -> None:
    """By a group of one member, which commits what it has read."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    deadline_s = time.perf_counter() + measures.PATIENCE_S
    while count > 0:
        count -= len(consumer.consume(count, timeout=0.01))
        assert time.perf_counter() < deadline_s, f"{count} records of {topic} didn't come"
    consumer.commit(asynchronous=False)
    consumer.close()
