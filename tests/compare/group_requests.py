"""Requests of group members that scripts send often, and members that go through a whole rebalance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .play import Pending, Play
from .scene import Topic

Fields = dict[str, Any]

CONSUMER = "consumer"
LONG_MS = 60_000
NO_COORDINATOR_YET = (14, 15, 16)


def subscription(*topics: str) -> bytes:
    """Encode ConsumerProtocolSubscription, version 0: topics, and null as user data."""
    out = (0).to_bytes(2, "big") + len(topics).to_bytes(4, "big")
    for topic in topics:
        out += len(topic).to_bytes(2, "big") + topic.encode()
    return out + (-1).to_bytes(4, "big", signed=True)


def join(
    group: str,
    member_id: str = "",
    *,
    protocols: Sequence[tuple[str, bytes]] = (("range", subscription("t")),),
    **more: Any,
) -> Fields:
    return {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": LONG_MS,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": CONSUMER,
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in protocols],
        "reason": None,
    } | more


def sync(
    group: str, generation: int, member_id: str, assignments: Mapping[str, bytes] | None = None, **more: Any
) -> Fields:
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": CONSUMER,
        "protocol_name": "range",
        "assignments": [
            {"member_id": each, "assignment": data} for each, data in (assignments or {}).items()
        ],
    } | more


def heartbeat(group: str, generation: int, member_id: str, instance_id: str | None = None) -> Fields:
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": instance_id,
    }


def leave(group: str, *members: tuple[str, str | None]) -> Fields:
    """Member ids with instance ids. Up to v2 only the first one counts."""
    return {
        "group_id": group,
        "member_id": members[0][0] if members else "",
        "members": [{"member_id": each, "group_instance_id": instance} for each, instance in members],
    }


def commit(
    group: str,
    *parts: tuple[Topic, int, int] | tuple[Topic, int, int, str | None],
    member_id: str = "",
    generation: int = -1,
    **more: Any,
) -> Fields:
    """(topic, partition, offset[, metadata]), each with an entry of its own."""
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition_index": partition,
                        "committed_offset": offset,
                        "committed_metadata": metadata[0] if metadata else "",
                    }
                ],
            }
            for topic, partition, offset, *metadata in parts
        ],
    } | more


def fetch_offsets(
    version: int, group: str, parts: Sequence[tuple[Topic, Sequence[int]]] | None, **more: Any
) -> Fields:
    """One group's offsets, in the form of any version; None for all topics."""
    if version >= 8:
        topics = None
        if parts is not None:
            topics = [
                {"name": topic.name, "topic_id": topic.topic_id, "partition_indexes": list(indexes)}
                for topic, indexes in parts
            ]
        return {"groups": [{"group_id": group, "topics": topics} | more]}
    topics = None
    if parts is not None:
        topics = [{"name": topic.name, "partition_indexes": list(indexes)} for topic, indexes in parts]
    return {"group_id": group, "topics": topics}


def coordinator_is_there(play: Play, *groups: str) -> None:
    """Wait until the coordinators of these groups serve them: in Kafka a while after the first question."""
    for group in groups:
        play.until(
            f"the coordinator of {group} is there",
            lambda group=group: (
                play.quietly("FindCoordinator", 2, {"key": group, "key_type": 0}).error_code == 0
                and play.quietly("DescribeGroups", 5, {"groups": [group]}).groups[0].error_code
                not in NO_COORDINATOR_YET
            ),
        )


class Member:
    """A member with its own connection. Quiet methods leave nothing in the transcript."""

    def __init__(self, play: Play, group: str, name: str, *, version: int = 5, **fields: Any) -> None:
        self.play = play
        self.group = group
        self.name = name
        self.version = version
        self.fields = fields
        self.member_id = ""
        self.generation = -1

    def send_join(self, case: str = "", **more: Any) -> Pending:
        """Send a join whose answer is received later, after the one with the member id if one is needed."""
        fields = join(self.group, self.member_id, **self.fields | more)
        return self.play.send(case, "JoinGroup", self.version, fields, on=self.name)

    def quiet_id(self, **more: Any) -> str:
        """Get a member id, as a dynamic member of v4 or later must."""
        client = self.play.client(self.name)
        answer = client.receive(
            client.say("JoinGroup", self.version, join(self.group, "", **self.fields | more))
        )
        self.member_id = answer.message.member_id
        return self.member_id

    def quiet_join(self, pending: Pending | None = None, **more: Any) -> Any:
        """Join, or receive the answer to a join that was sent."""
        if pending is None:
            pending = self.send_join(**more)
        answer = self.play.client(self.name).receive(pending.sent).message
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def quiet_sync(self, assignments: Mapping[str, bytes] | None = None, **more: Any) -> Any:
        client = self.play.client(self.name)
        fields = sync(self.group, self.generation, self.member_id, assignments, **more)
        return client.receive(client.say("SyncGroup", 3, fields)).message


def stable_group(play: Play, group: str, *names: str, **fields: Any) -> list[Member]:
    """Return a stable group of static or dynamic members, each assigned its own name. The first one leads."""
    members = [Member(play, group, name, **fields) for name in names]
    for member in members:
        member.quiet_id()
    first, *others = members
    first.quiet_join()
    if others:
        pending = [member.send_join() for member in others]
        play.until("the rebalance has begun", lambda: first_is_told(play, first))
        first_pending = first.send_join()
        for member, sent in zip(others, pending, strict=True):
            member.quiet_join(sent)
        first.quiet_join(first_pending)
    first.quiet_sync({member.member_id: member.name.encode() for member in members})
    for member in others:
        member.quiet_sync()
    return members


def first_is_told(play: Play, member: Member) -> bool:
    """Return True if a member is told to join again."""
    fields = heartbeat(member.group, member.generation, member.member_id)
    return bool(play.quietly("Heartbeat", 3, fields).error_code == 27)
