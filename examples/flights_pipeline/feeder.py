"""Sends the flights, keyed by airline."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from examples.flights_pipeline.data import Flight, closing_flight

PATIENCE_S = 120.0
WARNING = 4  # as syslog counts


def create_topics(bootstrap: str, names: Iterable[str], partitions: int) -> None:
    """With as many replicas as the brokers think fit."""
    # Closed right after an answer it may tell, as information, of an event that nobody was there to take.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": WARNING})
    asked = admin.create_topics([NewTopic(name, partitions, -1) for name in names])
    for answer in asked.values():
        answer.result(PATIENCE_S)


def feed(
    bootstrap: str,
    topic: str,
    flights: Iterable[Flight],
    partitions: int,
    told: Callable[[int], None] = lambda sent: None,
) -> int:
    """Send them and, last, one flight to each partition that closes the year; how many records that were.

    told: called with how many have been sent, now and then.
    AssertionError where one isn't acknowledged.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 20,
            # Where Java's producers, and barnabas.spark, would send the keys.
            "partitioner": "murmur2_random",
        }
    )
    sent = 0
    for key, value in flights:
        _send(producer, topic, value, key)
        sent += 1
        if sent % 1_000 == 0:
            told(sent)
    assert producer.flush(PATIENCE_S) == 0, "not every flight was acknowledged"
    for partition in range(partitions):
        producer.produce(
            topic, closing_flight(partition), b"--", partition=partition, on_delivery=_acknowledged
        )
    assert producer.flush(PATIENCE_S) == 0, "not every flight was acknowledged"
    told(sent)
    return sent + partitions


def _send(producer: Producer, topic: str, value: bytes, key: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value, key, on_delivery=_acknowledged)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _acknowledged(error: object, message: Message) -> None:
    assert error is None, error
