"""Transactions with kafka-python, in the protocol's first version of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from tests.clients.confluent import create_topic, send
from tests.clients.kafka_python import kafka
from tests.clients.transaction_readers import READERS, with_kafka_python
from tests.clients.transactions import (
    HISTORY,
    ISOLATION_LEVELS,
    LAST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    VISIBLE,
    log_end,
    stable_end,
    transaction_is_over,
    written_by,
)
from tests.support.waiting import until

PATIENCE_S = 240.0

NewProducer = Callable[..., Any]


@pytest.fixture
def new_producer(transactional: str, topic: str) -> Iterator[NewProducer]:
    """Makes a producer, whose transactional id is the topic's name, that is ready to begin a transaction."""
    with ExitStack() as open_ones:

        def new(**config: Any) -> Any:
            producer = kafka.KafkaProducer(
                bootstrap_servers=transactional,
                **{"transactional_id": topic, "retry_backoff_ms": 20, **config},
            )
            open_ones.callback(producer.close, timeout=0)
            producer.init_transactions()
            return producer

        yield new


def send_now(producer: Any, topic: str, value: str, partition: int = 0) -> None:
    producer.send(topic, value.encode(), partition=partition).get(PATIENCE_S)


def values(bootstrap: str, topic: str, isolation_level: str = READ_COMMITTED) -> list[str]:
    """What a reader sees of the topic, up to a LAST that is added behind it."""
    send(bootstrap, topic, [{"value": LAST, "partition": 0}])
    return with_kafka_python(bootstrap, topic, isolation_level)[:-1]


def test_committed_records_are_read_and_aborted_ones_are_not(
    transactional: str, topic: str, new_producer: NewProducer
) -> None:
    create_topic(transactional, topic)
    producer = new_producer()
    for value in ("committed", "aborted", "committed again"):
        producer.begin_transaction()
        send_now(producer, topic, value)
        if value == "aborted":
            producer.abort_transaction()
        else:
            producer.commit_transaction()

    assert values(transactional, topic) == ["committed", "committed again"]


def test_a_commit_sends_unsent_records_first(
    transactional: str, topic: str, new_producer: NewProducer
) -> None:
    create_topic(transactional, topic)
    producer = new_producer(linger_ms=60_000)
    producer.begin_transaction()
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=0)
    producer.commit_transaction()

    assert values(transactional, topic) == [str(number) for number in range(10)]


@pytest.fixture(scope="module")
def written(transactional: str) -> str:
    """A topic with HISTORY in it."""
    topic = written_by("kafka-python")
    create_topic(transactional, topic)
    with ExitStack() as open_ones:
        producers: dict[str, Any] = {}
        for name in ("one", "two"):
            producers[name] = open_ones.enter_context(
                closing(
                    kafka.KafkaProducer(bootstrap_servers=transactional, transactional_id=f"{topic}-{name}")
                )
            )
            producers[name].init_transactions()
        for name, verb, value in HISTORY:
            producer = producers[name]
            match verb:
                case "begin":
                    producer.begin_transaction()
                case "send":
                    send_now(producer, topic, value)
                case "commit":
                    producer.commit_transaction()
                case "abort":
                    producer.abort_transaction()
    return topic


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
def test_each_reader_sees_its_part_of_overlapping_transactions(
    transactional: str, written: str, reader: str, isolation_level: str
) -> None:
    assert READERS[reader](transactional, written, isolation_level) == VISIBLE[isolation_level]


def test_a_waiting_reader_gets_the_records_once_they_are_committed(
    transactional: str, topic: str, new_producer: NewProducer
) -> None:
    create_topic(transactional, topic)
    producer = new_producer()
    producer.begin_transaction()
    send_now(producer, topic, "open")
    partition = kafka.TopicPartition(topic, 0)

    def consumer_of(isolation_level: str) -> Any:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=transactional, isolation_level=isolation_level, fetch_max_wait_ms=20_000
        )
        consumer.assign([partition])
        consumer.seek(partition, 0)
        return closing(consumer)

    with consumer_of(READ_UNCOMMITTED) as eager, consumer_of(READ_COMMITTED) as patient:
        (record,) = eager.poll(timeout_ms=10_000)[partition]
        assert record.value == b"open"
        assert patient.poll(timeout_ms=100) == {}
        assert stable_end(transactional, topic) == 0

        producer.commit_transaction()

        (record,) = patient.poll(timeout_ms=10_000)[partition]
        assert record.value == b"open"
        assert stable_end(transactional, topic) == 2


def test_a_second_instance_aborts_the_firsts_transaction_and_fences_it(
    transactional: str, topic: str, new_producer: NewProducer
) -> None:
    create_topic(transactional, topic)
    first = new_producer()
    first.begin_transaction()
    send_now(first, topic, "of the first")

    second = new_producer()
    assert stable_end(transactional, topic) == 2
    second.begin_transaction()
    send_now(second, topic, "of the second")

    with pytest.raises(kafka.errors.ProducerFencedError):
        first.commit_transaction()
    second.commit_transaction()
    assert values(transactional, topic) == ["of the second"]


def test_a_fenced_producer_can_not_send(transactional: str, topic: str, new_producer: NewProducer) -> None:
    create_topic(transactional, topic)
    first = new_producer()
    new_producer()
    first.begin_transaction()

    with pytest.raises(kafka.errors.ProducerFencedError):
        send_now(first, topic, "too late")

    assert log_end(transactional, topic) == 0


def test_a_transaction_that_takes_too_long_is_aborted(
    transactional: str, topic: str, new_producer: NewProducer
) -> None:
    create_topic(transactional, topic)
    producer = new_producer(transaction_timeout_ms=500)
    producer.begin_transaction()
    send_now(producer, topic, "too slow")

    until(transaction_is_over(transactional, topic), "the transaction is aborted")

    with pytest.raises(kafka.errors.ProducerFencedError):
        producer.commit_transaction()
    again = new_producer()
    again.begin_transaction()
    send_now(again, topic, "quick enough")
    again.commit_transaction()
    assert values(transactional, topic) == ["quick enough"]


def test_a_timeout_longer_than_the_broker_allows_is_refused(new_producer: NewProducer) -> None:
    with pytest.raises(kafka.errors.KafkaError, match="InvalidTransactionTimeoutError"):
        new_producer(transaction_timeout_ms=900_001)


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    transactional: str, topic: str, new_producer: NewProducer
) -> None:
    create_topic(transactional, topic)
    create_topic(transactional, f"{topic}-output")
    send(transactional, topic, [{"value": value, "partition": 0} for value in ("in 0", "in 1")])
    partition = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=transactional,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=READ_COMMITTED,
    )
    with closing(consumer):
        read = 0
        while read < 2:
            read += sum(map(len, consumer.poll(timeout_ms=1_000).values()))
        offsets = {partition: kafka.OffsetAndMetadata(2, "of a transaction", -1)}
        producer = new_producer()
        for end in (producer.abort_transaction, producer.commit_transaction):
            assert consumer.committed(partition) is None
            producer.begin_transaction()
            send_now(producer, f"{topic}-output", "out")
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            end()

        # Kafka answers a commit before its marker has reached the group's coordinator.
        until(lambda: consumer.committed(partition) == 2, "the offset is committed")
    assert values(transactional, f"{topic}-output") == ["out"]
