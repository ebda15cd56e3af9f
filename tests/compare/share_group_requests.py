"""Requests of share groups (KIP-932) that scripts send often, and the resulting records in `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .consumer_requests import records_of
from .group_requests import Fields, coordinator_is_there
from .play import Play
from .scene import Topic
from .share_state_requests import share_state_is_there


def coordinators_are_there(play: Play, topic: Topic, *groups: str) -> None:
    """Wait for the coordinators of the groups, and of their states."""
    coordinator_is_there(play, *groups)
    for group in groups:
        share_state_is_there(play, group, topic)


def beat(group: str, member: str, epoch: int, *names: str, **more: Any) -> Fields:
    """Make a heartbeat that says only what is given."""
    return {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "subscribed_topic_names": [*names] if names else None,
    } | more


def describe(play: Play, case: str, *groups: str) -> None:
    play.ask(case, "ShareGroupDescribe", 1, {"group_ids": list(groups)})


def offsets(group: str, topics: Mapping[str, Sequence[int]] | None) -> Fields:
    asked = None
    if topics is not None:
        asked = [{"topic_name": name, "partitions": [*indexes]} for name, indexes in topics.items()]
    return {"groups": [{"group_id": group, "topics": asked}]}


def alter(group: str, topics: Mapping[str, Mapping[int, int]]) -> Fields:
    return {
        "group_id": group,
        "topics": [
            {
                "topic_name": name,
                "partitions": [
                    {"partition_index": index, "start_offset": offset} for index, offset in parts.items()
                ],
            }
            for name, parts in topics.items()
        ],
    }


def forget(group: str, *names: str) -> Fields:
    return {"group_id": group, "topics": [{"topic_name": name} for name in names]}


def until_initialized(play: Play, group: str, **partitions: int) -> None:
    """Wait until these numbers of partitions of the topics are initialized: in Kafka a moment after the heartbeat."""
    wanted = {name: {*range(count)} for name, count in partitions.items()}

    def initialized() -> bool:
        answer = play.quietly("DescribeShareGroupOffsets", 0, offsets(group, None))
        found = {
            topic.topic_name: {each.partition_index for each in topic.partitions}
            for topic in answer.groups[0].topics
        }
        return all(found.get(name, set()) >= indexes for name, indexes in wanted.items())

    play.until(f"{group} is initialized", initialized)


def share_group_records(play: Play, group: str, *topics: Topic) -> list[Any]:
    """Like `records_of`, with topics sorted by name instead of their random ids."""
    found = records_of(play, group, *topics)
    for _, _, value in found:
        for name, each in (value or {}).items():
            if name.endswith(("topics", "partitions")) and each and isinstance(each[0], dict):
                value[name] = sorted(each, key=lambda topic: str(topic.get("topic_name", topic["topic_id"])))
    return found
