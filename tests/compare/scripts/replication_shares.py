"""Share groups whose group coordinator and share coordinator are on different brokers, and move (KIP-932)."""

from __future__ import annotations

from ..cluster_properties import CLUSTER
from ..group_requests import coordinator_is_there
from ..moved_coordinators import NOT_YET, OFFSETS, coordinated_by, on_all
from ..play import Play, script
from ..scene import Topic
from ..share_group_requests import alter, beat, describe, forget, offsets, until_initialized
from ..share_state_requests import initialize, read, share_state_is_there, summary, write
from ..transaction_log import partition_of
from .share_groups import NEEDS
from .share_states import NEEDS as STATES

SHARE_STATES = "__share_group_state"


def _states_move(play: Play, group: str, topic: Topic, broker: int, instead_of: int) -> None:
    """Wait until one broker has the states, and the other one knows that it doesn't."""
    coordinated_by(play, SHARE_STATES, broker)

    def told_by(on: int) -> set[int]:
        asked = summary(group, *((topic, index) for index in range(3)))
        answer = play.quietly("ReadShareGroupStateSummary", 0, asked, on=f"broker {on}: scene")
        return {part.error_code for result in answer.results for part in result.partitions}

    play.until(f"broker {broker} has the states", lambda: told_by(broker).isdisjoint(NOT_YET))
    play.until(f"broker {instead_of} hasn't", lambda: told_by(instead_of) == {NOT_YET[-1]})


@script(properties=CLUSTER, needs=STATES)
def states(play: Play) -> None:
    """The next broker knows the states that the first one has written."""
    topic = play.topic("t", 3)
    group = play.name("g")
    every = [(topic, index) for index in range(3)]
    share_state_is_there(play, group, topic)
    play.quietly("InitializeShareGroupState", 0, initialize(group, *every))
    for old, new in ((1, 2), (2, 3), (3, 1)):
        fields = write(
            group, *every, batches=[(new, new + 5, 0, new), (new, new, 2, 1)], start=new, count=new
        )
        play.quietly("WriteShareGroupState", 1, fields, on=f"broker {old}: scene")
        play.quietly(
            "ReadShareGroupState", 0, read(group, every[0], leader_epoch=new), on=f"broker {old}: scene"
        )
        _states_move(play, group, topic, new, instead_of=old)
        for case, on in on_all(f"moved from {old} to {new}"):
            play.ask(f"read, {case}", "ReadShareGroupState", 0, read(group, *every, leader_epoch=-1), on=on)
            play.ask(f"summary, {case}", "ReadShareGroupStateSummary", 1, summary(group, *every), on=on)
            fields = write(group, *every, leader_epoch=new, batches=[(new + 9, new + 9, 4, 1)])
            play.ask(f"write, {case}", "WriteShareGroupState", 1, fields, on=on)


@script(properties=CLUSTER, needs=NEEDS)
def groups_with_states_elsewhere(play: Play) -> None:
    """The group coordinator asks the share coordinator over the network."""
    topic = play.topic("t", 3)
    other = play.topic("u", 2, replicas=(2, 3, 1))
    group = play.name("g")
    coordinator_is_there(play, group)
    share_state_is_there(play, group, topic)
    _states_move(play, group, topic, 2, instead_of=1)
    play.ask("a member joins", "ShareGroupHeartbeat", 1, beat(group, "m", 0, topic.name))
    until_initialized(play, group, **{topic.name: 3})
    play.ask_until(
        "it is assigned",
        lambda answer: answer.member_epoch == 3,  # a second after the first assignment, at the earliest
        "ShareGroupHeartbeat",
        1,
        beat(group, "m", 2),
    )
    for case, on in on_all("offsets"):
        asked = offsets(group, {topic.name: [0, 1, 2]})
        play.ask(case, "DescribeShareGroupOffsets", 0, asked, on=on)
    play.ask("it leaves", "ShareGroupHeartbeat", 1, beat(group, "m", -1))
    fields = alter(group, {topic.name: {0: 7, 1: 8}, other.name: {0: 2, 1: 3}})
    play.ask("altered", "AlterShareGroupOffsets", 0, fields)
    until_initialized(play, group, **{topic.name: 3, other.name: 2})
    for case, on in on_all("how much is left"):
        asked = offsets(group, {topic.name: [0, 1, 2], other.name: [0, 1]})
        play.ask(case, "DescribeShareGroupOffsets", 1, asked, on=on)
    _states_move(play, group, topic, 3, instead_of=2)
    play.ask("offsets, moved", "DescribeShareGroupOffsets", 0, offsets(group, None))
    index = partition_of(group)
    coordinated_by(play, OFFSETS, 2, index)

    def is_served() -> bool:
        answer = play.quietly("ShareGroupDescribe", 1, {"group_ids": [group]}, on="broker 2: scene")
        return bool(answer.groups[0].error_code not in NOT_YET)

    play.until("broker 2 coordinates the group", is_served)
    for case, on in on_all("the group has moved"):
        fields = {"group_ids": [group]}
        play.ask(f"described, {case}", "ShareGroupDescribe", 1, fields, on=on)
        play.ask(f"all, {case}", "DescribeShareGroupOffsets", 0, offsets(group, None), on=on)
        play.ask(f"a heartbeat, {case}", "ShareGroupHeartbeat", 1, beat(group, "m", 5), on=on)
    play.ask("forgotten", "DeleteShareGroupOffsets", 0, forget(group, topic.name), on="broker 2")
    play.ask("deleted", "DeleteGroups", 2, {"groups_names": [group]}, on="broker 2")
    coordinated_by(play, OFFSETS, 1, index)
    _states_move(play, group, topic, 1, instead_of=3)
    coordinator_is_there(play, group)
    describe(play, "at last", group)
