"""`barnabas groups`: members and offsets of each kind of group, set and deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, TopicPartition

from cli.client.cluster import GROUP, KafkaCluster
from cli.options import BOOTSTRAP
from protocol.messages.groups_share import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from protocol.messages.groups_streams import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)
from tests.cli.conftest import Kafka, Run
from tests.cli.transactional import (
    commit,
    plain,
    send_at_once,
    table,
)
from tests.clients.confluent import PATIENCE_S
from tests.support.waiting import until

Tool = Callable[..., str]


@contextlib.contextmanager
def joined(kafka: Kafka, group: str, topic: str, protocol: str) -> Iterator[Consumer]:
    """A member with all partitions."""
    settings = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": group,
        "client.id": "app-1",
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        until(lambda: consumer.poll(0.1) is not None and consumer.assignment(), "the first record")
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_groups_members_and_offsets_are_those_of_kafkas_tool(
    cli: Run, kafka: Kafka, topic: str, needs_kafka: Tool, protocol: str
) -> None:
    group = f"{topic}-g"
    assert cli("topics", "create", topic, "-p", 2, "-r", kafka.brokers).status == 0
    for partition in (0, 1):
        send_at_once(plain(kafka.bootstrap), topic, "abc", partition)
    with joined(kafka, group, topic, protocol) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
        until(lambda: cli("groups", group, "--json").json()[0]["state"] == "Stable", "a settled group")

        (found,) = cli("groups", group, "--json").json()

        of_kafka = ("groups", "--bootstrap-server", kafka.bootstrap, "--describe", "--group", group)
        (member,) = found["members"]
        (told,) = table(needs_kafka(*of_kafka, "--members"))
        assert (told["CONSUMER-ID"], told["HOST"], told["CLIENT-ID"], told["#PARTITIONS"]) == (
            member["member"],
            member["host"],
            member["client"],
            "2",
        )
        assert member["partitions"] == [{"topic": topic, "partition": index} for index in (0, 1)]
        offsets = {row["PARTITION"]: row for row in table(needs_kafka(*of_kafka))}
        for each in found["partitions"]:
            row = offsets[str(each["partition"])]
            assert (row["CURRENT-OFFSET"], row["LAG"]) == (
                "-" if each["committed"] is None else str(each["committed"]),
                "-" if each["offsets"] is None else str(each["offsets"]),
            )
            assert (row["LOG-END-OFFSET"], row["CONSUMER-ID"]) == (str(each["end"]), each["member"])
        assert [each["lag"] for each in found["partitions"]] == [1, None]
        (listed,) = (each for each in cli("groups", "--json").json() if each["group"] == group)
        assert (listed["kind"], listed["state"]) == (protocol, "Stable")

        refused = cli("groups", "reset", group, "--topic", topic, "--to", "earliest", "--execute")
        assert (refused.status, refused.out) == (1, "")
        assert "only a group without members" in refused.err
        kept = cli("groups", "delete", group)
        assert kept.status == 1
        assert "NON_EMPTY_GROUP" in kept.err
    gone = cli("groups", "delete", group)
    assert (gone.status, gone.err) == (0, f"{group}: deleted\n")
    assert f"there is no group {group}" in cli("groups", group).err


def test_reset_sets_the_offsets_that_kafkas_tool_would_and_nothing_before_it_is_confirmed(
    cli: Run, kafka: Kafka, topic: str, needs_kafka: Tool
) -> None:
    group = f"{topic}-g"
    assert cli("topics", "create", topic, "-p", 2, "-r", kafka.brokers, "-c", "retention.ms=-1").status == 0
    producer = plain(kafka.bootstrap)
    for number in range(5):
        for partition in (0, 1):
            producer.produce(topic, "v", partition=partition, timestamp=(number + 1) * 1_000)
    assert producer.flush(PATIENCE_S) == 0
    commit(kafka, group, topic, 3, 4)
    at_3_s = datetime.fromtimestamp(3, UTC).isoformat(timespec="milliseconds")

    def reset(*where: object, on: str = topic) -> dict[int, int]:
        ran = cli("groups", "reset", group, "--topic", on, "--json", "--to", *where)
        assert ran.status == 0, ran.err
        return {each["partition"]: each["to"] for each in ran.json()}

    of_kafka = ("groups", "--bootstrap-server", kafka.bootstrap, "--reset-offsets", "--dry-run")
    for where, option in [
        (("earliest",), ("--to-earliest",)),
        (("latest",), ("--to-latest",)),
        (("offset", 2), ("--to-offset", "2")),
        (("offset", 99), ("--to-offset", "99")),
        (("shift", -2), ("--shift-by", "-2")),
        (("time", at_3_s), ("--to-datetime", at_3_s)),
    ]:
        printed = needs_kafka(*of_kafka, "--group", group, "--topic", topic, *option)
        told = [line.split() for line in printed.splitlines() if line.startswith(group)]
        expected = {int(partition): int(offset) for _, _, partition, offset, *_ in told}
        assert reset(*where) == expected, where
        assert len(expected) == 2
    assert reset("offset", 1, on=f"{topic}:1") == {1: 1}
    assert [each["committed"] for each in cli("groups", group, "--json").json()[0]["partitions"]] == [3, 4]
    done = cli("groups", "reset", group, "--all-topics", "--to", "shift", -1, "--execute")
    assert (done.status, done.err) == (0, f"{group}: set\n")
    assert [each["committed"] for each in cli("groups", group, "--json").json()[0]["partitions"]] == [2, 3]
    fresh = cli("groups", "reset", f"{group}-new", "--topic", topic, "--to", "latest", "--execute", "--new")
    assert fresh.status == 0, fresh.err
    (found,) = cli("groups", f"{group}-new", "--json").json()
    assert [each["committed"] for each in found["partitions"]] == [5, 5]


def test_a_share_group_has_the_start_and_the_lag_of_kafkas_tool(
    cli: Run, kafka: Kafka, topic: str, needs_kafka: Tool
) -> None:
    group = f"{topic}-g"
    assert cli("topics", "create", topic, "-p", 1, "-r", kafka.brokers).status == 0
    send_at_once(plain(kafka.bootstrap), topic, "abcde")
    with KafkaCluster({BOOTSTRAP: kafka.bootstrap}) as cluster:

        def beat(epoch: int, *topics: str) -> ShareGroupHeartbeatResponse:
            request = ShareGroupHeartbeatRequest(
                group_id=group,
                member_id="member-1",
                member_epoch=epoch,
                subscribed_topic_names=[*topics] if topics else None,
            )
            return cluster.ask(request, ShareGroupHeartbeatResponse, cluster.coordinator(GROUP, group))

        def is_assigned() -> bool:
            answer = beat(0, topic)
            return answer.assignment is not None and bool(answer.assignment.topic_partitions)

        until(is_assigned, "an assignment")
        (found,) = cli("groups", group, "--json").json()
        assert (found["kind"], found["members"][0]["member"]) == ("share", "member-1")
        refused = cli("groups", "reset", group, "--topic", topic, "--to", "earliest", "--execute")
        assert "only a group without members" in refused.err
        assert beat(-1).error_code == 0
    done = cli("groups", "reset", group, "--topic", topic, "--to", "offset", 2, "--execute")
    assert done.status == 0, done.err
    (found,) = cli("groups", group, "--json").json()
    (offsets,) = found["partitions"]
    (told,) = table(
        needs_kafka(
            *("share-groups", "--bootstrap-server", kafka.bootstrap),
            *("--describe", "--offsets", "--group", group),
        )
    )
    assert (str(offsets["committed"]), str(offsets["lag"])) == (told["START-OFFSET"], told["LAG"])
    assert offsets["committed"] == 2
    assert found["state"] == "Empty"


def test_a_streams_group_is_shown_with_its_topology_and_tasks(cli: Run, kafka: Kafka, topic: str) -> None:
    group = f"{topic}-g"
    assert cli("topics", "create", topic, "-p", 2, "-r", kafka.brokers).status == 0
    topology = Topology(epoch=3, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])])
    with KafkaCluster({BOOTSTRAP: kafka.bootstrap}) as cluster:

        def beat(epoch: int) -> StreamsGroupHeartbeatResponse:
            request = StreamsGroupHeartbeatRequest(
                group_id=group,
                member_id="member-1",
                member_epoch=epoch,
                process_id="process-1",
                rebalance_timeout_ms=60_000,
                topology=topology if epoch == 0 else None,
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
            )
            return cluster.ask(request, StreamsGroupHeartbeatResponse, cluster.coordinator(GROUP, group))

        until(lambda: beat(0).error_code == 0, "a Streams group")
        until(lambda: cli("groups", group, "--json").json()[0]["state"] != "Empty", "a member")
        (found,) = cli("groups", group, "--json").json()
        assert beat(-1).error_code == 0
    assert (found["kind"], found["topology_epoch"], found["subtopologies"]) == ("streams", 3, {"0": [topic]})
    assert found["members"][0]["member"] == "member-1"
    assert "topology epoch" in cli("groups", group).out
    listed = {each["group"]: each["kind"] for each in cli("groups", "--json").json()}
    assert listed[group] == "streams"
    send_at_once(plain(kafka.bootstrap), topic, "abc")
    done = cli("groups", "reset", group, "--topic", topic, "--to", "latest", "--execute")
    assert done.status == 0, done.err + done.out
    (found,) = cli("groups", group, "--json").json()
    assert [(each["committed"], each["lag"]) for each in found["partitions"]] == [(3, 0), (0, 0)]
    done = cli("groups", "reset", group, "--all-topics", "--to", "earliest", "--execute")
    (found,) = cli("groups", group, "--json").json()
    assert [(each["committed"], each["lag"]) for each in found["partitions"]] == [(0, 3), (0, 0)]
    assert cli("groups", "delete", group).status == 0


def test_a_mistake_with_groups_is_one_line(cli: Run, topic: str) -> None:
    assert cli("topics", "create", topic).status == 0
    for arguments, status, words in [
        (("groups", topic), 1, f"there is no group {topic}"),
        (("groups", "reset", topic, "--to", "earliest"), 2, "--all-topics"),
        (("groups", "reset", topic, "--topic", topic, "--to", "latest", "--execute"), 1, "--new creates it"),
        (("groups", "reset", topic, "--topic", topic, "--to", "never"), 2, "earliest, latest"),
        (("groups", "reset", topic, "--topic", topic, "--to", "offset", "x"), 2, "a number"),
        (("groups", "reset", topic, "--topic", topic, "--to", "time", "noon"), 2, "2026-01-31"),
        (("groups", "reset", topic, "--topic", topic, "--to", "shift", 1), 1, "no offset there"),
        (("groups", "reset", topic, "--topic", f"{topic}:7", "--to", "latest"), 1, f"{topic}-7"),
        (("groups", "reset", topic, "--topic", f"{topic}:a", "--to", "latest"), 2, "TOPIC:0,1"),
        (("groups", "reset", topic, "--all-topics", "--to", "latest"), 1, "no offsets"),
    ]:
        ran = cli(*arguments)
        assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1), (arguments, ran)
        assert words in ran.err
