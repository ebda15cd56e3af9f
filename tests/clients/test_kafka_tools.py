"""Apache Kafka's own command-line tools, unchanged: a JVM each, so every test starts as few as it can."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.confluent import CODECS, create_topic, end_offsets, read, send, stored_codecs

Tool = Callable[..., str]


@pytest.fixture
def kafka(needs_kafka: Tool, bootstrap: str) -> Tool:
    """Runs a tool against the broker: `kafka("topics", "--list")` gives what it printed."""

    def run(name: str, *arguments: str, stdin: str = "") -> str:
        return needs_kafka(name, *arguments, "--bootstrap-server", bootstrap, stdin=stdin)

    return run


def partition_counts(bootstrap: str) -> dict[str, int]:
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics
    return {name: len(topic.partitions) for name, topic in topics.items()}


def test_the_console_consumer_prints_the_console_producers_records(kafka: Tool, topic: str) -> None:
    parsing = ["parse.key=true", "parse.headers=true", "null.marker=NULL"]
    kafka(
        "console-producer",
        *("--topic", topic),
        *(word for setting in parsing for word in ("--reader-property", setting)),
        stdin="h:1\tk1\tone\nh:2\tNULL\ttwo\nh:3\tk3\tNULL\n",
    )

    printing = ["print.key=true", "print.headers=true", "print.offset=true", "null.literal=NULL"]
    printed = kafka(
        "console-consumer",
        *("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "3"),
        *(word for setting in printing for word in ("--formatter-property", setting)),
    )

    assert printed.splitlines() == [
        "Offset:0\th:1\tk1\tone",
        "Offset:1\th:2\tNULL\ttwo",
        "Offset:2\th:3\tk3\tNULL",
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_producer_perf_writes_with_each_codec(kafka: Tool, bootstrap: str, topic: str, codec: str) -> None:
    create_topic(bootstrap, topic, partitions=2)

    printed = kafka(
        "producer-perf",
        *("--topic", topic, "--num-records", "3000", "--record-size", "200", "--throughput", "-1"),
        *("--command-property", f"compression.type={codec}"),
    )

    assert printed.splitlines()[-1].startswith("3000 records sent")
    written = end_offsets(bootstrap, topic, 2)
    assert sum(written) == 3_000
    for partition, count in enumerate(written):
        messages = read(bootstrap, topic, count, partition=partition)
        assert {len(message.value()) for message in messages} == {200}
    assert stored_codecs(bootstrap, topic, 2) == {codec}


@pytest.mark.parametrize("acks", ["0", "1"])
def test_producer_perf_writes_without_waiting_for_all(
    kafka: Tool, bootstrap: str, topic: str, acks: str
) -> None:
    create_topic(bootstrap, topic)

    kafka(
        "producer-perf",
        *("--topic", topic, "--num-records", "3000", "--record-size", "200", "--throughput", "-1"),
        *("--command-property", f"acks={acks}", "--command-property", "enable.idempotence=false"),
    )

    assert len(read(bootstrap, topic, 3_000)) == 3_000


def test_consumer_perf_reads_all_records(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=2)
    send(bootstrap, topic, [{"value": b"x" * 1_000, "partition": number % 2} for number in range(2_000)])

    printed = kafka("consumer-perf", "--topic", topic, "--num-records", "2000", "--hide-header")

    # data.consumed.in.nMsg is the fifth column of the line with which it ends.
    assert printed.splitlines()[-1].split(", ")[4] == "2000"


def test_topics_creates_with_partitions_and_settings(kafka: Tool, bootstrap: str, topic: str) -> None:
    settings = ("--config", "retention.ms=1234567", "--config", "cleanup.policy=compact")
    printed = kafka("topics", "--create", "--topic", topic, "--partitions", "3", *settings)

    assert printed == f"Created topic {topic}.\n"
    assert partition_counts(bootstrap)[topic] == 3


def test_topics_lists(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)

    assert topic in kafka("topics", "--list").splitlines()


def test_topics_describes_partitions_and_settings(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=2, config={"retention.ms": "1234567"})

    head, *partitions = kafka("topics", "--describe", "--topic", topic).splitlines()

    assert head.startswith(f"Topic: {topic}\tTopicId: ")
    assert "\tPartitionCount: 2\tReplicationFactor: 1\t" in head
    assert "retention.ms=1234567" in head
    for number, line in enumerate(partitions):
        described = dict(part.split(": ", 1) for part in line.strip().split("\t") if ": " in part)
        assert described["Partition"] == str(number)
        assert described["Leader"] == described["Replicas"] == described["Isr"]
    assert len(partitions) == 2


def test_topics_adds_partitions(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)

    kafka("topics", "--alter", "--topic", topic, "--partitions", "4")

    assert partition_counts(bootstrap)[topic] == 4


def test_topics_deletes(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)

    kafka("topics", "--delete", "--topic", topic)

    assert topic not in partition_counts(bootstrap)


@pytest.mark.parametrize(
    ("time", "offsets"),
    [("earliest", [0, 0]), ("latest", [3, 1]), ("max-timestamp", [1, 0]), ("1500", [1, 0])],
)
def test_get_offsets_prints_the_offset_at(
    kafka: Tool, bootstrap: str, topic: str, time: str, offsets: list[int]
) -> None:
    create_topic(bootstrap, topic, partitions=2)
    stamped = [(0, 1_000), (0, 3_000), (0, 2_000), (1, 2_000)]
    send(bootstrap, topic, [{"value": b"v", "partition": p, "timestamp": ms} for p, ms in stamped])

    printed = kafka("get-offsets", "--topic", topic, "--time", time)

    assert printed.splitlines() == [f"{topic}:{number}:{offset}" for number, offset in enumerate(offsets)]


def test_api_versions_prints_the_brokers_apis(kafka: Tool, bootstrap: str) -> None:
    printed = kafka("api-versions")

    assert printed.startswith(f"{bootstrap} (id: ")
    served = dict(re.findall(r"^\t(\w+\(\d+\)): (.*?) \[usable: \d+\],?$", printed, re.MULTILINE))
    assert served["Produce(0)"] == "0 to 13"
    assert served["Fetch(1)"] == "4 to 18"
    assert served["ApiVersions(18)"] == "0 to 5"


def test_cluster_prints_the_clusters_id(kafka: Tool, bootstrap: str) -> None:
    cluster_id = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).cluster_id

    assert kafka("cluster", "cluster-id") == f"Cluster ID: {cluster_id}\n"
