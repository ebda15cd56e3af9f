"""ListGroups, DescribeGroups and DeleteGroups."""

from __future__ import annotations

from ..group_requests import (
    Member,
    commit,
    coordinator_is_there,
    first_is_told,
    join,
    leave,
    stable_group,
)
from ..play import Play, script, versions


@script
def in_every_state(play: Play) -> None:
    topic = play.topic("t")
    names = {
        state: play.name(state)
        for state in ("simple", "pending", "empty", "preparing", "completing", "stable")
    }
    coordinator_is_there(play, *names.values(), play.name("none"), "")
    play.quietly("DeleteGroups", 2, {"groups_names": [""]})  # another script may have committed for it
    play.quietly("OffsetCommit", 6, commit(names["simple"], (topic, 0, 1)))
    play.quietly("JoinGroup", 5, join(names["pending"]))
    (left,) = stable_group(play, names["empty"], "left")
    play.quietly("LeaveGroup", 3, leave(names["empty"], (left.member_id, None)))
    (waits,) = stable_group(play, names["preparing"], "waits")
    other = Member(play, names["preparing"], "other")
    other.quiet_id()
    parked = other.send_join()
    play.until("a rebalance has begun", lambda: first_is_told(play, waits))
    completing = Member(play, names["completing"], "completing")
    completing.quiet_id()
    completing.quiet_join()
    (stable,) = stable_group(play, names["stable"], "stable")

    groups = [*names.values(), play.name("none"), ""]
    for version in versions("DescribeGroups"):
        fields = {"groups": groups, "include_authorized_operations": False}
        play.ask(f"described (v{version})", "DescribeGroups", version, fields)
        if version >= 3:
            fields["include_authorized_operations"] = True
            play.ask(f"described with operations (v{version})", "DescribeGroups", version, fields)
    for version in versions("ListGroups"):
        play.ask(f"all (v{version})", "ListGroups", version, {})
        if version >= 4:
            for case, states in {
                "one state": ["Stable"],
                "several states": ["Empty", "PreparingRebalance"],
                "in another case, with blanks": [" sTABLE ", "completingrebalance"],
                "no such state": ["Nowhere"],
                "a state and none": ["Empty", ""],
                "dead ones": ["Dead"],
            }.items():
                play.ask(f"{case} (v{version})", "ListGroups", version, {"states_filter": states})
    for case, types in {
        "classic ones": ["classic"],
        "in another case": ["CLASSIC"],
        "with a blank": [" classic"],
        "consumer ones": ["consumer"],
        "no such type": ["nothing"],
        "two types": ["share", "Classic"],
    }.items():
        play.ask(case, "ListGroups", 5, {"types_filter": types})
    fields = {"types_filter": ["classic"], "states_filter": ["stable"]}
    play.ask("a type and a state", "ListGroups", 5, fields)

    for version in versions("DeleteGroups"):
        fields = {
            "groups_names": [names["preparing"], names["completing"], names["stable"], play.name("none"), ""]
        }
        play.ask(f"those that can't be deleted (v{version})", "DeleteGroups", version, fields)
        play.ask(f"none (v{version})", "DeleteGroups", version, {"groups_names": []})
    fields = {"groups_names": [names["simple"], names["empty"], names["empty"], names["pending"]]}
    play.ask("those that can be deleted, one of them twice", "DeleteGroups", 2, fields)
    play.ask("again", "DeleteGroups", 2, fields)
    play.ask("those that are left", "ListGroups", 5, {})
    play.ask("offsets went with their group", "OffsetFetch", 7, {"group_id": names["simple"], "topics": None})
    for each in (parked.on, completing.name, stable.name):
        play.drop(each)


@script(properties="second")
def after_a_restart(play: Play) -> None:
    """The broker finds everything written again, however it went down. Unwritten state is gone."""
    topic = play.topic("t", partitions=2)
    for kill in (False, True):
        how = "a kill" if kill else "a stop"
        stable, rebalancing, gone, simple = (
            play.name(f"{name}{int(kill)}") for name in ("stable", "rebalancing", "gone", "simple")
        )
        groups = (stable, rebalancing, gone, simple)
        coordinator_is_there(play, *groups)
        (me,) = stable_group(play, stable, f"me{kill}")
        play.quietly(
            "OffsetCommit",
            6,
            commit(stable, (topic, 0, 5, "m"), member_id=me.member_id, generation=me.generation),
        )
        (first,) = stable_group(play, rebalancing, f"first{kill}")
        second = Member(play, rebalancing, f"second{kill}")
        second.quiet_id()
        second.send_join()
        play.until("the rebalance has begun", lambda first=first: first_is_told(play, first))
        play.quietly("OffsetCommit", 6, commit(gone, (topic, 1, 5)))
        play.quietly("DeleteGroups", 1, {"groups_names": [gone]})
        play.quietly("OffsetCommit", 6, commit(simple, (topic, 1, 5), (topic, 0, 6)))
        play.quietly("OffsetCommit", 6, commit(simple, (topic, 1, 7)))
        play.restart(kill=kill)
        coordinator_is_there(play, *groups)
        play.ask(f"the groups after {how}", "ListGroups", 5, {})
        play.ask(f"described after {how}", "DescribeGroups", 6, {"groups": list(groups)})
        for group in groups:
            play.ask(
                f"the offsets of {group} after {how}",
                "OffsetFetch",
                7,
                {"group_id": group, "topics": None},
            )
        for member in (me, first, second):
            fields = {
                "group_id": member.group,
                "generation_id": 1,
                "member_id": member.member_id,
                "group_instance_id": None,
            }
            play.ask(f"a heartbeat of {member.name} after {how}", "Heartbeat", 3, fields)
        play.ask(
            f"the pending id joins after {how}",
            "JoinGroup",
            5,
            join(rebalancing, second.member_id),
        )
