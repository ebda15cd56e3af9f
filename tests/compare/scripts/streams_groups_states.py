"""Every request in every state of a streams group, cell by cell (KIP-1071). Each request has its own group.

A client can reach all states of `STREAMS_GROUP_STATES`. For a group that isn't ready or is assigned, this includes the
states in which members still have to give up tasks.
"""

from __future__ import annotations

from collections.abc import Callable

from ..consumer_requests import first_beat
from ..group_requests import LONG_MS, Fields, commit, coordinator_is_there, fetch_offsets, join
from ..group_states import Asked, AskedOf, listed, walk
from ..play import Play, script
from ..share_group_requests import beat as share_beat
from ..streams_requests import (
    describe_streams,
    set_for_group,
    streams_beat,
    streams_join,
    subtopology,
    topology,
)

MOST_CASES = 20
NO_ID = bytes(16)
DELAY_MS = "15000"
"""The longest that Kafka allows between two assignments: longer than a group of this script is looked at."""


class Scene:
    """Groups of one topic with two partitions. `one` is a member of each, and `two` of those with a task to give up."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.topic = play.topic("t", partitions=2)
        self._gone = iter([play.topic(f"gone-{number}", partitions=2) for number in range(MOST_CASES)])
        self.of = topology(subtopology("0", self.topic.name))

    def dead(self, group: str) -> int:
        return 0

    def empty(self, group: str) -> int:
        self._beat(streams_join(group, "one", self.of, "p1"))
        self._beat(streams_beat(group, "one", -1))
        return 3

    def empty_and_never_ready(self, group: str) -> int:
        epoch = self.not_ready(group)
        self._beat(streams_beat(group, "one", -1))
        return epoch

    def not_ready(self, group: str) -> int:
        missing = topology(subtopology("0", self.play.name("nowhere")))
        return self._beat(streams_join(group, "one", missing, "p1"))

    def not_ready_amid_reconciliation(self, group: str) -> int:
        """The source was deleted after a member was told to give up a task."""
        topic = next(self._gone)
        epoch = self.reconciling(group, topology(subtopology("0", topic.name)))
        self.play.quietly(
            "DeleteTopics", 6, {"topics": [{"name": topic.name, "topic_id": NO_ID}], "timeout_ms": LONG_MS}
        )

        def is_told() -> bool:
            answer = self.play.quietly("StreamsGroupHeartbeat", 0, streams_beat(group, "two", 3))
            return bool(answer.status)

        self.play.until("its source is missing", is_told)
        return epoch

    def waiting(self, group: str) -> int:
        """The group waits for other members before its first assignment."""
        set_for_group(self.play, group, initial_rebalance_delay_ms=DELAY_MS)
        return self._beat(streams_join(group, "one", self.of, "p1"))

    def assigning(self, group: str) -> int:
        """The next assignment is still to come, and no member has a task to give up yet."""
        set_for_group(self.play, group, assignment_interval_ms=DELAY_MS)
        self._beat(streams_join(group, "one", self.of, "p1"))
        self._beat(streams_join(group, "two", self.of, "p2"))
        return 2

    def assigning_amid_reconciliation(self, group: str) -> int:
        epoch = self.reconciling(group)
        set_for_group(self.play, group, assignment_interval_ms=DELAY_MS)
        self._beat(streams_join(group, "three", self.of, "p3"))
        return epoch

    def reconciling(self, group: str, of: Fields | None = None) -> int:
        """A member is told to give up a task, and hasn't done so yet."""
        self._beat(streams_join(group, "one", of or self.of, "p1"))
        self._beat(streams_join(group, "two", of or self.of, "p2"))
        self._beat(streams_beat(group, "one", 2, active={"0": [0, 1]}))
        return 2

    def stable(self, group: str) -> int:
        self.reconciling(group)
        self._beat(streams_beat(group, "one", 2, active={"0": [0]}))
        self._beat(streams_beat(group, "two", 3, active={}))
        return 3

    def joined(self, group: str) -> int:
        """A third member has joined, which the others don't know of yet."""
        epoch = self.stable(group)
        self._beat(streams_join(group, "three", self.of, "p3"))
        return epoch

    def _beat(self, fields: Fields) -> int:
        answer = self.play.quietly("StreamsGroupHeartbeat", 0, fields)
        assert answer.error_code == 0, answer
        return int(answer.member_epoch)


