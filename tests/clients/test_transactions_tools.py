"""Transactions under Apache Kafka's own tools. A JVM each: a test starts as few as it can."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException

from protocol.records.batch import build_batch
from tests.clients.confluent import PATIENCE_S, create_topic, read, send
from tests.clients.transactions import (
    LAST,
    READ_COMMITTED,
    log_end,
    new_producer,
    running_server,
    send_now,
    stable_end,
)
from tests.support.kafka_server import Server
from tests.support.ready_requests import fetch_batches, produce_frame, produce_in_flight
from tests.support.wire import Client

Tool = Callable[..., str]

HEAD = ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
UNKNOWN_PRODUCER_ID = 4711
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker whose partitions take any record as part of a transaction, as all did before KIP-890."""
    unverified = {"transaction_partition_verification_enable": "false"}
    with running_server(tmp_path_factory.mktemp("transactional"), **unverified) as server:
        yield server


@pytest.fixture
def bootstrap(server: Server) -> str:
    return server.bootstrap


@pytest.fixture
def kafka(needs_kafka: Tool, bootstrap: str) -> Tool:
    """Runs a tool against the broker: `kafka("transactions", "list")` gives what it printed."""

    def run(name: str, *arguments: str) -> str:
        return needs_kafka(name, "--bootstrap-server", bootstrap, *arguments)

    return run


def rows(printed: str) -> list[dict[str, str]]:
    """A table as dicts."""
    # Each of its lines ends with a tab.
    head, *lines = ([cell.strip() for cell in line.split("\t")[:-1]] for line in printed.splitlines())
    return [dict(zip(head, line, strict=True)) for line in lines]


