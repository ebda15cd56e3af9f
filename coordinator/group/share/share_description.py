"""ShareGroupDescribe (Kafka: `ShareGroup.asDescribedGroup`)."""

from __future__ import annotations

from coordinator.group.known_topics import KnownTopics
from coordinator.group.modern.assignors.simple import SIMPLE
from coordinator.group.modern.targets import Target
from coordinator.group.share.group import ShareGroup
from coordinator.group.share.member import ShareMember
from protocol.messages.groups_share import (
    DescribedAssignment,
    DescribedGroup,
    DescribedMember,
    DescribedTopicPartitions,
)


def describe_share_group(group: ShareGroup, topics: KnownTopics) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SIMPLE,
        members=[_member(member, topics) for member in group.members.values()],
    )


def _member(member: ShareMember, topics: KnownTopics) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=[*member.listed_names],
        assignment=_assignment(member.assigned, topics),
    )


def _assignment(assigned: Target, topics: KnownTopics) -> DescribedAssignment:
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=[*partitions])
            for topic_id, partitions in assigned.items()
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )
