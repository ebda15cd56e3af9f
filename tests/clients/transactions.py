"""Shared by the tests of transactions: a broker, and one history that every client writes and reads."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

import barnabas
from tests.clients.confluent import PATIENCE_S, create_topic
from tests.support.kafka_server import KafkaServer, Server

# Transactions are looked through for those whose time is up often enough to wait for it. Few partitions of the
# internal topics, since Apache Kafka takes a second for fifty. Consumers that were killed are soon given up.
SETTINGS: dict[str, str | int] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 50,
    "transaction.state.log.num.partitions": 5,
    "offsets.topic.num.partitions": 5,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.assignment.interval.ms": 100,
    "group.streams.session.timeout.ms": 1_000,
    "group.streams.min.session.timeout.ms": 500,
    "group.streams.heartbeat.interval.ms": 200,
    "group.streams.min.heartbeat.interval.ms": 100,
}

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"
ISOLATION_LEVELS = (READ_COMMITTED, READ_UNCOMMITTED)

LAST = "committed, the last"

# Two producers, whose transactions overlap in one partition: (which of them, what it does, the value it sends).
HISTORY = (
    ("one", "begin", ""),
    ("one", "send", "committed 0"),
    ("one", "commit", ""),
    ("one", "begin", ""),
    ("two", "begin", ""),
    ("one", "send", "aborted 1"),
    ("two", "send", "committed 2"),
    ("one", "send", "aborted 3"),
    ("two", "send", "committed 4"),
    ("one", "abort", ""),
    ("two", "commit", ""),
    ("two", "begin", ""),
    ("two", "send", "aborted 5"),
    ("one", "begin", ""),
    ("one", "send", "committed 6"),
    ("two", "send", "aborted 7"),
    ("one", "commit", ""),
    ("two", "abort", ""),
    ("one", "begin", ""),
    ("one", "send", LAST),
    ("one", "commit", ""),
)
SENT = [value for _producer, verb, value in HISTORY if verb == "send"]
VISIBLE = {
    READ_COMMITTED: [value for value in SENT if value.startswith("committed")],
    READ_UNCOMMITTED: SENT,
}


def written_by(client: str) -> str:
    """A name for a new topic, to which this client writes HISTORY."""
    return f"written-by-{client}-{uuid.uuid4().hex[:8]}"


@contextlib.contextmanager
def running_server(folder: Path, **settings: object) -> Iterator[Server]:
    """barnabas, with SETTINGS and these (a dot is written as an underscore).

    Apache Kafka where BARNABAS_CLIENTS_KAFKA is set: to judge the tests.
    """
    config = SETTINGS | {name.replace("_", "."): str(value) for name, value in settings.items()}
    if os.environ.get("BARNABAS_CLIENTS_KAFKA"):
        with KafkaServer(folder, config) as server:
            yield server
    else:
        with barnabas.Broker(config=config) as broker:
            yield broker


def new_producer(bootstrap: str, transactional_id: str, **config: Any) -> Producer:
    """A producer that is ready to begin a transaction; it fences the one before of the same id."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0, **config}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def send_now(producer: Producer, topic: str, value: str, partition: int = 0) -> None:
    """Send a record, and wait until it is acknowledged."""
    errors: list[KafkaError | None] = []
    producer.produce(
        topic, value, partition=partition, on_delivery=lambda error, message: errors.append(error)
    )
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None]


def write_history(bootstrap: str, topic: str) -> None:
    """Create the topic and write HISTORY to it."""
    create_topic(bootstrap, topic)
    producers = {name: new_producer(bootstrap, f"{topic}-{name}") for name in ("one", "two")}
    for name, verb, value in HISTORY:
        producer = producers[name]
        match verb:
            case "begin":
                producer.begin_transaction()
            case "send":
                send_now(producer, topic, value)
            case "commit":
                producer.commit_transaction(PATIENCE_S)
            case "abort":
                producer.abort_transaction(PATIENCE_S)


def stable_end(bootstrap: str, topic: str, *, partition: int = 0) -> int:
    """The offset up to which a read_committed consumer may read."""
    return _end(bootstrap, topic, partition, IsolationLevel.READ_COMMITTED)


def log_end(bootstrap: str, topic: str, *, partition: int = 0) -> int:
    return _end(bootstrap, topic, partition, IsolationLevel.READ_UNCOMMITTED)


def transaction_is_over(bootstrap: str, topic: str) -> Callable[[], bool]:
    """A condition: the one transaction in partition 0 of the topic, with its one record, has its marker."""
    return lambda: stable_end(bootstrap, topic) == 2


def _end(bootstrap: str, topic: str, partition: int, level: IsolationLevel) -> int:
    asked = TopicPartition(topic, partition)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    found = admin.list_offsets({asked: OffsetSpec.latest()}, isolation_level=level)
    return int(found[asked].result(PATIENCE_S).offset)
