"""Streams groups of dozens of subtopologies: which member gets which task, and the order of tasks and partitions in
answers."""

from __future__ import annotations

from typing import Any

from ..consumer_requests import records_of
from ..group_requests import Fields, coordinator_is_there
from ..play import Play, script
from ..scene import Topic
from ..streams_requests import (
    set_for_group,
    streams_beat,
    streams_join,
    subtopology,
    topic_info,
    topology,
    until_internal_topics_are_there,
)

PARTITIONS = (3, 7, 12, 17, 20)
MEMBERS = "abcd"
TURNS = 3


@script(properties="streams_many")
def many_subtopologies(play: Play) -> None:
    topics = [play.topic(f"t{count}", partitions=count) for count in PARTITIONS]
    for standbys, count in enumerate((14, 40)):
        _live(play, topics, count, standbys)


def _live(play: Play, topics: list[Topic], count: int, standbys: int) -> None:
    """Members join one after the other, each in its own process, and report their tasks."""
    group = play.name(f"g{count}")
    coordinator_is_there(play, group)
    set_for_group(play, group, num_standby_replicas=str(standbys))
    names = [topic.name for topic in topics]
    of = topology(
        *(
            subtopology(
                str(index),
                names[index % len(names)],
                *([names[(index + 1) % len(names)]] if index % 3 == 0 else []),
                changelogs=[topic_info(play.name(f"c{count}-{index}"))] if index % 8 == 1 else (),
            )
            for index in range(count)
        )
    )
    for number, member in enumerate(MEMBERS):
        endpoint = {"user_endpoint": {"host": "h", "port": number + 1}, "endpoint_information_epoch": -1}
        _note(play, f"{count}: {member} joins", streams_join(group, member, of, member, **endpoint))
        if number == 0:
            until_internal_topics_are_there(play, streams_beat(group, member, 2))
        for turn in range(TURNS):
            for other in MEMBERS[: number + 1]:
                _note(play, f"{count}: {member} is there, {turn}, {other}", _report(play, group, other))
    play.note(f"{count}: records", records_of(play, group, *topics))


def _report(play: Play, group: str, member: str) -> Fields:
    """Return a member's tasks as the group knows them."""
    (described,) = play.quietly("StreamsGroupDescribe", 0, {"group_ids": [group]}).groups
    (known,) = [each for each in described.members if each.member_id == member]
    return streams_beat(
        group,
        member,
        known.member_epoch,
        active={each.subtopology_id: each.partitions for each in known.assignment.active_tasks},
        standby={each.subtopology_id: each.partitions for each in known.assignment.standby_tasks},
        endpoint_information_epoch=-1,
    )


def _note(play: Play, case: str, fields: Fields) -> None:
    """Sort the subtopologies of an endpoint by topic: Kafka goes over them in a random order."""
    answer = play.quietly("StreamsGroupHeartbeat", 0, fields)
    told = [
        None if tasks is None else [[each.subtopology_id, list(each.partitions)] for each in tasks]
        for tasks in (answer.active_tasks, answer.standby_tasks)
    ]
    endpoints = [
        [each.user_endpoint.port, _sorted(each.active_partitions), _sorted(each.standby_partitions)]
        for each in answer.partitions_by_user_endpoint or ()
    ]
    play.note(case, [answer.error_code, answer.member_epoch, told, endpoints])


def _sorted(partitions: Any) -> list[Any]:
    return sorted([each.topic, list(each.partitions)] for each in partitions)
