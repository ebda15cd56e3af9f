from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.confluent import CODECS, consumer_of, create_topic, read, send, stored_codecs


def delivery_error(
    bootstrap: str, topic: str, value: bytes | None, *, config: dict[str, Any], **record: Any
) -> int:
    """The error code with which the delivery of this one record ends."""
    ends: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, **config})
    producer.produce(topic, value, on_delivery=lambda error, message: ends.append(error), **record)
    assert producer.flush(30) == 0
    (error,) = ends
    return KafkaError.NO_ERROR if error is None else error.code()


def test_a_record_comes_back_with_its_key_value_headers_and_timestamp(bootstrap: str, topic: str) -> None:
    headers = [("first", b"1"), ("first", b"again"), ("empty", b""), ("null", None)]
    send(bootstrap, topic, [{"key": b"k", "value": b"v", "headers": headers, "timestamp": 1_700_000_000_123}])

    (message,) = read(bootstrap, topic, 1)

    assert (message.key(), message.value(), message.offset()) == (b"k", b"v", 0)
    assert message.headers() == headers
    assert message.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_700_000_000_123)
    assert message.leader_epoch() == 0


def test_null_and_empty_keys_and_values_are_kept_apart(bootstrap: str, topic: str) -> None:
    pairs = [(None, None), (b"", None), (None, b""), (b"", b""), (b"k", None), (None, b"v")]
    send(bootstrap, topic, [{"key": key, "value": value} for key, value in pairs])

    assert [(m.key(), m.value()) for m in read(bootstrap, topic, len(pairs))] == pairs


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_in_order_with_acks(bootstrap: str, topic: str, acks: str) -> None:
    values = [b"%d" % number for number in range(2_000)]
    create_topic(bootstrap, topic)
    send(bootstrap, topic, [{"value": value} for value in values], acks=acks)

    messages = read(bootstrap, topic, len(values))

    assert [m.value() for m in messages] == values
    assert [m.offset() for m in messages] == list(range(len(values)))


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_records_come_back(bootstrap: str, topic: str, codec: str) -> None:
    values = [b"%d " % number * 50 for number in range(1_000)]
    config = {"compression.type": codec, "linger.ms": 50}
    send(bootstrap, topic, [{"key": value[:3], "value": value} for value in values], **config)

    messages = read(bootstrap, topic, len(values))

    assert [(m.key(), m.value()) for m in messages] == [(value[:3], value) for value in values]
    assert stored_codecs(bootstrap, topic) == {codec}


def test_an_idempotent_producer_keeps_order_over_many_batches_in_flight(bootstrap: str, topic: str) -> None:
    values = [b"%d" % number for number in range(3_000)]
    config = {"enable.idempotence": True, "batch.num.messages": 7, "linger.ms": 0}
    send(bootstrap, topic, [{"value": value} for value in values], **config)

    assert [m.value() for m in read(bootstrap, topic, len(values))] == values


def test_two_idempotent_producers_write_to_one_partition(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    producers = [Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True}) for _ in range(2)]
    for number in range(200):
        producers[number % 2].produce(topic, b"%d" % number, key=b"%d" % (number % 2))
    for producer in producers:
        assert producer.flush(30) == 0

    messages = read(bootstrap, topic, 200)

    for which in range(2):
        own = [int(m.value()) for m in messages if m.key() == b"%d" % which]
        assert own == list(range(which, 200, 2))


def test_a_record_of_a_million_bytes_comes_back(bootstrap: str, topic: str) -> None:
    value = bytes(range(256)) * 3907
    send(bootstrap, topic, [{"value": value}], **{"message.max.bytes": 2_000_000})

    (message,) = read(bootstrap, topic, 1)

    assert message.value() == value


def test_a_record_larger_than_the_fetch_size_comes_back(bootstrap: str, topic: str) -> None:
    values = [b"a" * 50_000, b"b" * 50_000]
    send(bootstrap, topic, [{"value": value} for value in values], **{"batch.num.messages": 1})
    small = {"fetch.message.max.bytes": 1_000, "fetch.max.bytes": 1_000, "message.max.bytes": 1_000}

    assert [m.value() for m in read(bootstrap, topic, 2, **small)] == values


