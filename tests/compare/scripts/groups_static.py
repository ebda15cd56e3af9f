"""Static members: their ids, their fencing, their return."""

from __future__ import annotations

from ..group_requests import (
    Member,
    commit,
    coordinator_is_there,
    heartbeat,
    join,
    leave,
    subscription,
    sync,
)
from ..play import Play, script


def static_pair(play: Play, group: str, version: int = 9) -> tuple[Member, Member]:
    """Form a stable group of two static members: "one", which leads, and "two"."""
    one = Member(play, group, "one", version=version, group_instance_id="one")
    two = Member(play, group, "two", version=version, group_instance_id="two")
    one.quiet_join()
    waiting = two.send_join()
    play.until("the rebalance has begun", lambda: first_is_told_static(play, one))
    one.quiet_join()
    two.quiet_join(waiting)
    one.quiet_sync({one.member_id: b"for one", two.member_id: b"for two"}, group_instance_id="one")
    two.quiet_sync(group_instance_id="two")
    return one, two


def first_is_told_static(play: Play, member: Member) -> bool:
    fields = heartbeat(member.group, member.generation, member.member_id, "one")
    return bool(play.quietly("Heartbeat", 3, fields).error_code == 27)


@script
def ids(play: Play) -> None:
    for version in range(5, 10):
        group = play.name(f"v{version}")
        coordinator_is_there(play, group)
        fields = {"group_instance_id": "mine"}
        answer = play.ask(f"the first join (v{version})", "JoinGroup", version, join(group, **fields))
        me = answer.member_id
        for case, member, instance in (
            ("as it should be", me, "mine"),
            ("no instance id", me, None),
            ("another instance id", me, "yours"),
            ("another member id", "nobody", "mine"),
            ("nothing right", "nobody", "yours"),
        ):
            play.ask(
                f"a heartbeat: {case} (v{version})", "Heartbeat", 4, heartbeat(group, 1, member, instance)
            )
            play.ask(
                f"a sync: {case} (v{version})",
                "SyncGroup",
                3,
                sync(group, 1, member, {me: b"x"}, group_instance_id=instance),
            )
            topic = play.topic(f"v{version}-{case.replace(' ', '-')}")
            play.ask(
                f"a commit: {case} (v{version})",
                "OffsetCommit",
                8,
                commit(group, (topic, 0, 1), member_id=member, generation=1, group_instance_id=instance),
            )
            if member != me or instance != "mine":
                play.ask(
                    f"a join: {case} (v{version})",
                    "JoinGroup",
                    version,
                    join(group, member, group_instance_id=instance) if instance else join(group, member),
                )
        for case, member, instance in (
            ("another member id", "nobody", "mine"),
            ("no instance id", "nobody", None),
            ("another instance id", me, "yours"),
            ("the instance id alone", "", "mine"),
            ("the instance id alone again", "", "mine"),
        ):
            play.ask(f"a leave: {case} (v{version})", "LeaveGroup", 5, leave(group, (member, instance)))


@script
def coming_back(play: Play) -> None:
    """A member that comes back to a stable group causes no rebalance."""
    for version in range(5, 10):
        group = play.name(f"v{version}")
        coordinator_is_there(play, group)
        one, two = static_pair(play, group, version)
        for name, old in (("two", two), ("one", one)):
            fields = {"group_instance_id": name}
            answer = play.ask(
                f"{name} comes back (v{version})", "JoinGroup", version, join(group, **fields), on=name
            )
            play.note(f"{name} has a new id (v{version})", answer.member_id != old.member_id)
            play.note(f"who leads after {name} (v{version})", answer.leader == one.member_id)
            for case, instance in (("with", name), ("without", None)):
                play.ask(
                    f"the old id {case} the instance id (v{version}, {name})",
                    "Heartbeat",
                    4,
                    heartbeat(group, 2, old.member_id, instance),
                )
            play.ask(
                f"the new id syncs (v{version}, {name})",
                "SyncGroup",
                3,
                sync(group, 2, answer.member_id, group_instance_id=name),
            )
            play.ask(
                f"the new id lives (v{version}, {name})",
                "Heartbeat",
                4,
                heartbeat(group, 2, answer.member_id, name),
            )


@script
def otherwise_coming_back(play: Play) -> None:
    """A member comes back with another protocol, or during a rebalance."""
    group = play.name("changed")
    coordinator_is_there(play, group)
    one, two = static_pair(play, group)
    both = [("range", subscription("t")), ("roundrobin", subscription("t"))]
    play.ask(
        "with more protocols, which doesn't change the group's",
        "JoinGroup",
        9,
        join(group, group_instance_id="two", protocols=both),
        on="two",
    )
    play.ask(
        "with another subscription, which doesn't either",
        "JoinGroup",
        9,
        join(group, group_instance_id="two", protocols=[("range", subscription("t", "u"))]),
        on="two",
    )
    play.ask(
        "with no protocol in common",
        "JoinGroup",
        9,
        join(group, group_instance_id="two", protocols=[("roundrobin", b"")]),
        on="two",
    )
    play.ask("still stable", "DescribeGroups", 5, {"groups": [group]})

    group = play.name("syncing")
    coordinator_is_there(play, group)
    one, two = static_pair(play, group)
    changed = [("range", subscription("another"))]
    two_waits = two.send_join(protocols=changed)
    play.until("the rebalance has begun", lambda: first_is_told_static(play, one))
    one.quiet_join()
    two.quiet_join(two_waits)
    old_sync = play.send(
        "the sync of the old id",
        "SyncGroup",
        3,
        sync(group, 3, two.member_id, group_instance_id="two"),
        on="two",
    )
    back = Member(play, group, "back", version=9, group_instance_id="two")
    back_waits = back.send_join("it comes back while the others sync")
    play.receive(old_sync)
    one_waits = one.send_join("the leader joins again")
    play.receive(back_waits)
    play.receive(one_waits)

    group = play.name("joining")
    coordinator_is_there(play, group)
    one, two = static_pair(play, group)
    old_join = two.send_join("the join of the old id", protocols=changed)
    play.until("the rebalance has begun again", lambda: first_is_told_static(play, one))
    back = Member(play, group, "back", version=9, group_instance_id="two")
    back_waits = back.send_join("it comes back while the others join")
    play.receive(old_join)
    one_waits = one.send_join("the leader joins again, too")
    play.receive(back_waits)
    play.receive(one_waits)


@script
def who_does_not_come_back(play: Play) -> None:
    """A static member stays through a rebalance in which it takes no part. A dynamic member doesn't."""
    group = play.name("g")
    coordinator_is_there(play, group)
    stays = Member(play, group, "stays", version=9, group_instance_id="one", rebalance_timeout_ms=200)
    comes = Member(play, group, "comes", version=9, group_instance_id="two", rebalance_timeout_ms=200)
    stays.quiet_join()
    waiting = comes.send_join()
    play.until("the rebalance has begun", lambda: first_is_told_static(play, stays))
    stays.quiet_join()
    comes.quiet_join(waiting)
    stays.quiet_sync({stays.member_id: b"1", comes.member_id: b"2"}, group_instance_id="one")
    comes.quiet_sync(group_instance_id="two")
    changed = [("range", subscription("another"))]
    answer = play.ask(
        "the other one joins again",
        "JoinGroup",
        9,
        join(
            group,
            comes.member_id,
            protocols=changed,
            group_instance_id="two",
            rebalance_timeout_ms=200,
        ),
        on="comes",
    )
    play.note("who joined leads", answer.leader == comes.member_id)
    play.ask("who stayed is one of it", "Heartbeat", 4, heartbeat(group, 3, stays.member_id, "one"))
