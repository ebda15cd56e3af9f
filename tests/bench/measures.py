"""The measurements: each function takes a running broker's address and a topic, and returns a `Pace`.

MB are 1,000,000 bytes of the records' values, 1 KiB each. Figures through confluent-kafka include its own work, which
limits them. The raw client's figures show the broker.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.records import batch as records
from tests.support.ready_requests import fetch_batches, produce_frame, produce_in_flight
from tests.support.wire import Client

RECORD_BYTES = 1024
# librdkafka's default, up to which a producer with enough records fills its batches
BATCH_BYTES = 1_000_000
# the default of Java's client and librdkafka
PARTITION_MAX_BYTES = 1024 * 1024
# the largest for an idempotent producer in Java's client and librdkafka
IN_FLIGHT = 5
READERS = 8
PATIENCE_S = 120.0

PRODUCED_RAW_MB = 600
PRODUCED_MB = 300
SINGLE_RECORDS = 20_000


@dataclass(frozen=True, slots=True)
class Pace:
    """An amount of MB or requests, and the seconds that it took."""

    amount: float
    took_s: float


def first_acknowledged(bootstrap: str) -> None:
    """Produce one record with acks=all to a topic that it creates: the end of what `launch` measures.

    The topic is requested until it exists. Otherwise librdkafka waits for two timers of 50 ms in a broker's first
    moments, and with a fast broker that is all that would be measured.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})
    deadline_s = time.perf_counter() + PATIENCE_S
    while not producer.list_topics("first", timeout=PATIENCE_S).topics["first"].partitions:
        assert time.perf_counter() < deadline_s, f"{bootstrap} creates no topic that is asked for"
    errors: list[object] = []
    producer.produce("first", b"x" * RECORD_BYTES, on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    assert errors == [None], errors


def memory_mb(pid: int) -> tuple[float, float]:
    """Return RSS and PSS in MB (1,000,000 bytes) of the process and its children."""
    process = psutil.Process(pid)
    infos = [one.memory_full_info() for one in (process, *process.children(recursive=True))]
    return sum(info.rss for info in infos) / 1e6, sum(info.pss for info in infos) / 1e6


def processor_s(pid: int) -> float:
    """Return the processor time that the process and its threads have used so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def produce_with_confluent(bootstrap: str, topic: str, *, idempotent: bool = False) -> Pace:
    """Measure one confluent-kafka producer, from its first record to the last acknowledgement (acks=all)."""
    config = {
        "bootstrap.servers": bootstrap,
        "acks": "all",
        "enable.idempotence": idempotent,
        "linger.ms": 5,
        "batch.size": BATCH_BYTES,
        "queue.buffering.max.messages": 1_000_000,
        "queue.buffering.max.kbytes": 2_000_000,
    }
    producer = Producer(config)
    producer.list_topics(topic, timeout=PATIENCE_S)
    value = os.urandom(RECORD_BYTES)
    count = PRODUCED_MB * 1_000_000 // RECORD_BYTES
    produce = producer.produce
    started_s = time.perf_counter()
    for _ in range(count):
        produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0
    return Pace(count * RECORD_BYTES / 1e6, time.perf_counter() - started_s)


def produce_ready_batches(bootstrap: str, topic: str, megabytes: int = PRODUCED_RAW_MB) -> Pace:
    """Measure prepared Produce requests (acks=all) of one batch of a megabyte each, five in flight on one
    connection."""
    batch, count_in_batch = _batch_of_a_megabyte()
    frame = produce_frame(topic, batch, acks=-1)
    times = megabytes * 1_000_000 // (count_in_batch * RECORD_BYTES)
    client = Client.of(bootstrap)
    started_s = time.perf_counter()
    produce_in_flight(client, frame, times, IN_FLIGHT)
    took_s = time.perf_counter() - started_s
    client.close()
    return Pace(times * count_in_batch * RECORD_BYTES / 1e6, took_s)


def fetch_raw(bootstrap: str, topic: str) -> Pace:
    """Measure Fetch requests of up to 1 MiB on one connection. Each is sent after the previous answer."""
    end = end_offset(bootstrap, topic)
    client = Client.of(bootstrap)
    started_s = time.perf_counter()
    for _ in fetch_batches(client, topic, end, PARTITION_MAX_BYTES):
        pass
    took_s = time.perf_counter() - started_s
    client.close()
    return Pace(end * RECORD_BYTES / 1e6, took_s)


def fetch_raw_by_eight(bootstrap: str, topic: str) -> Pace:
    """Like `fetch_raw`, with eight clients in threads. Python has almost no part in what they do."""
    end = end_offset(bootstrap, topic)
    clients = [Client.of(bootstrap) for _ in range(READERS)]

    def read(client: Client) -> None:
        for _ in fetch_batches(client, topic, end, PARTITION_MAX_BYTES):
            pass

    with ThreadPoolExecutor(READERS) as threads:
        started_s = time.perf_counter()
        list(threads.map(read, clients))
        took_s = time.perf_counter() - started_s
    for client in clients:
        client.close()
    return Pace(READERS * end * RECORD_BYTES / 1e6, took_s)


def fetch_with_confluent(bootstrap: str, topic: str) -> Pace:
    """Measure one confluent-kafka consumer, which makes a Python object of each record."""
    end = end_offset(bootstrap, topic)
    consumer = _consumer(bootstrap)
    started_s = time.perf_counter()
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = 0
    while read < end:
        messages = consumer.consume(10_000, timeout=0.05)
        assert messages or time.perf_counter() - started_s < PATIENCE_S, f"only {read} of {end} came"
        read += len(messages)
    took_s = time.perf_counter() - started_s
    consumer.close()
    return Pace(end * RECORD_BYTES / 1e6, took_s)


def single_records_with_confluent(bootstrap: str, topic: str) -> Pace:
    """Measure requests of one 1 KiB record each, acks=1, five in flight: confluent-kafka without batching."""
    config = {
        "bootstrap.servers": bootstrap,
        "acks": 1,
        "linger.ms": 0,
        "batch.num.messages": 1,
        "max.in.flight.requests.per.connection": IN_FLIGHT,
    }
    producer = Producer(config)
    producer.list_topics(topic, timeout=PATIENCE_S)
    value = os.urandom(RECORD_BYTES)
    started_s = time.perf_counter()
    for _ in range(SINGLE_RECORDS):
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0
    return Pace(SINGLE_RECORDS, time.perf_counter() - started_s)


def single_records_raw(bootstrap: str, topic: str, count: int = SINGLE_RECORDS) -> Pace:
    """Measure requests of one 1 KiB record each, acks=1. Each is sent after the previous answer."""
    batch = bytes(records.build_batch([(_now_ms(), None, os.urandom(RECORD_BYTES), ())]))
    frame = produce_frame(topic, batch, acks=1)
    client = Client.of(bootstrap)
    started_s = time.perf_counter()
    produce_in_flight(client, frame, count, 1)
    took_s = time.perf_counter() - started_s
    client.close()
    return Pace(count, took_s)


def create_topic(bootstrap: str, topic: str, partitions: int = 1) -> None:
    admin = _admin(bootstrap)
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE_S)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = _admin(bootstrap)
    admin.delete_topics([topic])[topic].result(PATIENCE_S)


def _batch_of_a_megabyte() -> tuple[bytes, int]:
    """Return a batch of as many records as confluent-kafka would put into one, and their number."""
    # A record takes about 10 bytes beside its value.
    count = BATCH_BYTES // (RECORD_BYTES + 16)
    values = os.urandom(RECORD_BYTES * count)
    now_ms = _now_ms()
    batch = records.build_batch(
        [(now_ms, None, values[at : at + RECORD_BYTES], ()) for at in range(0, len(values), RECORD_BYTES)]
    )
    return bytes(batch), count


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _admin(bootstrap: str) -> AdminClient:
    # Silent: librdkafka logs a remark about every admin client that is dropped.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _consumer(bootstrap: str) -> Consumer:
    """Make a consumer with room for everything in its queue. With the default of 64 MiB, librdkafka pauses when it is
    full, usually for a second. The faster the broker, the more of that would be measured."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 2_097_151,
        }
    )


def end_offset(bootstrap: str, topic: str) -> int:
    consumer = _consumer(bootstrap)
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
    consumer.close()
    return int(end)
