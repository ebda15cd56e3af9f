"""Groups of all kinds, according to their coordinators, in one form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cli.client.answers import check, the_one, told
from cli.client.cluster import GROUP, KafkaCluster
from cli.client.offsets import Partition
from protocol.errors import CodecError, Error
from protocol.messages import groups_consumer, groups_share, groups_streams
from protocol.messages.groups import (
    ConsumerProtocolAssignment,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.wire.codec import decode

CLASSIC, CONSUMER, SHARE_KIND, STREAMS, SIMPLE = "classic", "consumer", "share", "streams", "simple"
LAST_WITH_NAMES: Final = 9
"""OffsetFetch and OffsetCommit from v10 on name topics by id."""
FIRST_OF_SEVERAL: Final = 8
"""OffsetFetch from this version on asks for several groups at once."""
ROLES_OF_TASKS: Final = ("active", "standby", "warm-up")
"""What a task can be to a member of a Streams group."""
NOBODYS_GENERATION: Final = -1
NEWEST_ASSIGNMENT: Final = 3


@dataclass(frozen=True)
class ListedGroup:
    """A group as its coordinator lists it."""

    name: str
    kind: str
    protocol: str
    state: str
    coordinator: int


@dataclass(frozen=True)
class GroupMember:
    """A member. `tasks` are those of a Streams group: "active 0_1"."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    partitions: list[Partition]
    tasks: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class DescribedGroup:
    """A group with its members. Epochs are None if its kind has none."""

    listed: ListedGroup
    state: str
    assignor: str
    epoch: int | None
    assignment_epoch: int | None
    topology_epoch: int | None
    subtopologies: dict[str, list[str]]
    members: list[GroupMember]


def list_groups(cluster: KafkaCluster) -> list[ListedGroup]:
    """Return all brokers' groups, sorted by name. Raises CommandError."""
    answers = cluster.ask_all(ListGroupsRequest(), ListGroupsResponse, lambda answer: answer.error_code)
    found = [_listed(each, node) for node, answer in answers.items() for each in answer.groups]
    return sorted(found, key=lambda each: each.name)


def find_group(cluster: KafkaCluster, name: str) -> ListedGroup | None:
    """Return the group as its coordinator lists it, or None. Raises CommandError."""
    node = cluster.coordinator(GROUP, name)
    answer = cluster.until_passed(
        lambda: cluster.ask(ListGroupsRequest(), ListGroupsResponse, node), lambda found: found.error_code
    )
    check(answer.error_code, None, f"broker {node}")
    return next((_listed(each, node) for each in answer.groups if each.group_id == name), None)


def _listed(each: Any, node: int) -> ListedGroup:
    kind = each.group_type.lower() or CLASSIC
    if kind == CLASSIC and not each.protocol_type:
        kind = SIMPLE
    return ListedGroup(each.group_id, kind, each.protocol_type, each.group_state, node)


def describe_group(cluster: KafkaCluster, group: ListedGroup) -> DescribedGroup:
    """Return the group with its members. Raises CommandError."""
    describe = {CONSUMER: _consumer, SHARE_KIND: _share, STREAMS: _streams}.get(group.kind, _classic)
    return describe(cluster, group)


def _asked(cluster: KafkaCluster, group: ListedGroup, request: Any, response: Any) -> Any:
    described = cluster.until_passed(
        lambda: the_one(cluster.ask(request, response, group.coordinator).groups, f"group {group.name}"),
        lambda found: found.error_code,
    )
    check(described.error_code, getattr(described, "error_message", None), f"group {group.name}")
    return described


def _classic(cluster: KafkaCluster, group: ListedGroup) -> DescribedGroup:
    found = _asked(cluster, group, DescribeGroupsRequest(groups=[group.name]), DescribeGroupsResponse)
    members = [
        GroupMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            None,
            _embedded(each.member_assignment) if found.protocol_type == "consumer" else [],
        )
        for each in found.members
    ]
    return DescribedGroup(group, found.group_state, found.protocol_data, None, None, None, {}, members)


def _embedded(assignment: bytes) -> list[Partition]:
    """Return the partitions in a consumer's assignment of the classic protocol. Other programs' assignments mean
    nothing here."""
    if len(assignment) < 2:
        return []
    version = min(int.from_bytes(assignment[:2], "big", signed=True), NEWEST_ASSIGNMENT)
    try:
        found = decode(ConsumerProtocolAssignment, version, assignment, 2)
    except (CodecError, KeyError, ValueError):
        return []
    return sorted((each.topic, index) for each in found.assigned_partitions for index in each.partitions)


