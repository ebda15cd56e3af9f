"""Clusters of Apache Kafka's nodes and ours that speak SASL_SSL between brokers and to their controller: ours under
Kafka's controller, and the other way. Transactions and replication work, and only they come in who may."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

import barnabas
from tests.interop.secured import BETWEEN_BROKERS, NODE, PLAIN, Nodes, client_of
from tests.support import waiting
from tests.support.requirements import need_apache_kafka

pytestmark = pytest.mark.xdist_group("apache_kafka")

PATIENCE_S = 90.0
ROUNDS, RECORDS = 5, 20
EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def as_node(bootstrap: str) -> AdminClient:
    return AdminClient(client_of(bootstrap, "node", BETWEEN_BROKERS))


def allow(asking: AdminClient, kind: ResourceType, name: str, *operations: AclOperation) -> None:
    bindings = [
        AclBinding(
            kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
        )
        for operation in operations
    ]
    for done in asking.create_acls(bindings).values():
        done.result(PATIENCE_S)


def let_alice_in(nodes: Nodes) -> None:
    """By the only broker that there is, and returns when it has the ACLs: each other one has them as it starts."""
    asking = as_node(nodes.bootstrap)
    allow(asking, ResourceType.TOPIC, "orders", AclOperation.READ, AclOperation.WRITE)
    allow(asking, ResourceType.TRANSACTIONAL_ID, "t", AclOperation.WRITE)
    allow(asking, ResourceType.GROUP, "readers", AclOperation.READ)
    waiting.until(
        lambda: len(asking.describe_acls(EVERY_ACL).result(PATIENCE_S)) == 4, "it has the ACLs", PATIENCE_S
    )


def replicas_are_in_sync(asking: AdminClient, topic: str) -> bool:
    found = asking.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    return all(len(each.isrs) == 2 for each in found.values())


def play(nodes: Nodes, brokers: tuple[int, int]) -> None:
    """A transaction after the other over both brokers, as alice, whom an ACL lets; and what she may not."""
    asking = as_node(nodes.bootstrap)
    waiting.until(
        lambda: {*asking.list_topics(timeout=PATIENCE_S).brokers} == {*brokers}, "both are there", PATIENCE_S
    )
    first, second = brokers
    wanted = [
        NewTopic(
            name,
            2,
            replica_assignment=[[first, second], [second, first]],
            config={"min.insync.replicas": "2"},
        )
        for name in ("orders", "secrets")
    ]
    for done in asking.create_topics(wanted).values():
        done.result(PATIENCE_S)
    producer = Producer({**client_of(nodes.bootstrap), "transactional.id": "t", "acks": "all"})
    producer.init_transactions(PATIENCE_S)
    for number in range(ROUNDS):
        producer.begin_transaction()
        for each in range(RECORDS):
            producer.produce("orders", b"%d" % (number * RECORDS + each), partition=each % 2)
        if number % 2:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
    assert replicas_are_in_sync(asking, "orders")

    consumer = Consumer(
        {
            **client_of(nodes.bootstrap),
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["orders"])
    expected = {number * RECORDS + each for number in range(0, ROUNDS, 2) for each in range(RECORDS)}
    found: set[int] = set()
    while found != expected:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None, message.error()
        found.add(int(message.value() or b""))
        assert found <= expected
    consumer.commit(asynchronous=False)
    consumer.close()
    errors: list[KafkaError] = []
    denied = Producer(client_of(nodes.bootstrap))
    denied.produce("secrets", b"x", on_delivery=lambda error, _: errors.append(error))
    denied.flush(PATIENCE_S)
    assert [each.code() for each in errors] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def cannot_join(broker: barnabas.Broker, why: str) -> None:
    """A broker with a wrong password."""
    with pytest.raises(barnabas.BrokerError, match="no controller has registered this broker") as refused:
        broker.start()
    assert why in str(refused.value)
    assert "wrong-secret" not in str(refused.value)


WRONG = NODE.replace("node-secret", "wrong-secret")
REFUSED = "Authentication failed: Invalid username or password"


def test_a_broker_of_ours_under_kafkas_controller(tmp_path: Path) -> None:
    need_apache_kafka()
    with ExitStack() as stack:
        nodes = Nodes(tmp_path, stack, "PLAIN")
        nodes.kafka(1, "broker,controller")
        let_alice_in(nodes)
        nodes.ours(2, "broker").start()
        play(nodes, (1, 2))
        cannot_join(
            nodes.ours(
                3,
                "broker",
                listener_name_controller_plain_sasl_jaas_config=f"{PLAIN} required {WRONG} user_a=b;",
                initial_broker_registration_timeout_ms=2000,
            ),
            REFUSED,
        )


def test_a_broker_of_kafkas_under_our_controller(tmp_path: Path) -> None:
    need_apache_kafka()
    with ExitStack() as stack:
        nodes = Nodes(tmp_path, stack, BETWEEN_BROKERS)
        nodes.ours(1, "controller").start()
        nodes.ours(2, "broker").start()
        let_alice_in(nodes)
        nodes.kafka(3, "broker")
        play(nodes, (2, 3))
