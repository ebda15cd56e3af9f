"""Consumer groups with confluent-kafka, in the classic protocol."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

import barnabas
from tests.clients.confluent import PATIENCE_S, create_topic, send

POLL_S = 0.05


class Member:
    """A consumer in a group, and the partitions that it was assigned and lost over time."""

    def __init__(self, bootstrap: str, group: str, topic: str, **config: Any) -> None:
        self.assignments: list[set[int]] = []
        self.revocations: list[set[int]] = []
        self.values: list[bytes] = []
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "heartbeat.interval.ms": 100,
            # What is asked again after a rebalance begun shouldn't wait for the usual half a second.
            "reconnect.backoff.ms": 10,
            **config,
        }
        self.consumer = Consumer({name: value for name, value in config.items() if value is not None})
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assignments.append({each.partition for each in partitions})

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.revocations.append({each.partition for each in partitions})

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def poll(self) -> None:
        message = self.consumer.poll(POLL_S)
        if message is not None:
            assert message.error() is None, message.error()
            self.values.append(message.value())

    def close(self) -> None:
        self.consumer.close()


Join = Callable[..., Member]


@pytest.fixture
def join(bootstrap: str, topic: str) -> Iterator[Join]:
    """Puts a member into the test's group, whose name is the topic's: `join(**config)`."""
    with members_of(bootstrap, topic) as found:
        yield found


@contextlib.contextmanager
def members_of(bootstrap: str, topic: str) -> Iterator[Join]:
    members: list[Member] = []

    def join(**config: Any) -> Member:
        members.append(Member(bootstrap, topic, topic, **config))
        return members[-1]

    yield join
    for member in members:
        member.close()


def poll_until(what: str, holds: Callable[[], object], *members: Member) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, f"still not: {what}"
        for member in members:
            member.poll()


def filled(bootstrap: str, topic: str, partitions: int = 2, count: int = 10) -> set[bytes]:
    """Fill a new topic with `count` records in each partition. Return their values."""
    create_topic(bootstrap, topic, partitions=partitions)
    records = [
        {"value": f"{index}-{number}", "partition": index}
        for index in range(partitions)
        for number in range(count)
    ]
    send(bootstrap, topic, records)
    return {str(record["value"]).encode() for record in records}


def committed(member: Member, topic: str, partition: int = 0) -> int:
    while True:
        try:
            (found,) = member.consumer.committed([TopicPartition(topic, partition)], timeout=PATIENCE_S)
            break
        except KafkaException as error:
            # librdkafka gives a request up by its own short time while it connects anew
            if error.args[0].code() != KafkaError._TIMED_OUT_QUEUE:
                raise
    assert found.error is None
    return int(found.offset)


def test_a_group_reads_everything_and_goes_on_where_it_stopped(
    bootstrap: str, topic: str, join: Join
) -> None:
    values = filled(bootstrap, topic)
    first = join()
    poll_until("everything is read", lambda: len(first.values) == len(values), first)
    assert {*first.values} == values
    first.consumer.commit(asynchronous=False)
    first.close()
    send(bootstrap, topic, [{"value": "later", "partition": 1}])

    second = join()
    poll_until("the later record is read", lambda: second.values, second)

    assert second.values == [b"later"]


def test_members_share_the_partitions_as_they_come_and_go(bootstrap: str, topic: str, join: Join) -> None:
    create_topic(bootstrap, topic, partitions=4)
    first, second = join(), None
    poll_until("the first owns all", lambda: first.owned == {0, 1, 2, 3}, first)

    second = join()
    poll_until("they share", lambda: len(first.owned) == len(second.owned) == 2, first, second)
    assert first.owned | second.owned == {0, 1, 2, 3}

    second.close()
    poll_until("the first owns all again", lambda: first.owned == {0, 1, 2, 3}, first)


def test_a_member_that_dies_loses_its_partitions_when_its_session_ends(
    barnabas_broker: Callable[..., barnabas.Broker], topic: str
) -> None:
    bootstrap = barnabas_broker(config={"group.min.session.timeout.ms": 200}).bootstrap
    create_topic(bootstrap, topic, partitions=2)
    session = {"session.timeout.ms": 500}
    program = (
        "import sys\n"
        "from confluent_kafka import Consumer\n"
        "consumer = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': sys.argv[2],"
        " 'session.timeout.ms': 500, 'heartbeat.interval.ms': 100})\n"
        "consumer.subscribe([sys.argv[2]], on_assign=lambda *_: print('assigned', flush=True))\n"
        "while True: consumer.poll(0.05)\n"
    )
    with (
        members_of(bootstrap, topic) as join,
        subprocess.Popen([sys.executable, "-c", program, bootstrap, topic], stdout=subprocess.PIPE) as other,
    ):
        assert other.stdout is not None
        other.stdout.readline()
        survivor = join(**session)
        poll_until("they share", lambda: len(survivor.owned) == 1, survivor)

        other.kill()

        poll_until("the survivor owns all", lambda: survivor.owned == {0, 1}, survivor)


def test_commits_and_members_survive_a_kill_of_the_broker(
    barnabas_broker: Callable[..., barnabas.Broker], topic: str
) -> None:
    broker = barnabas_broker()
    values = filled(broker.bootstrap, topic, partitions=1)
    with members_of(broker.bootstrap, topic) as join:
        member = join()
        poll_until("everything is read", lambda: len(member.values) == len(values), member)
        member.consumer.commit(asynchronous=False)

        broker.kill()
        broker.restart()

        assert committed(member, topic) == len(values)
        send(broker.bootstrap, topic, [{"value": "later"}])
        poll_until("the later record is read", lambda: member.values[-1] == b"later", member)
        member.consumer.commit(asynchronous=False)
        assert committed(member, topic) == len(values) + 1
        assert member.assignments == [{0}], "nobody had to join again"


def test_a_static_member_that_comes_back_disturbs_nobody(bootstrap: str, topic: str, join: Join) -> None:
    create_topic(bootstrap, topic, partitions=2)
    stays, goes = join(**{"group.instance.id": "stays"}), join(**{"group.instance.id": "goes"})
    poll_until("they share", lambda: len(stays.owned) == len(goes.owned) == 1, stays, goes)
    before = (stays.owned, goes.owned, len(stays.assignments))
    goes.close()

    back = join(**{"group.instance.id": "goes"})
    poll_until("it is back", lambda: back.owned, stays, back)

    assert (stays.owned, back.owned, len(stays.assignments)) == before


def test_cooperative_sticky_never_revokes_partitions_that_stay(
    bootstrap: str, topic: str, join: Join
) -> None:
    create_topic(bootstrap, topic, partitions=4)
    config = {"partition.assignment.strategy": "cooperative-sticky"}
    first = join(**config)
    poll_until("the first owns all", lambda: first.owned == {0, 1, 2, 3}, first)

    second = join(**config)
    poll_until("they share", lambda: len(first.owned) == len(second.owned) == 2, first, second)

    assert first.revocations == [second.owned]


def test_an_asynchronous_commit_is_reported_when_it_is_done(bootstrap: str, topic: str) -> None:
    values = filled(bootstrap, topic, partitions=1)
    done: list[tuple[object, list[TopicPartition]]] = []
    member = Member(bootstrap, topic, topic, on_commit=lambda error, parts: done.append((error, parts)))
    poll_until("everything is read", lambda: len(member.values) == len(values), member)

    member.consumer.commit(asynchronous=True)
    poll_until("the commit is done", lambda: done, member)

    ((error, (partition,)),) = done
    assert (error, partition.offset) == (None, len(values))
    member.close()


def test_a_consumer_commits_when_it_closes(bootstrap: str, topic: str, join: Join) -> None:
    values = filled(bootstrap, topic, partitions=1)
    member = join(**{"enable.auto.commit": True})
    poll_until("everything is read", lambda: len(member.values) == len(values), member)
    member.close()

    assert committed(join(), topic) == len(values)


def test_metadata_comes_back_with_the_offset(bootstrap: str, topic: str, join: Join) -> None:
    create_topic(bootstrap, topic)
    member = join()
    poll_until("it owns the partition", lambda: member.owned, member)
    partition = TopicPartition(topic, 0, 7, metadata="ünïcode")

    member.consumer.commit(offsets=[partition], asynchronous=False)

    (found,) = member.consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
    assert (found.offset, found.metadata) == (7, "ünïcode")


def test_a_member_can_seek_and_reads_on_from_there(bootstrap: str, topic: str, join: Join) -> None:
    filled(bootstrap, topic, partitions=1)
    member = join()
    poll_until("everything is read", lambda: len(member.values) == 10, member)

    member.consumer.seek(TopicPartition(topic, 0, 8))
    poll_until("the end is read again", lambda: len(member.values) == 12, member)

    assert member.values[-2:] == [b"0-8", b"0-9"]


def test_the_admin_client_sees_groups_their_members_and_offsets(
    bootstrap: str, topic: str, join: Join
) -> None:
    filled(bootstrap, topic)
    member = join(**{"client.id": "the-client"})
    poll_until("everything is read", lambda: len(member.values) == 20, member)
    member.consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": bootstrap})

    listed = admin.list_consumer_groups().result(PATIENCE_S)
    assert not listed.errors
    (found,) = [group for group in listed.valid if group.group_id == topic]
    assert found.state is ConsumerGroupState.STABLE

    described = admin.describe_consumer_groups([topic])[topic].result(PATIENCE_S)
    (shown,) = described.members
    assert (shown.client_id, shown.host) == ("the-client", "/127.0.0.1")
    assert {each.partition for each in shown.assignment.topic_partitions} == {0, 1}
    assert described.partition_assignor == "range"

    asked = ConsumerGroupTopicPartitions(topic)
    offsets = admin.list_consumer_group_offsets([asked])[topic].result(PATIENCE_S)
    assert {each.partition: each.offset for each in offsets.topic_partitions} == {0: 10, 1: 10}


def test_an_empty_groups_offsets_are_altered_and_deleted(bootstrap: str, topic: str, join: Join) -> None:
    create_topic(bootstrap, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 3)])

    admin.alter_consumer_group_offsets([wanted])[topic].result(PATIENCE_S)
    member = join()
    assert committed(member, topic) == 3

    poll_until("it is a member", lambda: member.owned, member)
    with pytest.raises(KafkaException, match=r"NON_EMPTY_GROUP|not empty"):
        admin.delete_consumer_groups([topic])[topic].result(PATIENCE_S)
    member.close()
    admin.delete_consumer_groups([topic])[topic].result(PATIENCE_S)
    with pytest.raises(KafkaException, match=r"GROUP_ID_NOT_FOUND|not.*exist"):
        admin.delete_consumer_groups([topic])[topic].result(PATIENCE_S)
