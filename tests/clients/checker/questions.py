"""The checker's own questions to the brokers, while all of them are up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.confluent import PATIENCE_S, consumer_of
from tests.clients.kafka_python import kafka
from tests.clients.transactions import READ_COMMITTED, log_end, stable_end
from tests.support.waiting import until, until_answered

Place = tuple[str, int]

ASKED_FOR_S = 60.0
OFFSETS = "__consumer_offsets"
OVER = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")
"""The states of a transactional id of which nothing is open."""


def committed(bootstrap: str, group: str) -> dict[Place, int]:
    """The group's committed offsets. Ask again while a transaction with offsets of the group is pending."""
    found: dict[Place, int] = {}

    def ask() -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        asked = [ConsumerGroupTopicPartitions(group)]
        answered = admin.list_consumer_group_offsets(asked, require_stable=True)[group].result(PATIENCE_S)
        found.clear()
        for each in answered.topic_partitions:
            if each.error is not None:
                raise RuntimeError(f"{each.topic}-{each.partition}: {each.error}")
            if each.offset >= 0:
                found[each.topic, each.partition] = each.offset

    until_answered(ask, f"the offsets of {group} are known", ASKED_FOR_S)
    return found


def open_transactions(bootstrap: str, places: Sequence[Place], ids: str) -> list[str]:
    """The transactional ids that begin so and of which something is open, and the partitions in which something is, of
    these and of the offsets'."""
    topics = (
        AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=PATIENCE_S).topics
    )
    asked = [*places, *((OFFSETS, index) for index in topics[OFFSETS].partitions if OFFSETS in topics)]
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    with closing(admin):
        listed = admin.list_transactions()
        described = admin.describe_producers([kafka.TopicPartition(*place) for place in asked])
    return [
        *(
            f"{each.transactional_id} is in {each.state.value}"
            for of_a_broker in listed.values()
            for each in of_a_broker
            if each.transactional_id.startswith(ids) and each.state.value not in OVER
        ),
        *(
            f"producer {each.producer_id} in {place.topic}-{place.partition}"
            f" since {each.current_transaction_start_offset}"
            for place, state in described.items()
            for each in state.active_producers
            if each.current_transaction_start_offset >= 0
        ),
    ]


def until_nothing_is_open(bootstrap: str, places: Sequence[Place], ids: str, timeout_s: float) -> None:
    """Wait until nothing is open. Raise AssertionError with the hanging transactions if that takes longer."""
    left: list[str] = []

    def is_over() -> bool:
        left[:] = open_transactions(bootstrap, places, ids)
        return not left

    try:
        until(is_over, "no transaction is open", timeout_s)
    except AssertionError as late:
        raise AssertionError(f"{late} ({'; '.join(left)})") from late
    for topic, partition in places:
        stable = stable_end(bootstrap, topic, partition=partition)
        end = log_end(bootstrap, topic, partition=partition)
        assert stable == end, f"nothing is open in {topic}-{partition}, but {stable} of {end} can be read"


def read(bootstrap: str, place: Place) -> Iterator[tuple[int, bytes]]:
    """Offset and value of each committed record in a partition."""
    config = {"isolation.level": READ_COMMITTED, "enable.partition.eof": True, "fetch.wait.max.ms": 10}
    with closing(consumer_of(bootstrap, **config)) as consumer:
        consumer.assign([TopicPartition(*place, 0)])
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"neither a record nor the end of {place} came"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return
            yield message.offset(), message.value()
