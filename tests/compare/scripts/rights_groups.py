"""The table of rights: groups of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import consumer_requests, share_group_requests, share_state_requests, transaction_requests
from ..group_requests import (
    Fields,
    commit,
    coordinator_is_there,
    fetch_offsets,
    heartbeat,
    join,
    leave,
    stable_group,
    subscription,
    sync,
)
from ..play import Play, script
from ..principals import USERS
from ..rights import Table, rows
from ..share_group_requests import coordinators_are_there
from ..share_requests import ACCEPT, share_acknowledge, share_fetch, until_loaded
from ..streams_requests import streams_beat, streams_join, subtopology, topic_info, topology

PROPERTIES = "rights"
LONGEST_MS = 1_800_000


def of_each(table: Table, make: Callable[[str], Fields], case: str = "") -> dict[str, Fields]:
    """Return the request about one group for each group, except for missing groups of others."""
    return {
        f"{case}{suffix}": make(group)
        for suffix, group in zip(("mine", "other", "gone-mine"), table.names, strict=False)
    }


@script(properties=PROPERTIES)
def classic(play: Play) -> None:
    table = Table(play)
    names = table.names
    coordinators_are_there(play, table.mine, *names)
    transaction_requests.coordinator_is_there(play)
    for group in (names.mine, names.other):
        subscribed = (("range", subscription(names.mine)),)
        (member,) = stable_group(
            play, group, f"member of {group}", session_timeout_ms=LONGEST_MS, protocols=subscribed
        )
        parts = [(topic, 0, 5) for topic in (table.mine, table.other)]
        generation = {"generation": member.generation, "member_id": member.member_id}
        play.quietly("OffsetCommit", 8, commit(group, *parts, **generation))
    for kind in range(3):
        keys = [*names] if kind < 2 else [f"{name}:AAAAAAAAAAAAAAAAAAAAAQ:0" for name in names]
        rows(table, "FindCoordinator", 6, {f"kind {kind}": {"key_type": kind, "coordinator_keys": keys}})
        rows(table, "FindCoordinator", 3, {f"kind {kind}": {"key_type": kind, "key": keys[0]}})
    for version in (4, 9):
        rows(table, "JoinGroup", version, of_each(table, lambda group: join(group, "stranger")))
    rows(table, "SyncGroup", 5, of_each(table, lambda group: sync(group, 1, "stranger")))
    rows(table, "Heartbeat", 4, of_each(table, lambda group: heartbeat(group, 1, "stranger")))
    rows(table, "LeaveGroup", 2, of_each(table, lambda group: leave(group, ("stranger", None))))
    rows(table, "LeaveGroup", 5, of_each(table, lambda group: leave(group, ("stranger", None), ("", "a"))))
    described = {"groups": [*names], "include_authorized_operations": True}
    rows(table, "DescribeGroups", 6, {"with operations": described})
    rows(table, "DescribeGroups", 4, {"with operations": described})
    rows(table, "ListGroups", 5, {"all": {}})
    parts_of_all = [(topic, [0, 1]) for topic in table.topics]
    committed = [(topic, 0, 5) for topic in table.topics]
    for version in (7, 9, 10):
        rows(
            table,
            "OffsetFetch",
            version,
            of_each(table, lambda group, v=version: fetch_offsets(v, group, None), "all of ")  # type: ignore[misc]
            | of_each(table, lambda group, v=version: fetch_offsets(v, group, parts_of_all), "some of "),  # type: ignore[misc]
        )
    several = [fetch_offsets(9, group, None)["groups"][0] for group in names]
    rows(table, "OffsetFetch", 9, {"several groups": {"groups": several}})
    for version in (9, 10):
        rows(
            table,
            "OffsetCommit",
            version,
            of_each(table, lambda group: commit(group, *committed))
            | of_each(table, lambda group: commit(group), "nothing of "),
        )
    deleted = [{"name": topic.name, "partitions": [{"partition_index": 0}]} for topic in table.topics]
    for version in (0,):
        rows(
            table,
            "OffsetDelete",
            version,
            of_each(table, lambda group: {"group_id": group, "topics": deleted}),
        )
    rows(table, "DeleteGroups", 2, {"all": {"groups_names": [*names]}})


@script(properties=PROPERTIES)
def consumers(play: Play) -> None:
    table = Table(play)
    names = table.names
    coordinator_is_there(play, *names)
    consumer_requests.topic_is_known(play, table.mine)
    consumer_requests.topic_is_known(play, table.other)
    for group, *topics in ((names.mine, names.mine), (names.other, names.mine, names.other)):
        play.quietly("ConsumerGroupHeartbeat", 1, consumer_requests.first_beat(group, "m", *topics))
    for version in (0, 1):
        rows(
            table,
            "ConsumerGroupDescribe",
            version,
            {"all": {"group_ids": [*names], "include_authorized_operations": True}},
        )
    beat = consumer_requests.beat
    rows(
        table,
        "ConsumerGroupHeartbeat",
        1,
        of_each(table, lambda group: beat(group, "stranger", 5), "a stranger to ")
        | of_each(table, lambda group: beat(group, "stranger", 5, names=[*names]), "subscribed to all in ")
        | of_each(
            table, lambda group: beat(group, "stranger", 5, names=[names.mine]), "subscribed to mine in "
        )
        | of_each(
            table, lambda group: beat(group, "stranger", 5, subscribed_topic_regex=".*"), "by a regex in "
        ),
    )
    rows(table, "DeleteGroups", 2, {"all": {"groups_names": [*names]}})
    # Members that join with a regex get the topics that they may describe.
    regex = {"subscribed_topic_regex": play.prefix + ".*"}
    for user in ("owner", "may_group_read", "everything", "not_topic_describe"):
        group = names.gone_mine if user != "not_topic_describe" else names.gone_other
        on = table.sign_in(user)
        joined = consumer_requests.first_beat(group, user) | {"subscribed_topic_names": None} | regex
        play.quietly("ConsumerGroupHeartbeat", 1, joined, on=on)

        def has_settled(user: str = user, group: str = group, on: str = on) -> bool:
            (found,) = play.quietly("ConsumerGroupDescribe", 1, {"group_ids": [group]}).groups
            (member,) = (each for each in found.members if each.member_id == user)
            answer = play.quietly(
                "ConsumerGroupHeartbeat", 1, consumer_requests.beat(group, user, member.member_epoch), on=on
            )
            told = answer.assignment is not None
            return not told and found.assignment_epoch == found.group_epoch and found.group_epoch > 1

        if user != "may_group_read":
            play.until(f"{user} is assigned", has_settled)
        play.ask(f"a regex of {user}", "ConsumerGroupDescribe", 1, {"group_ids": [group]})
        play.quietly("ConsumerGroupHeartbeat", 1, consumer_requests.beat(group, user, -1))


@script(properties=PROPERTIES)
def shares(play: Play) -> None:
    table = Table(play)
    names = table.names
    coordinators_are_there(play, table.mine, *names)
    for group, *topics in ((names.mine, names.other, names.mine), (names.other, names.mine, names.other)):
        play.quietly("ShareGroupHeartbeat", 1, share_group_requests.beat(group, "m", 0, *topics))
        share_group_requests.until_initialized(play, group, **dict.fromkeys(topics, 2))
    rows(
        table,
        "ShareGroupDescribe",
        1,
        {"all": {"group_ids": [*names], "include_authorized_operations": True}},
    )
    beat = share_group_requests.beat
    rows(
        table,
        "ShareGroupHeartbeat",
        1,
        of_each(table, lambda group: beat(group, "stranger", 5), "a stranger to ")
        | of_each(table, lambda group: beat(group, "stranger", 5, *names), "subscribed to all in ")
        | of_each(table, lambda group: beat(group, "stranger", 5, names.mine), "subscribed to mine in "),
    )
    member_of = {user: f"{number:022}" for number, user in enumerate(USERS)}
    # A topic that doesn't exist is left out: Kafka's authorizer fails on it.
    parts = [(topic, 0) for topic in (table.mine, table.other)]
    acks = {part: [(0, 0, ACCEPT)] for part in parts}
    for group in (names.mine, names.other):
        for part in parts:
            until_loaded(play, group, part)
        suffix = "mine" if group == names.mine else "other"
        rows(
            table,
            "ShareFetch",
            2,
            {f"in {suffix}": lambda user, group=group: share_fetch(group, member_of[user], 0, *parts)},  # type: ignore[misc]
        )
        rows(
            table,
            "ShareAcknowledge",
            2,
            {f"in {suffix}": lambda user, group=group: share_acknowledge(group, member_of[user], 1, acks)},  # type: ignore[misc]
        )
    of_mine = {
        "ReadShareGroupState": share_state_requests.read(names.mine, (table.mine, 0)),
        "ReadShareGroupStateSummary": share_state_requests.read(names.mine, (table.mine, 0)),
        "WriteShareGroupState": share_state_requests.write(names.mine, (table.mine, 0), state_epoch=9),
        "InitializeShareGroupState": share_state_requests.initialize(names.gone_mine, (table.mine, 0)),
        "DeleteShareGroupState": share_state_requests.delete(names.gone_other, (table.other, 0)),
    }
    for api, fields in of_mine.items():
        rows(table, api, 0, {"of one": fields})
    asked_of_all: Any = [
        {"group_id": group, "topics": topics}
        for group in names
        for topics in (None, [{"topic_name": name, "partitions": [0]} for name in names])
    ]
    for version in (0, 1):
        rows(table, "DescribeShareGroupOffsets", version, {"all": {"groups": asked_of_all[::2]}})
        rows(table, "DescribeShareGroupOffsets", version, {"some": {"groups": asked_of_all[1::2]}})
    altered = {name: {0: 0} for name in names}
    rows(
        table,
        "AlterShareGroupOffsets",
        0,
        of_each(table, lambda group: share_group_requests.alter(group, altered))
        | of_each(table, lambda group: share_group_requests.alter(group, {}), "nothing of "),
    )
    rows(
        table,
        "DeleteShareGroupOffsets",
        0,
        of_each(table, lambda group: share_group_requests.forget(group, *names))
        | of_each(table, lambda group: share_group_requests.forget(group), "nothing of "),
    )
    rows(table, "DeleteGroups", 2, {"all": {"groups_names": [*names]}})


@script(properties=PROPERTIES)
def streams(play: Play) -> None:
    table = Table(play)
    names = table.names
    coordinator_is_there(play, *names)
    consumer_requests.topic_is_known(play, table.mine)
    of_mine = topology(subtopology("0", names.mine))
    for group in (names.mine, names.other):
        play.quietly("StreamsGroupHeartbeat", 0, streams_join(group, "m", of_mine))
    for version in (0, 1):
        rows(
            table,
            "StreamsGroupDescribe",
            version,
            {"all": {"group_ids": [*names], "include_authorized_operations": True}},
        )
    of_both = topology(subtopology("0", names.mine, names.other))
    made = play.name("mine-made"), play.name("other-made")
    making = topology(
        subtopology("0", names.mine, sinks=[made[0]]),
        subtopology("1", changelogs=[topic_info(made[1])], repartitions=[topic_info(made[0])]),
    )
    for version in (0, 1):
        rows(
            table,
            "StreamsGroupHeartbeat",
            version,
            of_each(table, lambda group: streams_beat(group, "stranger", 5), "a stranger to ")
            | of_each(
                table,
                lambda group: streams_join(group, "stranger", of_both) | {"member_epoch": 5},
                "of both in ",
            )
            | of_each(
                table,
                lambda group: streams_join(group, "stranger", making) | {"member_epoch": 5},
                "making in ",
            ),
        )
    described = {
        "member_id": "stranger",
        "topology_epoch": 0,
        "topology_description": {"subtopologies": [], "global_stores": []},
    }
    rows(
        table,
        "StreamsGroupTopologyDescriptionUpdate",
        0,
        of_each(table, lambda group: described | {"group_id": group}),
    )
