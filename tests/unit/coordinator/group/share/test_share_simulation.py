"""Members of share groups that come, go and die, topics that come, grow and go, a share coordinator that refuses, is
silent or is late, and logs that take nothing; histories from seeds.

Whatever happened, once all is well again each partition is initialized and somebody's, and a restart finds the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.group.ports import KnownTopic
from coordinator.group.shard import GroupShard
from coordinator.group.share import heartbeats as long_heartbeat
from protocol.errors import Error
from tests.unit.coordinator.group.consumer.consumers import FakeTopics
from tests.unit.coordinator.group.share.sharers import Sharers

MEMBERS = ("a", "b", "c", "d")
TOPICS = ("t", "u", "v")
HEARTBEAT_MS = 5_000
MOST_PARTITIONS = 6


def durable(shard: GroupShard) -> Any:
    """Return everything of the share groups that a restart must find."""
    return {
        group_id: (
            group.epoch,
            group.assignment_epoch,
            group.assignment_timestamp_ms,
            group.metadata_hash,
            dict(group.members.items()),
            {member: {t: {*p} for t, p in target.items()} for member, target in group.targets.items()},
            group.topics,
            group.homogeneous,
            None if group.state_partitions is None else group.state_partitions.written(lambda topic_id: ""),
        )
        for group_id, group in shard.groups.share.items()
    }


class History:
    """One group whose clients obey: each knows the epoch that it was last told, and joins again if it is refused."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.sharers = Sharers(FakeTopics(t=2))
        self.epochs: dict[str, int] = {}
        self.names: dict[str, list[str]] = {}
        self.made = 0
        """The number of topics made so far. Each has an id of its own."""

    def run(self, steps: int) -> None:
        moves: list[Callable[[], None]] = [
            *[self.beat] * 8,
            self.leave,
            self.die,
            self.change_a_topic,
            self.delete_a_topic,
            self.change_the_persister,
            self.change_the_log,
            self.restart,
        ]
        for _ in range(steps):
            self.chance.choice(moves)()
            self.sharers.runtime.pass_ms(self.chance.choice((0, 5, 1_000, 20_000)))
        self.mend()

    # --- what happens ---------------------------------------------------------------------------------------

    def beat(self) -> None:
        member = self.chance.choice(MEMBERS)
        if member not in self.epochs or self.chance.random() < 0.2:
            self.names[member] = self.chance.sample(TOPICS, self.chance.randint(1, len(TOPICS)))
            self.say(member, *self.names[member])
        else:
            self.say(member)

    def say(self, member: str, *names: str) -> None:
        answer = self.sharers.beat(member, self.epochs.get(member, 0), *names)
        if answer.error_code == Error.NONE:
            self.epochs[member] = answer.member_epoch
        elif answer.error_code in (
            Error.UNKNOWN_MEMBER_ID,
            Error.FENCED_MEMBER_EPOCH,
            Error.GROUP_ID_NOT_FOUND,
        ):
            self.epochs.pop(member, None)
        else:
            assert answer.error_code == Error.NOT_COORDINATOR, Error(answer.error_code)

    def leave(self) -> None:
        member = self.chance.choice(MEMBERS)
        if member in self.epochs and self.sharers.beat(member, -1).error_code == Error.NONE:
            del self.epochs[member]

    def die(self) -> None:
        self.epochs.pop(self.chance.choice(MEMBERS), None)

    def change_a_topic(self) -> None:
        name = self.chance.choice(TOPICS)
        there = self.sharers.topics.by_name(name)
        before = 0 if there is None else there.partition_count
        if before < MOST_PARTITIONS:
            self.made += there is None
            topic_id = self.made.to_bytes(16, "big") if there is None else there.topic_id
            self.sharers.topics.found[name] = KnownTopic(name, topic_id, ((),) * (before + 1))
            self.sharers.topics.version += 1
            self.sharers.shard.topics_changed(frozenset({name}), created=not before)

    def delete_a_topic(self) -> None:
        """Delete a topic. If the log fails, the broker tries again until it doesn't, so nothing happens here."""
        there = self.sharers.topics.by_name(self.chance.choice(TOPICS))
        if there is not None and self.sharers.runtime.failing is None:
            del self.sharers.topics.found[there.name]
            self.sharers.topics.version += 1
            for _ in self.sharers.shard.forget_topics([(there.name, there.topic_id)], [there.name]):
                pass
            self.sharers.shard.topics_changed(frozenset({there.name}), created=False)

    def change_the_persister(self) -> None:
        persister = self.sharers.persister
        persister.failing = self.chance.choice((None, Error.COORDINATOR_NOT_AVAILABLE))
        persister.holds = self.chance.random() < 0.5
        if not persister.holds:
            persister.answer()

    def change_the_log(self) -> None:
        runtime = self.sharers.runtime
        runtime.failing = self.chance.choice((None, Error.NOT_COORDINATOR))
        runtime.lags = self.chance.random() < 0.5
        if not runtime.lags:
            runtime.commit()

    def restart(self) -> None:
        """Restart at any moment, with requests still on their way."""
        again = self.sharers.restarted()
        assert durable(again.shard) == durable(self.sharers.shard)
        self.sharers = again

    # --- and is well again ----------------------------------------------------------------------------------

    def mend(self) -> None:
        sharers = self.sharers
        sharers.runtime.failing, sharers.runtime.lags = None, False
        sharers.runtime.commit()
        sharers.persister.failing, sharers.persister.holds = None, False
        sharers.persister.answer()
        for member in MEMBERS[:2]:
            if member not in self.epochs:
                self.names[member] = [*TOPICS]
        for _ in range(12):
            for member in sorted({*self.epochs, *MEMBERS[:2]}):
                self.say(member, *(() if member in self.epochs else self.names[member]))
            sharers.runtime.pass_ms(HEARTBEAT_MS)

    def check_settled(self) -> None:
        group = self.sharers.group
        assert {*group.members} == {*self.epochs} == {*group.targets}
        assert {*self.epochs.values()} == {group.epoch} == {group.assignment_epoch}
        assert group.state_partitions is not None
        for name, there in self.sharers.topics.found.items():
            takers = [member for member in self.epochs if name in group.members[member].names]
            if takers:
                every = set(range(there.partition_count))
                assert every <= {*group.state_partitions.initialized[there.topic_id].partitions}
                assert every == {each for member in takers for each in self.sharers.holds(member, name)}
        assert durable(self.sharers.restarted().shard) == durable(self.sharers.shard)


@pytest.mark.parametrize("most_in_passing", [long_heartbeat.MOST_OF_SHARES_IN_PASSING, -1])
@pytest.mark.parametrize("seed", range(16))
def test_once_all_is_well_again_each_partition_is_initialized_and_assigned(
    monkeypatch: pytest.MonkeyPatch, seed: int, most_in_passing: int
) -> None:
    monkeypatch.setattr(long_heartbeat, "MOST_OF_SHARES_IN_PASSING", most_in_passing)
    history = History(seed)
    history.run(150)
    history.check_settled()
