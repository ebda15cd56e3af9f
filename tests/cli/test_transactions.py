"""`barnabas transactions`: which transaction holds the last stable offset, since when, until when, and what ends it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException

from tests.cli.conftest import ROOT, Kafka, Run
from tests.cli.transactional import (
    HOUR_MS,
    aborted,
    committed,
    ends,
    inserted,
    new_producer,
    plain,
    read_by_hand,
    send_at_once,
    send_each,
    until_marked,
    without_verification,
)
from tests.clients.confluent import PATIENCE_S
from tests.clients.test_transactions_tools import rows
from tests.clients.transactions import READ_COMMITTED
from tests.support.waiting import until

Tool = Callable[..., str]


@pytest.mark.several_nodes_matter
def test_explain_names_the_holder_of_the_readers_since_when_and_what_ends_it(
    cli: Run, kafka: Kafka, topic: str, needs_kafka: Tool
) -> None:
    assert cli("topics", "create", topic, "-p", 2, "-r", kafka.brokers).status == 0
    bootstrap = kafka.bootstrap
    send_each(plain(bootstrap), topic, "abc")
    committed(bootstrap, topic, f"{topic}-before", "de")
    began_ms = time.time() * 1000
    holder = new_producer(bootstrap, f"{topic}-holder", **{"transaction.timeout.ms": 300_000})
    holder.begin_transaction()
    send_at_once(holder, topic, "fg")
    send_each(plain(bootstrap), topic, "hij")
    aborted(bootstrap, topic, f"{topic}-aborted", "kl")
    committed(bootstrap, topic, f"{topic}-after", "m")
    second = new_producer(bootstrap, f"{topic}-second")
    second.begin_transaction()
    send_at_once(second, topic, "nop")

    found = cli("transactions", "explain", topic, "--json").json()

    (waiting,) = found["waiting"]
    assert (waiting["topic"], waiting["partition"]) == (topic, 0)
    assert (waiting["last_stable_offset"], waiting["high_watermark"]) == ends(bootstrap, topic)
    assert waiting["last_stable_offset"] == 6
    # h, i, j and m; f, g, n, o, p; k, l
    assert (waiting["records_waiting"], waiting["records_open"], waiting["records_aborted"]) == (4, 5, 2)
    assert (waiting["markers"], waiting["offsets"], waiting["exact"]) == (2, 13, True)
    first, then = waiting["transactions"]
    assert (first["transactional_id"], then["transactional_id"]) == (f"{topic}-holder", f"{topic}-second")
    assert (first["verdict"], first["records"], then["records"]) == ("open", 2, 3)
    assert first["ends_ms"] == first["started_ms"] + 300_000
    assert abs(first["started_ms"] - began_ms) < 60_000
    assert waiting["since_ms"] == first["started_ms"]
    of_kafka = ("transactions", "--bootstrap-server", bootstrap)
    producers = rows(needs_kafka(*of_kafka, "describe-producers", "--topic", topic, "--partition", "0"))
    assert {
        (row["ProducerId"], row["ProducerEpoch"], row["CurrentTransactionStartOffset"], row["LastTimestamp"])
        for row in producers
        if row["CurrentTransactionStartOffset"] != "None"
    } == {
        (
            str(each["producer_id"]),
            str(each["producer_epoch"]),
            str(each["start_offset"]),
            str(each["last_timestamp_ms"]),
        )
        for each in (first, then)
    }
    (described,) = rows(needs_kafka(*of_kafka, "describe", "--transactional-id", f"{topic}-holder"))
    shown = cli("transactions", "show", f"{topic}-holder", "--json").json()
    assert {
        "CoordinatorId": str(shown["coordinator"]),
        "ProducerId": str(shown["producer_id"]),
        "ProducerEpoch": str(shown["producer_epoch"]),
        "TransactionState": shown["state"],
        "TransactionTimeoutMs": str(shown["timeout_ms"]),
        "CurrentTransactionStartTimeMs": str(shown["started_ms"]),
        "TopicPartitions": f"{topic}-0",
    }.items() <= described.items()
    assert shown["started_ms"] == first["started_ms"]

    said = cli("transactions", "explain", topic).out
    assert f"{topic}-0: readers of committed records wait at offset 6 (of 19), since " in said
    assert "4 records that they get once no transaction is open before them, 5 records of open" in said
    assert f"stop or restart the application whose transactional.id is {topic}-holder" in said
    (command, _) = re.findall(r"^ +barnabas (transactions abort --id .*)$", said, re.MULTILINE)
    refused = cli(*command.split())
    assert (refused.status, refused.err.count("\n")) == (2, 1)
    assert "--yes" in refused.err
    ended = cli(*command.split(), "--yes")
    assert (ended.status, ended.out) == (0, "")
    assert "its previous producer is fenced" in ended.err
    with pytest.raises(KafkaException, match="fenced"):
        holder.commit_transaction(PATIENCE_S)
    (waiting,) = cli("transactions", "explain", topic, "--json").json()["waiting"]
    assert [each["transactional_id"] for each in waiting["transactions"]] == [f"{topic}-second"]
    second.commit_transaction(PATIENCE_S)
    until_marked(bootstrap, f"{topic}-second")
    nobody = cli("transactions", "explain", topic)
    assert nobody.status == 0
    assert "Nobody waits for a transaction: of 2 partitions none" in nobody.out
    given = read_by_hand(bootstrap, topic, 6, READ_COMMITTED)
    assert "".join(value for _, value in given) == "hijmnop"
    again = cli("transactions", "abort", "--id", f"{topic}-holder", "--yes")
    assert again.status == 1
    assert "it has nothing open" in again.err


@pytest.mark.several_nodes_matter
def test_list_has_all_transactional_ids_of_all_brokers_as_kafkas_tool_has(
    cli: Run, kafka: Kafka, topic: str, needs_kafka: Tool
) -> None:
    assert cli("topics", "create", topic).status == 0
    committed(kafka.bootstrap, topic, f"{topic}-committed", "a")
    # nothing is written yet, so nobody waits
    idle = new_producer(kafka.bootstrap, f"{topic}-idle")
    idle.begin_transaction()
    running = new_producer(kafka.bootstrap, f"{topic}-running")
    running.begin_transaction()
    send_at_once(running, topic, "b")

    listed = {each["transactional_id"]: each for each in cli("transactions", "--json").json()}

    told = rows(needs_kafka("transactions", "--bootstrap-server", kafka.bootstrap, "list"))
    assert {
        (
            each["transactional_id"],
            str(each["coordinator"]),
            str(each["producer_id"]),
            each["state"].replace("CompleteCommit", "Complete"),
        )
        for each in listed.values()
        if each["transactional_id"].startswith(topic)
    } == {
        (
            row["TransactionalId"],
            row["Coordinator"],
            row["ProducerId"],
            row["TransactionState"].replace("CompleteCommit", "Complete"),
        )
        for row in told
        if row["TransactionalId"].startswith(topic)
    }
    assert listed[f"{topic}-idle"]["state"] == "Empty"
    assert listed[f"{topic}-running"]["partitions"] == [{"topic": topic, "partition": 0}]
    (line,) = (line for line in cli("transactions").lines if line.startswith(f"{topic}-running "))
    assert line.split()[1] == "Ongoing"
    ongoing = cli("transactions", "--state", "Ongoing", "--json").json()
    assert {each["state"] for each in ongoing} == {"Ongoing"}
    mine = [each for each in ongoing if each["transactional_id"].startswith(topic)]
    assert mine == [listed[f"{topic}-running"]]
    running.abort_transaction(PATIENCE_S)
    missing = cli("transactions", "show", f"{topic}-nobody")
    assert missing.status == 1
    assert f"there is no transactional id {topic}-nobody" in missing.err


def test_explain_shows_an_expired_transaction_until_the_broker_has_aborted_it(
    cli: Run, kafka: Kafka, topic: str
) -> None:
    assert cli("topics", "create", topic, "-r", kafka.brokers).status == 0
    slow = new_producer(kafka.bootstrap, topic, **{"transaction.timeout.ms": 1_000})
    slow.begin_transaction()
    send_at_once(slow, topic, "abc")
    assert cli("transactions", "show", topic, "--json").json()["timeout_ms"] == 1_000

    until(lambda: ends(kafka.bootstrap, topic) == (4, 4), "the broker's own marker")

    assert cli("transactions", "show", topic, "--json").json()["state"] in ("CompleteAbort", "PrepareAbort")
    said = cli("transactions", "explain", topic).out
    assert "Nobody waits" in said
    assert f"{topic}-0: the last 4 offsets hold no record for readers of committed ones" in said


@pytest.mark.several_nodes_matter
def test_explain_finds_a_hanging_transaction_as_kafkas_tool_does_and_names_its_remedy(
    cli: Run, kafka: Kafka, topic: str, needs_kafka: Tool
) -> None:
    bootstrap = kafka.bootstrap
    assert cli("topics", "create", topic, "-r", kafka.brokers).status == 0
    assert cli("topics", "create", f"{topic}-first").status == 0
    committed(bootstrap, topic, f"{topic}-idle", "a")
    idle = cli("transactions", "show", f"{topic}-idle", "--json").json()
    with without_verification(bootstrap, f"{topic}-first"):
        # One transaction that nobody knows, and one of a producer whose coordinator has ended all of its transactions.
        assert inserted(bootstrap, topic, 4_711, values=(b"x", b"y")) == 0
        epoch = idle["producer_epoch"] + 1
        assert inserted(bootstrap, topic, idle["producer_id"], epoch=epoch) == 0
    running = new_producer(bootstrap, f"{topic}-running")
    running.begin_transaction()
    running.produce(topic, "slow", partition=0, timestamp=round(time.time() * 1000) - HOUR_MS)
    assert running.flush(PATIENCE_S) == 0
    send_each(plain(bootstrap), topic, "bcd")

    (waiting,) = cli("transactions", "explain", topic, "--json").json()["waiting"]

    assert (waiting["last_stable_offset"], waiting["records_waiting"], waiting["records_open"]) == (2, 3, 4)
    hanging = [each for each in waiting["transactions"] if each["verdict"] == "hanging"]
    told = rows(
        needs_kafka("transactions", "--bootstrap-server", bootstrap, "find-hanging", "--topic", topic)
    )
    assert {
        (
            row["ProducerId"],
            row["ProducerEpoch"],
            row["CoordinatorEpoch"],
            row["StartOffset"],
            row["LastTimestamp"],
        )
        for row in told
    } == {
        (
            str(each["producer_id"]),
            str(each["producer_epoch"]),
            str(each["coordinator_epoch"]),
            str(each["start_offset"]),
            str(each["last_timestamp_ms"]),
        )
        for each in hanging
    }
    assert [(each["producer_id"], each["start_offset"], each["records"]) for each in hanging] == [
        (4_711, 2, 2),
        (idle["producer_id"], 4, 1),
    ]
    assert "no coordinator knows producer id 4711" in hanging[0]["why"]
    assert "doesn't have this partition in the transaction" in hanging[1]["why"]

    in_partition = ("transactions", "abort", "--topic", topic, "--partition", 0, "--yes")
    elsewhere = cli(*in_partition, "--start-offset", 3)
    assert elsewhere.status == 1
    assert "those that are open start at 2, 4, 5" in elsewhere.err
    known = cli(*in_partition, "--start-offset", 5)
    assert known.status == 1
    assert "it doesn't hang, but its application has neither committed nor aborted it yet" in known.err
    assert f"barnabas transactions abort --id {topic}-running" in known.err
    said = cli("transactions", "explain", topic).out
    assert said.count("No broker will ever end it.") == 2
    commands = re.findall(r"^ +barnabas (transactions abort --topic .*)$", said, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        ended = cli(*command.split(), "--yes")
        assert ended.status == 0, ended.err
    running.commit_transaction(PATIENCE_S)
    until_marked(bootstrap, f"{topic}-running")
    assert "Nobody waits" in cli("transactions", "explain", topic).out
    given = read_by_hand(bootstrap, topic, 0, READ_COMMITTED)
    assert [value for _, value in given] == ["a", "slow", "b", "c", "d"]


def test_abort_asks_at_a_terminal_and_does_nothing_without_a_yes(kafka: Kafka, topic: str, cli: Run) -> None:
    assert cli("topics", "create", topic).status == 0
    holder = new_producer(kafka.bootstrap, topic)
    holder.begin_transaction()
    send_at_once(holder, topic, "a")
    for answer, status, said in [("n\n", 1, "nothing was done"), ("y\n", 0, "aborted")]:
        here, there = pty.openpty()
        os.write(here, answer.encode())
        done = subprocess.run(
            [sys.executable, "-m", "barnabas", "transactions", "abort", "--id", topic],
            stdin=there,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "BARNABAS_BOOTSTRAP": kafka.bootstrap},
            check=False,
        )
        os.close(here)
        os.close(there)
        assert done.returncode == status, done.stderr
        assert f"Abort what {topic} has open in 1 partition, and fence its application? [y/N]" in done.stderr
        assert said in done.stderr
    until(lambda: ends(kafka.bootstrap, topic) == (2, 2), "the marker")


@pytest.mark.several_nodes_matter
def test_explain_without_a_topic_examines_all_and_says_so_if_nobody_waits(
    cli: Run, kafka: Kafka, topic: str
) -> None:
    assert cli("topics", "create", topic, "-p", 3).status == 0
    holder = new_producer(kafka.bootstrap, topic)
    holder.begin_transaction()
    send_at_once(holder, topic, "a", partition=1)
    send_at_once(holder, topic, "b", partition=2)
    waiting = cli("transactions", "explain", "--json").json()["waiting"]
    of_it = [each for each in waiting if each["topic"] == topic]
    assert [(each["partition"], each["records_open"]) for each in of_it] == [(1, 1), (2, 1)]
    holder.commit_transaction(PATIENCE_S)
    until_marked(kafka.bootstrap, topic)
    left = cli("transactions", "explain", "--json").json()
    assert topic not in {each["topic"] for each in left["waiting"]}
    assert left["partitions"] >= 3


def test_a_mistake_with_transactions_is_one_line(cli: Run, topic: str) -> None:
    assert cli("topics", "create", topic).status == 0
    here = ("transactions", "abort", "--topic", topic, "--partition", 0)
    for arguments, status, words in [
        (("transactions", "explain", f"{topic}-x"), 1, "there is no such topic"),
        (("transactions", "abort"), 2, "--start-offset"),
        ((*here, "--yes"), 2, "--start-offset"),
        ((*here, "--start-offset", 0, "--id", "x"), 2, "either"),
        ((*here, "--start-offset", 0, "--yes"), 1, "no open transaction"),
        (("transactions", "abort", "--id", f"{topic}-x", "--yes"), 1, "there is no transactional id"),
    ]:
        ran = cli(*arguments)
        assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1), (arguments, ran)
        assert words in ran.err
