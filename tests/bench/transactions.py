"""Transactions: how many per second, and how long a commit takes, with confluent-kafka (transactions V1).

Each transaction is one record of 1 KiB and its commit; the topic has one partition. A transaction costs librdkafka
about as much processor time as barnabas, most of it in the kernel. So on a machine with few cores eight producers also
hold up each other. The broker's processor time shows what the broker does.
"""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time

from confluent_kafka import Producer

from tests.bench.measures import PATIENCE_S, RECORD_BYTES, Pace
from tests.bench.report import Row

ROWS = [
    Row("transactions", "transactions, one producer", "/s", 600),
    Row("transactions-8", "transactions, eight producers", "/s", 3_500),
    Row(
        "transactions-8-cpu",
        "broker's processor time, eight producers",
        "µs/transaction",
        less_is_better=True,
    ),
    Row("commit-p50", "commit, median", "ms", 0.3, less_is_better=True, decimals=2),
    Row("commit-p99", "commit, 99th percentile", "ms", 1.5, less_is_better=True, decimals=2),
]

ONE_PRODUCER = 1_000
EIGHT_PRODUCERS = 500  # each
PRODUCERS = 8

_numbers = itertools.count()


def one_producer(bootstrap: str, topic: str) -> dict[str, float]:
    """Measure transactions per second, and the time of only the commit, after its record is acknowledged."""
    producer = _producer(bootstrap)
    value = os.urandom(RECORD_BYTES)
    started_s = time.perf_counter()
    _transactions(producer, topic, value, ONE_PRODUCER)
    took_s = time.perf_counter() - started_s
    commits_ms = []
    for _ in range(ONE_PRODUCER):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(PATIENCE_S)
        began_s = time.perf_counter()
        producer.commit_transaction(PATIENCE_S)
        commits_ms.append((time.perf_counter() - began_s) * 1000)
    cuts = statistics.quantiles(commits_ms, n=100)
    return {
        "transactions": ONE_PRODUCER / took_s,
        "commit-p50": statistics.median(commits_ms),
        "commit-p99": cuts[98],
    }


def eight_producers(bootstrap: str, topic: str) -> Pace:
    """Measure transactions of eight producers in threads of one process.

    Python takes part only in a few calls: eight processes take as much processor time.
    """
    producers = [_producer(bootstrap) for _ in range(PRODUCERS)]
    value = os.urandom(RECORD_BYTES)
    start = threading.Barrier(PRODUCERS + 1)

    def run(producer: Producer) -> None:
        start.wait(PATIENCE_S)
        _transactions(producer, topic, value, EIGHT_PRODUCERS)

    threads = [threading.Thread(target=run, args=(producer,)) for producer in producers]
    for thread in threads:
        thread.start()
    start.wait(PATIENCE_S)
    started_s = time.perf_counter()
    for thread in threads:
        thread.join()
    return Pace(PRODUCERS * EIGHT_PRODUCERS, time.perf_counter() - started_s)


def some(bootstrap: str, topic: str, count: int) -> None:
    """Do `count` transactions, one after the other."""
    _transactions(_producer(bootstrap), topic, os.urandom(RECORD_BYTES), count)


def first_committed(bootstrap: str) -> None:
    """Commit one record by a transactional producer to a new topic. `__transaction_state` is created on the way.

    The topic is requested until it exists, as for the first acknowledged record, and then once more. After the first
    answer, librdkafka leaves its first connection for another one. If `init_transactions` comes before that one is up,
    it sleeps for 500 ms. The second answer can only come from the new connection.
    """
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "first", "linger.ms": 0, "log_level": 0}
    )
    while not producer.list_topics("first", timeout=PATIENCE_S).topics["first"].partitions:
        pass
    producer.list_topics("first", timeout=PATIENCE_S)
    producer.init_transactions(PATIENCE_S)
    _transactions(producer, "first", b"x" * RECORD_BYTES, 1)


def _producer(bootstrap: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"bench-{os.getpid()}-{next(_numbers)}",
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def _transactions(producer: Producer, topic: str, value: bytes, count: int) -> None:
    for _ in range(count):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.commit_transaction(PATIENCE_S)
