"""Groups after all faults: they come to rest, and a restarted broker reports the same about them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from protocol.errors import Error
from protocol.messages.groups import DescribeGroupsRequest, OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.groups_consumer import ConsumerGroupDescribeRequest
from protocol.messages.groups_streams import StreamsGroupDescribeRequest
from tests.simulation.classic_member import ClassicMember
from tests.simulation.consumer_member import ConsumerMember
from tests.simulation.members import Member
from tests.simulation.streams_member import StreamsMember
from tests.simulation.wire_client import WireClient

if TYPE_CHECKING:
    from tests.simulation.course import Course

SETTLED_WITHIN_S = 40.0
STABLE = "Stable"


async def settle(course: Course) -> None:
    """Wait for it, and complain if it doesn't happen."""
    members = [member for member in course.members if not member.is_retired]
    deadline_s = course.loop.time() + SETTLED_WITHIN_S
    for member in course.members:
        member.is_calm = member.is_quiet = True
    while any(member.commits_under_way for member in course.members):
        await asyncio.sleep(0.1)
    for name in course.group_names():
        of_group = [member for member in members if member.group.name == name]
        while not _have_settled(of_group):
            if course.loop.time() > deadline_s:
                course.work.complain(f"{name} doesn't settle: {_states(of_group)}")
                return
            await asyncio.sleep(0.1)
    told = await _describe(course)
    for name in course.group_names():
        if told[name].group_state != STABLE:
            course.work.complain(f"{name} has settled, and is {told[name]}")
        _compare(course, name, told[name])
    await course.start_again()
    again = await _describe(course)
    for name, what in told.items():
        if again[name] != what:
            course.work.complain(f"{name} is {again[name]} after a start; it was {what}")


def _have_settled(members: list[Member]) -> bool:
    owned = [place for member in members for place in member.life.owned]
    return (
        sorted(owned) == sorted(members[0].group.places)
        and len({member.life.epoch for member in members}) == 1
        and not any(member.group.lost(member.life) for member in members)
    )


def _states(members: list[Member]) -> list[object]:
    return [
        (member.client.name, member.life.member_id, member.life.epoch, [*member.life.owned])
        for member in members
    ]


def _compare(course: Course, name: str, told: Any) -> None:
    """Check that the broker knows these members, and no others."""
    there = {each.member_id for each in told.members}
    members = {
        member.life.member_id
        for member in course.members
        if member.group.name == name and not member.is_retired
    }
    if there != members:
        course.work.complain(f"{name} has {sorted(members)} for members, and says {sorted(there)}")


async def _describe(course: Course) -> dict[str, Any]:
    """Return each group's members with what they have, and its committed offsets."""
    client = course.client("describer")
    found: dict[str, Any] = {}
    for name in course.group_names():
        [kind] = {type(member) for member in course.members if member.group.name == name}
        for key, ask in ((name, _ASK[kind]), (f"{name}'s", _ask_offsets)):

            async def describe(name: str = name, key: str = key, ask: Any = ask) -> Error:
                found[key] = await ask(client, name)
                return Error(found[key].error_code)

            error = await client.insist(describe)
            if error is not Error.NONE:
                course.work.complain(f"{name} can't be described: {error!r}")
    client.close()
    return found


async def _ask_classic(client: WireClient, name: str) -> Any:
    group = (await client.ask(DescribeGroupsRequest(groups=[name]), 5)).groups[0]
    group.members.sort(key=lambda member: member.member_id)
    return group


async def _ask_consumer(client: WireClient, name: str) -> Any:
    group = (await client.ask(ConsumerGroupDescribeRequest(group_ids=[name]), 1)).groups[0]
    group.members.sort(key=lambda member: member.member_id)
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            assignment.topic_partitions.sort(key=lambda topic: topic.topic_name)
    return group


async def _ask_streams(client: WireClient, name: str) -> Any:
    group = (await client.ask(StreamsGroupDescribeRequest(group_ids=[name]), 0)).groups[0]
    group.members.sort(key=lambda member: member.member_id)
    for subtopology in group.topology.subtopologies if group.topology is not None else ():
        for topic in subtopology.state_changelog_topics:
            topic.partitions = 0  # known again with the first heartbeat after a start, as in Kafka
    return group


_ASK: dict[type[Member], Any] = {
    ClassicMember: _ask_classic,
    ConsumerMember: _ask_consumer,
    StreamsMember: _ask_streams,
}


async def _ask_offsets(client: WireClient, name: str) -> Any:
    asked = OffsetFetchRequestGroup(group_id=name, topics=None)
    group = (await client.ask(OffsetFetchRequest(groups=[asked], require_stable=True), 8)).groups[0]
    group.topics.sort(key=lambda topic: topic.name)
    for topic in group.topics:
        topic.partitions.sort(key=lambda partition: partition.partition_index)
    return group
