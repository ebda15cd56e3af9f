"""A member that follows KIP-1071: one of Kafka Streams, with a process of its own.

Each of its two subtopologies reads one topic, so a task is a partition of that topic. The second one has a state, and
so a changelog, which the broker creates, and standby tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from protocol.messages.groups_streams import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from tests.simulation.consumer_member import LEAVES, ConsumerMember
from tests.simulation.groups import GroupWork
from tests.simulation.members import REBALANCE_TIMEOUT_MS
from tests.simulation.wire_client import WireClient
from tests.simulation.work import Place

SUBTOPOLOGIES = {"0": "orders", "1": "bills"}
"""The topic that each subtopology reads."""
STATEFUL = "1"


class StreamsMember(ConsumerMember):
    version = 0
    is_told_again = (
        False  # as in Kafka: a member that missed what it has to give up is removed, and joins again
    )

    def __init__(
        self, make_client: Callable[[str], WireClient], name: str, group: GroupWork, instance_id: str | None
    ) -> None:
        """It has no static members."""
        super().__init__(make_client, name, group, None)
        self._standby: list[TaskIds] = []

    def heartbeat(self, *, says_all: bool) -> StreamsGroupHeartbeatRequest:
        life = self.life
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group.name, member_id=life.member_id, member_epoch=life.epoch
        )
        if life.epoch == 0:
            self._standby = []
            request.topology = self._topology()
            request.process_id = f"process of {life.member_id}"
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
        if says_all or life.epoch == 0:
            request.active_tasks = _tasks(life.owned)
            request.standby_tasks = self._standby
            request.warmup_tasks = []
        return request

    def _topology(self) -> Topology:
        return Topology(
            epoch=0,
            subtopologies=[
                Subtopology(
                    subtopology_id=number,
                    source_topics=[topic],
                    state_changelog_topics=[TopicInfo(name=f"{self.group.name}-changelog")]
                    if number == STATEFUL
                    else [],
                )
                for number, topic in SUBTOPOLOGIES.items()
            ],
        )

    def assigned_by(self, answer: Any) -> list[Place] | None:
        if answer.active_tasks is None:
            return None
        before, self._standby = self._standby, answer.standby_tasks
        places = _places(answer.active_tasks)
        if before != self._standby:
            self.says_all_at_once()
        both = {*places} & {*_places(self._standby)}
        if both:
            self.complain_unless_two(f"is to have {both} in two ways")
        return places

    async def leave(self) -> None:
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group.name, member_id=self.life.member_id, member_epoch=LEAVES
        )
        await self.client.ask(request, self.version)


def _tasks(places: Iterable[Place]) -> list[TaskIds]:
    by_number: dict[str, list[int]] = {}
    for number, topic in SUBTOPOLOGIES.items():
        partitions = sorted(index for name, index in places if name == topic)
        if partitions:
            by_number[number] = partitions
    return [TaskIds(subtopology_id=number, partitions=found) for number, found in by_number.items()]


def _places(tasks: Iterable[TaskIds]) -> list[Place]:
    return [(SUBTOPOLOGIES[each.subtopology_id], index) for each in tasks for index in each.partitions]
