"""Consumer groups with Apache Kafka's own tools and Java clients."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

import barnabas
from tests.clients.confluent import PATIENCE_S, create_topic, send
from tests.clients.java_programs import SOURCES, run_java

Tool = Callable[..., str]

# One worker of xdist gets all checks of the Java program, since each would start a JVM for them.
CHECKS = re.findall(r"@Check\s+public void (\w+)\(", (SOURCES / "GroupChecks.java").read_text())


@pytest.fixture
def kafka(needs_kafka: Tool, bootstrap: str) -> Tool:
    """Runs a tool against the broker: `kafka("groups", "--list")` gives what it printed."""

    def run(name: str, *arguments: str, **more: object) -> str:
        return needs_kafka(name, *arguments, "--bootstrap-server", bootstrap, **more)

    return run


def filled(bootstrap: str, topic: str, count: int = 20, partitions: int = 2) -> None:
    # The records are of 1970, and retention would take them whenever it comes by.
    create_topic(bootstrap, topic, partitions=partitions, config={"retention.ms": "-1"})
    send(
        bootstrap,
        topic,
        [
            {"value": f"{number}", "partition": number % partitions, "timestamp": 1_000_000 * (number + 1)}
            for number in range(count)
        ],
    )


def commit(bootstrap: str, group: str, topic: str, *offsets: int) -> None:
    """Commit an offset for each partition, of a group without members."""
    partitions = [TopicPartition(topic, index, offset) for index, offset in enumerate(offsets)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, partitions)
    admin.alter_consumer_group_offsets([wanted])[group].result(PATIENCE_S)


def committed(bootstrap: str, group: str) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(PATIENCE_S)
    return {each.partition: each.offset for each in found.topic_partitions}


def rows(printed: str) -> list[dict[str, str]]:
    """A table as dicts. Heads and cells have no blanks inside."""
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    head = next(line for line in lines if line[0] in ("GROUP", "TOPIC"))
    return [dict(zip(head, line, strict=False)) for line in lines[lines.index(head) + 1 :]]


def test_the_console_consumer_reads_in_a_group(kafka: Tool, bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic)
    arguments = ("--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "20")

    printed = kafka("console-consumer", *arguments)

    assert {*printed.split()} == {str(number) for number in range(20)}
    assert committed(bootstrap, topic) == {0: 10, 1: 10}


def test_consumer_perf_reads_everything_in_a_group(kafka: Tool, bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic, count=500)

    printed = kafka("consumer-perf", "--topic", topic, "--group", topic, "--num-records", "500")

    figures = dict(
        zip(*(re.split(r", ", line) for line in printed.splitlines() if ", " in line), strict=True)
    )
    assert figures["data.consumed.in.nMsg"] == "500"
    assert committed(bootstrap, topic) == {0: 250, 1: 250}


def test_the_groups_tool_lists_and_describes(kafka: Tool, bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic)
    commit(bootstrap, topic, topic, 4, 10)

    listed = kafka("groups", "--list", "--state")
    assert {"GROUP": topic, "STATE": "Empty"}.items() <= next(
        row for row in rows(listed) if row["GROUP"] == topic
    ).items()

    offsets = {row["PARTITION"]: row for row in rows(kafka("groups", "--describe", "--group", topic))}
    assert [
        (offsets[i]["CURRENT-OFFSET"], offsets[i]["LOG-END-OFFSET"], offsets[i]["LAG"]) for i in "01"
    ] == [
        ("4", "10", "6"),
        ("10", "10", "0"),
    ]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (("--to-earliest",), {0: 0, 1: 0}),
        (("--to-latest",), {0: 10, 1: 10}),
        (("--to-current",), {0: 4, 1: 6}),
        (("--to-offset", "7"), {0: 7, 1: 7}),
        (("--to-offset", "99"), {0: 10, 1: 10}),
        (("--shift-by", "-3"), {0: 1, 1: 3}),
        # 10,000 s; the records are 1,000 s apart, the first one at that
        (("--to-datetime", "1970-01-01T02:46:40.000"), {0: 5, 1: 4}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_the_groups_tool_resets_offsets_in_each_of_its_ways(
    kafka: Tool, bootstrap: str, topic: str, how: tuple[str, ...], expected: dict[int, int]
) -> None:
    filled(bootstrap, topic)
    commit(bootstrap, topic, topic, 4, 6)

    printed = kafka("groups", "--reset-offsets", "--execute", "--group", topic, "--topic", topic, *how)

    assert {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in rows(printed)} == expected
    assert committed(bootstrap, topic) == expected


def test_the_groups_tool_resets_offsets_from_a_file(
    kafka: Tool, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    filled(bootstrap, topic)
    commit(bootstrap, topic, topic, 4, 6)
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,2\n{topic},1,9\n")

    kafka("groups", "--reset-offsets", "--execute", "--group", topic, "--from-file", str(plan))

    assert committed(bootstrap, topic) == {0: 2, 1: 9}


def test_the_groups_tool_deletes_offsets_and_groups(kafka: Tool, bootstrap: str, topic: str) -> None:
    filled(bootstrap, topic)
    commit(bootstrap, topic, topic, 4, 6)

    printed = kafka("groups", "--delete-offsets", "--group", topic, "--topic", f"{topic}:0")
    assert rows(printed) == [{"TOPIC": topic, "PARTITION": "0", "STATUS": "Successful"}]
    assert committed(bootstrap, topic) == {1: 6}

    assert "was successful" in kafka("groups", "--delete", "--group", topic)
    assert topic not in kafka("groups", "--list").split()


def test_dump_log_decodes_the_stored_records(
    needs_kafka: Tool, barnabas_broker: Callable[..., barnabas.Broker], topic: str
) -> None:
    broker = barnabas_broker(config={"offsets.topic.num.partitions": 1})
    filled(broker.bootstrap, topic)
    arguments = ("--topic", topic, "--group", "the-group", "--from-beginning", "--max-messages", "20")
    needs_kafka("console-consumer", *arguments, "--bootstrap-server", broker.bootstrap)
    log = broker.data / "__consumer_offsets-0" / "00000000000000000000.log"

    printed = needs_kafka("dump-log", "--offsets-decoder", "--files", log)

    keys_and_values = re.findall(r"key: (\{.*\}) payload: (\{.*\})", printed)
    assert len(keys_and_values) >= 4
    assert "isvalid: false" not in printed
    assert re.search(r'"generation":1,"protocol":"range","leader":"console-consumer-[^"]+"', printed)
    assert re.search(
        rf'"group":"the-group","topic":"{topic}","partition":1\}}\}} payload: .*"offset":10', printed
    )


@pytest.fixture(scope="module")
def outcomes(needs_kafka: object, bootstrap: str) -> dict[str, str]:
    """What each check of the Java program came to: "ok", or what went wrong."""
    printed = run_java("GroupChecks", bootstrap)
    return dict(line.split("\t", 1) for line in printed.splitlines() if "\t" in line)


@pytest.mark.xdist_group("java_groups")
@pytest.mark.parametrize("check", CHECKS)
def test_with_javas_clients(check: str, outcomes: dict[str, str]) -> None:
    assert outcomes[check] == "ok"
