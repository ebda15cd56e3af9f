"""The console shows the same numbers and the same holders of readers as the commands and Kafka's own tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.cli.conftest import Kafka, Run
from tests.cli.console.asking import Asking
from tests.cli.transactional import (
    aborted,
    commit,
    committed,
    ends,
    inserted,
    plain,
    read_by_hand,
    send_at_once,
    send_each,
    table,
    without_verification,
)
from tests.clients.transactions import READ_COMMITTED, READ_UNCOMMITTED, new_producer

Tool = Callable[..., str]
OF_THE_MOMENT = ("at_ms", "words", "end_with")


def history(kafka: Kafka, cli: Run, topic: str) -> Producer:
    """Plain records, and transactions that are committed, aborted, open (its producer is answered), and hanging."""
    assert cli("topics", "create", topic, "-p", 2, "-r", kafka.brokers).status == 0
    bootstrap = kafka.bootstrap
    send_each(plain(bootstrap), topic, "abc")
    committed(bootstrap, topic, f"{topic}-before", "de")
    aborted(bootstrap, topic, f"{topic}-aborted", "kl")
    holder = new_producer(bootstrap, f"{topic}-holder", **{"transaction.timeout.ms": 600_000})
    holder.begin_transaction()
    send_at_once(holder, topic, "fg")
    with without_verification(bootstrap, topic):
        assert inserted(bootstrap, topic, 4_711) == 0
    send_each(plain(bootstrap), topic, "hij")
    committed(bootstrap, topic, f"{topic}-after", "m")
    return holder


def without(document: Any, *names: str) -> Any:
    """At any depth."""
    if isinstance(document, dict):
        return {key: without(value, *names) for key, value in document.items() if key not in names}
    if isinstance(document, list):
        return [without(each, *names) for each in document]
    return document


@pytest.mark.several_nodes_matter
def test_every_number_of_the_console_is_that_of_the_commands_and_of_kafkas_tools(
    cli: Run, kafka: Kafka, console: Asking, topic: str, needs_kafka: Tool
) -> None:
    holder = history(kafka, cli, topic)
    commit(kafka, topic, topic, 1, 0)

    explained = console.api("explain", topic=topic)
    assert without(explained, *OF_THE_MOMENT) == without(
        cli("transactions", "explain", topic, "--json").json(), *OF_THE_MOMENT
    )
    (waiting,) = explained["waiting"]
    verdicts = {each["producer_id"]: each["verdict"] for each in waiting["transactions"]}
    assert verdicts[4_711] == "hanging"
    assert sorted(verdicts.values()) == ["hanging", "hanging", "open"]  # 4710 is from `without_verification`
    stable, end = ends(kafka.bootstrap, topic)
    assert (waiting["last_stable_offset"], waiting["high_watermark"]) == (stable, end)

    shown = console.api("topic", topic=topic)["partitions"]
    assert shown == without(cli("topics", topic, "--json").json(), "settings")
    of_tool = needs_kafka("get-offsets", "--bootstrap-server", kafka.bootstrap, "--topic", topic)
    assert sorted(of_tool.split()) == [f"{topic}:{row['partition']}:{row['end']}" for row in shown]

    group = console.api("group", group=topic)
    assert group == cli("groups", topic, "--json").json()[0]
    (of_first,) = (each for each in group["partitions"] if each["partition"] == 0)
    assert of_first["lag"] == len(read_by_hand(kafka.bootstrap, topic, 1, READ_COMMITTED))
    assert of_first["all"] == len(read_by_hand(kafka.bootstrap, topic, 1, READ_UNCOMMITTED))
    of_tool = needs_kafka("groups", "--bootstrap-server", kafka.bootstrap, "--describe", "--group", topic)
    lags = {row["PARTITION"]: row["LAG"] for row in table(of_tool)}
    assert lags == {str(each["partition"]): str(each["offsets"]) for each in group["partitions"]}

    of_topic = [each for each in console.api("transactions") if each["transactional_id"].startswith(topic)]
    told = cli("transactions", "list", "--json").json()
    assert of_topic == [each for each in told if each["transactional_id"].startswith(topic)]
    with console.live("topics") as events:
        (line,) = events.until(
            lambda seen: [row for row in seen.values.get("topics", []) if row[0] == topic and None not in row]
        )
    sizes = sum(row["bytes"] for row in shown)
    assert line[:6] == [topic, 2, kafka.brokers, end, end - stable, sizes]
    holder.abort_transaction(60)


@pytest.mark.several_nodes_matter
def test_the_ribbon_shows_each_batchs_outcome_as_readers_find_it(
    cli: Run, kafka: Kafka, console: Asking, topic: str
) -> None:
    holder = history(kafka, cli, topic)

    ribbon = console.api("ribbon", topic=topic, partition=0, **{"from": "earliest"})

    stable, end = ends(kafka.bootstrap, topic)
    assert (ribbon["start"], ribbon["stable"], ribbon["end"], ribbon["next"]) == (0, stable, end, end)
    batches = ribbon["batches"]
    given = [each for each in batches if each["kind"] == "plain" and each["fate"] in ("", "committed")]
    now = [offset for offset, _ in read_by_hand(kafka.bootstrap, topic, 0, READ_COMMITTED)]
    assert [
        offset for each in given for offset in range(each["base"], each["last"] + 1) if offset < stable
    ] == now
    records = console.api("records", topic=topic, partition=0, **{"from": "earliest"}, committed=1)
    assert [each["offset"] for each in records["records"]] == [
        offset for each in given for offset in range(each["base"], each["last"] + 1)
    ]
    fates = [each["fate"] for each in batches if each["fate"]]
    assert {*fates} == {"committed", "aborted", "open"}
    assert [each["kind"] for each in batches if each["kind"] != "plain"] == ["commit", "abort", "commit"]
    # each of them is described the same on its own
    for each in batches:
        alone = console.api("batch", topic=topic, partition=0, offset=each["base"])
        assert {name: alone[name] for name in each} == each
    holder.abort_transaction(60)


def test_a_transaction_is_shown_step_by_step_with_the_records_behind_each_step(
    cli: Run, kafka: Kafka, console: Asking, topic: str
) -> None:
    assert cli("topics", "create", topic, "-p", 2, "-r", kafka.brokers).status == 0
    name = f"{topic}-watched"
    with console.live("lanes", f"log:{topic}:0") as events:

        def states() -> list[str]:
            found = [each for each in events.lists.get("lanes", {}).values() if each["id"] == name]
            return [step["state"] for each in found for step in each["steps"]]

        producer = new_producer(kafka.bootstrap, name)
        producer.begin_transaction()
        send_at_once(producer, topic, "ab")
        events.until(lambda _: states() and states()[-1] == "Ongoing")
        events.until(lambda seen: seen.values.get(f"log:{topic}:0") == [0, 0, 2])
        producer.commit_transaction(60)
        events.until(lambda _: states()[-1:] == ["CompleteCommit"])
        events.until(lambda seen: seen.values.get(f"log:{topic}:0") == [0, 3, 3])
        (lane,) = (each for each in events.lists["lanes"].values() if each["id"] == name)
    assert "PrepareCommit" in states()
    assert lane["partitions"] == [f"{topic}-0"]
    for step in lane["steps"]:
        partition, offset = step["place"]
        found = console.api(
            "records", topic="__transaction_state", partition=partition, **{"from": offset}, most=1
        )
        (record,) = found["records"]
        assert record["says"]["transactional_id"] == name
        assert record["says"]["state"] == step["state"]


def test_a_hanging_transaction_is_aborted_after_a_question_and_none_that_has_changed(
    cli: Run, kafka: Kafka, console: Asking, topic: str
) -> None:
    assert cli("topics", "create", topic, "-p", 1, "-r", kafka.brokers).status == 0
    with without_verification(kafka.bootstrap, topic):
        assert inserted(kafka.bootstrap, topic, 4_712) == 0
    (waiting,) = console.api("explain", topic=topic)["waiting"]
    for each in waiting["transactions"]:
        asked = {"topic": topic, "partition": 0, "start_offset": each["start_offset"]}
        question = console.post("abort", asked).json()
        assert f"producer id {each['producer_id']} in {topic}-0" in question["question"]
        refused = console.post("abort", {**asked, "seen": "another one", "execute": True})
        assert (refused.status, b"changed meanwhile" in refused.body) == (409, True)
        done = console.post("abort", {**asked, "seen": question["seen"], "execute": True}).json()
        assert "is aborted" in done["done"]
    assert console.api("explain", topic=topic)["waiting"] == []
    assert cli("transactions", "explain", topic, "--json").json()["waiting"] == []
    assert console.post("abort", asked).status == 409


def test_offsets_are_set_and_records_deleted_after_a_question(
    cli: Run, kafka: Kafka, console: Asking, topic: str
) -> None:
    assert cli("topics", "create", topic, "-p", 1, "-r", kafka.brokers).status == 0
    send_each(plain(kafka.bootstrap), topic, "abcdef")
    commit(kafka, topic, topic, 5)

    asked = {"group": topic, "topics": [topic], "to": "shift -2"}
    planned = console.post("reset", asked).json()
    assert [(row["from"], row["to"]) for row in planned["table"]] == [(5, 3)]
    assert console.api("group", group=topic)["partitions"][0]["committed"] == 5
    console.post("reset", {**asked, "seen": planned["seen"], "execute": True}).json()
    assert console.api("group", group=topic)["partitions"][0]["committed"] == 3

    asked = {"topic": topic, "partition": 0, "before": 4}
    question = console.post("delete-records", asked).json()
    for odd in ("false", 1, None):
        told = console.post("delete-records", {**asked, "seen": question["seen"], "execute": odd})
        assert (told.status, told.body) == (400, b'{"error":"execute must be true or false"}')
    assert question["question"] == f"Delete offsets 0 to 3 of {topic}-0, for good?"
    assert console.api("topic", topic=topic)["partitions"][0]["start"] == 0
    console.post("delete-records", {**asked, "seen": question["seen"], "execute": True}).json()
    assert console.api("topic", topic=topic)["partitions"][0]["start"] == 4
    assert console.post("delete-records", {**asked, "before": 7}).status == 409
    group = console.api("group", group=topic)["partitions"][0]
    assert "the log starts at 4" in group["note"]

    asked = {"group": topic, "topics": [topic], "to": "latest"}
    planned = console.post("reset", asked).json()
    send_each(plain(kafka.bootstrap), topic, "g")  # as others do while the user reads the question
    console.post("reset", {**asked, "seen": planned["seen"], "execute": True}).json()
    assert console.api("group", group=topic)["partitions"][0]["committed"] == 7
    refused = console.post("reset", {**asked, "seen": planned["seen"], "execute": True})
    assert (refused.status, b"changed meanwhile" in refused.body) == (409, True)
