"""Random histories of a streams group, from seeds. The clients choose their member ids, so that everything is
deterministic.

A few histories are recorded. More are played live to both brokers with

    COMPARE_MORE_HISTORIES=8-107 python -m tests.compare both 'streams_groups_histories/more*'
"""

from __future__ import annotations

import os
import random
from typing import Any

from ..consumer_requests import records_of
from ..group_requests import commit, coordinator_is_there, fetch_offsets
from ..play import Play, script
from ..scene import Topic
from ..streams_requests import (
    describe_streams,
    set_for_group,
    streams_beat,
    streams_join,
    subtopology,
    task_offsets,
    tasks_in,
    topic_info,
    topology,
    until_internal_topics_are_there,
)

MORE = os.environ.get("COMPARE_MORE_HISTORIES", "")
STEPS = 60
SEEDS = 8
MEMBERS = ("anna", "bert", "cleo", "dora", "emil", "fred")
PROCESSES = {"anna": "p", "bert": "p", "cleo": "q", "dora": "q", "emil": "r", "fred": "s"}
OFFSETS_PARTITIONS = 3
INSTANCES = ("i", "j", None, None)

Assigned = tuple[dict[str, list[int]], dict[str, list[int]]]


class Known:
    """What a member knows about itself."""

    def __init__(self) -> None:
        self.epoch = 0
        self.instance: str | None = None
        self.tasks: Assigned = ({}, {})


