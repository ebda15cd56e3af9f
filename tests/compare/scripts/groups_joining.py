"""JoinGroup: its checks and their order, new members and known ones."""

from __future__ import annotations

from ..group_requests import (
    Member,
    coordinator_is_there,
    first_is_told,
    heartbeat,
    join,
    leave,
    stable_group,
    subscription,
    sync,
)
from ..play import Play, script, versions

TYPELESS = {"protocol_type": ""}
NO_PROTOCOLS = {"protocols": []}


@script
def refusals(play: Play) -> None:
    """The group doesn't exist, or is empty."""
    for version in versions("JoinGroup"):
        group = play.name(f"v{version}")
        coordinator_is_there(play, group)
        for case, fields in {
            "no group id": join("", session_timeout_ms=1),
            "no group id but a member id": join("", "me"),
            "a session of 5999 ms": join(group, session_timeout_ms=5999),
            "a session of 1800001 ms": join(group, "me", session_timeout_ms=1_800_001),
            "a negative session": join(group, session_timeout_ms=-1),
            "a member id, and no such group": join(group, "me"),
            "a member id, no such group and no protocols": join(group, "me", **NO_PROTOCOLS),
            "no protocol type": join(group, **TYPELESS),
            "no protocols": join(group, **NO_PROTOCOLS),
            "a member id, and the group is empty": join(group, "me"),
            "a member id and no protocols, and the group is empty": join(group, "me", **NO_PROTOCOLS),
        }.items():
            play.ask(f"{case} (v{version})", "JoinGroup", version, fields)
        play.ask(f"the group that is left (v{version})", "DescribeGroups", 6, {"groups": [group]})


@script
def alone(play: Play) -> None:
    """One member from its join to its leave, in each version."""
    for version in versions("JoinGroup"):
        group = play.name(f"v{version}")
        coordinator_is_there(play, group)
        answer = play.ask(f"the first join (v{version})", "JoinGroup", version, join(group))
        if answer.error_code == 79:
            play.ask(
                f"a heartbeat before the second join (v{version})",
                "Heartbeat",
                4,
                heartbeat(group, 0, answer.member_id),
            )
            answer = play.ask(
                f"the second join (v{version})", "JoinGroup", version, join(group, answer.member_id)
            )
        me = answer.member_id
        play.ask(f"a heartbeat before the sync (v{version})", "Heartbeat", 3, heartbeat(group, 1, me))
        play.ask(f"the join again (v{version})", "JoinGroup", version, join(group, me))
        play.ask(f"the sync (v{version})", "SyncGroup", 3, sync(group, 1, me, {me: b"mine"}))
        play.ask(f"the sync again (v{version})", "SyncGroup", 3, sync(group, 1, me, {me: b"other"}))
        play.ask(f"stable (v{version})", "DescribeGroups", 5, {"groups": [group]})
        again = join(group, me, protocols=[("range", b"other"), ("roundrobin", b"")])
        play.ask(f"the leader joins again (v{version})", "JoinGroup", version, again)
        play.ask(f"the leave (v{version})", "LeaveGroup", 3, leave(group, (me, None)))
        play.ask(f"empty (v{version})", "DescribeGroups", 5, {"groups": [group]})


@script
def a_second_member(play: Play) -> None:
    group = play.name("g")
    coordinator_is_there(play, group)
    (first,) = stable_group(play, group, "first", protocols=[("range", b"1"), ("roundrobin", b"2")])
    for case, fields in {
        "another protocol type": join(group, protocol_type="connect"),
        "no protocol in common": join(group, protocols=[("sticky", b"")]),
        "no protocol type": join(group, **TYPELESS),
        "a member id that nobody has": join(group, "nobody"),
        "a member id that nobody has, and no protocol in common": join(
            group, "nobody", protocols=[("sticky", b"")]
        ),
        "an instance id that nobody has": join(group, "nobody", group_instance_id="i"),
    }.items():
        play.ask(case, "JoinGroup", 5, fields)
    second = Member(play, group, "second", protocols=[("roundrobin", b"3"), ("sticky", b"4")])
    second.quiet_id()
    play.ask("a pending id is not described", "DescribeGroups", 5, {"groups": [group]})
    play.ask("a pending id has no generation", "Heartbeat", 3, heartbeat(group, 1, second.member_id))
    play.ask("a pending id can't sync", "SyncGroup", 3, sync(group, 1, second.member_id))
    waiting = second.send_join("the second member's join")
    play.until("the first is told", lambda: first_is_told(play, first))
    play.ask("the rebalance is on", "DescribeGroups", 5, {"groups": [group]})
    play.ask("a heartbeat", "Heartbeat", 3, heartbeat(group, 1, first.member_id))
    play.ask("a heartbeat of another generation", "Heartbeat", 3, heartbeat(group, 2, first.member_id))
    play.ask("a sync", "SyncGroup", 3, sync(group, 1, first.member_id))
    again = first.send_join("the first member's join")
    play.receive(again)
    play.receive(waiting)
    first.generation = second.generation = 2
    follower = play.send(
        "the follower's sync",
        "SyncGroup",
        5,
        sync(group, 2, second.member_id, protocol_name="roundrobin"),
        on="second",
    )
    play.ask(
        "a sync with another protocol",
        "SyncGroup",
        5,
        sync(group, 2, first.member_id, protocol_name="range"),
    )
    play.ask(
        "a sync with another type",
        "SyncGroup",
        5,
        sync(group, 2, first.member_id, protocol_type="connect", protocol_name="roundrobin"),
    )
    play.ask("a sync of the last generation", "SyncGroup", 3, sync(group, 1, first.member_id))
    play.ask(
        "the leader's sync, with assignments for others",
        "SyncGroup",
        5,
        sync(
            group,
            2,
            first.member_id,
            {"nobody": b"?", second.member_id: b"two"},
            protocol_name="roundrobin",
        ),
    )
    play.receive(follower)
    play.ask("both are described", "DescribeGroups", 5, {"groups": [group]})
    play.ask(
        "the follower joins again as it was",
        "JoinGroup",
        5,
        join(group, second.member_id, protocols=[("roundrobin", b"3"), ("sticky", b"4")]),
    )
    play.ask("the follower syncs again", "SyncGroup", 3, sync(group, 2, second.member_id))


