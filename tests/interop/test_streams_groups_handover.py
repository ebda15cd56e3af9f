"""Streams groups as barnabas and Kafka take turns on one folder: each continues the other's reconciliation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from protocol.errors import Error
from protocol.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.messages.groups_streams import (
    StreamsGroupDescribeRequest,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from protocol.messages.metadata import FindCoordinatorRequest
from tests.interop.nodes import Turns
from tests.support.requirements import need_apache_kafka
from tests.support.waiting import until
from tests.support.wire import Client

PATIENCE_S = 240.0
TURNS = (("barnabas", Turns.kill), ("kafka", Turns.kill), ("barnabas", Turns.stop))
SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
GROUP = "the-application"
SOURCE, CHANGELOG = "t", "the-application-store-changelog"
PARTITIONS = 6
SUBTOPOLOGY = "0"
COMING = (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR)

Tasks = dict[str, list[int]]
"""active and standby → partitions of the one subtopology."""


@dataclass(slots=True)
class Member:
    """An instance that outlives all changes of brokers, and follows its assignments."""

    member_id: str
    epoch: int = 0
    tasks: Tasks = field(default_factory=lambda: {"active": [], "standby": []})


@pytest.mark.timeout(600)
def test_each_broker_continues_the_others_reconciliation(tmp_path: Path) -> None:
    """With each turn a member joins, and the broker ends when another one has been told to give tasks up for it."""
    need_apache_kafka()
    with Turns(tmp_path, SETTINGS) as turns:
        members: list[Member] = []
        left: Any = None
        offsets = [-1] * PARTITIONS
        for number, (who, end) in enumerate(TURNS):
            turns.start(who)
            if not number:
                _make(turns.bootstrap)
            with Client.of(turns.bootstrap, client_id="c") as client:
                application = _Application(client, members)
                if number:
                    assert application.described() == left, f"turn {number}, of {who}"
                else:
                    application.join("first")
                    application.join("second")
                application.settle()
                assert application.offsets() == offsets, f"turn {number}, of {who}"
                offsets = application.commit(number)
                application.join(f"of turn {number}")
                application.ask_all_to_give_up()
                left = application.described()
                assert left["state"] == "Reconciling"
                end(turns)


class _Application:
    """What the members of the group ask on one connection."""

    def __init__(self, client: Client, members: list[Member]) -> None:
        self._client = client
        self._members = members
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        until(
            lambda: not client.ask(find, 4).coordinators[0].error_code, "the coordinator is there", PATIENCE_S
        )

    def join(self, member_id: str) -> None:
        member = Member(member_id)
        self._members.append(member)
        self._beat(
            member,
            topology=_topology(),
            rebalance_timeout_ms=300_000,
            process_id=f"process of {member_id}",
            client_tags=[],
        )

    def settle(self) -> None:
        """All beat, having given up what they were told to, until nothing changes and each task is somebody's."""

        def settled() -> bool:
            before = [(each.epoch, each.tasks) for each in self._members]
            for each in self._members:
                self._beat(each)
            after = [(each.epoch, each.tasks) for each in self._members]
            return before == after and self.described()["state"] == "Stable" and self._is_complete()

        until(settled, "the group is stable", PATIENCE_S)

    def ask_all_to_give_up(self) -> None:
        """Each beats once with what it has, and is told what it may keep, but hasn't done so yet."""
        for each in self._members[:-1]:
            self._beat(each)

    def commit(self, turn: int) -> list[int]:
        """Each commits for its tasks by its epoch, and is refused at one to come; the offsets by partition."""
        offsets = [-1] * PARTITIONS
        for each in self._members:
            wanted = {partition: 100 * turn + partition for partition in each.tasks["active"]}
            assert self._commit(each, each.epoch + 1, wanted) == {Error.STALE_MEMBER_EPOCH}
            assert self._commit(each, each.epoch, wanted) == {Error.NONE}
            for partition, offset in wanted.items():
                offsets[partition] = offset
        return offsets

    def offsets(self) -> list[int]:
        topics = [OffsetFetchRequestTopics(name=SOURCE, partition_indexes=[*range(PARTITIONS)])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=topics)])
        (group,) = self._client.ask(request, 8).groups
        assert group.error_code == Error.NONE
        return [each.committed_offset for each in group.topics[0].partitions]

    def described(self) -> dict[str, Any]:
        """The broker's description of the group, without the part of its topology that only comes with a heartbeat."""
        request = StreamsGroupDescribeRequest(group_ids=[GROUP])
        answers: list[Any] = []

        def answered() -> bool:
            answers[:] = self._client.ask(request, 0).groups
            return answers[0].error_code not in COMING

        until(answered, "the group is loaded", PATIENCE_S)
        (group,) = answers
        assert group.error_code == Error.NONE, group
        return {
            "state": group.group_state,
            "epochs": (group.group_epoch, group.assignment_epoch, group.topology.epoch),
            "members": sorted(repr(each) for each in group.members),
        }

    def _is_complete(self) -> bool:
        active = sorted(partition for each in self._members for partition in each.tasks["active"])
        standby = sorted(partition for each in self._members for partition in each.tasks["standby"])
        return active == standby == [*range(PARTITIONS)]

    def _commit(self, member: Member, epoch: int, offsets: dict[int, int]) -> set[int]:
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
            for partition, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id=member.member_id,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(name=SOURCE, partitions=partitions)],
        )
        (topic,) = self._client.ask(request, 9).topics
        return {each.error_code for each in topic.partitions}

    def _beat(self, member: Member, **joining: Any) -> None:
        """A heartbeat with all tasks that the member has; it takes over what it is told."""
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=member.member_id,
            member_epoch=member.epoch,
            active_tasks=_task_ids(member.tasks["active"]),
            standby_tasks=_task_ids(member.tasks["standby"]),
            warmup_tasks=[],
            **joining,
        )
        answer = self._client.ask(request, 0)
        deadline_s = time.monotonic() + PATIENCE_S
        while answer.error_code in COMING and time.monotonic() < deadline_s:
            answer = self._client.ask(request, 0)
        assert answer.error_code == Error.NONE, answer
        member.epoch = answer.member_epoch
        if answer.active_tasks is not None:
            member.tasks = {
                "active": _partitions(answer.active_tasks),
                "standby": _partitions(answer.standby_tasks),
            }


def _topology() -> Topology:
    changelog = TopicInfo(name=CHANGELOG, partitions=0, replication_factor=1, topic_configs=[])
    of_store = Subtopology(
        subtopology_id=SUBTOPOLOGY, source_topics=[SOURCE], state_changelog_topics=[changelog]
    )
    return Topology(epoch=0, subtopologies=[of_store])


def _task_ids(partitions: Sequence[int]) -> list[TaskIds]:
    return [TaskIds(subtopology_id=SUBTOPOLOGY, partitions=[*partitions])] if partitions else []


def _partitions(tasks: Sequence[TaskIds]) -> list[int]:
    return [partition for each in tasks for partition in each.partitions]


def _make(bootstrap: str) -> None:
    """The source topic, and a standby for each task."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(SOURCE, PARTITIONS, 1)])[SOURCE].result(PATIENCE_S)
    entry = ConfigEntry("streams.num.standby.replicas", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
