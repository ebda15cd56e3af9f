"""Kafka's command-line tools for those who look after a broker. A JVM each: a test starts as few as it can.

Settings of the broker as a whole are altered by only one test, which restores them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.confluent import create_topic, end_offsets, read, send

Tool = Callable[..., str]


@pytest.fixture
def kafka(needs_kafka: Tool, bootstrap: str) -> Tool:
    """Runs a tool against the broker: `kafka("topics", "--list")` gives what it printed."""

    def run(name: str, *arguments: str | Path, stdin: str = "", check: bool = True) -> str:
        return needs_kafka(name, "--bootstrap-server", bootstrap, *arguments, stdin=stdin, check=check)

    return run


@pytest.fixture
def broker_id(bootstrap: str) -> str:
    (broker,) = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).brokers
    return str(broker)


def described(printed: str) -> dict[str, str]:
    """Name → value of the settings that kafka-configs printed."""
    return dict(re.findall(r"^  (\S+?)=(.*?) sensitive=", printed, re.MULTILINE))


# --- configs ------------------------------------------------------------------------------------------------


def test_configs_alters_and_describes_a_topic(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, config={"segment.ms": "60000"})
    of_topic = ("--entity-type", "topics", "--entity-name", topic)

    added = "retention.ms=1234567,cleanup.policy=[compact,delete],segment.ms=70000"
    kafka("configs", "--alter", *of_topic, "--add-config", added)
    kafka("configs", "--alter", *of_topic, "--delete-config", "segment.ms")

    printed = kafka("configs", "--describe", *of_topic)
    assert described(printed) == {"retention.ms": "1234567", "cleanup.policy": "compact,delete"}
    assert "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1234567}" in printed
    everything = described(kafka("configs", "--describe", *of_topic, "--all"))
    assert len(everything) == 37
    assert everything["segment.ms"] == "604800000"


def test_configs_adds_from_a_file(kafka: Tool, bootstrap: str, topic: str, tmp_path: Path) -> None:
    create_topic(bootstrap, topic)
    settings = tmp_path / "topic.properties"
    settings.write_text("retention.ms=99999\nmax.message.bytes=2000\n")
    of_topic = ("--entity-type", "topics", "--entity-name", topic)

    kafka("configs", "--alter", *of_topic, "--add-config-file", settings)

    printed = kafka("configs", "--describe", *of_topic)
    assert described(printed) == {"retention.ms": "99999", "max.message.bytes": "2000"}


def test_configs_lists_a_settings_valid_values(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    of_topic = ("--entity-type", "topics", "--entity-name", topic)

    kafka("configs", "--alter", *of_topic, "--add-config", "cleanup.policy=shred", check=False)

    assert described(kafka("configs", "--describe", *of_topic)) == {}


def test_configs_alters_a_broker_and_all_brokers(kafka: Tool, broker_id: str) -> None:
    of_broker = ("--entity-type", "brokers", "--entity-name", broker_id)
    of_all = ("--entity-type", "brokers", "--entity-default")

    kafka("configs", "--alter", *of_all, "--add-config", "log.cleaner.delete.retention.ms=86400001")
    kafka("configs", "--alter", *of_broker, "--add-config", "log.cleaner.delete.retention.ms=86400002")
    try:
        printed = kafka("configs", "--describe", *of_broker)
        defaults = kafka("configs", "--describe", *of_all)
    finally:
        kafka("configs", "--alter", *of_broker, "--delete-config", "log.cleaner.delete.retention.ms")
        kafka("configs", "--alter", *of_all, "--delete-config", "log.cleaner.delete.retention.ms")

    assert (
        "log.cleaner.delete.retention.ms=86400002 sensitive=false synonyms="
        "{DYNAMIC_BROKER_CONFIG:log.cleaner.delete.retention.ms=86400002, "
        "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.delete.retention.ms=86400001, "
        "DEFAULT_CONFIG:log.cleaner.delete.retention.ms=86400000}"
    ) in printed
    assert described(defaults)["log.cleaner.delete.retention.ms"] == "86400001"
    everything = described(kafka("configs", "--describe", *of_broker, "--all"))
    assert len(everything) >= 340
    assert everything["log.cleaner.delete.retention.ms"] == "86400000"


def test_configs_alters_a_logger(kafka: Tool, broker_id: str) -> None:
    of_loggers = ("--entity-type", "broker-loggers", "--entity-name", broker_id)

    kafka("configs", "--alter", *of_loggers, "--add-config", "barnabas.topics=DEBUG")
    raised = described(kafka("configs", "--describe", *of_loggers))
    kafka("configs", "--alter", *of_loggers, "--delete-config", "barnabas.topics")
    back = described(kafka("configs", "--describe", *of_loggers))

    assert raised["barnabas.topics"] == "DEBUG"
    assert back["barnabas.topics"] == back["root"]


def test_configs_alters_a_group_and_a_subscription(kafka: Tool, topic: str) -> None:
    of_group = ("--entity-type", "groups", "--entity-name", topic)
    of_subscription = ("--entity-type", "client-metrics", "--entity-name", topic)

    kafka("configs", "--alter", *of_group, "--add-config", "consumer.session.timeout.ms=50000")
    kafka("configs", "--alter", *of_subscription, "--add-config", "interval.ms=1000")
    group = described(kafka("configs", "--describe", *of_group))
    subscription = described(kafka("configs", "--describe", *of_subscription))
    kafka("configs", "--alter", *of_subscription, "--delete-config", "interval.ms")

    assert group == {"consumer.session.timeout.ms": "50000"}
    assert subscription == {"interval.ms": "1000"}


def test_configs_alters_and_describes_quotas_and_users(kafka: Tool, topic: str) -> None:
    client = ("--entity-type", "clients", "--entity-name", topic)
    kafka("configs", "--alter", *client, "--add-config", "producer_byte_rate=1024,request_percentage=150.5")
    printed = kafka("configs", "--describe", *client)
    assert f"Quota configs for client-id '{topic}' are" in printed
    assert "producer_byte_rate=1024.0" in printed
    assert "request_percentage=150.5" in printed
    kafka("configs", "--alter", *client, "--delete-config", "producer_byte_rate,request_percentage")

    user = ("--entity-type", "users", "--entity-name", topic)
    kafka("configs", "--alter", *user, "--add-config", "consumer_byte_rate=7")
    printed = kafka("configs", "--describe", *user)
    assert f"Quota configs for user-principal '{topic}' are consumer_byte_rate=7.0" in printed
    kafka("configs", "--alter", *user, "--delete-config", "consumer_byte_rate")


# --- log directories, records ------------------------------------------------------------------------------


def test_log_dirs_describes_the_contents_of_each_directory(
    kafka: Tool, bootstrap: str, topic: str, broker_id: str
) -> None:
    create_topic(bootstrap, topic, partitions=2)
    send(bootstrap, topic, [{"value": b"x" * 1000, "partition": 1}])

    printed = kafka("log-dirs", "--describe", "--topic-list", topic, "--broker-list", broker_id)

    answer = json.loads(printed.splitlines()[-1])
    (broker,) = answer["brokers"]
    (directory,) = broker["logDirs"]
    assert broker["broker"] == int(broker_id)
    assert directory["error"] is None
    sizes = {entry["partition"]: entry["size"] for entry in directory["partitions"]}
    assert sizes[f"{topic}-0"] == 0
    assert sizes[f"{topic}-1"] > 1000


def test_delete_records_moves_the_start(kafka: Tool, bootstrap: str, topic: str, tmp_path: Path) -> None:
    create_topic(bootstrap, topic, partitions=2)
    send(bootstrap, topic, [{"value": b"%d" % n, "partition": n % 2} for n in range(10)])
    wanted = [{"topic": topic, "partition": 0, "offset": 3}, {"topic": topic, "partition": 1, "offset": -1}]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"version": 1, "partitions": wanted}))

    printed = kafka("delete-records", "--offset-json-file", file)

    assert f"partition: {topic}-0\tlow_watermark: 3\n" in printed
    assert f"partition: {topic}-1\tlow_watermark: 5\n" in printed
    earliest = kafka("get-offsets", "--topic", topic, "--time", "earliest")
    assert earliest.splitlines() == [f"{topic}:0:3", f"{topic}:1:5"]
    assert end_offsets(bootstrap, topic, 2) == [5, 5]
    assert [message.value() for message in read(bootstrap, topic, 2, offset=3)] == [b"6", b"8"]


# --- topics -------------------------------------------------------------------------------------------------


def test_topics_creates_only_missing_topics(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=2)

    again = ("topics", "--create", "--topic", topic, "--partitions", "5")
    assert kafka(*again, "--if-not-exists") == ""
    assert "already exists" in kafka(*again, check=False)
    head, *_ = kafka("topics", "--describe", "--topic", topic).splitlines()
    assert "\tPartitionCount: 2\t" in head


def test_topics_creates_by_an_assignment(kafka: Tool, topic: str, broker_id: str) -> None:
    assignment = f"{broker_id},{broker_id},{broker_id}"
    kafka("topics", "--create", "--topic", topic, "--replica-assignment", assignment)

    head, *partitions = kafka("topics", "--describe", "--topic", topic).splitlines()
    assert "\tPartitionCount: 3\tReplicationFactor: 1\t" in head
    assert len(partitions) == 3
    more = f"{assignment},{broker_id}"
    kafka("topics", "--alter", "--topic", topic, "--partitions", "4", "--replica-assignment", more)
    head, *_ = kafka("topics", "--describe", "--topic", topic).splitlines()
    assert "\tPartitionCount: 4\t" in head


def test_topics_refuses_a_broker_that_is_not_there(kafka: Tool, topic: str) -> None:
    printed = kafka("topics", "--create", "--topic", topic, "--replica-assignment", "77", check=False)

    assert "77" in printed
    assert topic not in kafka("topics", "--list").splitlines()


def test_topics_describes_by_filters(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, config={"retention.ms": "1234567"})
    create_topic(bootstrap, topic + "-plain")

    for healthy in (
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
    ):
        assert kafka("topics", "--describe", "--topic", f"{topic}.*", healthy) == ""
    at_least = kafka("topics", "--describe", "--topic", f"{topic}.*", "--at-min-isr-partitions")
    assert len(at_least.splitlines()) == 2
    overridden = kafka("topics", "--describe", "--topic", f"{topic}.*", "--topics-with-overrides")
    assert f"Topic: {topic}\t" in overridden
    assert "retention.ms=1234567" in overridden
    (topic_id,) = re.findall(rf"Topic: {topic}\tTopicId: (\S+)", overridden)
    by_id = kafka("topics", "--describe", "--topic-id", topic_id)
    assert by_id.startswith(f"Topic: {topic}\tTopicId: {topic_id}\t")


def test_topics_lists_without_internal_ones(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)

    listed = kafka("topics", "--list", "--exclude-internal").splitlines()

    assert topic in listed
    assert not any(name.startswith("__") for name in listed)


def test_topics_skips_missing_topics(kafka: Tool, topic: str) -> None:
    for action in (("--delete",), ("--describe",), ("--alter", "--partitions", "2")):
        assert kafka("topics", *action, "--topic", topic, "--if-exists") == ""


# --- the cluster --------------------------------------------------------------------------------------------


def test_metadata_quorum_shows_the_one_voter(kafka: Tool, broker_id: str) -> None:
    status = kafka("metadata-quorum", "describe", "--status")
    replication = kafka("metadata-quorum", "describe", "--replication")

    assert re.search(rf"^LeaderId: +{broker_id}$", status, re.MULTILINE)
    assert re.search(r"^MaxFollowerLag: +0$", status, re.MULTILINE)
    voters = re.search(r"^CurrentVoters: +(.*)$", status, re.MULTILINE)
    assert voters is not None
    assert [voter["id"] for voter in json.loads(voters[1])] == [int(broker_id)]
    (row,) = replication.splitlines()[1:]
    assert row.split()[0] == broker_id
    assert row.split()[-1] == "Leader"


def test_features_describes_lowers_and_raises(kafka: Tool) -> None:
    before = kafka("features", "describe")
    dry = kafka("features", "downgrade", "--feature", "streams.version=0", "--dry-run")
    lowered = kafka("features", "downgrade", "--feature", "streams.version=0")
    raised = kafka("features", "upgrade", "--feature", "streams.version=1")
    refused = kafka("features", "upgrade", "--feature", "streams.version=9", check=False)

    level = r"^Feature: streams.version\s.*SupportedMaxVersion: 1\s+FinalizedVersionLevel: 1\s"
    assert re.search(level, before, re.MULTILINE)
    assert re.search(r"^Feature: metadata.version\s.*FinalizedVersionLevel: 4.4-IV2\s", before, re.MULTILINE)
    assert dry == "streams.version can be downgraded to 0.\n"
    assert lowered == "streams.version was downgraded to 0.\n"
    assert raised == "streams.version was upgraded to 1.\n"
    assert "Could not upgrade" in refused


def test_transactions_describes_the_producers_of_a_partition(kafka: Tool, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    send(bootstrap, topic, [{"value": b"v"}] * 3, **{"enable.idempotence": True})

    printed = kafka("transactions", "describe-producers", "--topic", topic, "--partition", "0")

    names, row = (line.split() for line in printed.splitlines())
    producer = dict(zip(names, row, strict=True))
    assert int(producer["ProducerId"]) >= 0
    assert producer["ProducerEpoch"] == "0"
    assert producer["LastSequence"] == "2"
    assert producer["CurrentTransactionStartOffset"] == "None"


def test_acls_reports_that_there_is_no_authorizer(needs_kafka: Tool, bootstrap: str) -> None:
    printed = needs_kafka("acls", "--bootstrap-server", bootstrap, "--list", check=False)

    assert "SecurityDisabledException" in printed
