"""Kafka 4.3's level beside 4.4's: clusters of both versions, the upgrade under load, folders that change hands."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

import barnabas
from tests.interop.joining import (
    PATIENCE_S,
    admin,
    joining,
    kafka_that_is_joined,
    wait_until_both_are_there,
)
from tests.interop.nodes import Turns
from tests.interop.test_controlled_kafka import Cluster, all_are_there
from tests.support import waiting
from tests.support.apache_kafka import BEFORE, tool
from tests.support.load import PARTITIONS, TOPIC, Sending, described, end_and_find_all, go_on
from tests.support.requirements import need_apache_kafka

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
OLD, NEW = "4.3-IV0", "4.4-IV2"


def levels(bootstrap: str) -> dict[str, str]:
    """Of each feature that is finalized, as kafka-features has it."""
    found = {}
    for line in tool("features", "--bootstrap-server", bootstrap, "describe").splitlines():
        words = dict(zip(line.split()[::2], line.split()[1::2], strict=False))
        found[words["Feature:"]] = words["FinalizedVersionLevel:"]
    return found


def upgrade(bootstrap: str, *, check: bool = True) -> str:
    """Of all features, kraft.version among them: the voters that settings name stand in the log from then on."""
    wanted = ("--release-version", "4.4")
    return tool("features", "--bootstrap-server", bootstrap, "upgrade", *wanted, check=check)


# --- clusters -----------------------------------------------------------------------------------------------------


def test_a_broker_of_kafka_4_3_joins_our_controller_and_keeps_the_cluster_at_its_level(
    tmp_path: Path,
) -> None:
    need_apache_kafka()
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack, BEFORE)
        asking = admin(cluster.bootstrap)
        waiting.until(lambda: all_are_there(asking), "all brokers are there", PATIENCE_S)
        asking.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(PATIENCE_S)
        sending = [Sending(cluster.bootstrap), Sending(cluster.bootstrap, transactional_id="transactional")]
        for each in sending:
            each.start()
        go_on(sending)
        assert levels(cluster.bootstrap)["metadata.version"] == OLD
        refused = upgrade(cluster.bootstrap, check=False)
        assert "only supports versions 7-30" in refused
        assert levels(cluster.bootstrap)["metadata.version"] == OLD
        go_on(sending)
        end_and_find_all(sending, cluster.bootstrap)


def test_an_upgrade_from_4_3_with_our_broker_in_it_loses_nothing(tmp_path: Path) -> None:
    with (
        kafka_that_is_joined(tmp_path / "kafka", "broker.session.timeout.ms=3000", release=OLD) as kafka,
        joining(tmp_path, kafka) as ours,
    ):
        asking = wait_until_both_are_there(kafka)
        wanted = NewTopic(TOPIC, num_partitions=PARTITIONS, replica_assignment=[[2, 1], [1, 2]])
        asking.create_topics([wanted])[TOPIC].result(PATIENCE_S)
        both = f"{kafka.bootstrap},{ours.bootstrap}"
        sending = [Sending(both), Sending(both, transactional_id="transactional")]
        for each in sending:
            each.start()
        go_on(sending)
        before = levels(ours.bootstrap)
        assert (before["metadata.version"], before["share.version"]) == (OLD, "1")
        upgrade(kafka.bootstrap)
        waiting.until(
            lambda: levels(ours.bootstrap)["metadata.version"] == NEW, "ours is at the new level", PATIENCE_S
        )
        after = levels(ours.bootstrap)
        assert (after["share.version"], after["kraft.version"]) == ("2", "1")
        go_on(sending)
        ours.kill()
        go_on(sending)
        ours.start()
        waiting.until(
            lambda: all(len(partition.isrs) == 2 for partition in described(asking).values()),
            "ours is in sync again",
            PATIENCE_S,
        )
        go_on(sending)
        end_and_find_all(sending, both)


# --- folders ------------------------------------------------------------------------------------------------------


def formatted(turns: Turns, who: str, release: str, version: str | None = None) -> None:
    file = turns.directory / "format.properties"
    controller = f"127.0.0.1:{turns.controller_port}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{turns.port},CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{controller}",
        "log.dirs": str(turns.data),
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    arguments = ["-t", CLUSTER_ID, "-c", str(file), "-r", release]
    if who == "kafka":
        tool("storage", "format", *arguments, version=version)
    else:
        from broker.process.format_command import format_command

        assert format_command(arguments) == 0


def grown(turns: Turns, count: int) -> None:
    """One more record is committed, and all that were are read."""
    producer = Producer({"bootstrap.servers": turns.bootstrap, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("grows", b"%d" % count, partition=0)
    producer.commit_transaction(PATIENCE_S)
    consumer = Consumer({"bootstrap.servers": turns.bootstrap, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition("grows", 0, 0)])
    read: list[bytes] = []
    while len(read) < count:
        for message in consumer.consume(count, PATIENCE_S):
            assert message.error() is None, message.error()
            read.append(message.value() or b"")
    consumer.close()
    assert read == [b"%d" % number for number in range(1, count + 1)]


def in_turn(turns: Turns, *hosts: str, upgrades_at: int | None = None) -> None:
    for count, who in enumerate(hosts, 1):
        turns.start(who)
        if count == upgrades_at:
            upgrade(turns.bootstrap)
        level = NEW if upgrades_at is not None and count >= upgrades_at else OLD
        assert levels(turns.bootstrap)["metadata.version"] == level
        grown(turns, count)
        turns.stop()
        assert not turns.kafka_errors


def test_a_folder_that_kafka_4_4_has_formatted_at_the_level_of_4_3_is_both_ones(
    needs_kafka: Callable[..., str], tmp_path: Path
) -> None:
    """Its first records stand in the metadata log's own directory, where Kafka 4.3 has a snapshot: they have to come
    to the log, or Kafka dies on the folder afterwards."""
    with Turns(tmp_path) as turns:
        formatted(turns, "kafka", OLD)
        in_turn(turns, "barnabas", "kafka", "barnabas")


def test_a_folder_of_ours_at_the_level_of_4_3_is_kafka_4_3s_as_well(
    needs_kafka: Callable[..., str], tmp_path: Path
) -> None:
    with Turns(tmp_path, version=BEFORE) as turns:
        formatted(turns, "barnabas", OLD)
        in_turn(turns, "kafka", "barnabas", "kafka")


@pytest.mark.parametrize("hosts", [("barnabas", "kafka", "barnabas"), ("kafka", "barnabas", "kafka")])
def test_a_folder_that_was_upgraded_is_both_ones(
    needs_kafka: Callable[..., str], tmp_path: Path, hosts: tuple[str, ...]
) -> None:
    with Turns(tmp_path) as turns:
        formatted(turns, hosts[0], OLD)
        in_turn(turns, *hosts, upgrades_at=1)


def test_a_new_cluster_begins_at_the_level_that_it_is_asked_for(tmp_path: Path) -> None:
    need_apache_kafka()
    for version, level in ((None, NEW), ("4.3", OLD), ("4.4-IV0", "4.4-IV0")):
        with barnabas.Broker(kafka_version=version) as broker:
            assert levels(broker.bootstrap)["metadata.version"] == level
