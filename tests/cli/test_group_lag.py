"""`barnabas groups NAME`: the lag, counted in records instead of offsets."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import barnabas
from tests.cli.conftest import Kafka, Run, run_cli
from tests.cli.transactional import (
    aborted,
    commit,
    committed,
    new_producer,
    plain,
    read_by_hand,
    send_at_once,
    send_each,
    table,
    until_marked,
)
from tests.clients.confluent import PATIENCE_S, create_topic
from tests.clients.transactions import READ_COMMITTED, READ_UNCOMMITTED
from tests.support.waiting import until

Tool = Callable[..., str]


@pytest.mark.several_nodes_matter
def test_lag_counts_what_readers_are_given_with_aborted_open_and_committed_transactions(
    cli: Run, kafka: Kafka, topic: str, needs_kafka: Tool
) -> None:
    bootstrap, group = kafka.bootstrap, f"{topic}-g"
    assert cli("topics", "create", topic, "-r", kafka.brokers).status == 0
    packed = Producer({"bootstrap.servers": bootstrap, "compression.type": "gzip", "linger.ms": 200})
    send_at_once(packed, topic, "abc")
    committed(bootstrap, topic, f"{topic}-committed", "de")
    aborted(bootstrap, topic, f"{topic}-aborted", "fg")
    send_each(plain(bootstrap), topic, "hi")
    holder = new_producer(bootstrap, f"{topic}-holder")
    holder.begin_transaction()
    send_at_once(holder, topic, "jk")
    send_each(plain(bootstrap), topic, "l")
    aborted(bootstrap, topic, f"{topic}-aborted", "mn")
    commit(kafka, group, topic, 1)  # amid the first batch

    (found,) = cli("groups", group, "--json").json()

    (lag,) = found["partitions"]
    assert (found["kind"], found["state"], found["members"]) == ("simple", "Empty", [])
    assert (lag["committed"], lag["last_stable"], lag["end"], lag["exact"]) == (1, 11, 17, True)
    # b, c, d, e, h, i; l; j, k
    assert (lag["lag"], lag["waiting"], lag["open"], lag["offsets"]) == (6, 1, 2, 16)
    assert lag["lag"] == len(read_by_hand(bootstrap, topic, 1, READ_COMMITTED))
    assert lag["all"] == len(read_by_hand(bootstrap, topic, 1, READ_UNCOMMITTED)) == 13
    assert f"barnabas transactions explain {topic}" in cli("groups", group).err
    (told,) = table(needs_kafka("groups", "--bootstrap-server", bootstrap, "--describe", "--group", group))
    assert (told["CURRENT-OFFSET"], told["LOG-END-OFFSET"], told["LAG"]) == (
        str(lag["committed"]),
        str(lag["end"]),
        str(lag["offsets"]),
    )

    holder.abort_transaction(PATIENCE_S)
    until_marked(bootstrap, f"{topic}-holder")
    commit(kafka, group, topic, 14)
    (found,) = cli("groups", group, "--json").json()
    (lag,) = found["partitions"]
    # only records of an aborted transaction and two markers are left
    assert (lag["lag"], lag["waiting"], lag["open"], lag["all"], lag["offsets"]) == (0, 0, 0, 2, 4)
    assert read_by_hand(bootstrap, topic, 14, READ_COMMITTED) == []
    (line,) = (line for line in cli("groups", group).lines if line.startswith(f"{topic} "))
    assert line.split()[2:9] == ["14", "18", "18", "0", "0", "0", "2"]


def test_lag_begins_where_the_log_does_if_the_committed_offset_is_gone(
    cli: Run, kafka: Kafka, topic: str
) -> None:
    group = f"{topic}-g"
    assert cli("topics", "create", topic, "-p", 2, "-r", kafka.brokers).status == 0
    send_each(plain(kafka.bootstrap), topic, "abcde")
    commit(kafka, group, topic, 1, 9)
    before = TopicPartition(topic, 0, 3)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_records([before])[before].result(60)
    gone, behind = cli("groups", group, "--json").json()[0]["partitions"]
    assert (gone["lag"], gone["all"], gone["offsets"]) == (2, 2, 4)
    assert "the committed offset 1 is gone, the log starts at 3" in gone["note"]
    assert (behind["lag"], behind["all"], behind["offsets"]) == (0, 0, -9)
    assert "the committed offset 9 is after the end 0" in behind["note"]


@pytest.mark.several_nodes_matter
def test_an_offset_that_an_open_transaction_is_about_to_commit_is_shown(
    cli: Run, kafka: Kafka, topic: str
) -> None:
    group = f"{topic}-g"
    assert cli("topics", "create", topic, "-p", 2, "-r", kafka.brokers).status == 0
    send_at_once(plain(kafka.bootstrap), topic, "abc")
    commit(kafka, group, topic, 1, 0)
    producer = new_producer(kafka.bootstrap, topic)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})
    offsets = [TopicPartition(topic, 0, 3)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)

    (found,) = cli("groups", group, "--json").json()
    first, second = found["partitions"]
    assert (first["committed"], first["unstable"]) == (1, True)
    assert second["unstable"] is False
    assert "about to commit" in first["note"]
    waiting = cli("transactions", "explain", "--internal", "--json").json()["waiting"]
    (blocker,) = (
        one
        for each in waiting
        for one in each["transactions"]
        if each["topic"] == "__consumer_offsets" and one["transactional_id"] == topic
    )
    assert (blocker["verdict"], blocker["records"]) == ("open", 1)

    producer.commit_transaction(PATIENCE_S)
    consumer.close()
    until_marked(kafka.bootstrap, topic)
    (found,) = cli("groups", group, "--json").json()
    assert [(each["committed"], each["unstable"]) for each in found["partitions"]] == [(3, False), (0, False)]


def test_lag_passes_over_the_gaps_that_compaction_leaves(tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": 50}
    compacted = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "internal.segment.bytes": "600",
        "file.delete.delay.ms": "0",
    }
    with barnabas.Broker(data=tmp_path, config=settings) as broker:
        bootstrap = broker.bootstrap
        create_topic(bootstrap, "t", config=compacted)
        producer = new_producer(bootstrap, "one")
        for number in range(40):
            producer.begin_transaction()
            for key in range(3):
                producer.produce("t", f"{number}", key=f"{number % 2}-{key}")
            assert producer.flush(PATIENCE_S) == 0
            if number % 4 == 3:
                producer.abort_transaction(PATIENCE_S)
            else:
                producer.commit_transaction(PATIENCE_S)

        def counted(isolation: str, offset: int) -> int:
            return len(read_by_hand(bootstrap, "t", offset, isolation))

        until(lambda: counted(READ_UNCOMMITTED, 0) < 30, "a pass of the cleaner")
        deadline_s = time.monotonic() + PATIENCE_S
        for offset in (0, 50, 101, 155):
            commit(Kafka("barnabas", bootstrap, 1), "g", "t", offset)
            while True:  # the cleaner keeps running
                before = counted(READ_COMMITTED, offset), counted(READ_UNCOMMITTED, offset)
                (lag,) = run_cli("groups", "g", "--json", bootstrap=bootstrap).json()[0]["partitions"]
                if before == (counted(READ_COMMITTED, offset), counted(READ_UNCOMMITTED, offset)):
                    break
                assert time.monotonic() < deadline_s
            assert (lag["lag"], lag["all"]) == before, offset
            assert lag["offsets"] == 160 - offset
            assert lag["exact"]
