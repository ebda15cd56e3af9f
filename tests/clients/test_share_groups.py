"""Share groups (KIP-932) with Java's share consumer, Kafka's own tools and confluent-kafka."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer

import barnabas
from tests.clients.confluent import PATIENCE_S, begin_at_the_start, create_topic, send
from tests.clients.java_programs import SOURCES, run_java

Tool = Callable[..., str]

# The server says how often members are heard of; a consumer has nothing before its second heartbeat.
QUICK = {
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 100,
    "group.share.min.session.timeout.ms": 1000,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.record.lock.duration.ms": 1000,
}

CHECKS = re.findall(r"@Check\s+public void (\w+)\(", (SOURCES / "ShareChecks.java").read_text())

# One worker of xdist gets all of these: they share a broker, and the checks a JVM.
pytestmark = pytest.mark.xdist_group("share_groups")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    running = os.environ.get("BARNABAS_CLIENTS_BOOTSTRAP")
    if running:
        yield running
    else:
        with barnabas.Broker(config=QUICK) as broker:
            yield broker.bootstrap


@pytest.fixture(scope="module")
def outcomes(needs_kafka: object, bootstrap: str) -> dict[str, str]:
    """What each check of the Java program came to: "ok", or what went wrong."""
    printed = run_java("ShareChecks", bootstrap, timeout_s=PATIENCE_S)
    return dict(line.split("\t", 1) for line in printed.splitlines() if "\t" in line)


@pytest.mark.parametrize("check", CHECKS)
def test_with_javas_share_consumer(check: str, outcomes: dict[str, str]) -> None:
    assert outcomes[check] == "ok"


@pytest.fixture
def filled(bootstrap: str, topic: str) -> str:
    """A topic with 20 records in two partitions, and the settings of a group of its name, which reads them all."""
    create_topic(bootstrap, topic, partitions=2)
    send(bootstrap, topic, [{"value": f"{number}", "partition": number % 2} for number in range(20)])
    begin_at_the_start(bootstrap, topic)
    return topic


# --- Kafka's tools


@pytest.fixture
def kafka(needs_kafka: Tool, bootstrap: str) -> Tool:
    """Runs a tool against the broker: `kafka("share-groups", "--list")` gives what it printed."""

    def run(name: str, *arguments: str) -> str:
        return needs_kafka(name, *arguments, "--bootstrap-server", bootstrap)

    return run


def test_the_console_share_consumer_reads_and_the_groups_tool_shows_it(kafka: Tool, filled: str) -> None:
    printed = kafka(
        "console-share-consumer",
        *("--topic", filled, "--group", filled, "--max-messages", "20"),
        *("--formatter-property", "print.delivery=true"),
    )

    assert {*printed.splitlines()} == {f"Delivery:1\t{number}" for number in range(20)}
    assert filled in kafka("share-groups", "--list").split()
    state = kafka("share-groups", "--describe", "--group", filled, "--state").split()
    assert "Empty" in state
    described = kafka("share-groups", "--describe", "--group", filled)
    lags = [line.split()[-1] for line in described.splitlines() if f" {filled} " in line[len(filled) - 1 :]]
    assert lags == ["0", "0"], described


def test_the_groups_tool_resets_and_deletes_offsets(kafka: Tool, filled: str) -> None:
    read = ("console-share-consumer", "--topic", filled, "--group", filled, "--max-messages", "20")
    kafka(*read)

    kafka(
        "share-groups", "--reset-offsets", "--group", filled, "--topic", filled, "--to-earliest", "--execute"
    )
    again = kafka(*read)
    kafka("share-groups", "--delete-offsets", "--group", filled, "--topic", filled)
    deleted = kafka("share-groups", "--delete", "--group", filled)

    assert len(again.split()) == 20
    assert "successful" in deleted
    assert filled not in kafka("share-groups", "--list").split()


def test_the_verifiable_share_consumer_accepts_everything(kafka: Tool, filled: str) -> None:
    printed = kafka(
        "verifiable-share-consumer",
        *("--topic", filled, "--group-id", filled, "--max-messages", "20", "--acknowledgement-mode", "sync"),
    )

    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    acknowledged = [each for each in events if each["name"] == "offsets_acknowledged"]
    assert sum(each["count"] for each in acknowledged) == 20
    assert all(each["success"] for each in acknowledged)


def test_share_consumer_perf_reads_everything(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    send(bootstrap, topic, [{"value": b"x" * 100}] * 5000)
    begin_at_the_start(bootstrap, topic)

    printed = kafka(
        "share-consumer-perf", "--topic", topic, "--group", topic, "--num-records", "5000", "--hide-header"
    )

    assert "5000" in printed.replace(",", " ").split()


# --- confluent-kafka


def share_consumer(bootstrap: str, group: str, **config: object) -> ShareConsumer:
    given = {name.replace("_", "."): value for name, value in config.items()}
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, **given})
    consumer.subscribe([group])
    return consumer


def polled(consumer: ShareConsumer, count: int) -> list[Message]:
    """At least so many messages; fewer where nobody comes with more."""
    messages: list[Message] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(messages) < count and time.monotonic() < deadline_s:
        messages.extend(consumer.poll(0.2))
    return messages


def test_confluents_share_consumer_reads_everything_once(bootstrap: str, filled: str) -> None:
    with share_consumer(bootstrap, filled) as consumer:
        messages = polled(consumer, 20)
        refused = consumer.commit_sync(30.0)

    assert sorted(int(message.value() or b"") for message in messages) == list(range(20))
    assert not any(refused.values())


def test_records_that_confluents_share_consumer_releases_come_again(bootstrap: str, filled: str) -> None:
    mode = {"share_acknowledgement_mode": "explicit"}
    with share_consumer(bootstrap, filled, **mode) as consumer:
        first: list[Message] = []
        again: list[Message] = []
        deadline_s = time.monotonic() + PATIENCE_S
        while len(again) < 10 and time.monotonic() < deadline_s:
            for message in consumer.poll(0.2):
                is_first = message.delivery_count() == 1
                (first if is_first else again).append(message)
                how = AcknowledgeType.RELEASE if is_first and message.partition() else AcknowledgeType.ACCEPT
                consumer.acknowledge(message, how)
        assert not any(consumer.commit_sync(30.0).values())

    assert len(first) == 20
    assert {message.partition() for message in again} == {1}
    assert {message.delivery_count() for message in again} == {2}