def insert(bootstrap: str, topic: str, transactional_id: str, producer_id: int, timestamp_ms: int) -> None:
    """Append a record in a transaction that the coordinator wasn't told of."""
    batch = build_batch(
        [(timestamp_ms, None, b"hanging", ())],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    client = Client.of(bootstrap)
    frame = produce_frame(topic, bytes(batch), acks=-1, transactional_id=transactional_id)
    produce_in_flight(client, frame, 1, 1)
    client.close()


def test_transactions_lists_and_describes(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=2)
    committed, running = (new_producer(bootstrap, f"{topic}-{what}") for what in ("committed", "running"))
    for producer in (committed, running):
        producer.begin_transaction()
        for partition in (1, 0):
            send_now(producer, topic, "value", partition)
    committed.commit_transaction(PATIENCE_S)

    listed = rows(kafka("transactions", "list"))
    states = {row["TransactionalId"]: row["TransactionState"] for row in listed}
    assert list(listed[0]) == HEAD
    assert {f"{topic}-committed": "CompleteCommit", f"{topic}-running": "Ongoing"}.items() <= states.items()

    pattern = ("--transactional-id-pattern", f".*{topic[-8:]}-running")
    (row,) = rows(kafka("transactions", "list", "--duration-filter", "1", *pattern))
    assert row["TransactionalId"] == f"{topic}-running"
    assert rows(kafka("transactions", "list", "--duration-filter", str(HOUR_MS), *pattern)) == []

    (described,) = rows(kafka("transactions", "describe", "--transactional-id", f"{topic}-running"))
    assert described["CoordinatorId"] == row["Coordinator"]
    assert described["ProducerId"] == row["ProducerId"]
    assert (described["ProducerEpoch"], described["TransactionState"]) == ("0", "Ongoing")
    assert described["TransactionTimeoutMs"] == "60000"
    assert int(described["TransactionDurationMs"]) < HOUR_MS
    assert int(described["CurrentTransactionStartTimeMs"]) > (time.time() - 3_600) * 1_000
    assert sorted(described["TopicPartitions"].split(",")) == [f"{topic}-0", f"{topic}-1"]

    producers = rows(kafka("transactions", "describe-producers", "--topic", topic, "--partition", "0"))
    starts = {producer["CurrentTransactionStartOffset"]: producer for producer in producers}
    assert starts.keys() == {"None", "1"}
    assert starts["1"]["ProducerId"] == row["ProducerId"]
    assert (starts["1"]["LatestCoordinatorEpoch"], starts["None"]["LatestCoordinatorEpoch"]) == ("-1", "0")
    assert (starts["1"]["LastSequence"], starts["None"]["LastSequence"]) == ("0", "0")


def test_transactions_reports_errors(kafka: Tool, topic: str) -> None:
    with pytest.raises(AssertionError, match="the ID could not be found"):
        kafka("transactions", "describe", "--transactional-id", topic)
    with pytest.raises(AssertionError, match="INVALID_REGULAR_EXPRESSION"):
        kafka("transactions", "list", "--transactional-id-pattern", "(")


def test_transactions_finds_hanging_ones_and_aborts_them(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=2)
    long_ago_ms = int(time.time() * 1_000) - HOUR_MS
    idle = new_producer(bootstrap, f"{topic}-idle")
    idle.begin_transaction()
    send_now(idle, topic, "committed", 1)
    idle.commit_transaction(PATIENCE_S)
    idle_id = _producer_id(bootstrap, topic)
    running = new_producer(bootstrap, f"{topic}-running")
    running.begin_transaction()
    running.produce(topic, "slow", partition=1, timestamp=long_ago_ms)
    assert running.flush(PATIENCE_S) == 0
    # One whose transactional id nobody knows, one whose coordinator knows of nothing open.
    insert(bootstrap, topic, f"{topic}-gone", UNKNOWN_PRODUCER_ID, long_ago_ms)
    insert(bootstrap, topic, f"{topic}-idle", idle_id, long_ago_ms)
    send(bootstrap, topic, [{"value": LAST, "partition": 0}])
    assert (stable_end(bootstrap, topic), log_end(bootstrap, topic)) == (0, 3)

    hanging = rows(kafka("transactions", "find-hanging", "--topic", topic))

    assert {(row["Partition"], row["ProducerId"], row["StartOffset"]) for row in hanging} == {
        ("0", str(UNKNOWN_PRODUCER_ID), "0"),
        ("0", str(idle_id), "1"),
    }
    assert {row["Duration(min)"] for row in hanging} == {"60"}
    for row in hanging:
        in_partition = ("--topic", row["Topic"], "--partition", row["Partition"])
        kafka("transactions", "abort", *in_partition, "--start-offset", row["StartOffset"])
    assert (stable_end(bootstrap, topic), log_end(bootstrap, topic)) == (5, 5)
    (message,) = read(bootstrap, topic, 1, **{"isolation.level": READ_COMMITTED})
    assert message.value().decode() == LAST
    running.commit_transaction(PATIENCE_S)


def _producer_id(bootstrap: str, topic: str) -> int:
    """Of the first record in partition 1."""
    client = Client.of(bootstrap)
    header = next(fetch_batches(client, topic, 1, 1_000_000, partition=1))
    client.close()
    return header.producer_id


def test_transactions_terminates_one_by_its_id(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    producer = new_producer(bootstrap, topic)
    producer.begin_transaction()
    send_now(producer, topic, "open")

    kafka("transactions", "forceTerminateTransaction", "--transactionalId", topic)

    assert stable_end(bootstrap, topic) == 2
    with pytest.raises(KafkaException, match="fenced"):
        producer.commit_transaction(PATIENCE_S)


def test_producer_perf_writes_in_transactions_which_the_console_consumer_reads(
    kafka: Tool, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic)
    producer = new_producer(bootstrap, topic)
    producer.begin_transaction()
    send_now(producer, topic, "aborted")
    producer.abort_transaction(PATIENCE_S)
    count = ("--num-records", "500", "--throughput", "5000", "--record-size", "20")
    kafka("producer-perf", "--topic", topic, *count, "--transaction-duration-ms", "10")

    printed = kafka(
        "console-consumer",
        *("--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--isolation-level", READ_COMMITTED, "--max-messages", "500"),
    )

    assert {len(line) for line in printed.splitlines()} == {20}
    # Two for the one that was aborted, and the markers of more than one commit.
    assert stable_end(bootstrap, topic) > 503


def test_dump_log_decodes_the_stored_records(
    needs_kafka: Tool, server: Server, bootstrap: str, topic: str
) -> None:
    create_topic(bootstrap, topic, partitions=2)
    producer = new_producer(bootstrap, topic)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for partition in (0, 1):
            send_now(producer, topic, "value", partition)
        end(PATIENCE_S)

    logs = ",".join(str(path) for path in server.data.glob("__transaction_state-*/*.log"))
    printed = needs_kafka("dump-log", "--transaction-log-decoder", "--files", logs)

    assert "isvalid: false" not in printed
    found = [
        (json.loads(key)["data"]["transactionalId"], json.loads(value)["data"])
        for key, value in re.findall(r"key: (\{.*\}) payload: (\{.*\})$", printed, re.MULTILINE)
    ]
    values = [value for transactional_id, value in found if transactional_id == topic]
    # Ongoing once for each partition.
    assert [value["transactionStatus"] for value in values] == [
        *("Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"),
        *("Ongoing", "Ongoing", "PrepareAbort", "CompleteAbort"),
    ]
    assert (
        len(
            {(value["producerId"], value["producerEpoch"], value["transactionTimeoutMs"]) for value in values}
        )
        == 1
    )
    assert {value["previousProducerId"] for value in values} == {values[0]["producerId"]}
    assert [_partitions(value) for value in values[:5]] == [None, [0], [0, 1], [0, 1], []]


def _partitions(value: dict[str, Any]) -> list[int] | None:
    """Of the one topic that the transaction is in; None where it never had any."""
    topics = value["transactionPartitions"]
    return None if topics is None else sorted(index for each in topics for index in each["partitionIds"])