@script
def protocols_and_versions(play: Play) -> None:
    """SyncGroup's checks, by version."""
    group = play.name("g")
    coordinator_is_there(play, group)
    (me,) = stable_group(play, group, "me")
    for version in versions("SyncGroup"):
        for case, fields in {
            "as it should be": sync(group, 1, me.member_id),
            "no group id": sync("", 1, me.member_id),
            "no such group": sync(play.name("none"), 1, me.member_id),
            "no such member": sync(group, 1, "nobody"),
            "no such member, another generation": sync(group, 7, "nobody"),
            "another generation": sync(group, 2, me.member_id),
            "another generation and another protocol": sync(
                group, 2, me.member_id, protocol_name="roundrobin"
            ),
            "an instance id": sync(group, 1, me.member_id, group_instance_id="i"),
            "no type": sync(group, 1, me.member_id, protocol_type=None),
            "no name": sync(group, 1, me.member_id, protocol_name=None),
            "no type, no name, no group id": sync(
                "", 1, me.member_id, protocol_type=None, protocol_name=None
            ),
            "another type": sync(group, 1, me.member_id, protocol_type="connect"),
            "another name": sync(group, 1, me.member_id, protocol_name="roundrobin"),
        }.items():
            if version < 3:
                fields = fields | {"group_instance_id": None}
            play.ask(f"{case} (v{version})", "SyncGroup", version, fields)
    for version in versions("Heartbeat"):
        for case, fields in {
            "as it should be": heartbeat(group, 1, me.member_id),
            "no group id": heartbeat("", 1, me.member_id),
            "no such group": heartbeat(play.name("none"), 1, me.member_id),
            "no such member": heartbeat(group, 7, "nobody"),
            "another generation": heartbeat(group, 0, me.member_id),
            "generation -1": heartbeat(group, -1, me.member_id),
        }.items():
            play.ask(f"a heartbeat, {case} (v{version})", "Heartbeat", version, fields)
        if version >= 3:
            fields = heartbeat(group, 7, me.member_id, "i")
            play.ask(f"a heartbeat with an instance id (v{version})", "Heartbeat", version, fields)


@script
def votes(play: Play) -> None:
    """If votes are tied, the protocol that comes first in Java's order wins."""
    names = ("range", "roundrobin", "sticky", "cooperative-sticky", "a", "b", "AaAa")
    for index, (one, two) in enumerate(zip(names, names[1:] + names[:1], strict=True)):
        group = play.name(f"g{index}")
        coordinator_is_there(play, group)
        first = Member(play, group, f"{index}a", version=3, protocols=[(one, b""), (two, b"")])
        second = Member(play, group, f"{index}b", version=3, protocols=[(two, b""), (one, b"")])
        first.quiet_join()
        waiting = second.send_join()
        play.until("the rebalance has begun", lambda first=first: first_is_told(play, first))
        first.quiet_join()
        play.note(f"{one} or {two}", second.quiet_join(waiting).protocol_name)


