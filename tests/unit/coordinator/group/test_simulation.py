"""Many members that come, go and die, with time moved; histories from seeds.

Whatever happened, once everybody alive has been served the group is stable, nobody waits for ever, and a restart finds
the same state.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from coordinator.group.classic.group import ClassicGroup
from protocol.errors import Error
from tests.unit.coordinator.runtime import Answer, Groups

SESSION_MS = 10_000
REBALANCE_MS = 15_000
STEP_MS = 500


class SimulatedMember:
    """A client that does what Kafka's clients do: it joins, syncs, sends heartbeats, and joins again when told."""

    def __init__(self, groups: Groups, instance: str | None = None) -> None:
        self.groups = groups
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.assignment: bytes | None = None
        self.is_alive = True
        self._joining: Answer | None = None
        self._syncing: Answer | None = None
        self._heartbeat_ms = 0

    def step(self) -> None:
        """Take the next step of a client, unless it still waits for an answer."""
        if self._joining is not None:
            if not self._joining.is_parked:
                self._joined()
        elif self._syncing is not None:
            if not self._syncing.is_parked:
                self._synced()
        elif self.assignment is None:
            self._join()
        elif self.groups.runtime.elapsed_ms >= self._heartbeat_ms:
            self._heartbeat_ms = self.groups.runtime.elapsed_ms + 3_000
            error = self.groups.heartbeat(self.member_id, self.generation, self.instance)
            if error is not Error.NONE:
                self._lost(error)

    def _join(self) -> None:
        self._joining = self.groups.join(
            self.member_id, instance=self.instance, session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS
        )

    def _joined(self) -> None:
        assert self._joining is not None
        answer, self._joining = self._joining.join, None
        assert answer is not None
        error = Error(answer.error_code)
        if error is Error.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
            return
        if error is not Error.NONE:
            self._lost(error)
            return
        self.member_id, self.generation = answer.member_id, answer.generation_id
        assignments = {
            each.member_id: f"{self.generation}:{index}".encode() for index, each in enumerate(answer.members)
        }
        leads = answer.leader == self.member_id
        self._syncing = self.groups.sync(
            self.member_id, self.generation, assignments if leads else None, instance=self.instance
        )

    def _synced(self) -> None:
        assert self._syncing is not None
        answer, self._syncing = self._syncing.sync, None
        assert answer is not None
        if answer.error_code != Error.NONE:
            self._lost(Error(answer.error_code))
            return
        self.assignment = answer.assignment
        self._heartbeat_ms = self.groups.runtime.elapsed_ms + 3_000

    def _lost(self, error: Error) -> None:
        self.assignment = None
        if error is not Error.REBALANCE_IN_PROGRESS:
            assert error in (Error.UNKNOWN_MEMBER_ID, Error.ILLEGAL_GENERATION, Error.FENCED_INSTANCE_ID), (
                error
            )
            self.member_id = ""

    def leave(self) -> None:
        self.is_alive = False
        if self.member_id:
            self.groups.leave((self.member_id, self.instance))


class Simulation:
    def __init__(self, seed: int, **settings: Any) -> None:
        self.random = random.Random(seed)
        self.groups = Groups(**settings)
        self.members: list[SimulatedMember] = []

    def run(self, for_ms: int) -> None:
        end_ms = self.groups.runtime.elapsed_ms + for_ms
        while self.groups.runtime.elapsed_ms < end_ms:
            for member in self.random.sample(self.members, len(self.members)):
                if member.is_alive:
                    member.step()
            self.groups.runtime.pass_ms(STEP_MS)
            self.check()

    def check(self) -> None:
        group = self.groups.shard.groups.classic.get("g")
        if group is not None:
            parked = [member for member in group.members.values() if member.join_reply is not None]
            assert group.parked_joins == len(parked)
            assert {*group.static_members.values()} <= {*group.members}
            assert (group.leader_id in group.members) if group.members else True

    @property
    def alive(self) -> list[SimulatedMember]:
        return [member for member in self.members if member.is_alive]

    def check_settled(self) -> None:
        group = self.groups.shard.groups.classic["g"]
        alive = self.alive
        assert {*group.members} == {member.member_id for member in alive}
        assert group.state.value == ("Stable" if alive else "Empty")
        assignments = [member.assignment for member in alive]
        assert len({*assignments}) == len(alive), "each has an assignment of its own"
        assert {member.generation for member in alive} <= {group.generation}
        assert durable(self.groups.restarted()) == durable(self.groups)


