"""Share groups as barnabas and Kafka take turns on one folder: each continues with the other's states and counts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from protocol.errors import Error
from protocol.messages.groups_share import ShareGroupHeartbeatRequest
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from tests.interop.nodes import Turns
from tests.support.requirements import need_apache_kafka
from tests.support.wire import Client

PATIENCE_S = 240.0
TURNS = (
    ("barnabas", Turns.stop),
    ("kafka", Turns.kill),
    ("barnabas", Turns.kill),
    ("kafka", Turns.stop),
    ("barnabas", Turns.stop),
)
SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "3",
}
GROUP = "the-group"
MEMBER = "a" * 22
PER_TURN = 6
LIMIT = 4
"""So often a record is delivered (`share.delivery.count.limit`)."""
ACCEPT, RELEASE, REJECT, HELD = 1, 2, 3, 0
ANSWERS = (ACCEPT, RELEASE, REJECT, HELD, RELEASE, ACCEPT)
"""To the records of a turn, by their place. Who held some when the broker ended has nothing to show for it."""


@pytest.mark.timeout(600)
def test_each_broker_continues_with_the_others_deliveries(tmp_path: Path) -> None:
    need_apache_kafka()
    with Turns(tmp_path, SETTINGS) as turns:
        expected: dict[int, int] = {}
        for number, (who, end) in enumerate(TURNS):
            turns.start(who)
            if not number:
                topic_id = _make(turns.bootstrap)
            _send(turns.bootstrap)
            with Client.of(turns.bootstrap) as client:
                _await_assignment(client)
                expected |= {number * PER_TURN + place: 1 for place in range(PER_TURN)}
                reader = _Reader(client, topic_id)
                found = reader.acquire(len(expected))
                assert found == expected, f"turn {number}, of {who}"
                reader.acknowledge(found)
                expected = {
                    offset: count + (_answer(offset) == RELEASE)
                    for offset, count in found.items()
                    if _answer(offset) == HELD or (_answer(offset) == RELEASE and count < LIMIT)
                }
                end(turns)


def _answer(offset: int) -> int:
    return ANSWERS[offset % PER_TURN]


class _Reader:
    """A share session of one member."""

    def __init__(self, client: Client, topic_id: bytes) -> None:
        self._client = client
        self._topic_id = topic_id
        self._epoch = 0

    def acquire(self, count: int) -> dict[int, int]:
        """Acquire this many records, each with its delivery count, and acknowledge none of them."""
        found: dict[int, int] = {}
        deadline_s = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < deadline_s:
            topics = []
            if not self._epoch:
                topics = [FetchTopic(topic_id=self._topic_id, partitions=[FetchPartition(partition_index=0)])]
            request = ShareFetchRequest(
                group_id=GROUP,
                member_id=MEMBER,
                share_session_epoch=self._epoch,
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1_000_000,
                max_records=500,
                batch_size=500,
                topics=topics,
            )
            answer = self._client.ask(request, 2)
            assert answer.error_code == Error.NONE, answer
            self._epoch += 1
            for topic in answer.responses:
                for each in topic.partitions:
                    assert each.error_code in (Error.NONE, Error.NOT_LEADER_OR_FOLLOWER), each
                    for acquired in each.acquired_records:
                        for offset in range(acquired.first_offset, acquired.last_offset + 1):
                            assert offset not in found, f"{offset} came twice"
                            found[offset] = acquired.delivery_count
        return found

    def acknowledge(self, found: dict[int, int]) -> None:
        batches = [
            AcknowledgementBatch(first_offset=offset, last_offset=offset, acknowledge_types=[_answer(offset)])
            for offset in sorted(found)
            if _answer(offset) != HELD
        ]
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=MEMBER,
            share_session_epoch=self._epoch,
            topics=[AcknowledgeTopic(topic_id=self._topic_id, partitions=[partition])],
        )
        answer = self._client.ask(request, 2)
        ((of_partition,),) = ([each.partitions for each in answer.responses],)
        assert (answer.error_code, of_partition[0].error_code) == (Error.NONE, Error.NONE), answer


def _await_assignment(client: Client) -> None:
    """The group has its coordinator, and the topic's partition to give."""
    client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 6)
    deadline_s = time.monotonic() + PATIENCE_S
    names, epoch = ["t"], 0
    while time.monotonic() < deadline_s:
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=names
        )
        answer = client.ask(request, 1)
        assigned = answer.assignment
        if answer.error_code == Error.NONE:
            epoch = answer.member_epoch
            if assigned is not None and assigned.topic_partitions:
                return
        time.sleep(0.05)
    raise AssertionError(f"nothing was assigned: {answer}")


def _make(bootstrap: str) -> bytes:
    """Create the topic and the group's settings. Return the topic's id."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(PATIENCE_S)
    settings = {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": str(LIMIT)}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    topic_id = admin.describe_topics(TopicCollection(["t"]))["t"].result(PATIENCE_S).topic_id
    return topic_id.get_most_significant_bits().to_bytes(8, "big", signed=True) + (
        topic_id.get_least_significant_bits().to_bytes(8, "big", signed=True)
    )


def _send(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100})
    for _ in range(PER_TURN):
        producer.produce("t", b"x")
    assert producer.flush(PATIENCE_S) == 0
