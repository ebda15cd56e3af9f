"""Administration of the cluster: log directories, elections, reassignments, features, the quorum.

AlterReplicaLogDirs (34), DescribeLogDirs (35): v2 flexible, v3 an error for the whole request, v4 bytes of
the volume (KIP-827), v5 cordoned directories. ElectLeaders (43): v1 election types (KIP-460), v2 flexible.
AlterPartitionReassignments (45), ListPartitionReassignments (46): KIP-455; v1 may refuse another replication
factor. DescribeQuorum (55): v1 timestamps (KIP-836), v2 directory ids and nodes (KIP-853). UpdateFeatures
(57): v1 validate only and downgrade types (KIP-584), v2 no results per feature. UnregisterBroker (64):
KIP-500. UnregisterController (94): KIP-1312.
"""

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
    uint16,
    uuid,
)


class DescribableLogDirTopic(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class DescribeLogDirsRequest(Message, api_key=35, versions="1-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, "0+", nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32("0+")
    partition_size: int = int64("0+")
    offset_lag: int = int64("0+")
    is_future_key: bool = boolean("0+")


class DescribeLogDirsTopic(Struct):
    name: str = string("0+")
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition, "0+")


class DescribeLogDirsResult(Struct):
    error_code: int = int16("0+")
    log_dir: str = string("0+")
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic, "0+")
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", ignorable=True)


class DescribeLogDirsResponse(Message, api_key=35, versions="1-5", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult, "0+")


class AlterReplicaLogDirTopic(Struct):
    name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class AlterReplicaLogDir(Struct):
    path: str = string("0+")
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic, "0+")


class AlterReplicaLogDirsRequest(Message, api_key=34, versions="1-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir, "0+")


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = string("0+")
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult, "0+")


class AlterReplicaLogDirsResponse(Message, api_key=34, versions="1-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult, "0+")


class ElectLeadersTopic(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class ElectLeadersRequest(Message, api_key=43, versions="0-2", flexible="2+"):
    election_type: int = int8("1+")
    topic_partitions: list[ElectLeadersTopic] | None = array(ElectLeadersTopic, "0+", nullable="0+")
    timeout_ms: int = int32("0+", default=60000)


class PartitionElectionResult(Struct):
    partition_id: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = string("0+")
    partition_result: list[PartitionElectionResult] = array(PartitionElectionResult, "0+")


class ElectLeadersResponse(Message, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, "0+")


class ReassignablePartition(Struct):
    partition_index: int = int32("0+")
    replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = string("0+")
    partitions: list[ReassignablePartition] = array(ReassignablePartition, "0+")


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions="0-1", flexible="0+"):
    timeout_ms: int = int32("0+", default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic, "0+")


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class ReassignableTopicResponse(Struct):
    name: str = string("0+")
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse, "0+")


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    allow_replication_factor_change: bool = boolean("1+", default=True, ignorable=True)
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse, "0+")


class ListPartitionReassignmentsTopics(Struct):
    name: str = string("0+")
    partition_indexes: list[int] = array(int32, "0+")


class ListPartitionReassignmentsRequest(Message, api_key=46, versions="0", flexible="0+"):
    timeout_ms: int = int32("0+", default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, "0+", nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32("0+")
    replicas: list[int] = array(int32, "0+")
    adding_replicas: list[int] = array(int32, "0+")
    removing_replicas: list[int] = array(int32, "0+")


class OngoingTopicReassignment(Struct):
    name: str = string("0+")
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment, "0+")


class ListPartitionReassignmentsResponse(Message, api_key=46, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment, "0+")


class FeatureUpdateKey(Struct):
    feature: str = string("0+")
    max_version_level: int = int16("0+")
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = int32("0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey, "0+")
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Struct):
    feature: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)


class DescribeQuorumPartition(Struct):
    partition_index: int = int32("0+")


class DescribeQuorumTopic(Struct):
    topic_name: str = string("0+")
    partitions: list[DescribeQuorumPartition] = array(DescribeQuorumPartition, "0+")


class DescribeQuorumRequest(Message, api_key=55, versions="0-2", flexible="0+"):
    topics: list[DescribeQuorumTopic] = array(DescribeQuorumTopic, "0+")


class QuorumReplica(Struct):
    replica_id: int = int32("0+")
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64("0+")
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class QuorumPartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    high_watermark: int = int64("0+")
    current_voters: list[QuorumReplica] = array(QuorumReplica, "0+")
    observers: list[QuorumReplica] = array(QuorumReplica, "0+")


class QuorumTopic(Struct):
    topic_name: str = string("0+")
    partitions: list[QuorumPartition] = array(QuorumPartition, "0+")


class QuorumListener(Struct):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class QuorumNode(Struct):
    node_id: int = int32("2+")
    listeners: list[QuorumListener] = array(QuorumListener, "2+")


class DescribeQuorumResponse(Message, api_key=55, versions="0-2", flexible="0+"):
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[QuorumTopic] = array(QuorumTopic, "0+")
    nodes: list[QuorumNode] = array(QuorumNode, "2+")


class UnregisterBrokerRequest(Message, api_key=64, versions="0", flexible="0+"):
    broker_id: int = int32("0+")


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class UnregisterControllerRequest(Message, api_key=94, versions="0", flexible="0+"):
    controller_id: int = int32("0+")


class UnregisterControllerResponse(Message, api_key=94, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
