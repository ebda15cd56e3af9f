"""Under load: leaders move between a broker of ours and Apache Kafka's, ours is killed and comes back, and so is Kafka
with its controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import barnabas
from tests.interop.joining import (
    KAFKAS,
    OURS,
    PATIENCE_S,
    admin,
    joining,
    kafka_that_is_joined,
    wait_until_both_are_there,
)
from tests.support import waiting
from tests.support.apache_kafka import ApacheKafka
from tests.support.load import PARTITIONS, TOPIC, Sending, described, end_and_find_all, go_on, reassign

ROUNDS = 3


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    """Whose brokers are given up soon."""
    with kafka_that_is_joined(tmp_path / "kafka", "broker.session.timeout.ms=3000") as kafka:
        yield kafka


@pytest.fixture
def ours(tmp_path: Path, kafka: ApacheKafka) -> Iterator[barnabas.Broker]:
    with joining(tmp_path, kafka) as broker:
        yield broker


def lead(asking: AdminClient, bootstrap: str, leaders: list[int]) -> None:
    """The partitions' replicas in another order, and the first of each elected."""
    reassign(bootstrap, [[leader, KAFKAS + OURS - leader] for leader in leaders])
    partitions = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]

    def do_lead() -> bool:
        asking.elect_leaders(ElectionType.PREFERRED, partitions).result(PATIENCE_S)
        return [found.leader for _, found in sorted(described(asking).items())] == leaders

    waiting.until(do_lead, f"{leaders} lead", PATIENCE_S)


def in_sync(asking: AdminClient) -> bool:
    return all(len(partition.isrs) == 2 for partition in described(asking).values())


@pytest.mark.one_run_in(2)
def test_nothing_is_lost_doubled_or_out_of_order_while_leaders_move_and_ours_is_killed(
    tmp_path: Path, kafka: ApacheKafka, ours: barnabas.Broker
) -> None:
    asking = wait_until_both_are_there(kafka)
    wanted = NewTopic(TOPIC, num_partitions=PARTITIONS, replica_assignment=[[OURS, KAFKAS], [KAFKAS, OURS]])
    asking.create_topics([wanted])[TOPIC].result(PATIENCE_S)
    both = f"{kafka.bootstrap},{ours.bootstrap}"
    sending = [Sending(both), Sending(both, transactional_id="transactional")]
    for each in sending:
        each.start()

    go_on(sending)
    for number in range(ROUNDS):
        lead(asking, kafka.bootstrap, [KAFKAS, OURS] if number % 2 else [OURS, KAFKAS])
        go_on(sending)
        ours.kill()
        go_on(sending)
        ours.start()
        waiting.until(lambda: in_sync(asking), "ours is in sync again", PATIENCE_S)
    lead(asking, kafka.bootstrap, [OURS, OURS])
    go_on(sending)
    end_and_find_all(sending, both)
    waiting.until(
        lambda: all(len({*_logs(kafka, ours, index)}) == 1 for index in range(PARTITIONS)),
        "the replicas' files are equal",
        PATIENCE_S,
    )


def test_a_broker_goes_on_while_the_controller_is_killed_and_comes_back(
    kafka: ApacheKafka, ours: barnabas.Broker
) -> None:
    """With what it leads alone at once, and with all else, the metadata's changes among it, once Kafka is back."""
    asking = wait_until_both_are_there(kafka)
    wanted = NewTopic(TOPIC, num_partitions=PARTITIONS, replica_assignment=[[OURS, KAFKAS]] * PARTITIONS)
    asking.create_topics([wanted])[TOPIC].result(PATIENCE_S)
    reassign(kafka.bootstrap, [[OURS], [OURS, KAFKAS]])
    waiting.until(lambda: described(asking)[0].replicas == [OURS], "one is ours alone", PATIENCE_S)
    both = f"{kafka.bootstrap},{ours.bootstrap}"
    # A connection's requests are answered in turn: one for a partition that can't be committed holds up the others.
    alone = Sending(both, partitions=[0])
    sending = [alone, Sending(both, transactional_id="transactional")]
    for each in sending:
        each.start()
    go_on(sending)

    kafka.kill()
    try:
        go_on([alone])
    finally:
        kafka.start_again()
    wait_until_both_are_there(kafka)
    waiting.until(lambda: len(described(asking)[1].isrs) == 2, "Kafka's is in sync again", PATIENCE_S)
    asking_ours = admin(ours.bootstrap)
    asking_ours.create_topics([NewTopic("later", 1, replica_assignment=[[OURS]])])["later"].result(PATIENCE_S)
    go_on(sending)
    end_and_find_all(sending, both)


def _logs(kafka: ApacheKafka, ours: barnabas.Broker, index: int) -> Iterator[bytes]:
    for data in (kafka.data, ours.data):
        segments = sorted((data / f"{TOPIC}-{index}").glob("*.log"))
        yield b"".join(path.read_bytes() for path in segments)