STATES: dict[str, Callable[[Scene, str], int]] = {
    "dead": Scene.dead,
    "empty": Scene.empty,
    "empty and never ready": Scene.empty_and_never_ready,
    "not ready": Scene.not_ready,
    "not ready amid reconciliation": Scene.not_ready_amid_reconciliation,
    "waiting": Scene.waiting,
    "assigning": Scene.assigning,
    "assigning amid reconciliation": Scene.assigning_amid_reconciliation,
    "reconciling": Scene.reconciling,
    "stable": Scene.stable,
    "joined": Scene.joined,
}
"""How a group comes there; the epoch of its member `one`."""


def _heartbeats(scene: Scene, group: str, epoch: int) -> dict[str, Asked]:
    other = topology(subtopology("0", scene.topic.name), epoch=1)
    asked = {
        "a new member": streams_join(group, "new", scene.of, "pn"),
        "a new member with another topology": streams_join(group, "new", other, "pn"),
        "a member joins again": streams_join(group, "one", scene.of, "p1"),
        "it joins again in another process": streams_join(group, "one", scene.of, "q1"),
        "it says nothing": streams_beat(group, "one", epoch),
        "it has all": streams_beat(group, "one", epoch, active={"0": [0, 1]}),
        "it has a part": streams_beat(group, "one", epoch, active={"0": [0]}),
        "it has nothing": streams_beat(group, "one", epoch, active={}),
        "it is elsewhere": streams_beat(group, "one", epoch, rack_id="r"),
        "it is one epoch behind": streams_beat(group, "one", epoch - 1),
        "it is one epoch behind, with nothing": streams_beat(group, "one", epoch - 1, active={}),
        "it is one epoch ahead": streams_beat(group, "one", epoch + 1),
        "it wants all to end": streams_beat(group, "one", epoch, shutdown_application=True),
        "it leaves": streams_beat(group, "one", -1),
        "two says nothing": streams_beat(group, "two", 3),
        "two has something": streams_beat(group, "two", 3, active={"0": [1]}),
        "two leaves": streams_beat(group, "two", -1),
        "a stranger": streams_beat(group, "nobody", epoch),
        "a stranger leaves": streams_beat(group, "nobody", -1),
    }
    return {case: ("StreamsGroupHeartbeat", 0, fields) for case, fields in asked.items()}


def _others(scene: Scene, group: str, epoch: int) -> dict[str, Asked]:
    topic = scene.topic
    deleted = {"name": topic.name, "partitions": [{"partition_index": 0}]}
    return {
        "described by others' words": ("DescribeGroups", 6, {"groups": [group]}),
        "described as a consumer group": ("ConsumerGroupDescribe", 1, {"group_ids": [group]}),
        "described as a share group": ("ShareGroupDescribe", 1, {"group_ids": [group]}),
        **listed("streams", "empty", "not_ready", "assigning", "reconciling", "stable", "dead"),
        "a commit": (
            "OffsetCommit",
            9,
            commit(group, (topic, 0, 5), member_id="one", generation=epoch),
        ),
        "a commit of nobody": ("OffsetCommit", 9, commit(group, (topic, 0, 5))),
        "offsets": (
            "OffsetFetch",
            9,
            fetch_offsets(9, group, [(topic, (0,))], member_id="one", member_epoch=epoch),
        ),
        "offsets for nobody": ("OffsetFetch", 9, fetch_offsets(9, group, None)),
        "offsets deleted": ("OffsetDelete", 0, {"group_id": group, "topics": [deleted]}),
        "a consumer": ("ConsumerGroupHeartbeat", 1, first_beat(group, "c", topic.name)),
        "a share consumer": ("ShareGroupHeartbeat", 1, share_beat(group, "c", 0, topic.name)),
        "a known member of the classic protocol": ("JoinGroup", 5, join(group, "one")),
        "it is deleted": ("DeleteGroups", 2, {"groups_names": [group]}),
    }


@script(properties="streams")
def heartbeats(play: Play) -> None:
    _walk(play, _heartbeats)


@script(properties="streams")
def others(play: Play) -> None:
    _walk(play, _others)


def _walk(play: Play, asked_of: AskedOf[Scene]) -> None:
    def prepare(group: str) -> None:
        coordinator_is_there(play, group)

    walk(play, Scene(play), STATES, asked_of, prepare=prepare, describe=describe_streams, forget=_forget)


def _forget(play: Play, group: str) -> None:
    """Remove the members and delete the group, so that listings hold one group."""
    for member in ("one", "two", "three", "new"):
        play.quietly("StreamsGroupHeartbeat", 0, streams_beat(group, member, -1))
    play.quietly("ConsumerGroupHeartbeat", 1, first_beat(group, "c") | {"member_epoch": -1})
    play.quietly("DeleteGroups", 2, {"groups_names": [group]})
