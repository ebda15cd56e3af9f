"""A suite of small tests with their own state, with each way to get a broker: `python -m tests.bench.small_tests`.

Each test finds a topic with records, commits a transaction of one more record, and reads all of them as a reader of
committed records. The difference is how the broker becomes empty: reset, restored to a snapshot, started for each test,
a kfake process for each test, or an Apache Kafka shared by all, with a new topic for each test.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

import barnabas
from tests.bench import kfake, measures
from tests.bench.others import ByCommand
from tests.support.apache_kafka import why_unavailable
from tests.support.kafka_server import KafkaServer

SEEDED = 10
QUIET = {"log_level": 0}


def seed(bootstrap: str, topic: str) -> None:
    measures.create_topic(bootstrap, topic, 1)
    producer = Producer({"bootstrap.servers": bootstrap, **QUIET})
    for number in range(SEEDED):
        producer.produce(topic, b"%d" % number)
    producer.flush(measures.PATIENCE_S)


def check(bootstrap: str, topic: str) -> None:
    """Do what a test does once its state is there."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, **QUIET})
    producer.init_transactions(measures.PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"more")
    producer.commit_transaction(measures.PATIENCE_S)
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "isolation.level": "read_committed", **QUIET}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    left = SEEDED + 1
    while left > 0:
        left -= len(consumer.consume(left, timeout=measures.PATIENCE_S))
    consumer.close()


def both(bootstrap: str, topic: str) -> None:
    seed(bootstrap, topic)
    check(bootstrap, topic)


@contextmanager
def measured(took: list[float]) -> Iterator[None]:
    began_s = time.perf_counter()
    yield
    took.append(time.perf_counter() - began_s)


def by_reset(tests: int) -> list[float]:
    took: list[float] = []
    with measured(took), barnabas.Broker() as broker:
        for _ in range(tests):
            broker.reset()
            both(broker.bootstrap, "orders")
    return took


def by_restore(tests: int) -> list[float]:
    took: list[float] = []
    with measured(took), barnabas.Broker() as broker:
        seed(broker.bootstrap, "orders")
        seeded = broker.snapshot()
        for _ in range(tests):
            broker.restore(seeded)
            check(broker.bootstrap, "orders")
    return took


def by_new_broker(tests: int) -> list[float]:
    took: list[float] = []
    with measured(took):
        for _ in range(tests):
            with barnabas.Broker() as broker:
                both(broker.bootstrap, "orders")
    return took


def by_kfake(command: str, folder: Path, tests: int) -> list[float]:
    took: list[float] = []
    with measured(took):
        for number in range(tests):
            server = ByCommand(command, folder / f"kfake-{time.monotonic_ns()}-{number}")
            server.start()
            try:
                both(server.bootstrap, "orders")
            finally:
                server.kill()
    return took


def by_new_names(folder: Path, tests: int) -> list[float]:
    took: list[float] = []
    with (
        measured(took),
        KafkaServer(folder / f"kafka-{time.monotonic_ns()}", start_timeout_s=120.0) as server,
    ):
        for number in range(tests):
            both(server.bootstrap, f"orders-{number}")
    return took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tests", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as name:
        folder = Path(name)
        suites: dict[str, Callable[[int], list[float]]] = {
            "one broker, reset for each test": by_reset,
            "one broker, put back to a state made once": by_restore,
            "a new broker for each test": by_new_broker,
        }
        command = kfake.command(folder / "kfake-built")
        if command is not None:
            suites["kfake, a process for each test"] = partial(by_kfake, command, folder)
        reason = why_unavailable()
        if reason:
            print(f"Apache Kafka is left out: {reason}")
        else:
            suites["Apache Kafka, a topic for each test"] = partial(by_new_names, folder)
        figures: dict[str, list[float]] = {name: [] for name in suites}
        for _ in range(options.rounds):
            for name, suite in suites.items():
                figures[name] += suite(options.tests)
    for name, each in figures.items():
        median, least, most = statistics.median(each), min(each), max(each)
        a_test_ms = median / options.tests * 1000
        print(f"{name}: {median:.1f} s ({least:.1f} to {most:.1f}), {a_test_ms:.0f} ms a test")
    return 0


if __name__ == "__main__":
    sys.exit(main())
