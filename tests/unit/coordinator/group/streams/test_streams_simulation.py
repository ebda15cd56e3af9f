"""Random lives of a streams group, with restarts: no task is active in two places, and the group always settles."""

from __future__ import annotations

import random

import pytest

from coordinator.group.streams import heartbeats as long_heartbeat
from coordinator.settings import StreamsConfig
from protocol.errors import Error
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.group.streams.members import StreamsMembers, subtopology, topology

PROCESSES = {"a": "p", "b": "p", "c": "q", "d": "q", "e": "r"}
TASKS = {"0": 5, "1": 3}
STEPS = 150


class Life:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        of = topology(subtopology("0", "t", changelogs=["c"]), subtopology("1", "u"))
        self.groups = StreamsMembers(FakeTopics(t=5, c=5, u=3), of=of, config=self.config())

    def config(self) -> StreamsConfig:
        return StreamsConfig(
            session_timeout_ms=10_000,
            assignment_interval_ms=self.chance.choice((0, 1_000)),
            initial_rebalance_delay_ms=self.chance.choice((0, 0, 2_000)),
            num_standby_replicas=self.chance.choice((0, 1, 2)),
        )

    @property
    def members(self) -> list[str]:
        group = self.groups.shard.groups.streams.get("g")
        return [] if group is None else [*group.members]

    def step(self) -> None:
        chance, groups = self.chance, self.groups
        what = chance.randrange(12)
        if what < 2 or not self.members:
            member = chance.choice([*PROCESSES])
            groups.enter(member, PROCESSES[member], rebalance_ms=chance.choice((2_000, 60_000)))
        elif what < 8:
            groups.report(chance.choice(self.members))
        elif what == 8:
            member = chance.choice(self.members)
            assert groups.refused(member, groups.group.members[member].epoch) is Error.NONE
        elif what == 9:
            groups.runtime.pass_ms(chance.choice((0, 500, 3_000)))
        elif what == 10:
            chance.choice(
                (lambda: groups.beat(chance.choice(self.members), -1), self.restart, self.reconfigure)
            )()
        else:
            groups.create("t", chance.choice((5, 5, 5, 5)))
        self.check()

    def restart(self) -> None:
        again = self.groups.restarted()
        again.config = self.groups.config
        self.groups = again

    def reconfigure(self) -> None:
        self.groups.config = self.config()

    def check(self) -> None:
        """Check who holds active tasks. A process's members may pass one on once the first has let go of it."""
        group = self.groups.shard.groups.streams.get("g")
        active: dict[tuple[str, int], str] = {}
        for member in () if group is None else group.members.values():
            for held in (member.assigned, member.pending):
                for subtopology_id, partitions in held.active.items():
                    for partition in partitions:
                        task = (subtopology_id, partition)
                        assert task not in active, (
                            f"{task} is active in {active[task]} and {member.member_id}"
                        )
                        active[task] = member.member_id

    def rest(self) -> None:
        groups = self.groups
        for _ in range(6):  # late members are removed, and what is delayed happens
            if not self.members:
                groups.enter("a", "p")
            groups.settle()
            groups.runtime.pass_ms(1_000)
        assert groups.state == "Stable"
        tasks = {(each, partition) for each, count in TASKS.items() for partition in range(count)}
        held = [
            (subtopology_id, partition)
            for member in self.members
            for subtopology_id, partitions in groups.holds(member).items()
            for partition in partitions
        ]
        assert sorted(held) == sorted(tasks)
        for member in self.members:
            assert groups.holds(member) == groups.target(member)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("beside", [False, True])
def test_whatever_happens_no_task_is_active_twice_and_in_the_end_each_is_once(
    seed: int, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if beside:
        monkeypatch.setattr(long_heartbeat, "MOST_DECIDED_IN_PASSING", -1)
    life = Life(seed)
    for _ in range(STEPS):
        life.step()
    life.rest()
