"""5,000 partitions, and 2,000 topics: what it takes to create them, and to start and stop with them.

Each round uses a fresh broker. A start lasts from the start of its process until a client learns a leader of every
partition. Before a kill each partition gets one more record, which the start has to find again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import psutil
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.measures import PATIENCE_S, memory_mb, processor_s
from tests.bench.report import Row
from tests.support.kafka_server import Server

TOPICS = 50
PARTITIONS_OF_EACH = 100
SMALL_TOPICS = 2_000
RECORD = b"x" * 100
IDLE_S = 10.0
POLL_S = 0.01

ROWS = [
    Row("many-created", "5,000 partitions: created", "s", 0.5, less_is_better=True, decimals=2),
    Row("many-first", "a first record to each", "s", 2, less_is_better=True, decimals=2),
    Row("many-files", "open files", "", 1_000, less_is_better=True),
    Row("many-memory", "additional memory, RSS", "MB", 80, less_is_better=True, decimals=1),
    Row("many-idle", "broker's processor time, idle", "ms/s", less_is_better=True, decimals=1),
    Row("many-stop", "clean stop", "s", less_is_better=True, decimals=2),
    Row("many-start", "clean start", "s", 1, less_is_better=True, decimals=2),
    Row("many-start-cpu", "broker's processor time, clean start", "s", less_is_better=True, decimals=2),
    Row("many-killed", "start after kill -9", "s", 3, less_is_better=True, decimals=2),
    Row(
        "many-killed-cpu",
        "broker's processor time, start after kill -9",
        "s",
        less_is_better=True,
        decimals=2,
    ),
    Row("topics-created", "2,000 topics: created", "s", less_is_better=True, decimals=2),
    Row("topics-listed", "listed", "s", less_is_better=True, decimals=3),
    Row("topics-described", "described", "s", less_is_better=True, decimals=3),
    Row("topics-deleted", "deleted", "s", less_is_better=True, decimals=2),
]


def measure_partitions(server: Server) -> dict[str, float]:
    """Measure the rows `many-...` of a broker on an empty folder, which this starts and ends."""
    topics = [NewTopic(f"many-{number:02d}", PARTITIONS_OF_EACH, 1) for number in range(TOPICS)]
    figures = {}
    server.start()
    try:
        admin = _admin(server)
        admin.list_topics(timeout=PATIENCE_S)
        before_mb, _ = memory_mb(server.pid)
        figures["many-created"] = _seconds(lambda: _create(admin, topics))
        figures["many-first"] = _seconds(lambda: _produce_to_each(server))
        figures["many-memory"] = memory_mb(server.pid)[0] - before_mb
        figures["many-files"] = psutil.Process(server.pid).num_fds()
        used_s = processor_s(server.pid)
        time.sleep(IDLE_S)
        figures["many-idle"] = (processor_s(server.pid) - used_s) / IDLE_S * 1e3
        figures["many-stop"] = _seconds(server.stop)
        figures["many-start"] = _seconds(lambda: _start(server))
        figures["many-start-cpu"] = processor_s(server.pid)
        _produce_to_each(server)
        server.kill()
        figures["many-killed"] = _seconds(lambda: _start(server))
        figures["many-killed-cpu"] = processor_s(server.pid)
    finally:
        server.kill()
    return figures


def measure_topics(server: Server) -> dict[str, float]:
    """Measure the rows `topics-...` of a broker on an empty folder, which this starts and ends."""
    names = [f"many.topics_{number:04d}" for number in range(SMALL_TOPICS)]
    figures = {}
    server.start()
    try:
        admin = _admin(server)
        admin.list_topics(timeout=PATIENCE_S)
        figures["topics-created"] = _seconds(lambda: _create(admin, [NewTopic(name, 1, 1) for name in names]))
        figures["topics-listed"] = _seconds(lambda: admin.list_topics(timeout=PATIENCE_S))
        figures["topics-described"] = _seconds(lambda: _describe(admin, names))
        figures["topics-deleted"] = _seconds(lambda: _delete(admin, names))
    finally:
        server.kill()
    return figures


def _seconds(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s


def _admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})


def _create(admin: AdminClient, topics: Sequence[NewTopic]) -> None:
    """Create the topics in one request, and wait until all have leaders."""
    for created in admin.create_topics([*topics], operation_timeout=PATIENCE_S).values():
        created.result(PATIENCE_S)
    _wait_for_leaders(admin, sum(topic.num_partitions for topic in topics))


def _describe(admin: AdminClient, names: Sequence[str]) -> None:
    for described in admin.describe_topics(TopicCollection([*names])).values():
        assert len(described.result(PATIENCE_S).partitions) == 1


def _delete(admin: AdminClient, names: Sequence[str]) -> None:
    """Delete the topics in one request, and wait until clients no longer see them."""
    for deleted in admin.delete_topics([*names], operation_timeout=PATIENCE_S).values():
        deleted.result(PATIENCE_S)
    deadline_s = time.monotonic() + PATIENCE_S
    while not admin.list_topics(timeout=PATIENCE_S).topics.keys().isdisjoint(names):
        assert time.monotonic() < deadline_s, "the topics are there still"
        time.sleep(POLL_S)


def _produce_to_each(server: Server) -> None:
    """Send a record to every partition with one producer, until all are acknowledged."""
    errors: list[object] = []
    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "acks": "all", "linger.ms": 5, "log_level": 0}
    )
    for number in range(TOPICS):
        for partition in range(PARTITIONS_OF_EACH):
            producer.produce(
                f"many-{number:02d}",
                RECORD,
                partition=partition,
                on_delivery=lambda error, _: errors.append(error),
            )
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * (TOPICS * PARTITIONS_OF_EACH), {*map(str, errors)}


def _start(server: Server) -> None:
    server.start()
    _wait_for_leaders(_admin(server), TOPICS * PARTITIONS_OF_EACH)


def _wait_for_leaders(admin: AdminClient, count: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while _led(admin) < count:
        assert time.monotonic() < deadline_s, "partitions are without a leader"
        time.sleep(POLL_S)


def _led(admin: AdminClient) -> int:
    topics = admin.list_topics(timeout=PATIENCE_S).topics.values()
    return sum(partition.leader >= 0 for topic in topics for partition in topic.partitions.values())
