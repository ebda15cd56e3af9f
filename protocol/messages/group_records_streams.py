"""The records of `__consumer_offsets` for streams groups (KIP-1071).

Keys begin with their type (int16), which is `API_KEY`; values with their version (int16).
"""

from protocol.wire.schema import Message, Struct, array, int8, int16, int32, int64, string, struct, uint16


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
    """`assignment_epochs`: since which epoch each is the member's; null for tasks that aren't active."""

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
    """0 stands for what is to be worked out, or the broker's default."""

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