def _consumer(cluster: KafkaCluster, group: ListedGroup) -> DescribedGroup:
    request = groups_consumer.ConsumerGroupDescribeRequest(group_ids=[group.name])
    found = _asked(cluster, group, request, groups_consumer.ConsumerGroupDescribeResponse)
    return _modern(group, found, [_modern_member(each, each.instance_id) for each in found.members])


def _share(cluster: KafkaCluster, group: ListedGroup) -> DescribedGroup:
    request = groups_share.ShareGroupDescribeRequest(group_ids=[group.name])
    found = _asked(cluster, group, request, groups_share.ShareGroupDescribeResponse)
    return _modern(group, found, [_modern_member(each, None) for each in found.members])


def _modern(group: ListedGroup, found: Any, members: list[GroupMember]) -> DescribedGroup:
    epochs = (found.group_epoch, found.assignment_epoch)
    return DescribedGroup(group, found.group_state, found.assignor_name, *epochs, None, {}, members)


def _modern_member(each: Any, instance_id: str | None) -> GroupMember:
    partitions = sorted(
        (of_topic.topic_name, index)
        for of_topic in each.assignment.topic_partitions
        for index in of_topic.partitions
    )
    return GroupMember(
        each.member_id, instance_id, each.client_id, each.client_host, each.member_epoch, partitions
    )


