"""ConsumerGroupDescribe (Kafka: `ConsumerGroup.asDescribedGroup`)."""

from __future__ import annotations

from coordinator.group.consumer.group import ConsumerGroup, ConsumerMember
from coordinator.group.modern.group import Target
from coordinator.group.ports import KnownTopics
from coordinator.java.maps import JavaMap
from protocol.messages.groups_consumer import (
    DescribedAssignment,
    DescribedGroup,
    DescribedMember,
    DescribedTopicPartitions,
)

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe_consumer_group(
    group: ConsumerGroup, topics: KnownTopics, default_assignor: str
) -> DescribedGroup:
    """Describe a group as ConsumerGroupDescribe does. The default assignor is named if the members prefer none."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[
            _member(member, group.target_of(member.member_id), topics) for member in group.members.values()
        ],
    )


def _member(member: ConsumerMember, target: Target, topics: KnownTopics) -> DescribedMember:
    return DescribedMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=[*member.names],
        subscribed_topic_regex=member.regex,
        assignment=_assignment(_held(member), topics),
        target_assignment=_assignment(target, topics),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _held(member: ConsumerMember) -> Target:
    """The partitions that the member has, including those that it is about to give up."""
    held: Target = JavaMap()
    for assigned in (member.assigned, member.pending):
        for topic_id, partitions in assigned.items():
            before = held.compute_if_absent(topic_id, ())
            held[topic_id] = (*before, *partitions)
    return held


def _assignment(target: Target, topics: KnownTopics) -> DescribedAssignment:
    return DescribedAssignment(
        topic_partitions=[
            DescribedTopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=[*partitions])
            for topic_id, partitions in target.items()
            if (topic := topics.by_id(topic_id)) is not None
        ]
    )
