"""Groups whose coordinator moves from one broker to another: the answers to members, and what they find afterwards."""

from __future__ import annotations

from typing import Any

from ..cluster_properties import CLUSTER
from ..consumer_requests import beat, first_beat
from ..group_requests import commit, fetch_offsets, heartbeat, join, leave, sync
from ..moved_coordinators import NOT_YET, OFFSETS, coordinated_by
from ..play import Play, script, versions
from ..scene import Topic
from ..transaction_log import partition_of


def _served(play: Play, group: str, broker: int, instead_of: int | None = None) -> None:
    """Wait until the broker coordinates the group, and the other one knows that it doesn't."""

    def told_by(on: int) -> int:
        asked = fetch_offsets(8, group, None)
        answer = play.quietly("OffsetFetch", 8, asked, on=f"broker {on}: scene")
        return int(answer.groups[0].error_code)

    play.until(f"broker {broker} coordinates {group}", lambda: told_by(broker) not in NOT_YET)
    if instead_of is not None:
        play.until(f"broker {instead_of} does no longer", lambda: told_by(instead_of) == NOT_YET[-1])


@script(properties=CLUSTER)
def classic(play: Play) -> None:
    """A member continues with its id and generation, and its offsets are there."""
    topic = play.topic("a", 2)
    group = play.name("g")
    index = partition_of(group)
    _served(play, group, 1)
    answer = play.quietly("JoinGroup", 5, join(group), on="broker 1: scene")
    member = answer.member_id
    answer = play.quietly("JoinGroup", 5, join(group, member), on="broker 1: scene")
    generation = answer.generation_id
    play.quietly("SyncGroup", 3, sync(group, generation, member, {member: b"mine"}), on="broker 1: scene")
    who: dict[str, Any] = {"member": member, "generation": generation}
    _commit(play, "in the beginning", group, topic, 5, "broker 1", **who)
    for old, new in ((1, 2), (2, 3)):
        coordinated_by(play, OFFSETS, new, index)
        _served(play, group, new, instead_of=old)
        when = f"moved from {old} to {new}"
        for broker in (old, new):
            on = f"broker {broker}"
            case = f"{when}, of {on}"
            for version in versions("Heartbeat"):
                asked = heartbeat(group, generation, member)
                play.ask(f"a heartbeat, {case} (v{version})", "Heartbeat", version, asked, on=on)
            play.ask(f"another generation, {case}", "Heartbeat", 3, heartbeat(group, 7, member), on=on)
            play.ask(f"a stranger, {case}", "Heartbeat", 3, heartbeat(group, generation, "stranger"), on=on)
            for version in versions("OffsetFetch"):
                asked = fetch_offsets(version, group, [(topic, [0, 1])])
                play.ask(f"offsets, {case} (v{version})", "OffsetFetch", version, asked, on=on)
            play.ask(f"a sync, {case}", "SyncGroup", 3, sync(group, generation, member), on=on)
            play.ask(f"described, {case}", "DescribeGroups", 5, {"groups": [group]}, on=on)
            play.ask(f"listed, {case}", "ListGroups", 4, {}, on=on)
            _commit(play, case, group, topic, 10 * new + broker, on, **who)
        play.ask(
            f"deleted, {when}, of the old one",
            "DeleteGroups",
            2,
            {"groups_names": [group]},
            on=f"broker {old}",
        )
        for version in (0, 3, 5):
            asked = leave(group, ("stranger", None))
            case = f"a stranger leaves, {when} (v{version})"
            play.ask(case, "LeaveGroup", version, asked, on=f"broker {old}")
        answer = play.ask(
            f"a join, {when}, of the old one", "JoinGroup", 5, join(group, member), on=f"broker {old}"
        )
    answer = play.ask("a join at last", "JoinGroup", 5, join(group, member), on="broker 3")
    asked = sync(group, answer.generation_id, member, {member: b"mine again"})
    play.ask("a sync at last", "SyncGroup", 3, asked, on="broker 3")
    coordinated_by(play, OFFSETS, 1, index)
    _served(play, group, 1)
    play.ask("described at last", "DescribeGroups", 5, {"groups": [group]})
    play.ask("offsets at last", "OffsetFetch", 8, fetch_offsets(8, group, None))


def _commit(
    play: Play, case: str, group: str, topic: Topic, offset: int, on: str, *, member: str, generation: int
) -> None:
    for version in (2, 6, 8):
        asked = commit(group, (topic, 0, offset + version), member_id=member, generation=generation)
        play.ask(f"a commit, {case} (v{version})", "OffsetCommit", version, asked, on=on)


@script(properties=CLUSTER)
def consumer(play: Play) -> None:
    """Members continue with their epoch and their partitions (KIP-848)."""
    topic = play.topic("a", 2)
    group = play.name("g")
    index = partition_of(group)
    _served(play, group, 1)
    answer = play.ask("the first", "ConsumerGroupHeartbeat", 1, first_beat(group, MEMBER, topic.name))
    epoch = answer.member_epoch
    for old, new in ((1, 2), (2, 3)):
        coordinated_by(play, OFFSETS, new, index)
        _served(play, group, new, instead_of=old)
        for broker in (old, new):
            on = f"broker {broker}"
            case = f"moved from {old} to {new}, of {on}"
            for version in versions("ConsumerGroupHeartbeat"):
                asked = beat(group, MEMBER, epoch)
                play.ask(f"{case} (v{version})", "ConsumerGroupHeartbeat", version, asked, on=on)
                asked = beat(group, MEMBER, epoch + 5)
                play.ask(
                    f"an epoch to come, {case} (v{version})", "ConsumerGroupHeartbeat", version, asked, on=on
                )
            asked = {"group_ids": [group]}
            play.ask(f"described, {case}", "ConsumerGroupDescribe", 1, asked, on=on)
            asked = commit(group, (topic, 0, 10 * new + broker), member_id=MEMBER, generation=epoch)
            play.ask(f"a commit, {case}", "OffsetCommit", 9, asked, on=on)
            asked = fetch_offsets(9, group, [(topic, [0, 1])], member_id=MEMBER, member_epoch=epoch)
            play.ask(f"offsets, {case}", "OffsetFetch", 9, asked, on=on)
    play.ask("it leaves", "ConsumerGroupHeartbeat", 1, beat(group, MEMBER, -1), on="broker 3")
    coordinated_by(play, OFFSETS, 1, index)
    _served(play, group, 1)
    play.ask_until(
        "described at last",
        lambda answer: (
            answer.groups[0].group_state == "Empty"
        ),  # the answer describes only what is known to be committed
        "ConsumerGroupDescribe",
        1,
        {"group_ids": [group]},
    )
    play.ask("offsets at last", "OffsetFetch", 8, fetch_offsets(8, group, None))


MEMBER = "a-member-of-the-script"