def _streams(cluster: KafkaCluster, group: ListedGroup) -> DescribedGroup:
    request = groups_streams.StreamsGroupDescribeRequest(group_ids=[group.name])
    found = _asked(cluster, group, request, groups_streams.StreamsGroupDescribeResponse)
    topology = found.topology
    subtopologies = {
        each.subtopology_id: sorted(
            [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        )
        for each in (topology.subtopologies if topology else None) or []
    }
    members = []
    for each in found.members:
        given = each.assignment
        tasks = [
            f"{role} {task.subtopology_id}_{index}"
            for role, of_role in zip(
                ROLES_OF_TASKS, (given.active_tasks, given.standby_tasks, given.warmup_tasks), strict=True
            )
            for task in of_role
            for index in task.partitions
        ]
        partitions = sorted(
            (topic, index)
            for task in given.active_tasks
            for topic in subtopologies.get(task.subtopology_id, [])
            for index in task.partitions
        )
        identity = (each.member_id, each.instance_id, each.client_id, each.client_host, each.member_epoch)
        members.append(GroupMember(*identity, partitions, tasks))
    topology_epoch = topology.epoch if topology else None
    epochs = (found.group_epoch, found.assignment_epoch, topology_epoch)
    return DescribedGroup(group, found.group_state, "", *epochs, subtopologies, members)


def committed_offsets(cluster: KafkaCluster, name: str) -> dict[Partition, int]:
    """Return all committed offsets of the group; none if the group doesn't exist. Raises CommandError."""
    found = _fetched(cluster, name, None, require_stable=False)
    return {partition: offset for partition, (offset, failed) in found.items() if not failed and offset >= 0}


def unstable_offsets(cluster: KafkaCluster, name: str, partitions: Iterable[Partition]) -> set[Partition]:
    """Return the partitions for which an open transaction is about to commit another offset. Consumers that start there
    wait. Raises CommandError."""
    found = _fetched(cluster, name, by_topic(partitions), require_stable=True)
    return {partition for partition, (_, failed) in found.items() if failed == Error.UNSTABLE_OFFSET_COMMIT}


def by_topic(partitions: Iterable[Partition]) -> dict[str, list[int]]:
    """Return the partition numbers by topic."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, index in sorted(partitions):
        topics[topic].append(index)
    return dict(topics)


def _fetched(
    cluster: KafkaCluster, name: str, topics: dict[str, list[int]] | None, *, require_stable: bool
) -> dict[Partition, tuple[int, int]]:
    """Return the committed offset and the error of each partition; of all partitions without `topics`."""
    given = None if topics is None else [*topics.items()]

    def ask() -> tuple[int, dict[Partition, tuple[int, int]]]:
        node = cluster.coordinator(GROUP, name)
        if cluster.version_of(OffsetFetchRequest, node) < FIRST_OF_SEVERAL:
            old = (
                None
                if given is None
                else [OffsetFetchRequestTopic(name=topic, partition_indexes=of) for topic, of in given]
            )
            request = OffsetFetchRequest(group_id=name, topics=old)
            answer = cluster.ask(request, OffsetFetchResponse, node)
            return answer.error_code, _offsets(answer.topics)
        asked = (
            None
            if given is None
            else [OffsetFetchRequestTopics(name=topic, partition_indexes=of) for topic, of in given]
        )
        of_group = OffsetFetchRequestGroup(group_id=name, topics=asked)
        request = OffsetFetchRequest(groups=[of_group], require_stable=require_stable)
        answer = cluster.ask(request, OffsetFetchResponse, node, at_most=LAST_WITH_NAMES)
        told_of = the_one(answer.groups, f"offsets of group {name}")
        return told_of.error_code, _offsets(told_of.topics)

    error_code, found = cluster.until_passed(ask, lambda answer: answer[0])
    if error_code == Error.GROUP_ID_NOT_FOUND:
        return {}
    check(error_code, None, f"offsets of group {name}")
    return found


def _offsets(topics: Sequence[Any]) -> dict[Partition, tuple[int, int]]:
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.error_code)
        for topic in topics
        for each in topic.partitions
    }


def share_offsets(cluster: KafkaCluster, name: str) -> dict[Partition, tuple[int, int]]:
    """Return for each partition where a share group's deliveries start, and its lag according to the coordinator (-1 if
    unknown). Raises CommandError."""
    asked = groups_share.DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)

    def ask() -> Any:
        node = cluster.coordinator(GROUP, name)
        request = groups_share.DescribeShareGroupOffsetsRequest(groups=[asked])
        answer = cluster.ask(request, groups_share.DescribeShareGroupOffsetsResponse, node)
        return the_one(answer.groups, f"offsets of group {name}")

    answer = cluster.until_passed(ask, lambda found: found.error_code)
    check(answer.error_code, answer.error_message, f"offsets of group {name}")
    return {
        (topic.topic_name, each.partition_index): (each.start_offset, each.lag)
        for topic in answer.topics
        for each in topic.partitions
        if not each.error_code
    }


def commit_offsets(
    cluster: KafkaCluster, name: str, offsets: dict[Partition, int]
) -> dict[Partition, str | None]:
    """Commit without being a member, which only a group without members accepts. Return each partition's error, or
    None."""
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offsets[topic, index], committed_metadata=""
                )
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(offsets).items()
    ]
    request = OffsetCommitRequest(
        group_id=name, generation_id_or_member_epoch=NOBODYS_GENERATION, topics=topics
    )

    def ask() -> OffsetCommitResponse:
        node = cluster.coordinator(GROUP, name)
        return cluster.ask(request, OffsetCommitResponse, node, at_most=LAST_WITH_NAMES)

    def worst(found: OffsetCommitResponse) -> int:
        return max((each.error_code for topic in found.topics for each in topic.partitions), default=0)

    answer = cluster.until_passed(ask, worst)
    return {
        (topic.name, each.partition_index): told(each.error_code) if each.error_code else None
        for topic in answer.topics
        for each in topic.partitions
    }


def alter_share_offsets(
    cluster: KafkaCluster, name: str, offsets: dict[Partition, int]
) -> dict[Partition, str | None]:
    """Set from where a share group delivers next. Return each partition's error, or None. Raises CommandError."""
    topics = [
        groups_share.AlterShareGroupOffsetsRequestTopic(
            topic_name=topic,
            partitions=[
                groups_share.AlterShareGroupOffsetsRequestPartition(
                    partition_index=index, start_offset=offsets[topic, index]
                )
                for index in indexes
            ],
        )
        for topic, indexes in by_topic(offsets).items()
    ]
    request = groups_share.AlterShareGroupOffsetsRequest(group_id=name, topics=topics)

    def ask() -> Any:
        node = cluster.coordinator(GROUP, name)
        return cluster.ask(request, groups_share.AlterShareGroupOffsetsResponse, node)

    answer = cluster.until_passed(ask, lambda found: found.error_code)
    check(answer.error_code, answer.error_message, f"group {name}")
    return {
        (topic.topic_name, each.partition_index): told(each.error_code, each.error_message)
        if each.error_code
        else None
        for topic in answer.responses
        for each in topic.partitions
    }


def delete_group(cluster: KafkaCluster, name: str) -> int:
    """Delete the group and return the error code."""
    request = DeleteGroupsRequest(groups_names=[name])

    def ask() -> int:
        node = cluster.coordinator(GROUP, name)
        answer = cluster.ask(request, DeleteGroupsResponse, node)
        return the_one(answer.results, f"group {name}").error_code

    return cluster.until_passed(ask, lambda error_code: error_code)
