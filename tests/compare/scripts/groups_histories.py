"""Random histories of a group, from seeds: members join, leave, come back and send wrong requests.

The outcome of every step depends on the requests alone, never on timing.
"""

from __future__ import annotations

import random
from typing import Any

from ..group_requests import (
    Member,
    commit,
    coordinator_is_there,
    fetch_offsets,
    heartbeat,
    join,
    leave,
    subscription,
    sync,
)
from ..play import Play, script
from ..scene import Topic

STEPS = 40
SEEDS = 8
MOST_MEMBERS = 3


class History:
    """One group, and what its members know."""

    def __init__(self, play: Play, seed: int, topic: Topic) -> None:
        self.play = play
        self.chance = random.Random(seed)
        self.group = play.name(f"g{seed}")
        self.topic = topic
        self.members: list[Member] = []
        self.gone = ["", "nobody"]
        self.seed = seed
        self.step = 0
        self.count = 0

    def case(self, what: str) -> str:
        self.count += 1
        return f"{self.seed}.{self.step}.{self.count} {what}"

    def run(self) -> None:
        coordinator_is_there(self.play, self.group)
        acts = (self.somebody_joins, self.somebody_leaves, self.everybody_joins_again, self.one_comes_back)
        for self.step in range(STEPS):
            if self.chance.random() < 0.35:
                self.chance.choice(acts)()
            else:
                self.ask_something()
        for member in self.members:
            self.play.drop(member.name)

    # --- members --------------------------------------------------------------------------------------------

    def somebody_joins(self) -> None:
        if len(self.members) == MOST_MEMBERS:
            return
        name = f"{self.seed}-{self.step}"
        instance = name if self.chance.random() < 0.4 else None
        version = self.chance.randrange(5, 10)
        member = Member(
            self.play,
            self.group,
            name,
            version=version,
            group_instance_id=instance,
            protocols=[("range", subscription("t", name)), (f"p{version % 2}", b"")],
        )
        if instance is None:
            answer = self.play.ask(
                self.case("an id"), "JoinGroup", version, self.join_fields(member), on=name
            )
            member.member_id = answer.member_id
        pending = [member.send_join(self.case("a join"))]
        if self.members:
            self.play.until("a rebalance has begun", lambda: self.state() == "PreparingRebalance")
        pending += [each.send_join(self.case("the others join")) for each in self.members]
        self.members.append(member)
        self.settle([member, *self.members[:-1]], pending)

    def join_fields(self, member: Member) -> dict[str, Any]:
        return join(self.group, member.member_id, **member.fields)

    def somebody_leaves(self) -> None:
        # If two members are left, the order of random ids decides which of them leads after the leader.
        candidates = self.members if len(self.members) < MOST_MEMBERS else self.members[1:]
        if not candidates:
            return
        member = self.chance.choice(candidates)
        instance = member.fields["group_instance_id"]
        self.play.ask(self.case("a leave"), "LeaveGroup", 5, leave(self.group, (member.member_id, instance)))
        self.members.remove(member)
        self.gone.append(member.member_id)
        self.play.drop(member.name)
        self.everybody_joins_again()

    def everybody_joins_again(self) -> None:
        if not self.members:
            return
        # The leader's join begins the rebalance. A follower's join would be answered at once if it came first.
        leader, *others = self.members
        pending = [leader.send_join(self.case("the leader joins again"))]
        if others:
            self.play.until("a rebalance has begun", lambda: self.state() == "PreparingRebalance")
        pending += [each.send_join(self.case("a join again")) for each in others]
        self.settle(self.members, pending)

    def settle(self, members: list[Member], pending: list[Any]) -> None:
        """Receive the answers to everybody's joins. Then let all sync, the leader last."""
        answers = {}
        for member, sent in zip(members, pending, strict=True):
            answer = self.play.receive(sent)
            if answer is None or answer.error_code != 0:
                self.play.note(self.case("no generation"), member.name)
                return
            answers[member.name] = answer
            member.member_id, member.generation = answer.member_id, answer.generation_id
        leader = next(member for member in members if answers[member.name].leader == member.member_id)
        self.members.sort(key=lambda member: member is not leader)
        assigned = {member.member_id: member.name.encode() for member in members}
        waiting = [self.send_sync(member) for member in members if member is not leader]
        for sent in [self.send_sync(leader, assigned), *waiting]:
            self.play.receive(sent)

    def send_sync(self, member: Member, assigned: dict[str, bytes] | None = None) -> Any:
        instance = member.fields["group_instance_id"]
        fields = sync(self.group, member.generation, member.member_id, assigned, group_instance_id=instance)
        return self.play.send(self.case("a sync"), "SyncGroup", 3, fields, on=member.name)

    def one_comes_back(self) -> None:
        static = [member for member in self.members if member.fields["group_instance_id"]]
        if not static:
            return
        member = self.chance.choice(static)
        self.gone.append(member.member_id)
        member.member_id = ""
        answer = self.play.receive(member.send_join(self.case("a static member comes back")))
        member.member_id = answer.member_id

    def state(self) -> str:
        answer = self.play.quietly("DescribeGroups", 5, {"groups": [self.group]})
        return str(answer.groups[0].group_state)

    # --- questions, right and wrong -------------------------------------------------------------------------

    def ask_something(self) -> None:
        chance = self.chance
        known = chance.choice(self.members) if self.members else None
        member_id = chance.choice(self.gone)
        generation, instance = chance.randrange(-1, 4), None
        if known is not None and chance.random() < 0.75:
            member_id, generation = known.member_id, known.generation
            instance = known.fields["group_instance_id"]
            if chance.random() < 0.3:
                generation += chance.choice((-1, 1))
        if chance.random() < 0.2:
            instance = chance.choice((None, "nobody's"))
        partition = chance.randrange(4)  # the last group doesn't exist
        case = self.case("a question")
        ask = self.play.ask
        match chance.randrange(10):
            case 0 | 1:
                fields = heartbeat(self.group, generation, member_id, instance)
                ask(case, "Heartbeat", chance.choice((3, 4)), fields)
            case 2:
                fields = sync(self.group, generation, member_id, group_instance_id=instance)
                ask(case, "SyncGroup", chance.choice((3, 4)), fields)
            case 3 | 4 | 5:
                part = (self.topic, partition, chance.randrange(100), "m" * chance.choice((0, 3, 4097)))
                fields = commit(
                    self.group, part, member_id=member_id, generation=generation, group_instance_id=instance
                )
                ask(case, "OffsetCommit", chance.randrange(7, 11), fields)
            case 6 | 7:
                version = chance.randrange(1, 11)
                parts = None if version > 1 and chance.random() < 0.5 else [(self.topic, (0, 1, 2, 3))]
                ask(case, "OffsetFetch", version, fetch_offsets(version, self.group, parts))
            case 8:
                deleted = {"name": self.topic.name, "partitions": [{"partition_index": partition}]}
                ask(case, "OffsetDelete", 0, {"group_id": self.group, "topics": [deleted]})
            case 9:
                if chance.random() < 0.5:
                    ask(case, "DeleteGroups", 2, {"groups_names": [self.group]})
                else:
                    ask(case, "JoinGroup", 5, join(self.group, "nobody", group_instance_id=instance))
        ask(self.case("the group"), "DescribeGroups", 6, {"groups": [self.group]})


@script
def random_histories(play: Play) -> None:
    topic = play.topic("t", partitions=3)
    for seed in range(SEEDS):
        History(play, seed, topic).run()
