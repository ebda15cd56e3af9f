"""Share groups with one broker that leads everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.shares.share_partition_manager import LedSharePartition
from tests.simulation.shares.share_member import Leaders
from tests.simulation.shares.share_work import ShareWork
from tests.simulation.wire_client import WireClient
from tests.simulation.work import Place

if TYPE_CHECKING:
    from tests.simulation.course import Course
    from tests.simulation.machine import Machine


class OneLeader(Leaders):
    """`course` makes the clients."""

    def __init__(self, course: Course, name: str) -> None:
        self._course = course
        self._name = name
        self._clients = 0

    async def leader_of(self, place: Place) -> str:
        return "broker"

    def client_at(self, broker: str) -> WireClient:
        self._clients += 1
        return self._course.client(f"{self._name}'s fetches {self._clients}")

    def forget(self) -> None:
        """Nothing: it never changes."""


def on_one_node(course: Course, machine: Machine) -> ShareWork:
    ids: dict[str, bytes] = {}

    def term_of(broker: str, group_id: str, place: Place) -> LedSharePartition | None:
        server = machine.server
        if server is None or not machine.is_up:
            return None
        return server.shares._groups.get(group_id, {}).get((ids[place[0]], place[1]))

    return ShareWork(course, lambda name: OneLeader(course, name), term_of, lambda broker, place: True, ids)
