"""The records of `__consumer_offsets`: committed offsets and classic groups, consumer groups (KIP-848), streams groups
(KIP-1071). Those of share groups are in `group_records_share`.

Keys begin with their type (int16), which is `API_KEY`; values with their version (int16). A consumer group's epochs:
that of the group, of its target assignment, and of each member.
"""

from __future__ import annotations

from protocol.wire.schema import (
    Message,
    Struct,
    array,
    binary,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)


class OffsetCommitKey(Message, api_key=1, versions="0"):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class OffsetCommitValue(Message, api_key=1, versions="0-4", flexible="4+"):
    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: bytes = uuid("4+", tag=0, ignorable=True)


class LegacyOffsetCommitKey(Message, api_key=0, versions="0"):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class LegacyOffsetCommitValue(Message, api_key=0, versions="0"):
    offset: int = int64("0")
    metadata: str = string("0")
    commit_timestamp: int = int64("0")


class GroupMetadataKey(Message, api_key=2, versions="0"):
    group: str = string("0")


class MemberMetadata(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32("0+")
    subscription: bytes = binary("0+")
    assignment: bytes = binary("0+")


class GroupMetadataValue(Message, api_key=2, versions="0-4", flexible="4+"):
    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")


# ---- Consumer groups


class ConsumerGroupMetadataKey(Message, api_key=3, versions="0"):
    group_id: str = string("0")


class ConsumerGroupMetadataValue(Message, api_key=3, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", tag=0)


class ConsumerGroupPartitionMetadataKey(Message, api_key=4, versions="0"):
    group_id: str = string("0")


class PartitionMetadata(Struct):
    partition: int = int32("0+")
    racks: list[str] = array(string, "0+")


class TopicMetadata(Struct):
    topic_id: bytes = uuid("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata, "0+")


class ConsumerGroupPartitionMetadataValue(Message, api_key=4, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = array(TopicMetadata, "0+")


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class ClassicProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = binary("0+")


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32("0+")
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol, "0+")


class ConsumerGroupMemberMetadataValue(Message, api_key=5, versions="0", flexible="0+"):
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")
    subscribed_topic_regex: str | None = string("0+", nullable="0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    server_assignor: str | None = string("0+", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, "0+", nullable="0+", tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions="0"):
    group_id: str = string("0")


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartition(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartition] = array(TopicPartition, "0+")


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartitions(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[int] = array(int32, "0+")
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions, "0+")


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions="0"):
    group_id: str = string("0")
    regular_expression: str = string("0")


class ConsumerGroupRegularExpressionValue(Message, api_key=16, versions="0", flexible="0+"):
    topics: list[str] = array(string, "0+")
    version: int = int64("0+")
    timestamp: int = int64("0+")


# ---- Streams groups


class StreamsGroupMetadataKey(Message, api_key=17, versions="0"):
    group_id: str = string("0")


class LastAssignmentConfig(Struct):
    key: str = string("0+")
    value: str = string("0+")


class StreamsGroupMetadataValue(Message, api_key=17, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")
    validated_topology_epoch: int = int32("0+", default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(
        LastAssignmentConfig, "0+", nullable="0+", default=None, tag=1
    )
    stored_description_topology_epoch: int = int32("0+", default=-1, tag=2)
    failed_description_topology_epoch: int = int32("0+", default=-1, tag=3)


class StreamsGroupMemberMetadataKey(Message, api_key=19, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class Endpoint(Struct):
    host: str = string("0+")
    port: int = uint16("0+")


class KeyValue(Struct):
    key: str = string("0+")
    value: str = string("0+")


class StreamsGroupMemberMetadataValue(Message, api_key=19, versions="0", flexible="0+"):
    instance_id: str | None = string("0+", nullable="0+")
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: Endpoint | None = struct(Endpoint, "0+", nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue, "0+")


class StreamsGroupTargetAssignmentMetadataKey(Message, api_key=20, versions="0"):
    group_id: str = string("0")


class StreamsGroupTargetAssignmentMetadataValue(Message, api_key=20, versions="0", flexible="0+"):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(Message, api_key=21, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class TargetTaskIds(Struct):
    subtopology_id: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class StreamsGroupTargetAssignmentMemberValue(Message, api_key=21, versions="0", flexible="0+"):
    active_tasks: list[TargetTaskIds] = array(TargetTaskIds, "0+")
    standby_tasks: list[TargetTaskIds] = array(TargetTaskIds, "0+")
    warmup_tasks: list[TargetTaskIds] = array(TargetTaskIds, "0+")


class StreamsGroupCurrentMemberAssignmentKey(Message, api_key=22, versions="0"):
    group_id: str = string("0")
    member_id: str = string("0")


class CurrentTaskIds(Struct):
    """`assignment_epochs`: the epoch since which each task is the member's; null for tasks that aren't active."""

    subtopology_id: str = string("0+")
    partitions: list[int] = array(int32, "0+")
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=0)


class StreamsGroupCurrentMemberAssignmentValue(Message, api_key=22, versions="0", flexible="0+"):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    active_tasks: list[CurrentTaskIds] = array(CurrentTaskIds, "0+")
    standby_tasks: list[CurrentTaskIds] = array(CurrentTaskIds, "0+")
    warmup_tasks: list[CurrentTaskIds] = array(CurrentTaskIds, "0+")
    active_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds, "0+")
    standby_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds, "0+")
    warmup_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds, "0+")


class StreamsGroupTopologyKey(Message, api_key=23, versions="0"):
    group_id: str = string("0")


class TopicConfig(Struct):
    key: str = string("0+")
    value: str = string("0+")


class TopicInfo(Struct):
    """0 means that it is to be worked out, or the broker's default."""

    name: str = string("0+")
    partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    topic_configs: list[TopicConfig] = array(TopicConfig, "0+")


class CopartitionGroup(Struct):
    """Indexes into lists of the subtopology."""

    source_topics: list[int] = array(int16, "0+")
    source_topic_regex: list[int] = array(int16, "0+")
    repartition_source_topics: list[int] = array(int16, "0+")


class Subtopology(Struct):
    subtopology_id: str = string("0+")
    source_topics: list[str] = array(string, "0+")
    source_topic_regex: list[str] = array(string, "0+")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo, "0+")
    repartition_sink_topics: list[str] = array(string, "0+")
    repartition_source_topics: list[TopicInfo] = array(TopicInfo, "0+")
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup, "0+")


class StreamsGroupTopologyValue(Message, api_key=23, versions="0", flexible="0+"):
    epoch: int = int32("0+")
    subtopologies: list[Subtopology] = array(Subtopology, "0+")
