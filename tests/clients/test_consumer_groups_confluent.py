"""Consumer groups of the newer protocol (KIP-848) with confluent-kafka: group.protocol=consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, ConsumerGroupType
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

import barnabas
from tests.clients.confluent import PATIENCE_S, create_topic, send
from tests.clients.test_groups_confluent import Join, Member, committed, filled, poll_until

# The server says how often members are heard of; a rebalance takes two rounds of that.
QUICK = {
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 50,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.session.timeout.ms": 2000,
    "group.consumer.assignment.interval.ms": 0,
}


class NewMember(Member):
    def __init__(self, bootstrap: str, group: str, topic: str, **config: Any) -> None:
        protocol = {"group.protocol": "consumer", "heartbeat.interval.ms": None, "session.timeout.ms": None}
        super().__init__(bootstrap, group, topic, **protocol | config)


@pytest.fixture
def broker(barnabas_broker: Callable[..., barnabas.Broker]) -> barnabas.Broker:
    return barnabas_broker(config=QUICK)


@pytest.fixture
def join(broker: barnabas.Broker, topic: str) -> Iterator[Join]:
    """Puts a member into the test's group, whose name is the topic's: `join(**config)`."""
    members: list[Member] = []

    def join(topics: str = topic, **config: Any) -> Member:
        make = Member if config.get("group.protocol") == "classic" else NewMember
        members.append(make(broker.bootstrap, topic, topics, **config))
        return members[-1]

    yield join
    for member in members:
        member.close()


def test_a_group_reads_everything_and_goes_on_where_it_stopped(
    broker: barnabas.Broker, topic: str, join: Join
) -> None:
    values = filled(broker.bootstrap, topic)
    first = join()
    poll_until("everything is read", lambda: len(first.values) == len(values), first)
    assert {*first.values} == values
    first.consumer.commit(asynchronous=False)
    first.close()
    send(broker.bootstrap, topic, [{"value": "later", "partition": 1}])

    second = join()
    poll_until("the later record is read", lambda: second.values, second)

    assert second.values == [b"later"]


def test_members_share_the_partitions_as_they_come_and_go(
    broker: barnabas.Broker, topic: str, join: Join
) -> None:
    create_topic(broker.bootstrap, topic, partitions=4)
    first = join()
    poll_until("the first owns all", lambda: first.owned == {0, 1, 2, 3}, first)

    second = join()
    poll_until("they share", lambda: len(first.owned) == len(second.owned) == 2, first, second)
    assert first.owned | second.owned == {0, 1, 2, 3}
    assert first.revocations == [second.owned], "what stays is never revoked"

    second.close()
    poll_until("the first owns all again", lambda: first.owned == {0, 1, 2, 3}, first)


def test_members_and_commits_survive_a_kill_of_the_broker(
    broker: barnabas.Broker, topic: str, join: Join
) -> None:
    values = filled(broker.bootstrap, topic, partitions=1)
    member = join()
    poll_until("everything is read", lambda: len(member.values) == len(values), member)
    member.consumer.commit(asynchronous=False)

    broker.kill()
    broker.restart()

    assert committed(member, topic) == len(values)
    send(broker.bootstrap, topic, [{"value": "later"}])
    poll_until("the later record is read", lambda: member.values[-1] == b"later", member)
    member.consumer.commit(asynchronous=False)
    assert member.assignments == [{0}], "nobody had to join again"


def test_a_static_member_that_comes_back_disturbs_nobody(
    broker: barnabas.Broker, topic: str, join: Join
) -> None:
    create_topic(broker.bootstrap, topic, partitions=2)
    stays, goes = join(**{"group.instance.id": "stays"}), join(**{"group.instance.id": "goes"})
    poll_until("they share", lambda: len(stays.owned) == len(goes.owned) == 1, stays, goes)
    before = (stays.owned, goes.owned, len(stays.assignments), len(stays.revocations))
    goes.close()

    back = join(**{"group.instance.id": "goes"})
    poll_until("it is back", lambda: back.owned, stays, back)

    assert (stays.owned, back.owned, len(stays.assignments), len(stays.revocations)) == before


def test_an_expression_is_resolved_by_the_server(broker: barnabas.Broker, topic: str, join: Join) -> None:
    filled(broker.bootstrap, f"{topic}-1", partitions=1)
    filled(broker.bootstrap, f"{topic}-2", partitions=1)
    create_topic(broker.bootstrap, f"{topic}-x")

    member = join(f"^{topic}-[0-9]+$")
    poll_until("everything is read", lambda: len(member.values) == 20, member)

    assert {each.topic for each in member.consumer.assignment()} == {f"{topic}-1", f"{topic}-2"}


def test_clients_may_choose_the_range_assignor(broker: barnabas.Broker, topic: str, join: Join) -> None:
    create_topic(broker.bootstrap, topic, partitions=3)
    members = [join(**{"group.remote.assignor": "range"}) for _ in range(2)]
    poll_until("they share", lambda: sorted(len(each.owned) for each in members) == [1, 2], *members)

    assert sorted(sorted(each.owned) for each in members) == [[0, 1], [2]]


def test_a_group_goes_over_to_the_new_protocol_and_back(
    broker: barnabas.Broker, topic: str, join: Join
) -> None:
    create_topic(broker.bootstrap, topic, partitions=4)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def type_of_group() -> ConsumerGroupType:
        listed = admin.list_consumer_groups().result(PATIENCE_S)
        (found,) = [group for group in listed.valid if group.group_id == topic]
        return found.type

    old = join(**{"group.protocol": "classic"})
    poll_until("the old one owns all", lambda: old.owned == {0, 1, 2, 3}, old)
    assert type_of_group() is ConsumerGroupType.CLASSIC

    new = join()
    poll_until("they share", lambda: len(old.owned) == len(new.owned) == 2, old, new)
    assert old.owned | new.owned == {0, 1, 2, 3}
    assert type_of_group() is ConsumerGroupType.CONSUMER

    new.close()
    poll_until("the old one owns all again", lambda: old.owned == {0, 1, 2, 3}, old)
    assert type_of_group() is ConsumerGroupType.CLASSIC


def test_the_admin_client_sees_the_group_its_members_and_offsets(
    broker: barnabas.Broker, topic: str, join: Join
) -> None:
    filled(broker.bootstrap, topic)
    member = join(**{"client.id": "the-client"})
    poll_until("everything is read", lambda: len(member.values) == 20, member)
    member.consumer.commit(asynchronous=False)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    described = admin.describe_consumer_groups([topic])[topic].result(PATIENCE_S)
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER)
    (shown,) = described.members
    assert (shown.client_id, shown.host) == ("the-client", "/127.0.0.1")
    for assignment in (shown.assignment, shown.target_assignment):
        assert {each.partition for each in assignment.topic_partitions} == {0, 1}
    assert described.partition_assignor == "uniform"
    asked = ConsumerGroupTopicPartitions(topic)
    offsets = admin.list_consumer_group_offsets([asked])[topic].result(PATIENCE_S)
    assert {each.partition: each.offset for each in offsets.topic_partitions} == {0: 10, 1: 10}


def test_a_groups_own_settings_reach_its_members(broker: barnabas.Broker, topic: str, join: Join) -> None:
    """With a heartbeat only every ten seconds a second member has to wait: nobody hears of it."""
    create_topic(broker.bootstrap, topic, partitions=2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = ConfigEntry("consumer.session.timeout.ms", "1500", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    (found,) = admin.describe_configs([ConfigResource(ResourceType.GROUP, topic)]).values()
    assert found.result(PATIENCE_S)["consumer.session.timeout.ms"].value == "1500"
    member = join()
    poll_until("it owns all", lambda: member.owned == {0, 1}, member)
