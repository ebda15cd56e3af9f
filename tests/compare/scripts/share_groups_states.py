"""Every request in every state of a share group, and by each epoch of a member, cell by cell (KIP-932).

Each request has its own group.
"""

from __future__ import annotations

from collections.abc import Callable

from ..consumer_requests import first_beat
from ..group_requests import Fields, commit, fetch_offsets, join
from ..group_states import Asked, AskedOf, listed, walk
from ..play import Play, script
from ..share_group_requests import (
    alter,
    beat,
    coordinators_are_there,
    describe,
    forget,
    offsets,
    until_initialized,
)
from ..share_requests import NEEDS
from ..streams_requests import streams_beat


class Scene:
    """Groups of a topic with one partition: with two, a random id would decide who gets which. `one` is a member of
    each."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.topic = play.topic("t")

    def dead(self, group: str) -> int:
        return 0

    def empty(self, group: str) -> int:
        epoch = self.stable(group)
        self._beat(beat(group, "one", -1))
        return epoch

    def without_topics(self, group: str) -> int:
        """The group is stable, though its topic doesn't exist."""
        return self._beat(beat(group, "one", 0, self.play.name("nowhere")))

    def stable(self, group: str) -> int:
        self._beat(beat(group, "one", 0, self.topic.name))
        until_initialized(self.play, group, **{self.topic.name: 1})
        return self._beat(beat(group, "one", 0, self.topic.name))

    def shared(self, group: str) -> int:
        """Two members share the group, and the first one doesn't know it yet."""
        epoch = self.stable(group)
        self._beat(beat(group, "two", 0, self.topic.name))
        return epoch

    def _beat(self, fields: Fields) -> int:
        answer = self.play.quietly("ShareGroupHeartbeat", 1, fields)
        assert answer.error_code == 0, answer
        return int(answer.member_epoch)


STATES: dict[str, Callable[[Scene, str], int]] = {
    "dead": Scene.dead,
    "empty": Scene.empty,
    "without topics": Scene.without_topics,
    "stable": Scene.stable,
    "shared": Scene.shared,
}
"""How a group comes there; the epoch of its member `one`."""


def _heartbeats(scene: Scene, group: str, epoch: int) -> dict[str, Asked]:
    name = scene.topic.name
    asked = {
        "a new member": beat(group, "new", 0, name),
        "a new member without topics": beat(group, "new", 0),
        "a member joins again": beat(group, "one", 0, name),
        "a member joins for another topic": beat(group, "one", 0, "another"),
        "it says nothing": beat(group, "one", epoch),
        "it says all": beat(group, "one", epoch, name),
        "it wants another topic": beat(group, "one", epoch, "another"),
        "it wants none": beat(group, "one", epoch) | {"subscribed_topic_names": []},
        "it is elsewhere": beat(group, "one", epoch, rack_id="r"),
        "it is one epoch behind": beat(group, "one", epoch - 1),
        "it is two epochs behind": beat(group, "one", epoch - 2),
        "it is one epoch ahead": beat(group, "one", epoch + 1),
        "it leaves": beat(group, "one", -1),
        "it leaves for a while": beat(group, "one", -2),
        "a stranger": beat(group, "nobody", epoch),
        "a stranger leaves": beat(group, "nobody", -1),
    }
    return {case: ("ShareGroupHeartbeat", 1, fields) for case, fields in asked.items()}


def _others(scene: Scene, group: str, epoch: int) -> dict[str, Asked]:
    topic = scene.topic
    deleted = {"name": topic.name, "partitions": [{"partition_index": 0}]}
    return {
        "described by others' words": ("DescribeGroups", 6, {"groups": [group]}),
        "described as a consumer group": ("ConsumerGroupDescribe", 1, {"group_ids": [group]}),
        "described as a streams group": ("StreamsGroupDescribe", 0, {"group_ids": [group]}),
        **listed("share", "empty", "stable", "dead", "assigning"),
        "its offsets": ("DescribeShareGroupOffsets", 1, offsets(group, None)),
        "an offset altered": ("AlterShareGroupOffsets", 0, alter(group, {topic.name: {0: 0}})),
        "offsets of a topic deleted": ("DeleteShareGroupOffsets", 0, forget(group, topic.name)),
        "a commit": ("OffsetCommit", 9, commit(group, (topic, 0, 5), member_id="one", generation=epoch)),
        "offsets of others' kind": ("OffsetFetch", 9, fetch_offsets(9, group, None)),
        "such offsets deleted": ("OffsetDelete", 0, {"group_id": group, "topics": [deleted]}),
        "a consumer": ("ConsumerGroupHeartbeat", 1, first_beat(group, "c", topic.name)),
        "a streams member": ("StreamsGroupHeartbeat", 0, streams_beat(group, "one", 1)),
        "a known member of the classic protocol": ("JoinGroup", 5, join(group, "one")),
        "it is deleted": ("DeleteGroups", 2, {"groups_names": [group]}),
    }


@script(properties="shares", needs=NEEDS)
def heartbeats(play: Play) -> None:
    _walk(play, _heartbeats)


@script(properties="shares", needs=NEEDS)
def others(play: Play) -> None:
    _walk(play, _others)


def _walk(play: Play, asked_of: AskedOf[Scene]) -> None:
    scene = Scene(play)

    def prepare(group: str) -> None:
        coordinators_are_there(play, scene.topic, group)

    walk(play, scene, STATES, asked_of, prepare=prepare, describe=describe, forget=_forget)


def _forget(play: Play, group: str) -> None:
    """Remove the members and delete the group, so that listings hold one group."""
    for member in ("one", "two", "new"):
        play.quietly("ShareGroupHeartbeat", 1, beat(group, member, -1))
    play.quietly("DeleteGroups", 2, {"groups_names": [group]})
