"""Consumer groups of the newer protocol (KIP-848) with Apache Kafka's own tools, which are Java's clients."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.test_consumer_groups_confluent import NewMember
from tests.clients.test_groups_confluent import poll_until
from tests.clients.test_groups_tools import commit, committed, filled, rows

Tool = Callable[..., str]
NEW = ("--command-property", "group.protocol=consumer")


@pytest.fixture
def kafka(needs_kafka: Tool, bootstrap: str) -> Tool:
    """Runs a tool against the broker: `kafka("groups", "--list")` gives what it printed."""

    def run(name: str, *arguments: str, **more: object) -> str:
        return needs_kafka(name, *arguments, "--bootstrap-server", bootstrap, **more)

    return run


def test_the_console_consumer_reads_in_a_group(kafka: Tool, bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic)
    arguments = ("--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "20")

    printed = kafka("console-consumer", *arguments, *NEW)

    assert {*printed.split()} == {str(number) for number in range(20)}
    assert committed(bootstrap, topic) == {0: 10, 1: 10}
    listed = kafka("groups", "--list", "--type", "consumer", "--state", "empty")
    (found,) = [line.split() for line in listed.splitlines() if topic in line]
    assert {each.lower() for each in found[1:]} == {"consumer", "empty"}


def test_the_tools_show_and_alter_a_group(kafka: Tool, bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic)
    member = NewMember(bootstrap, topic, topic)
    poll_until("everything is read", lambda: len(member.values) == 20, member)
    member.consumer.commit(asynchronous=False)

    (state,) = rows(kafka("groups", "--describe", "--group", topic, "--state", "--verbose"))
    assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
    assert (state["GROUP-EPOCH"], state["TARGET-ASSIGNMENT-EPOCH"]) == ("2", "2")
    (shown,) = rows(kafka("groups", "--describe", "--group", topic, "--members", "--verbose"))
    assert (shown["HOST"], shown["#PARTITIONS"], shown["CURRENT-EPOCH"]) == ("/127.0.0.1", "2", "2")
    offsets = rows(kafka("groups", "--describe", "--group", topic, "--offsets"))
    assert {(row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in offsets} == {
        ("0", "10", "0"),
        ("1", "10", "0"),
    }
    member.close()

    reset = ("--reset-offsets", "--group", topic, "--topic", topic, "--to-earliest", "--execute")
    kafka("groups", *reset)
    assert committed(bootstrap, topic) == {0: 0, 1: 0}
    kafka("groups", "--delete", "--group", topic)
    assert committed(bootstrap, topic) == {}


def test_offsets_that_an_administrator_committed_are_a_members_to_begin_with(
    kafka: Tool, bootstrap: str, topic: str
) -> None:
    filled(bootstrap, topic)
    commit(bootstrap, topic, topic, 8, 9)
    arguments = ("--topic", topic, "--group", topic, "--max-messages", "3")

    printed = kafka("console-consumer", *arguments, *NEW)

    assert len(printed.split()) == 3
