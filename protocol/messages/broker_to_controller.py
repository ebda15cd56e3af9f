"""Messages from brokers to their controller: registration, heartbeats, changes of their replicas, and
clients' requests that the controller decides. Also a controller's own registration."""

from __future__ import annotations

from protocol.wire.primitives import Bytes
from protocol.wire.schema import (
    Message,
    Struct,
    array,
    binary,
    boolean,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)

# ---- BrokerRegistration (62), BrokerHeartbeat (63) and ControllerRegistration (70)
#
# BrokerRegistration: KIP-631; v2 directory ids (KIP-858), v3 the epoch of a run before that ended cleanly (KIP-966), v4
# features whose least version is 0 (KIP-1022). BrokerHeartbeat: v1 directories that failed (KIP-858), v2 cordoned ones
# (KIP-1066). ControllerRegistration: KIP-919.


class AdvertisedListener(Struct):
    """`security_protocol`: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""

    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class SupportedFeature(Struct):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class BrokerRegistrationRequest(Message, api_key=62, versions="0-4", flexible="0+"):
    broker_id: int = int32("0+")
    cluster_id: str = string("0+")
    incarnation_id: bytes = uuid("0+")
    listeners: list[AdvertisedListener] = array(AdvertisedListener, "0+")
    features: list[SupportedFeature] = array(SupportedFeature, "0+")
    rack: str | None = string("0+", nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "2+", ignorable=True)
    previous_broker_epoch: int = int64("3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Message, api_key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    broker_epoch: int = int64("0+", default=-1)


class BrokerHeartbeatRequest(Message, api_key=63, versions="0-2", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    current_metadata_offset: int = int64("0+")
    want_fence: bool = boolean("0+")
    want_shut_down: bool = boolean("0+")
    offline_log_dirs: list[bytes] = array(uuid, "1+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "2+", nullable="2+", default=None, tag=1)


class BrokerHeartbeatResponse(Message, api_key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    is_caught_up: bool = boolean("0+")
    is_fenced: bool = boolean("0+", default=True)
    should_shut_down: bool = boolean("0+")


class ControllerRegistrationRequest(Message, api_key=70, versions="0", flexible="0+"):
    controller_id: int = int32("0+")
    incarnation_id: bytes = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    listeners: list[AdvertisedListener] = array(AdvertisedListener, "0+")
    features: list[SupportedFeature] = array(SupportedFeature, "0+")


class ControllerRegistrationResponse(Message, api_key=70, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


# ---- AlterPartition (56) and AssignReplicasToDirs (73)
#
# AlterPartition: KIP-497; v2 topic ids (KIP-841), v3 the members' broker epochs (KIP-903). AssignReplicasToDirs:
# KIP-858.


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


# ---- Envelope (58): a client's whole request that a broker forwards to the controller, with its sender (KIP-590)
#
# `request_data` begins with the request's header and `response_data` with the answer's, both as the client
# has them. `request_principal` is an int16 0, and `DefaultPrincipalData`.


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    request_data: Bytes = binary("0+")
    request_principal: Bytes | None = binary("0+", nullable="0+")
    client_host_address: Bytes = binary("0+")


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    response_data: Bytes | None = binary("0+", nullable="0+", default=None)
    error_code: int = int16("0+")


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