@script
def who_does_not_sync(play: Play) -> None:
    """A member that hasn't synced by the rebalance timeout is dropped."""
    group = play.name("g")
    coordinator_is_there(play, group)
    first = Member(play, group, "first", version=3, rebalance_timeout_ms=200)
    second = Member(play, group, "second", version=3, rebalance_timeout_ms=200)
    first.quiet_join()
    waiting = second.send_join()
    play.until("the rebalance has begun", lambda: first_is_told(play, first))
    first.quiet_join()
    second.quiet_join(waiting)
    play.ask(
        "the leader syncs",
        "SyncGroup",
        3,
        sync(group, 2, first.member_id, {first.member_id: b"x"}),
        on="first",
    )
    play.until("the rebalance has begun again", lambda: first_is_told(play, first))
    play.ask("who did not sync is out", "Heartbeat", 3, heartbeat(group, 2, second.member_id))
    play.ask("who synced joins again", "JoinGroup", 3, join(group, first.member_id), on="first")


@script
def who_does_not_join_again(play: Play) -> None:
    group = play.name("g")
    coordinator_is_there(play, group)
    first, second = stable_group(play, group, "first", "second", rebalance_timeout_ms=200)
    changed = [("range", subscription("another"))]
    play.ask(
        "the leader joins again",
        "JoinGroup",
        5,
        join(group, first.member_id, protocols=changed, rebalance_timeout_ms=200),
        on="first",
    )
    play.ask("who did not is out", "Heartbeat", 3, heartbeat(group, 3, second.member_id))
    play.ask("and can't join", "JoinGroup", 5, join(group, second.member_id), on="second")


@script
def a_leader_that_does_not_join_again(play: Play) -> None:
    group = play.name("g")
    coordinator_is_there(play, group)
    first, second = stable_group(play, group, "first", "second", rebalance_timeout_ms=200)
    changed = [("range", subscription("another"))]
    answer = play.ask(
        "a follower joins with another subscription",
        "JoinGroup",
        5,
        join(group, second.member_id, protocols=changed, rebalance_timeout_ms=200),
        on="second",
    )
    play.note("it leads", answer.leader == second.member_id)
    play.ask("the leader is out", "Heartbeat", 3, heartbeat(group, 3, first.member_id))


@script
def a_rebalance_while_members_sync(play: Play) -> None:
    group = play.name("g")
    coordinator_is_there(play, group)
    first, second = stable_group(play, group, "first", "second")
    waiting = [member.send_join(protocols=[("range", b"other")]) for member in (second, first)]
    second.quiet_join(waiting[0])
    first.quiet_join(waiting[1])
    syncing = play.send(
        "a sync that a rebalance ends", "SyncGroup", 3, sync(group, 3, second.member_id), on="second"
    )
    play.until(
        "a third one joins",
        lambda: play.quietly("JoinGroup", 5, join(group, "")).error_code == 79,
    )
    third = Member(play, group, "third")
    third.quiet_id()
    joining = third.send_join("the third one's join")
    play.receive(syncing)
    play.ask(
        "another leader leaves",
        "LeaveGroup",
        5,
        leave(group, (first.member_id, None), (second.member_id, None), ("nobody", None)),
    )
    # The id that never joined holds up the rebalance: the answer would come when its session ends.
    play.drop(joining.on)


@script
def leaving(play: Play) -> None:
    for version in versions("LeaveGroup"):
        group = play.name(f"v{version}")
        coordinator_is_there(play, group)
        (me,) = stable_group(play, group, f"me{version}")
        pending = Member(play, group, f"p{version}")
        pending.quiet_id()
        for case, members in {
            "nobody": [("nobody", None)],
            "a pending id": [(pending.member_id, None)],
            "a pending id again": [(pending.member_id, None)],
            "no member id": [("", None)],
            "a member": [(me.member_id, None)],
            "a member again": [(me.member_id, None)],
        }.items():
            play.ask(f"{case} leaves (v{version})", "LeaveGroup", version, leave(group, *members))
        play.ask(f"no group id (v{version})", "LeaveGroup", version, leave("", ("me", None)))
        none = play.name("none")
        play.ask(f"no such group (v{version})", "LeaveGroup", version, leave(none, ("me", None)))
        if version >= 3:
            play.ask(f"no members (v{version})", "LeaveGroup", version, leave(group))
            play.ask(
                f"instance ids (v{version})", "LeaveGroup", version, leave(group, ("", "i"), ("me", "i"))
            )
        play.ask(f"what is left (v{version})", "DescribeGroups", 5, {"groups": [group]})


@script
def a_leave_ends_a_parked_join(play: Play) -> None:
    group = play.name("g")
    coordinator_is_there(play, group)
    (first,) = stable_group(play, group, "first")
    second = Member(play, group, "second")
    second.quiet_id()
    waiting = second.send_join("the join of one that leaves")
    play.until("the rebalance has begun", lambda: first_is_told(play, first))
    play.ask("it leaves", "LeaveGroup", 3, leave(group, (second.member_id, None)))
    play.receive(waiting)
    play.ask("the other joins again", "JoinGroup", 5, join(group, first.member_id), on="first")
