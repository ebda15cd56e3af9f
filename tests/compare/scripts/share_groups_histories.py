"""Random histories of a share group, from seeds. Each topic has one partition, so that everything is deterministic."""

from __future__ import annotations

import random

from ..play import Play, script
from ..scene import Topic
from ..share_group_requests import (
    alter,
    beat,
    coordinators_are_there,
    describe,
    forget,
    offsets,
    share_group_records,
    until_initialized,
)
from .share_groups import NEEDS

STEPS = 50
SEEDS = 6
MEMBERS = ("anna", "bert", "cleo", "dora")


class History:
    """The history of one group."""

    def __init__(self, play: Play, seed: int, topic: Topic, other: Topic) -> None:
        self.play = play
        self.chance = random.Random(seed)
        self.group = play.name(f"g{seed}")
        self.topics = (topic, other)
        self.epochs: dict[str, int] = {}
        self.seed = seed
        self.count = 0

    def case(self, what: str) -> str:
        self.count += 1
        return f"{self.seed}.{self.count} {what}"

    def run(self) -> None:
        coordinators_are_there(self.play, self.topics[0], self.group)
        for step in range(STEPS):
            self.chance.choice(
                (
                    self.somebody_joins,
                    self.somebody_lives,
                    self.somebody_lives,
                    self.somebody_leaves,
                    self.somebody_is_wrong,
                    self.somebody_changes,
                    self.somebody_asks,
                    self.everybody_leaves,
                )
            )()
            if step % 5 == 0:
                describe(self.play, self.case("the group"), self.group)
        self.play.note(self.case("records"), share_group_records(self.play, self.group, *self.topics))

    def names(self) -> list[str]:
        """Return one topic in most cases. With two, hashes of random ids would decide who gets which."""
        topic, other = self.topics
        return self.chance.choice(([topic.name],) * 4 + ([other.name], ["nowhere"]))

    def beat(self, what: str, member: str, epoch: int, *names: str) -> None:
        answer = self.play.ask(
            self.case(what), "ShareGroupHeartbeat", 1, beat(self.group, member, epoch, *names)
        )
        if answer.error_code == 0:
            if epoch == -1:
                self.epochs.pop(member, None)
                return
            self.epochs[member] = answer.member_epoch
            known = {topic.name for topic in self.topics}
            until_initialized(self.play, self.group, **{name: 1 for name in names if name in known})

    def somebody_joins(self) -> None:
        self.beat("joins", self.chance.choice(MEMBERS), 0, *self.names())

    def somebody_lives(self) -> None:
        for member in sorted(self.epochs)[: self.chance.randrange(1, 4)]:
            self.beat(f"{member} lives", member, self.epochs[member])

    def somebody_changes(self) -> None:
        if self.epochs:
            member = self.chance.choice(sorted(self.epochs))
            self.beat(f"{member} changes", member, self.epochs[member], *self.names())

    def somebody_leaves(self) -> None:
        self.beat("leaves", self.chance.choice(MEMBERS), -1)

    def somebody_is_wrong(self) -> None:
        member = self.chance.choice(MEMBERS)
        epoch = self.epochs.get(member, 0) + self.chance.choice((-2, -1, 1, 5))
        if epoch > 0:
            self.beat(f"{member} says {epoch}", member, epoch)

    def somebody_asks(self) -> None:
        """Ask to change offsets, which stay as they are while there are members."""
        topic = self.chance.choice(self.topics)
        if self.chance.random() < 0.5:
            fields = alter(self.group, {topic.name: {0: self.chance.randrange(100)}})
            answer = self.play.ask(self.case("alters"), "AlterShareGroupOffsets", 0, fields)
            if answer.error_code == 0:
                until_initialized(self.play, self.group, **{topic.name: 1})
        else:
            self.play.ask(self.case("forgets"), "DeleteShareGroupOffsets", 0, forget(self.group, topic.name))
        self.play.ask(self.case("asks"), "DescribeShareGroupOffsets", 1, offsets(self.group, None))

    def everybody_leaves(self) -> None:
        if self.chance.random() < 0.6:
            return
        for member in sorted(self.epochs):
            self.beat(f"{member} leaves", member, -1)
        if self.chance.random() < 0.5:
            self.play.ask(self.case("deleted"), "DeleteGroups", 2, {"groups_names": [self.group]})
        else:
            self.somebody_asks()


@script(properties="shares", needs=NEEDS)
def histories(play: Play) -> None:
    topic, other = play.topic("t"), play.topic("u")
    for seed in range(SEEDS):
        History(play, seed, topic, other).run()
