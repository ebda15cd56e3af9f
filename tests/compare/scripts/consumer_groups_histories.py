"""Random histories of a consumer group, from seeds. The clients choose their member ids, so that everything is
deterministic."""

from __future__ import annotations

import random

from ..consumer_requests import beat, describe, first_beat, owned_in, records_of
from ..group_requests import commit, coordinator_is_there, fetch_offsets, leave
from ..play import Play, script
from ..scene import Topic

STEPS = 60
SEEDS = 10
MEMBERS = ("anna", "bert", "cleo", "dora")
INSTANCES = (None, None, "i", "j")


class Known:
    """What a member knows about itself."""

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.epoch = 0
        self.owned: list[tuple[Topic, list[int]]] = []


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

    def case(self, what: str) -> str:
        self.count += 1
        return f"{self.seed}.{self.step}.{self.count} {what}"

    def run(self) -> None:
        coordinator_is_there(self.play, self.group)
        for self.step in range(STEPS):
            self.chance.choice(
                (
                    self.somebody_joins,
                    self.somebody_lives,
                    self.somebody_lives,
                    self.somebody_lives,
                    self.somebody_leaves,
                    self.somebody_is_wrong,
                    self.somebody_changes,
                    self.something_else,
                )
            )()
            if self.step % 5 == 0:
                describe(self.play, self.case("the group"), self.group)
        self.play.note(self.case("records"), records_of(self.play, self.group, self.topic, self.other))

    def names(self) -> list[str]:
        """Return one topic in most cases. With two, the random topic ids would decide which comes first."""
        return self.chance.choice(([self.topic.name],) * 4 + ([self.other.name], [], ["nowhere"]))

    def beat(self, what: str, member: str, known: Known, epoch: int, **more: object) -> None:
        if known.instance is not None:
            more["instance_id"] = known.instance
        fields = beat(self.group, member, epoch, **more)  # type: ignore[arg-type]
        answer = self.play.ask(self.case(what), "ConsumerGroupHeartbeat", 1, fields)
        self.learn(member, known, answer)

    def learn(self, member: str, known: Known, answer: object) -> None:
        if answer.error_code == 0:  # type: ignore[attr-defined]
            self.members[member] = known
            known.epoch = answer.member_epoch  # type: ignore[attr-defined]
            if answer.assignment is not None:  # type: ignore[attr-defined]
                known.owned = owned_in(answer, self.topic, self.other)

    def somebody_joins(self) -> None:
        member = self.chance.choice(MEMBERS)
        known = Known(self.chance.choice(INSTANCES))
        # If as many members name one assignor as another, the sender of a heartbeat decides which one Kafka prefers,
        # and each such heartbeat gives the group a new epoch: see GAPS.md.
        more: dict[str, object] = {"server_assignor": self.chance.choice((None, None, None, "range"))}
        if known.instance is not None:
            more["instance_id"] = known.instance
        fields = first_beat(self.group, member, *self.names(), **more)
        answer = self.play.ask(self.case("a join"), "ConsumerGroupHeartbeat", 1, fields)
        self.learn(member, known, answer)

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
        owned = self.chance.choice((None, known.owned, known.owned))
        self.beat("a heartbeat", member, known, known.epoch, owned=owned)

    def somebody_changes(self) -> None:
        found = self.somebody()
        if found is not None:
            member, known = found
            owned = self.chance.choice((None, known.owned))
            self.beat("another subscription", member, known, known.epoch, names=self.names(), owned=owned)

    def somebody_leaves(self) -> None:
        found = self.somebody()
        if found is None:
            return
        member, known = found
        if self.chance.random() < 0.2:
            fields = leave(self.group, (member, known.instance))
            self.play.ask(self.case("a leave of the classic kind"), "LeaveGroup", 4, fields)
            del self.members[member]
            return
        epoch = -2 if known.instance is not None and self.chance.random() < 0.6 else -1
        self.beat(f"a leave, {epoch}", member, known, epoch)
        self.members.pop(member, None)

    def somebody_is_wrong(self) -> None:
        member = self.chance.choice((*MEMBERS, "nobody"))
        known = self.members.get(member, Known(None))
        wrong = Known(self.chance.choice((known.instance, None, "i", "k")))
        epoch = max(known.epoch + self.chance.choice((-2, -1, 0, 1)), 1)
        owned = self.chance.choice((None, [], known.owned, [(self.topic, [0, 1])]))
        fields = beat(self.group, member, epoch, owned=owned, instance_id=wrong.instance)
        answer = self.play.ask(self.case("something wrong"), "ConsumerGroupHeartbeat", 1, fields)
        self.learn(member, known, answer)

    def something_else(self) -> None:
        chance = self.chance
        member, known = self.somebody() or ("nobody", Known(None))
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
                deleted = {"name": self.topic.name, "partitions": [{"partition_index": partition}]}
                fields = {"group_id": self.group, "topics": [deleted]}
                self.play.ask(self.case("offsets deleted"), "OffsetDelete", 0, fields)
            case 4:
                self.play.ask(self.case("deleted"), "DeleteGroups", 2, {"groups_names": [self.group]})


@script(properties="consumers")
def random_histories(play: Play) -> None:
    topic, other = play.topic("t", partitions=6), play.topic("u", partitions=2)
    for seed in range(SEEDS):
        History(play, seed, topic, other).run()