class History:
    def __init__(self, play: Play, seed: int, topic: Topic, other: Topic) -> None:
        self.play = play
        self.chance = random.Random(seed)
        self.group = play.name(f"g{seed}")
        self.topic, self.other = topic, other
        self.members: dict[str, Known] = {}
        self.seed = seed
        self.step = 0
        self.count = 0
        through, store = play.name(f"through{seed}"), play.name(f"store{seed}")
        self.topology = topology(
            subtopology("0", topic.name, sinks=[through]),
            subtopology("1", changelogs=[topic_info(store)], repartitions=[topic_info(through)]),
            subtopology("2", other.name, changelogs=[topic_info(f"{store}2")]),
        )

    def case(self, what: str) -> str:
        self.count += 1
        return f"{self.seed}.{self.step}.{self.count} {what}"

    def run(self) -> None:
        beside = [self.play.name(f"beside{number}") for number in range(OFFSETS_PARTITIONS)]
        coordinator_is_there(self.play, self.group, *beside)
        self.play.quietly("StreamsGroupHeartbeat", 0, streams_join(self.group, "anna", self.topology, "p"))
        until_internal_topics_are_there(self.play, streams_beat(self.group, "anna", 2))
        for self.step in range(STEPS):
            self.chance.choice(
                (
                    self.somebody_joins,
                    self.somebody_joins,
                    *(self.somebody_lives,) * 7,
                    self.somebody_leaves,
                    self.somebody_is_wrong,
                    self.somebody_changes,
                    self.something_else,
                )
            )()
            if self.step % 5 == 0:
                self.something_is_written()
                describe_streams(self.play, self.case("the group"), self.group)
        self.play.note(self.case("records"), records_of(self.play, self.group, self.topic, self.other))

    def something_is_written(self) -> None:
        """Write to each partition of `__consumer_offsets`. Until then Kafka doesn't show what a heartbeat that wrote
        nothing has found out about the topology."""
        for number in range(OFFSETS_PARTITIONS):
            fields = commit(self.play.name(f"beside{number}"), (self.topic, 0, self.step))
            self.play.quietly("OffsetCommit", 9, fields)

    def ask(self, what: str, member: str, fields: dict[str, Any]) -> Any:
        answer = self.play.ask(self.case(what), "StreamsGroupHeartbeat", 0, fields)
        if answer.error_code == 0:
            known = self.members.setdefault(member, Known())
            known.epoch = answer.member_epoch
            known.tasks = tasks_in(answer) or known.tasks
        return answer

    def somebody_joins(self) -> None:
        member = self.chance.choice(MEMBERS)
        taken = [known.instance for known in self.members.values()]
        instance = self.chance.choice([each for each in INSTANCES if each is None or each not in taken])
        fields = streams_join(self.group, member, self.topology, PROCESSES[member], instance_id=instance)
        answer = self.ask("a join", member, fields)
        if answer.error_code == 0 and instance is not None:
            for each in [each for each in self.members if self.members[each].instance == instance]:
                self.members[each].instance = None
            self.members[member].instance = instance

    def somebody(self) -> tuple[str, Known] | None:
        if not self.members:
            return None
        member = self.chance.choice(sorted(self.members))
        return member, self.members[member]

    def somebody_lives(self) -> None:
        found = self.somebody()
        if found is None:
            return
        member, known = found
        active, standby = known.tasks
        says: dict[str, Any] = {"active": active, "standby": standby}
        told = {each: {number: self.chance.randrange(9) for number in range(2)} for each in "012"}
        more = self.chance.choice(
            ({}, {}, {"task_offsets": task_offsets(told)}, {"instance_id": known.instance})
        )
        self.ask(
            "a heartbeat",
            member,
            streams_beat(
                self.group, member, known.epoch, **self.chance.choice((says, says, says, {})), **more
            ),
        )

    def somebody_changes(self) -> None:
        found = self.somebody()
        if found is None:
            return
        member, known = found
        more = self.chance.choice(
            (
                {"process_id": self.chance.choice("pqrs")},
                {"rack_id": self.chance.choice("ab")},
                {"client_tags": [{"key": "k", "value": self.chance.choice("ab")}]},
            )
        )
        self.ask("something new", member, streams_beat(self.group, member, known.epoch, **more))

    def somebody_leaves(self) -> None:
        found = self.somebody()
        if found is not None:
            member, known = found
            epoch = self.chance.choice((-1, -2)) if known.instance is not None else -1
            fields = streams_beat(self.group, member, epoch, instance_id=known.instance)
            self.play.ask(self.case("a leave"), "StreamsGroupHeartbeat", 0, fields)
            del self.members[member]

    def somebody_is_wrong(self) -> None:
        member = self.chance.choice((*MEMBERS, "nobody"))
        known = self.members.get(member, Known())
        epoch = max(known.epoch + self.chance.choice((-2, -1, 0, 1)), 1)
        active = self.chance.choice((None, {}, known.tasks[0], {"0": [0, 1]}))
        self.ask("something wrong", member, streams_beat(self.group, member, epoch, active=active))

    def something_else(self) -> None:
        chance = self.chance
        member, known = self.somebody() or ("nobody", Known())
        epoch = known.epoch + chance.choice((-1, 0, 0, 1))
        partition = chance.randrange(6)
        match chance.randrange(5):
            case 0 | 1:
                part = (self.topic, partition, chance.randrange(100))
                fields = commit(self.group, part, member_id=member, generation=epoch)
                self.play.ask(self.case("a commit"), "OffsetCommit", chance.choice((8, 9, 10)), fields)
            case 2:
                fields = fetch_offsets(
                    9, self.group, [(self.topic, (partition,))], member_id=member, member_epoch=epoch
                )
                self.play.ask(self.case("a fetch"), "OffsetFetch", 9, fields)
            case 3:
                set_for_group(self.play, self.group, num_standby_replicas=chance.choice("012"))
            case 4:
                self.play.ask(self.case("deleted"), "DeleteGroups", 2, {"groups_names": [self.group]})


@script(properties="streams_many")
def random_histories(play: Play) -> None:
    _play(play, range(SEEDS))


if MORE:

    @script(properties="streams_many")
    def more_histories(play: Play) -> None:
        begin, end = (int(seed) for seed in MORE.split("-"))
        _play(play, range(begin, end + 1))


def _play(play: Play, seeds: range) -> None:
    topic, other = play.topic("t", partitions=6), play.topic("u", partitions=2)
    for seed in seeds:
        History(play, seed, topic, other).run()
