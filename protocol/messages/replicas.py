"""What a broker tells the controller of its replicas: AlterPartition (56), AssignReplicasToDirs (73).

AlterPartition: KIP-497; v2 topic ids (KIP-841), v3 the members' broker epochs (KIP-903). AssignReplicasToDirs: KIP-858.
"""

from protocol.wire.schema import Message, Struct, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class AlterPartitionPartition(Struct):
    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    new_isr: list[int] = array(int32, "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32("0+")


class AlterPartitionTopic(Struct):
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[AlterPartitionPartition] = array(AlterPartitionPartition, "0+")


class AlterPartitionRequest(Message, api_key=56, versions="2-3", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    topics: list[AlterPartitionTopic] = array(AlterPartitionTopic, "0+")


class AlteredPartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: list[int] = array(int32, "0+")
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32("0+")


class AlteredPartitionTopic(Struct):
    topic_id: bytes = uuid("2+", ignorable=True)
    partitions: list[AlteredPartition] = array(AlteredPartition, "0+")


class AlterPartitionResponse(Message, api_key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[AlteredPartitionTopic] = array(AlteredPartitionTopic, "0+")


class AssignedPartition(Struct):
    partition_index: int = int32("0+")


class AssignedTopic(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[AssignedPartition] = array(AssignedPartition, "0+")


class AssignedDirectory(Struct):
    id: bytes = uuid("0+")
    topics: list[AssignedTopic] = array(AssignedTopic, "0+")


class AssignReplicasToDirsRequest(Message, api_key=73, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    directories: list[AssignedDirectory] = array(AssignedDirectory, "0+")


class AssignedPartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class AssignedTopicResult(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[AssignedPartitionResult] = array(AssignedPartitionResult, "0+")


class AssignedDirectoryResult(Struct):
    id: bytes = uuid("0+")
    topics: list[AssignedTopicResult] = array(AssignedTopicResult, "0+")


class AssignReplicasToDirsResponse(Message, api_key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: list[AssignedDirectoryResult] = array(AssignedDirectoryResult, "0+")
