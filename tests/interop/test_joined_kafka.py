"""A broker of ours, as users start it, in a cluster with a controller and a broker of Apache Kafka's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import NewTopic

import barnabas
from broker.config.definitions import StartError
from protocol.errors import Error
from protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.interop.joining import (
    KAFKAS,
    OURS,
    PATIENCE_S,
    admin,
    joining,
    kafka_that_is_joined,
    settings_to_join,
    wait_until_both_are_there,
)
from tests.support.apache_kafka import ApacheKafka
from tests.support.whole_server import started
from tests.support.wire import Client

RECORDS = 2_000


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    with kafka_that_is_joined(tmp_path / "kafka") as kafka:
        yield kafka


@pytest.fixture
def ours(tmp_path: Path, kafka: ApacheKafka) -> Iterator[barnabas.Broker]:
    with joining(tmp_path, kafka) as broker:
        yield broker


def test_a_joined_broker_leads_follows_and_leaves(kafka: ApacheKafka, ours: barnabas.Broker) -> None:
    wait_until_both_are_there(kafka)
    assert admin(ours.bootstrap).list_topics(timeout=PATIENCE_S).brokers.keys() == {KAFKAS, OURS}

    # whichever of them the client considers the controller
    wanted = NewTopic(
        "t",
        num_partitions=2,
        replica_assignment=[[OURS, KAFKAS], [KAFKAS, OURS]],
        config={"min.insync.replicas": "2"},
    )
    asking = admin(ours.bootstrap)
    asking.create_topics([wanted])["t"].result(PATIENCE_S)
    alter_settings_and_loggers(ours.bootstrap)
    producer = Producer({"bootstrap.servers": ours.bootstrap, "enable.idempotence": True, "log_level": 0})
    errors: list[object] = []
    for number in range(RECORDS):
        producer.produce(
            "t", b"%d" % number, partition=number % 2, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * RECORDS
    for index in range(2):
        theirs, mine = (
            (folder / f"t-{index}" / "00000000000000000000.log").read_bytes()
            for folder in (kafka.data, ours.data)
        )
        assert theirs == mine
        assert theirs

    consumer = Consumer(
        {
            "bootstrap.servers": ours.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["t"])
    found = set()
    while len(found) < RECORDS:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error() is None:
            found.add(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    assert found == {b"%d" % number for number in range(RECORDS)}

    ours.stop()
    described = admin(kafka.bootstrap).list_topics(timeout=PATIENCE_S)
    assert described.brokers.keys() == {KAFKAS}
    assert {partition.leader for partition in described.topics["t"].partitions.values()} == {KAFKAS}


def alter_settings_and_loggers(bootstrap: str) -> None:
    """Alter both in one request: a broker alters its loggers itself, and the controller alters the settings."""
    topic, logger = 2, 8
    wanted = [
        (topic, "nobodys", "retention.ms", "60000", Error.UNKNOWN_TOPIC_OR_PARTITION),
        (logger, str(OURS), "barnabas.peers", "INFO", Error.NONE),
        (logger, str(KAFKAS), "barnabas.peers", "INFO", Error.INVALID_REQUEST),
        (topic, "t", "retention.ms", "600000", Error.NONE),
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[IncrementalAlterableConfig(name=setting, config_operation=0, value=value)],
            )
            for kind, name, setting, value, _ in wanted
        ]
    )
    with Client.of(bootstrap) as client:
        told = client.ask(request, 1).responses
    assert [(each.resource_type, each.resource_name, each.error_code) for each in told] == [
        (kind, name, error) for kind, name, _, _, error in wanted
    ]


async def test_a_broker_of_another_cluster_is_refused_with_the_reason(
    kafka: ApacheKafka, tmp_path: Path
) -> None:
    """The error doesn't say that the broker reaches nobody."""
    alone = await started(tmp_path / "theirs")
    cluster_id = alone.cluster_id
    await alone.stop()
    settings = settings_to_join(kafka) | {"node.id": 1, "initial.broker.registration.timeout.ms": 500}
    server = settings.pop("controller.quorum.voters")
    settings["controller.quorum.bootstrap.servers"] = str(server).partition("@")[2]
    with pytest.raises(StartError) as refused:
        await started(tmp_path / "theirs", *(f"{name}={value}" for name, value in settings.items()))
    assert f"belongs to another cluster than {cluster_id}" in str(refused.value)
    assert "INCONSISTENT_CLUSTER_ID" in str(refused.value)


def test_transactions_of_either_coordinator_end_in_the_partitions_of_both(
    kafka: ApacheKafka, ours: barnabas.Broker
) -> None:
    both = f"{kafka.bootstrap},{ours.bootstrap}"
    asking = wait_until_both_are_there(kafka)
    wanted = NewTopic("transactions", num_partitions=2, replica_assignment=[[OURS, KAFKAS], [KAFKAS, OURS]])
    asking.create_topics([wanted])["transactions"].result(PATIENCE_S)
    expected = set()
    for producer_number in range(12):
        producer = Producer(
            {"bootstrap.servers": both, "transactional.id": f"id-{producer_number}", "log_level": 0}
        )
        producer.init_transactions(PATIENCE_S)
        for ends in ("commit", "abort", "commit"):
            producer.begin_transaction()
            for number in range(10):
                value = f"{producer_number} {ends} {number}".encode()
                producer.produce("transactions", value, partition=number % 2)
                if ends == "commit":
                    expected.add(value)
            if ends == "commit":
                producer.commit_transaction(PATIENCE_S)
            else:
                # Else it may end a transaction whose partitions no coordinator has taken yet, which is fatal to it.
                producer.flush(PATIENCE_S)
                producer.abort_transaction(PATIENCE_S)
    leaders = asking.list_topics("__transaction_state", timeout=PATIENCE_S).topics["__transaction_state"]
    assert {partition.leader for partition in leaders.partitions.values()} == {KAFKAS, OURS}

    consumer = Consumer(
        {
            "bootstrap.servers": both,
            "group.id": "of transactions",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.subscribe(["transactions"])
    found, ended = [], set()
    while len(ended) < 2:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        error = message.error()
        if error is None:
            found.append(message.value())
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    assert len(found) == 2 * len(expected)
    assert {*found} == expected
