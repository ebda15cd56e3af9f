"""Transactions with confluent-kafka, whose librdkafka speaks the protocol's first version of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.clients.confluent import PATIENCE_S, consumer_of, create_topic, read, send
from tests.clients.transaction_readers import READERS, with_confluent_kafka
from tests.clients.transactions import (
    ISOLATION_LEVELS,
    LAST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    VISIBLE,
    log_end,
    new_producer,
    send_now,
    stable_end,
    transaction_is_over,
    write_history,
    written_by,
)
from tests.support.waiting import until

# librdkafka takes nothing shorter.
SHORTEST_TIMEOUT_MS = 1_000


def values(bootstrap: str, topic: str, isolation_level: str = READ_COMMITTED) -> list[str]:
    """What a reader sees of the topic, up to a LAST that is added behind it."""
    send(bootstrap, topic, [{"value": LAST, "partition": 0}])
    return with_confluent_kafka(bootstrap, topic, isolation_level)[:-1]


@contextlib.contextmanager
def surfaces(code: int) -> Iterator[KafkaError]:
    with pytest.raises(KafkaException) as raised:
        yield
    assert raised.value.args[0].code() == code, raised.value


def test_committed_records_are_read_and_aborted_ones_are_not(transactional: str, topic: str) -> None:
    create_topic(transactional, topic)
    producer = new_producer(transactional, topic)
    for value in ("committed", "aborted", "committed again"):
        producer.begin_transaction()
        send_now(producer, topic, value)
        if value == "aborted":
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)

    assert values(transactional, topic) == ["committed", "committed again"]


def test_a_transaction_covers_all_its_partitions(transactional: str, topic: str) -> None:
    create_topic(transactional, topic, partitions=3)
    create_topic(transactional, f"{topic}-other")
    producer = new_producer(transactional, topic)
    for ends_with in ("abort", "commit"):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, ends_with, partition=partition)
        producer.produce(f"{topic}-other", ends_with, partition=0)
        if ends_with == "abort":
            producer.flush(PATIENCE_S)  # else it would be purged, unsent
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)

    for name, partition in ((topic, 0), (topic, 1), (topic, 2), (f"{topic}-other", 0)):
        (message,) = read(transactional, name, 1, partition=partition, **{"isolation.level": READ_COMMITTED})
        assert (message.value(), message.offset()) == (b"commit", 2)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("isolation_level", ISOLATION_LEVELS)
def test_each_reader_sees_its_part_of_overlapping_transactions(
    transactional: str, written: str, reader: str, isolation_level: str
) -> None:
    assert READERS[reader](transactional, written, isolation_level) == VISIBLE[isolation_level]


@pytest.fixture(scope="module")
def written(transactional: str) -> str:
    """A topic with HISTORY in it."""
    topic = written_by("confluent-kafka")
    write_history(transactional, topic)
    return topic


def test_a_waiting_reader_gets_the_records_once_they_are_committed(transactional: str, topic: str) -> None:
    create_topic(transactional, topic)
    producer = new_producer(transactional, topic)
    producer.begin_transaction()
    send_now(producer, topic, "open")
    with (
        closing(consumer_of(transactional, **{"isolation.level": READ_UNCOMMITTED})) as eager,
        closing(
            # A fetch that waits longer than the test: only the commit can wake it.
            consumer_of(transactional, **{"isolation.level": READ_COMMITTED, "fetch.wait.max.ms": 60_000})
        ) as patient,
    ):
        for consumer in (eager, patient):
            consumer.assign([TopicPartition(topic, 0, 0)])
        assert eager.poll(PATIENCE_S).value() == b"open"
        assert patient.poll(0.1) is None
        assert (stable_end(transactional, topic), log_end(transactional, topic)) == (0, 1)

        producer.commit_transaction(PATIENCE_S)

        assert patient.poll(PATIENCE_S).value() == b"open"
        assert stable_end(transactional, topic) == 2


def test_a_second_instance_aborts_the_firsts_transaction_and_fences_it(
    transactional: str, topic: str
) -> None:
    create_topic(transactional, topic)
    first = new_producer(transactional, topic)
    first.begin_transaction()
    send_now(first, topic, "of the first")

    second = new_producer(transactional, topic)
    assert stable_end(transactional, topic) == 2
    second.begin_transaction()
    send_now(second, topic, "of the second")

    with surfaces(KafkaError._FENCED):
        first.commit_transaction(PATIENCE_S)
    second.commit_transaction(PATIENCE_S)
    assert values(transactional, topic) == ["of the second"]


def test_a_fenced_producer_can_not_send(transactional: str, topic: str) -> None:
    create_topic(transactional, topic)
    first = new_producer(transactional, topic)
    new_producer(transactional, topic)
    first.begin_transaction()
    first.produce(topic, "too late")

    with surfaces(KafkaError._FENCED):
        first.commit_transaction(PATIENCE_S)

    assert values(transactional, topic, READ_UNCOMMITTED) == []


def test_a_transaction_that_takes_too_long_is_aborted(transactional: str, topic: str) -> None:
    create_topic(transactional, topic)
    producer = new_producer(transactional, topic, **{"transaction.timeout.ms": SHORTEST_TIMEOUT_MS})
    producer.begin_transaction()
    send_now(producer, topic, "too slow")

    until(transaction_is_over(transactional, topic), "the transaction is aborted")

    with surfaces(KafkaError._FENCED):
        producer.commit_transaction(PATIENCE_S)
    again = new_producer(transactional, topic)
    again.begin_transaction()
    send_now(again, topic, "quick enough")
    again.commit_transaction(PATIENCE_S)
    assert values(transactional, topic) == ["quick enough"]


def test_a_timeout_longer_than_the_broker_allows_is_refused(transactional: str, topic: str) -> None:
    with surfaces(KafkaError.INVALID_TRANSACTION_TIMEOUT):
        new_producer(transactional, topic, **{"transaction.timeout.ms": 900_001})


def test_a_producer_without_records_commits_and_aborts(transactional: str, topic: str) -> None:
    producer = new_producer(transactional, topic)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        end(PATIENCE_S)


def test_many_transactions_in_a_row_are_all_there(transactional: str, topic: str) -> None:
    create_topic(transactional, topic)
    producer = new_producer(transactional, topic)
    for number in range(100):
        producer.begin_transaction()
        producer.produce(topic, str(number), partition=0)
        producer.commit_transaction(PATIENCE_S)

    messages = read(transactional, topic, 100, **{"isolation.level": READ_COMMITTED})

    assert [message.value() for message in messages] == [b"%d" % number for number in range(100)]
    assert [message.offset() for message in messages] == [2 * number for number in range(100)]


# --- offsets in transactions --------------------------------------------------------------------------------


@pytest.fixture
def member(transactional: str, topic: str) -> Iterator[Consumer]:
    """A member of the test's group, that has read the two records of the test's topic."""
    create_topic(transactional, topic)
    send(transactional, topic, [{"value": value, "partition": 0} for value in ("in 0", "in 1")])
    consumer = Consumer(
        {
            "bootstrap.servers": transactional,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": READ_COMMITTED,
        }
    )
    consumer.subscribe([topic])
    for value in (b"in 0", b"in 1"):
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.value() == value
    yield consumer
    consumer.close()


def committed(consumer: Consumer, topic: str) -> int | None:
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
    assert found.error is None
    return found.offset if found.offset >= 0 else None


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    transactional: str, topic: str, member: Consumer
) -> None:
    output = f"{topic}-output"
    create_topic(transactional, output)
    producer = new_producer(transactional, topic)
    for end in (producer.abort_transaction, producer.commit_transaction):
        assert committed(member, topic) is None
        producer.begin_transaction()
        send_now(producer, output, "out")
        producer.send_offsets_to_transaction(
            member.position([TopicPartition(topic, 0)]), member.consumer_group_metadata(), PATIENCE_S
        )
        end(PATIENCE_S)

    assert committed(member, topic) == 2
    assert values(transactional, output) == ["out"]


def test_a_consumer_that_left_its_group_can_not_commit_in_a_transaction(
    transactional: str, topic: str, member: Consumer
) -> None:
    producer = new_producer(transactional, topic)
    metadata, positions = member.consumer_group_metadata(), member.position([TopicPartition(topic, 0)])
    member.close()
    producer.begin_transaction()

    with pytest.raises(KafkaException) as raised:
        producer.send_offsets_to_transaction(positions, metadata, PATIENCE_S)

    assert raised.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    assert raised.value.args[0].txn_requires_abort()
    producer.abort_transaction(PATIENCE_S)
    with closing(consumer_of(transactional, **{"group.id": topic})) as other:
        assert committed(other, topic) is None
