"""Kafka Streams with `group.protocol=streams` and `group.instance.id` (KIP-1071, since Kafka 4.4): a member that comes
back under its instance's name has its old tasks, and no other member has to give anything up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from protocol.errors import Error
from protocol.messages.groups_streams import (
    DescribedGroup,
    DescribedMember,
    StreamsGroupDescribeRequest,
)
from tests.clients.flights import data, streams
from tests.clients.flights.sender import create_topic, send
from tests.clients.java_programs import java_classes
from tests.clients.transactions import running_server
from tests.support.kafka_server import Server
from tests.support.waiting import until
from tests.support.wire import Client

INSTANCES = ("one", "two")
THREADS = 2
AWAY = -2
PATIENCE_S = 60.0
SESSION_MS = 45_000
"""Nobody is given up for being away."""

Tasks = dict[str | None, set[tuple[str, int]]]
"""instance → its tasks"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    settings = {"group_streams_session_timeout_ms": SESSION_MS, "group_streams_num_standby_replicas": 1}
    with running_server(tmp_path / "server", **settings) as server:
        yield server


def described(server: Server) -> DescribedGroup:
    with Client.of(server.bootstrap) as client:
        request = StreamsGroupDescribeRequest(group_ids=[streams.APPLICATION])
        [group] = client.ask(request, 1).groups
    found: DescribedGroup = group
    return found


def tasks_of(group: DescribedGroup) -> Tasks:
    return {member.instance_id: active_tasks(member) for member in group.members}


def active_tasks(member: DescribedMember) -> set[tuple[str, int]]:
    return {
        (each.subtopology_id, partition)
        for each in member.assignment.active_tasks
        for partition in each.partitions
    }


def is_settled(server: Server) -> bool:
    """All threads of all instances have joined, and have their target tasks."""
    group = described(server)
    return (
        group.error_code == Error.NONE
        and group.group_state == "Stable"
        and len(group.members) == len(INSTANCES) * THREADS
        and all(member.member_epoch == group.group_epoch for member in group.members)
        and all(tasks_of(group).values())
    )


def is_away(server: Server, instance: str) -> bool:
    epochs = [
        member.member_epoch
        for member in described(server).members
        if (member.instance_id or "").startswith(instance)
    ]
    return epochs == [AWAY] * THREADS


@pytest.mark.usefixtures("needs_kafka")
def test_a_returning_member_has_its_tasks_again_and_the_others_do_not_notice(
    server: Server, tmp_path: Path
) -> None:
    flights = data.sample()
    parts = [flights[number::3] for number in range(3)]
    expected = streams.words_of(flights)
    count = sum(map(len, expected.values()))
    create_topic(server.bootstrap, streams.FLIGHTS, partitions=streams.PARTITIONS)
    for topic in (streams.COUNTS, streams.SUMS):
        create_topic(server.bootstrap, topic, partitions=streams.OUTPUT_PARTITIONS)
    with ExitStack() as stack:
        applications = {}
        for number, instance in enumerate(INSTANCES):
            settings = streams.STREAMS_PROTOCOL_SETTINGS | {
                "group.instance.id": instance,
                "num.stream.threads": THREADS,
            }
            application = streams.Application(server.bootstrap, java_classes(), tmp_path, settings, number)
            stack.callback(application.end, signal.SIGKILL)
            application.start()
            applications[instance] = application
        until(lambda: is_settled(server), "both have their tasks", PATIENCE_S)
        send(server.bootstrap, streams.FLIGHTS, parts[0], "lz4", streams.PARTITIONS)
        before = described(server)
        names = {member.instance_id for member in before.members}
        assert names == {f"{name}-{thread}" for name in INSTANCES for thread in range(1, THREADS + 1)}

        going, staying = (applications[name] for name in INSTANCES)
        going.end(signal.SIGTERM)
        until(lambda: is_away(server, INSTANCES[0]), "the one is away", PATIENCE_S)
        away = described(server)
        assert away.group_epoch == before.group_epoch
        send(server.bootstrap, streams.FLIGHTS, parts[1], "lz4", streams.PARTITIONS)
        server.kill()  # what is known of who is away is durable
        server.start()
        until(lambda: is_away(server, INSTANCES[0]), "the one is away after a start as well", PATIENCE_S)
        assert described(server).group_epoch == before.group_epoch

        going.start()
        until(lambda: is_settled(server), "the one is back", PATIENCE_S)
        after = described(server)
        assert (after.group_epoch, after.assignment_epoch) == (before.group_epoch, before.assignment_epoch)
        assert tasks_of(after) == tasks_of(before)
        ids = (
            {member.instance_id: member.member_id for member in group.members} for group in (before, after)
        )
        kept = {name for name, pair in zip_by_name(*ids) if len({*pair}) == 1}
        assert kept == {name for name in names if name is not None and name.startswith(INSTANCES[1])}
        send(server.bootstrap, streams.FLIGHTS, parts[2], "lz4", streams.PARTITIONS)
        streams.wait_until_all_is_there(server.bootstrap, 2 * count, staying)
        for application in applications.values():
            application.end(signal.SIGTERM)
    counts, sums = (streams.read(server.bootstrap, topic) for topic in (streams.COUNTS, streams.SUMS))
    assert streams.differences(expected, counts, sums) == []


def zip_by_name(
    before: dict[str | None, str], after: dict[str | None, str]
) -> Iterator[tuple[str | None, tuple[str, str]]]:
    for name, member_id in before.items():
        yield name, (member_id, after[name])