def test_a_record_larger_than_the_broker_takes_is_refused(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    config = {"message.max.bytes": 5_000_000}

    assert delivery_error(bootstrap, topic, b"x" * 1_048_600, config=config) == KafkaError.MSG_SIZE_TOO_LARGE


def test_the_compressed_size_counts_against_the_limit(bootstrap: str, topic: str) -> None:
    value = b"x" * 1_048_600
    config = {"message.max.bytes": 5_000_000, "compression.type": "gzip"}
    send(bootstrap, topic, [{"value": value}], **config)

    (message,) = read(bootstrap, topic, 1, **{"message.max.bytes": 5_000_000})

    assert message.value() == value


def test_a_record_from_the_far_future_is_refused(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    in_year_2286_ms = 10_000_000_000_000

    error = delivery_error(bootstrap, topic, b"v", config={}, timestamp=in_year_2286_ms)

    assert error == KafkaError.INVALID_TIMESTAMP


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, config={"cleanup.policy": "compact"})

    assert delivery_error(bootstrap, topic, b"v", config={}) == KafkaError.INVALID_RECORD
    assert delivery_error(bootstrap, topic, b"v", config={}, key=b"k") == KafkaError.NO_ERROR


def test_log_append_time_is_the_brokers(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, config={"message.timestamp.type": "LogAppendTime"})
    send(bootstrap, topic, [{"value": b"v", "timestamp": 1_000}])

    (message,) = read(bootstrap, topic, 1)

    kind, timestamp_ms = message.timestamp()
    assert kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
    assert timestamp_ms > 1_700_000_000_000


def test_offsets_are_found_by_timestamp(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [{"value": b"v", "timestamp": ms} for ms in (1_000, 2_000, 3_000)])
    consumer = consumer_of(bootstrap)

    def offset_at(timestamp_ms: int) -> int:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=30)
        return found.offset

    assert [offset_at(ms) for ms in (0, 1_000, 1_001, 3_000)] == [0, 0, 1, 2]
    assert offset_at(3_001) == confluent_kafka.OFFSET_END
    consumer.close()


def test_the_watermarks_are_the_first_and_the_next_offset(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [{"value": b"v"}] * 5)
    consumer = consumer_of(bootstrap)

    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (0, 5)
    consumer.close()


def test_reading_starts_in_the_middle_of_a_batch(bootstrap: str, topic: str) -> None:
    values = [b"%d" % number for number in range(100)]
    send(bootstrap, topic, [{"value": value} for value in values], **{"linger.ms": 100})

    messages = read(bootstrap, topic, 42, offset=58)

    assert [m.value() for m in messages] == values[58:]


def test_reading_from_the_beginning_asks_for_the_first_offset(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [{"value": b"first"}, {"value": b"second"}])

    messages = read(bootstrap, topic, 2, offset=OFFSET_BEGINNING)

    assert [m.value() for m in messages] == [b"first", b"second"]


def test_an_offset_past_the_end_is_reset_as_the_consumer_asked(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [{"value": b"first"}])

    (message,) = read(bootstrap, topic, 1, offset=1_000, **{"auto.offset.reset": "earliest"})

    assert message.value() == b"first"


def test_a_consumer_that_waits_gets_a_record_as_soon_as_it_is_written(bootstrap: str, topic: str) -> None:
    send(bootstrap, topic, [{"value": b"first"}])
    patience = {"fetch.wait.max.ms": 60_000, "fetch.min.bytes": 1, "socket.timeout.ms": 90_000}
    consumer = consumer_of(bootstrap, **patience)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert polled(consumer).value() == b"first"

    send(bootstrap, topic, [{"value": b"second"}])

    assert polled(consumer).value() == b"second"
    consumer.close()


def polled(consumer: Consumer) -> Message:
    message = consumer.poll(20)
    assert message is not None, "nothing came, though the broker had something"
    assert message.error() is None
    return message


def test_the_first_record_creates_its_topic(bootstrap: str, topic: str) -> None:
    assert topic not in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics

    send(bootstrap, topic, [{"value": b"v"}])

    described = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics[topic]
    assert list(described.partitions) == [0]


def test_a_consumer_creates_no_topic_unless_it_asks_to(bootstrap: str, topic: str) -> None:
    consumer = consumer_of(bootstrap, **{"allow.auto.create.topics": False})
    answer = consumer.list_topics(topic, timeout=30).topics[topic]
    assert answer.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART

    assert topic not in consumer.list_topics(timeout=30).topics
    consumer.close()


def test_the_key_chooses_the_partition(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=3)
    keys = [b"%d" % (number % 10) for number in range(300)]
    delivered = send(bootstrap, topic, [{"key": key, "value": b"v"} for key in keys])

    partitions_of: dict[bytes, set[int]] = {}
    for message in delivered:
        partitions_of.setdefault(message.key(), set()).add(message.partition())

    assert all(len(partitions) == 1 for partitions in partitions_of.values())
    assert set.union(*partitions_of.values()) == {0, 1, 2}


def test_partitions_count_their_offsets_each_for_itself(bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=4)
    send(bootstrap, topic, [{"value": b"%d" % n, "partition": n % 4} for n in range(40)])

    for partition in range(4):
        messages = read(bootstrap, topic, 10, partition=partition)
        assert [int(m.value()) for m in messages] == list(range(partition, 40, 4))
        assert [m.offset() for m in messages] == list(range(10))
