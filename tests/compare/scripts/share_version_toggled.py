"""Share groups that `share.version` turns off while their members are active, and on again (KIP-932)."""

from __future__ import annotations

from ..group_requests import commit, fetch_offsets, join
from ..play import LONG_MS, Play, script
from ..share_group_requests import beat, coordinators_are_there, describe, until_initialized
from ..share_requests import (
    ACCEPT,
    NEEDS,
    REJECT,
    RELEASE,
    ShareConsumer,
    configure,
    produce_batches,
    share_group,
)
from ..share_state_requests import initialize, read
from .share_version import set_share_version, until_share_partitions_are_gone


@script(properties="shares", needs=NEEDS)
def who_waits_and_who_holds(play: Play) -> None:
    topic = play.topic("t")
    group = share_group(play, "g", (topic, 0))
    produce_batches(play, topic, 3, 3, 3)
    holder, waiter = (ShareConsumer(play, group, topic, name) for name in ("holder", "waiter"))
    holder.fetch("all of it", batch_size=3)
    holder.ack("some of it", (0, 1, ACCEPT), (2, 2, RELEASE), (3, 3, REJECT))
    waiter.fetch("what was given back")
    waiting = waiter.send("nothing is left", max_wait_ms=3_000)
    set_share_version(play, 0)
    until_share_partitions_are_gone(play)
    play.receive(waiting, within_s=20.0)
    holder.ack("it is off", (4, 4, ACCEPT))
    produce_batches(play, topic, 2)
    set_share_version(play, 1)
    waiter.fetch("its session is over")
    holder.ack("that one as well", (4, 4, ACCEPT))
    holder.leave("there is none to end")
    other = ShareConsumer(play, group, topic, "other")
    other.fetch("all but what is done with", batch_size=3, max_wait_ms=LONG_MS)
    holder.fetch("holds nothing any more", max_records=0)
    holder.ack("what it held", (4, 4, ACCEPT))
    other.ack("of its own", (2, 2, ACCEPT), (4, 10, ACCEPT))
    play.ask("its state", "ReadShareGroupState", 0, read(group, (topic, 0)))


@script(properties="shares", needs=NEEDS)
def off_twice_with_a_member(play: Play) -> None:
    topic = play.topic("t")
    group = play.name("g")
    coordinators_are_there(play, topic, group)
    configure(play, group, auto_offset_reset="earliest")
    play.ask("joins", "ShareGroupHeartbeat", 1, beat(group, "m", 0, topic.name))
    until_initialized(play, group, **{topic.name: 1})
    for number in range(2):
        set_share_version(play, 0, f", {number}")
        play.ask(f"beats, off {number}", "ShareGroupHeartbeat", 1, beat(group, "m", 2))
        play.ask(f"leaves, off {number}", "ShareGroupHeartbeat", 1, beat(group, "m", -1))
        describe(play, f"described, off {number}", group)
        set_share_version(play, 1, f", {number}")
        describe(play, f"described, on {number}", group)
    play.ask("beats", "ShareGroupHeartbeat", 1, beat(group, "m", 2, topic.name))


@script(properties="shares", needs=NEEDS)
def what_others_say_of_a_group_meanwhile(play: Play) -> None:
    topic = play.topic("t")
    group, new = play.name("g"), play.name("new")
    coordinators_are_there(play, topic, group, new)
    play.quietly("ShareGroupHeartbeat", 1, beat(group, "m", 0, topic.name))
    until_initialized(play, group, **{topic.name: 1})
    set_share_version(play, 0)
    play.ask("described by others' words", "DescribeGroups", 6, {"groups": [group]})
    play.ask("described as a consumer group", "ConsumerGroupDescribe", 1, {"group_ids": [group]})
    play.ask("its coordinator", "FindCoordinator", 6, {"key_type": 0, "coordinator_keys": [group]})
    play.ask("its offsets", "OffsetFetch", 9, fetch_offsets(9, group, None))
    play.ask("a commit", "OffsetCommit", 9, commit(group, (topic, 0, 5), member_id="m", generation=2))
    play.ask("a classic member", "JoinGroup", 5, join(group, "m"))
    configure(play, new, auto_offset_reset="earliest")
    play.ask("it isn't empty", "DeleteGroups", 2, {"groups_names": [group]})
    play.ask("states are begun", "InitializeShareGroupState", 0, initialize(new, (topic, 0), start=3))
    play.ask("and read", "ReadShareGroupState", 0, read(new, (topic, 0)))
    play.ask("and summed up", "ReadShareGroupStateSummary", 1, read(new, (topic, 0)))
    set_share_version(play, 1)
    play.quietly("ShareGroupHeartbeat", 1, beat(group, "m", -1))
    set_share_version(play, 0, ", again")
    play.ask("it is deleted", "DeleteGroups", 2, {"groups_names": [group]})
    play.ask("there is none any more", "DescribeGroups", 6, {"groups": [group]})
    set_share_version(play, 1, ", again")
    describe(play, "nor any share group", group)