def durable(groups: Groups) -> Any:
    """Return everything that a restart has to find again."""

    def of(group: ClassicGroup) -> Any:
        members = {
            each.member_id: (
                each.instance_id,
                each.metadata(group.protocol or ""),
                each.assignment,
                each.session_timeout_ms,
                each.rebalance_timeout_ms,
            )
            for each in group.members.values()
        }
        said = (group.state, group.generation, group.protocol_type, group.protocol, group.leader_id)
        return said, members, group.subscribed_topics, group.static_members

    shard = groups.shard
    return {group_id: of(group) for group_id, group in shard.groups.classic.items()}, shard.offsets.committed


@pytest.mark.parametrize("delay_ms", [0, 3_000])
def test_two_hundred_members_form_a_group_within_the_limits(delay_ms: int) -> None:
    simulation = Simulation(1, initial_rebalance_delay_ms=delay_ms)
    simulation.members = [SimulatedMember(simulation.groups) for _ in range(200)]

    simulation.run(delay_ms + REBALANCE_MS)

    simulation.check_settled()


def test_two_hundred_members_notice_within_a_session_that_a_tenth_of_them_died() -> None:
    simulation = Simulation(2)
    simulation.members = [SimulatedMember(simulation.groups) for _ in range(200)]
    simulation.run(REBALANCE_MS)
    for member in simulation.random.sample(simulation.members, 20):
        member.is_alive = False

    simulation.run(SESSION_MS + REBALANCE_MS)

    simulation.check_settled()
    assert len(simulation.alive) == 180


def test_two_hundred_members_go_on_after_a_restart() -> None:
    simulation = Simulation(3)
    simulation.members = [SimulatedMember(simulation.groups) for _ in range(200)]
    simulation.run(REBALANCE_MS)
    generation = simulation.groups.shard.groups.classic["g"].generation

    simulation.groups = simulation.groups.restarted()
    for member in simulation.members:
        member.groups = simulation.groups
    simulation.run(2 * SESSION_MS)

    simulation.check_settled()
    assert simulation.groups.shard.groups.classic["g"].generation == generation, "nobody had to join again"


@pytest.mark.parametrize("seed", range(40))
def test_a_random_history_settles_and_is_replayed(seed: int) -> None:
    simulation = Simulation(seed, initial_rebalance_delay_ms=seed % 3 * 700, max_size=25)
    groups, chance = simulation.groups, simulation.random
    for number in range(60):
        act = chance.random()
        alive = simulation.alive
        if act < 0.4 and len(alive) < 20:
            static = chance.random() < 0.3
            simulation.members.append(SimulatedMember(groups, f"i{number}" if static else None))
        elif act < 0.5 and alive:
            chance.choice(alive).leave()
        elif act < 0.6 and alive:
            chance.choice(alive).is_alive = False
        elif act < 0.7:
            # A static member's process starts anew, while the old process may still be alive.
            static_ones = [member for member in alive if member.instance is not None]
            if static_ones:
                old = chance.choice(static_ones)
                old.is_alive = False
                simulation.members.append(SimulatedMember(groups, old.instance))
        elif act < 0.8 and alive:
            member = chance.choice(alive)
            if member.assignment is not None:
                groups.commit(
                    ("t", chance.randrange(3), number),
                    member_id=member.member_id,
                    generation=member.generation,
                    instance=member.instance,
                )
        elif act < 0.85:
            groups.join()  # the new member never uses its id
        simulation.run(chance.randrange(8) * STEP_MS)

    simulation.run(3 * (SESSION_MS + REBALANCE_MS))

    if "g" in groups.shard.groups.classic:
        simulation.check_settled()
