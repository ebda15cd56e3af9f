"""Groups and their offsets as barnabas and Apache Kafka take turns on one folder: each finds the other's records."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.nodes import LIVING_CLIENTS, Turns
from tests.support.requirements import need_apache_kafka
from tests.support.waiting import until_answered

PATIENCE_S = 240.0
TURNS = (
    ("barnabas", Turns.stop),
    ("kafka", Turns.stop),
    ("barnabas", Turns.kill),
    ("kafka", Turns.kill),
    ("barnabas", Turns.stop),
)


class Member:
    """A consumer that outlives the brokers, the values it reads and the number of its assignments."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        self.assignments = 0
        self.values: list[bytes] = []
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": "the-group",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
        }
        if protocol == "classic":
            config["heartbeat.interval.ms"] = 500
        self.consumer = Consumer(config)
        self.consumer.subscribe(["t"], on_assign=self._assigned)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments += 1

    def read(self, value: bytes) -> None:
        """Read on until this value has come."""
        deadline_s = time.monotonic() + PATIENCE_S
        while value not in self.values:
            assert time.monotonic() < deadline_s, f"{value!r} never came"
            message = self.consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.values.append(message.value() or b"")


@pytest.mark.timeout(600)
@pytest.mark.one_run_in(2)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_goes_on_over_every_change_of_brokers(protocol: str, tmp_path: Path) -> None:
    need_apache_kafka()
    with Turns(tmp_path, LIVING_CLIENTS) as turns:
        turns.start(TURNS[0][0])
        AdminClient({"bootstrap.servers": turns.bootstrap}).create_topics([NewTopic("t", 1, 1)])
        producer = Producer({"bootstrap.servers": turns.bootstrap, "reconnect.backoff.max.ms": 200})
        member = Member(turns.bootstrap, protocol)
        for number, (who, end) in enumerate(TURNS):
            if number:
                turns.start(who)
            producer.produce("t", b"%d" % number)
            assert producer.flush(PATIENCE_S) == 0
            member.read(b"%d" % number)
            until_answered(
                lambda: member.consumer.commit(asynchronous=False), f"a commit with {who}", PATIENCE_S
            )
            until_answered(
                lambda number=number: check(turns.bootstrap, number, protocol),
                f"the group with {who}",
                PATIENCE_S,
            )
            if number == len(TURNS) - 1:
                member.consumer.close()
            end(turns)

        assert member.values == [b"%d" % number for number in range(len(TURNS))]
        assert member.assignments == 1, "nobody ever had to join again"


def check(bootstrap: str, number: int, protocol: str) -> None:
    """Check each broker's description of the group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("the-group")])
    (committed,) = offsets["the-group"].result(5).topic_partitions
    assert (committed.topic, committed.partition, committed.offset) == ("t", 0, number + 1)
    described = admin.describe_consumer_groups(["the-group"])["the-group"].result(5)
    assert described.state.name == "STABLE"
    assert described.type.name == protocol.upper()
    assert described.partition_assignor == ("range" if protocol == "classic" else "uniform")
    assert len(described.members) == 1
