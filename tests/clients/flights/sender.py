"""confluent-kafka's idempotent producer, whose broker is killed while it sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.flights.data import Flight

PATIENCE_S = 120.0

# The records of a topic as they must be read back: for each partition, in order.
Expected = list[list[Flight]]


def create_topic(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE_S)


def send(
    bootstrap: str,
    topic: str,
    flights: Sequence[Flight],
    codec: str,
    partitions: int,
    *,
    half_way: Callable[[], None] = lambda: None,
) -> Expected:
    """Send the flights to the topic; what each of its partitions must hold of them, in order.

    half_way: called in the midst of it, when some records are acknowledged and others are under way; it
        may kill the broker and start it.
    AssertionError where a record isn't acknowledged, or one key goes to two partitions.
    """
    partition_of: dict[bytes, int] = {}

    def on_delivery(error: object, message: Message) -> None:
        assert error is None, error
        key, partition = message.key(), message.partition()
        assert partition_of.setdefault(key, partition) == partition, f"{key!r} went to two partitions"

    config = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "compression.type": codec,
        "linger.ms": 5,
        "queue.buffering.max.messages": 100_000,
        # Back as soon as the broker is: by itself it would forget it and start over, a second later.
        "metadata.recovery.strategy": "none",
        "reconnect.backoff.max.ms": 100,
        # The kill is meant: no need to say that the broker is away.
        "log_level": 0,
    }
    producer = Producer(config)
    for number, (key, value) in enumerate(flights):
        if number == len(flights) // 2:
            while not partition_of:
                producer.poll(0.1)
        if number == len(flights) // 2 + 100:
            half_way()
        _produce(producer, topic, key, value, on_delivery)
    assert producer.flush(PATIENCE_S) == 0, "not every record was acknowledged"

    expected: Expected = [[] for _ in range(partitions)]
    for flight in flights:
        expected[partition_of[flight[0]]].append(flight)
    return expected


def _produce(
    producer: Producer, topic: str, key: bytes, value: bytes, on_delivery: Callable[[object, Message], None]
) -> None:
    while True:
        try:
            producer.produce(topic, value, key, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return
