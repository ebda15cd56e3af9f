"""A topic that Kafka deleted and made anew is history to whoever starts on its folder: offsets that were committed in a
transaction since, which have no topic id, stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.nodes import Turns
from tests.support.requirements import need_apache_kafka
from tests.support.waiting import until, until_answered

TOPIC, GROUP, OFFSET = "again", "g", 9
WITHIN_S = 60


@pytest.mark.timeout(600)
@pytest.mark.parametrize("end", [Turns.stop, Turns.kill], ids=["stopped", "killed"])
def test_offsets_of_a_transaction_at_kafka_outlive_starts_of_both_though_their_topic_was_deleted_before(
    tmp_path: Path, end: Callable[[Turns], None]
) -> None:
    need_apache_kafka()
    with Turns(tmp_path, {"offsets.topic.num.partitions": "1"}) as turns:
        turns.start("kafka")
        admin = AdminClient({"bootstrap.servers": turns.bootstrap})
        create(admin)
        admin.delete_topics([TOPIC])[TOPIC].result(WITHIN_S)
        until(lambda: TOPIC not in admin.list_topics(timeout=WITHIN_S).topics, "the topic has gone")
        create(admin)
        commit(turns.bootstrap)
        for who in ("barnabas", "kafka", "barnabas"):
            end(turns)
            turns.start(who)
            if who == "kafka":  # which may say NOT_COORDINATOR for a moment, on which librdkafka gives up
                until_answered(lambda: committed(turns.bootstrap), "Kafka's coordinator is there")
            assert committed(turns.bootstrap) == OFFSET


def create(admin: AdminClient) -> None:
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(WITHIN_S)


def commit(bootstrap: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    position = [TopicPartition(TOPIC, 0, OFFSET)]
    producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), WITHIN_S)
    producer.commit_transaction(WITHIN_S)
    consumer.close()


def committed(bootstrap: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        [found] = consumer.committed([TopicPartition(TOPIC, 0)], WITHIN_S)
        return int(found.offset)
    finally:
        consumer.close()
