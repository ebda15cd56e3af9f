"""End-to-end latency: from a producer's call until its consumer has the record, at 500 records a second."""

from __future__ import annotations

import statistics
import struct
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.bench.measures import PATIENCE_S, RECORD_BYTES
from tests.bench.report import Row

ROWS = [
    Row("end-to-end-p50", "end to end at 500 records/s, median", "ms", less_is_better=True, decimals=2),
    Row("end-to-end-p99", "end to end, 99th percentile", "ms", less_is_better=True, decimals=2),
]

EVERY_S = 1 / 500
RECORDS = 1_500
UNCOUNTED = 100  # not counted: connections are made meanwhile
_SENT_NS = struct.Struct(">q")


def end_to_end(bootstrap: str, topic: str) -> dict[str, float]:
    """Measure one producer and one consumer in one process, with acks=all and no lingering. Each record is sent when it
    is due."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0})
    producer.list_topics(topic, timeout=PATIENCE_S)
    sending = threading.Thread(target=_send, args=(producer, topic))
    sending.start()
    took_ms: list[float] = []
    deadline_s = time.perf_counter() + PATIENCE_S
    while len(took_ms) < RECORDS:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            took_ms.append((time.perf_counter_ns() - _SENT_NS.unpack_from(value)[0]) / 1e6)
        assert time.perf_counter() < deadline_s, f"only {len(took_ms)} records came"
    sending.join()
    consumer.close()
    cuts = statistics.quantiles(took_ms[UNCOUNTED:], n=100)
    return {"end-to-end-p50": statistics.median(took_ms[UNCOUNTED:]), "end-to-end-p99": cuts[98]}


def _send(producer: Producer, topic: str) -> None:
    filling = b"x" * (RECORD_BYTES - _SENT_NS.size)
    due_s = time.perf_counter()
    for _ in range(RECORDS):
        due_s += EVERY_S
        time.sleep(max(0.0, due_s - time.perf_counter()))
        producer.produce(topic, _SENT_NS.pack(time.perf_counter_ns()) + filling)
        producer.poll(0)
    producer.flush(PATIENCE_S)
