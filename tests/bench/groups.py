"""Consumer groups: time to a first record, speed of commits, and duration of a rebalance."""

from __future__ import annotations

import itertools
import os
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.bench.measures import PATIENCE_S, create_topic
from tests.bench.report import Row

ROWS = [
    Row("group-first", "subscribe to first record", "s", 0.17, less_is_better=True, decimals=3),
    Row("commits", "offset commits", "/s"),
    *(
        Row(f"rebalance-{members}", f"rebalance, {members} members", "s", less_is_better=True, decimals=3)
        for members in (1, 10, 50)
    ),
]

COMMITS = 3_000
REBALANCED_PARTITIONS = 50
REBALANCES = 3
HEARTBEAT_MS = 100  # how soon a member learns of a rebalance: its own setting, the same on both sides

_numbers = itertools.count()


def _group(name: str) -> str:
    return f"{name}-{os.getpid()}-{next(_numbers)}"


def first_record(bootstrap: str, topic: str) -> float:
    """Return the seconds from subscribe to the first record for a group of one member. There is a record."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": _group("first"),
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    started_s = time.perf_counter()
    consumer.subscribe([topic])
    while (message := consumer.poll(0.01)) is None or message.error():
        assert time.perf_counter() - started_s < PATIENCE_S, "no record came"
    took_s = time.perf_counter() - started_s
    consumer.close()
    return took_s


def one_record(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    while not producer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions:
        pass
    producer.produce(topic, b"x")
    assert producer.flush(PATIENCE_S) == 0


def everything(bootstrap: str, topic: str) -> dict[str, float]:
    """Measure all rows about groups. The first group of a fresh broker is measured with its launch."""
    one_record(bootstrap, topic)
    figures = {"group-first": first_record(bootstrap, topic), "commits": commits(bootstrap, topic)}
    wide = f"{topic}-wide"
    create_topic(bootstrap, wide, REBALANCED_PARTITIONS)
    for members in (1, 10, 50):
        # Take the least of a few: librdkafka's members sometimes wait for their own timer of 500 ms, with any broker,
        # so a median would depend on chance.
        figures[f"rebalance-{members}"] = min(rebalance(bootstrap, wide, members) for _ in range(REBALANCES))
    return figures


def commits(bootstrap: str, topic: str, count: int = COMMITS) -> float:
    """Return the synchronous commits of one offset per second, one after the other, by a consumer that assigned itself
    its partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": _group("commits"),
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    started_s = time.perf_counter()
    for offset in range(count):
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    took_s = time.perf_counter() - started_s
    consumer.close()
    return count / took_s


def rebalance(bootstrap: str, topic: str, members: int) -> float:
    """Return the seconds until a group of this size is stable again after one more member has joined.

    For one member: until it has its partitions. The topic has `REBALANCED_PARTITIONS` partitions.
    """
    group = _group("rebalance")
    counts: dict[int, int] = {}
    changed = threading.Condition()
    stop = threading.Event()

    def run(number: int) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "partition.assignment.strategy": "roundrobin",
                "log_level": 0,
            }
        )

        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            with changed:
                counts[number] = len(partitions)
                changed.notify_all()

        def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
            with changed:
                counts.pop(number, None)

        consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
        while not stop.is_set():
            consumer.poll(0.02)
        consumer.close()

    def until_stable(size: int) -> None:
        def holds() -> bool:
            return len(counts) == size and sum(counts.values()) == REBALANCED_PARTITIONS

        with changed:
            assert changed.wait_for(holds, PATIENCE_S), f"{len(counts)} of {size} members have partitions"

    threads = [threading.Thread(target=run, args=(number,)) for number in range(members)]
    try:
        for thread in threads[:-1]:
            thread.start()
        if members > 1:
            until_stable(members - 1)
        started_s = time.perf_counter()
        threads[-1].start()
        until_stable(members)
        return time.perf_counter() - started_s
    finally:
        stop.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()
