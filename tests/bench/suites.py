"""What a user's integration tests do, with confluent-kafka's defaults: topics, transactions, and a group that reads
everything. Nothing is warm before, and everything is gone afterwards."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, Producer

from tests.bench import measures

TOPICS = 20
PRODUCERS = 10
TRANSACTIONS = 10  # of each producer
GROUP = "suite"


def play(bootstrap: str) -> None:
    """Play all of it on a broker that was just launched."""
    topics = [f"{GROUP}-{number}" for number in range(TOPICS)]
    for topic in topics:
        measures.create_topic(bootstrap, topic, 1)
    for number in range(PRODUCERS):
        _transact(bootstrap, f"{GROUP}-{number}", topics)
    _read(bootstrap, topics, PRODUCERS * TRANSACTIONS * 2)


def _transact(bootstrap: str, transactional_id: str, topics: list[str]) -> None:
    """Each transaction has a record in two of the topics."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
    )
    producer.init_transactions(measures.PATIENCE_S)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for topic in (topics[2 * number], topics[2 * number + 1]):
            producer.produce(topic, b"x" * measures.RECORD_BYTES)
        producer.commit_transaction(measures.PATIENCE_S)


def _read(bootstrap: str, topics: list[str], count: int) -> None:
    """Read with a group of one member and default settings."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(topics)
    deadline_s = time.perf_counter() + measures.PATIENCE_S
    while count > 0:
        count -= len(consumer.consume(count, timeout=0.01))
        assert time.perf_counter() < deadline_s, f"{count} records didn't come"
    consumer.close()
