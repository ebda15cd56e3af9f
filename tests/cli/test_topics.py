"""`barnabas topics` shows the same as Kafka's own tools."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from tests.cli.conftest import ON_OURS_ALONE, Kafka, Run


def produced(kafka: Kafka, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(60) == 0


@pytest.mark.several_nodes_matter
def test_a_topic_is_made_shown_set_and_deleted(cli: Run, kafka: Kafka, topic: str) -> None:
    made = cli("topics", "create", topic, "-p", 2, "-r", kafka.brokers, "-c", "retention.ms=3600000")
    assert (made.status, made.err) == (0, f"{topic}: created\n")
    again = cli("topics", "create", topic)
    assert again.status == 1
    assert "TOPIC_ALREADY_EXISTS" in again.err
    produced(kafka, topic, 3)
    first, second = cli("topics", topic, "--json").json()
    assert len(first["replicas"]) == len(first["in_sync"]) == kafka.brokers
    assert (first["start"], first["end"], first["last_stable"]) == (0, 3, 3)
    assert first["bytes"] > 0
    assert first["settings"] == second["settings"] == {"retention.ms": "3600000"}
    assert (second["start"], second["end"], second["bytes"]) == (0, 0, 0)
    shown = cli("topics", topic)
    assert f"{topic}  retention.ms  3600000" in shown.lines
    (listed,) = (line for line in cli("topics").lines if line.startswith(topic + " "))
    assert listed.split()[1:5] == ["2", str(kafka.brokers), "3", "0"]
    changed = cli("topics", "configs", topic, "cleanup.policy=compact", "retention.ms=")
    assert changed.status == 0, changed.err
    configs = {each["setting"]: each for each in cli("topics", "configs", topic, "--json").json()}
    assert configs["cleanup.policy"]["value"] == "compact"
    assert configs["cleanup.policy"]["why"] == "set on the topic"
    assert configs["cleanup.policy"]["else"].startswith("delete (")
    assert configs["retention.ms"]["value"] == "604800000"
    gone = cli("topics", "delete", topic)
    assert (gone.status, gone.err) == (0, f"{topic}: deleted\n")
    missing = cli("topics", "delete", topic)
    assert missing.status == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in missing.err


@pytest.mark.several_nodes_matter
def test_offsets_are_those_of_kafkas_tool(
    cli: Run, kafka: Kafka, topic: str, needs_kafka: Callable[..., str]
) -> None:
    assert cli("topics", "create", topic, "-p", 3).status == 0
    produced(kafka, topic, 7)
    told = needs_kafka("get-offsets", "--bootstrap-server", kafka.bootstrap, "--topic", topic)
    ends = {tuple(line.rsplit(":", 2)) for line in told.split()}
    shown = cli("topics", topic, "--json").json()
    assert {(each["topic"], str(each["partition"]), str(each["end"])) for each in shown} == ends
    sizes = needs_kafka(
        "log-dirs", "--bootstrap-server", kafka.bootstrap, "--describe", "--topic-list", topic
    )
    assert f'"size":{shown[0]["bytes"]},' in sizes


def test_a_setting_that_kafka_refuses_is_reported_in_its_words(cli: Run, topic: str) -> None:
    assert cli("topics", "create", topic).status == 0
    refused = cli("topics", "configs", topic, "retention.ms=soon")
    assert refused.status == 1
    assert "INVALID_CONFIG" in refused.err
    assert refused.err.count("\n") == 1


@ON_OURS_ALONE
def test_a_mistake_is_one_line(cli: Run, topic: str) -> None:
    for arguments, status, words in [
        (("topics", topic), 1, "there is no such topic"),
        (("topics", "configs", topic), 1, topic),
        (("topics", "create"), 2, "NAME"),
        (("topics", "configs", topic, "retention.ms"), 2, "KEY=VALUE"),
        (("topics", "--bootstrap", "127.0.0.1:1"), 3, "127.0.0.1:1 can't be reached"),
        (("topics", "--bootstrap", "nowhere:port"), 2, "HOST:PORT"),
        (("topics", "-X", "sasl.jaas.config=x"), 2, "sasl.username"),
        (("topics", "--config", "/nowhere"), 2, "/nowhere"),
        (("topcs",), 2, "`barnabas topics`"),
    ]:
        ran = cli(*arguments)
        assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1), (arguments, ran)
        assert words in ran.err
