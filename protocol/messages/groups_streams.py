"""The streams group protocol of KIP-1071: StreamsGroupHeartbeat (88) and StreamsGroupDescribe (89); and a topology as
its application describes it (KIP-1331): StreamsGroupTopologyDescriptionUpdate (93)."""

from protocol.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)


class KeyValue(Struct):
    key: str = string("0+")
    value: str = string("0+")


class TopicInfo(Struct):
    """An internal topic of the application. 0 means that a number is to be worked out, or the broker's default."""

    name: str = string("0+")
    partitions: int = int32("0+")
    replication_factor: int = int16("0+")
    topic_configs: list[KeyValue] = array(KeyValue, "0+")


class CopartitionGroup(Struct):
    """Indexes into lists of the subtopology: topics that need the same number of partitions."""

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


class Topology(Struct):
    epoch: int = int32("0+")
    subtopologies: list[Subtopology] = array(Subtopology, "0+")


class TaskIds(Struct):
    subtopology_id: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class Endpoint(Struct):
    host: str = string("0+")
    port: int = uint16("0+")


class TaskOffset(Struct):
    subtopology_id: str = string("0+")
    partition: int = int32("0+")
    offset: int = int64("0+")


class StreamsGroupHeartbeatRequest(Message, api_key=88, versions="0-1", flexible="0+"):
    """Null and the defaults of numbers mean "as in the last heartbeat". `member_epoch`: 0 joins, -1 leaves.
    `process_id` is what the members of one process have in common."""

    group_id: str = string("0+")
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    endpoint_information_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = int32("0+", default=-1)
    topology: Topology | None = struct(Topology, "0+", nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    process_id: str | None = string("0+", nullable="0+", default=None)
    user_endpoint: Endpoint | None = struct(Endpoint, "0+", nullable="0+")
    client_tags: list[KeyValue] | None = array(KeyValue, "0+", nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, "0+", nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, "0+", nullable="0+", default=None)
    shutdown_application: bool = boolean("0+")


class Status(Struct):
    status_code: int = int8("0+")
    status_detail: str = string("0+")


class TopicPartition(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = struct(Endpoint, "0+")
    active_partitions: list[TopicPartition] = array(TopicPartition, "0+")
    standby_partitions: list[TopicPartition] = array(TopicPartition, "0+")


class StreamsGroupHeartbeatResponse(Message, api_key=88, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    heartbeat_interval_ms: int = int32("0+")
    acceptable_recovery_lag_legacy: int = int32("0")
    task_offset_interval_ms: int = int32("0+")
    acceptable_recovery_lag: int = int64("1+", default=-1, ignorable=True)
    status: list[Status] | None = array(Status, "0+", nullable="0+")
    active_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, "0+", nullable="0+", default=None)
    topology_description_required: bool = boolean("1+")
    endpoint_information_epoch: int = int32("0+")
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, "0+", nullable="0+", default=None
    )


# ---- Topology descriptions


class TopologyDescriptionNode(Struct):
    """`node_type`: 1 source, 2 processor, 3 sink."""

    name: str = string("0+")
    node_type: int = int8("0+")
    source_topics: list[str] = array(string, "0+")
    sink_topic: str | None = string("0+", nullable="0+", default=None)
    stores: list[str] = array(string, "0+")
    successors: list[str] = array(string, "0+")


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: str = string("0+")
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode, "0+")


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode = struct(TopologyDescriptionNode, "0+")
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode, "0+")


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology] = array(TopologyDescriptionSubtopology, "0+")
    global_stores: list[TopologyDescriptionGlobalStore] = array(TopologyDescriptionGlobalStore, "0+")


class StreamsGroupTopologyDescriptionUpdateRequest(Message, api_key=93, versions="0", flexible="0+"):
    group_id: str = string("0+")
    member_id: str = string("0+")
    topology_epoch: int = int32("0+")
    topology_description: TopologyDescription = struct(TopologyDescription, "0+")


class StreamsGroupTopologyDescriptionUpdateResponse(Message, api_key=93, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class StreamsGroupDescribeRequest(Message, api_key=89, versions="0-1", flexible="0+"):
    group_ids: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("0+")
    include_topology_description: bool = boolean("1+")


class DescribedSubtopology(Struct):
    subtopology_id: str = string("0+")
    source_topics: list[str] = array(string, "0+")
    repartition_sink_topics: list[str] = array(string, "0+")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo, "0+")
    repartition_source_topics: list[TopicInfo] = array(TopicInfo, "0+")


class DescribedTopology(Struct):
    epoch: int = int32("0+")
    subtopologies: list[DescribedSubtopology] | None = array(
        DescribedSubtopology, "0+", nullable="0+", default=None
    )


class DescribedAssignment(Struct):
    active_tasks: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks: list[TaskIds] = array(TaskIds, "0+")


class DescribedMember(Struct):
    member_id: str = string("0+")
    member_epoch: int = int32("0+")
    instance_id: str | None = string("0+", nullable="0+", default=None)
    rack_id: str | None = string("0+", nullable="0+", default=None)
    client_id: str = string("0+")
    client_host: str = string("0+")
    topology_epoch: int = int32("0+")
    process_id: str = string("0+")
    user_endpoint: Endpoint | None = struct(Endpoint, "0+", nullable="0+")
    client_tags: list[KeyValue] = array(KeyValue, "0+")
    task_offsets: list[TaskOffset] = array(TaskOffset, "0+")
    task_end_offsets: list[TaskOffset] = array(TaskOffset, "0+")
    assignment: DescribedAssignment = struct(DescribedAssignment, "0+")
    target_assignment: DescribedAssignment = struct(DescribedAssignment, "0+")
    is_classic: bool = boolean("0+")


class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    group_epoch: int = int32("0+")
    assignment_epoch: int = int32("0+")
    topology: DescribedTopology | None = struct(DescribedTopology, "0+", nullable="0+")
    members: list[DescribedMember] = array(DescribedMember, "0+")
    authorized_operations: int = int32("0+", default=-(2**31))
    topology_description: TopologyDescription | None = struct(TopologyDescription, "1+", nullable="1+")
    topology_description_status: int = int8("1+")
    assignor_name: str | None = string("1+", nullable="1+", default=None, ignorable=True)


class StreamsGroupDescribeResponse(Message, api_key=89, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")
