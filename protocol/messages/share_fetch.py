"""Reading and acknowledging by share consumers (KIP-932): ShareFetch (78) and ShareAcknowledge (79).

v0 was early access, and no broker serves it any more. v2: the mode of acquiring and renewed locks (KIP-1206,
KIP-1222).
"""

from typing import Any

from protocol.wire.primitives import Bytes
from protocol.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uuid,
)


class AcknowledgementBatch(Struct):
    """`acknowledge_types`: one for all offsets, or one for each: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""

    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    acknowledge_types: list[int] = array(int8, "0+")


class FetchPartition(Struct):
    partition_index: int = int32("0+")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, "0+")


class FetchTopic(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[FetchPartition] = array(FetchPartition, "0+")


class ForgottenTopic(Struct):
    """Partitions that leave the share session."""

    topic_id: bytes = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class ShareFetchRequest(Message, api_key=78, versions="1-2", flexible="0+"):
    """`share_session_epoch`: 0 opens a session, -1 ends it. `share_acquire_mode`: 0 whole batches, 1 no more
    records than `max_records`.
    """

    group_id: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    max_wait_ms: int = int32("0+")
    min_bytes: int = int32("0+")
    max_bytes: int = int32("0+", default=2**31 - 1)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+", ignorable=True)
    is_renew_ack: bool = boolean("2+")
    topics: list[FetchTopic] = array(FetchTopic, "0+")
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "0+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class AcquiredRecords(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_count: int = int16("0+")


class FetchedPartition(Struct):
    """Kafka's PartitionData. Only records in `acquired_records` are the member's, however many `records` has."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acknowledge_error_code: int = int16("0+")
    acknowledge_error_message: str | None = string("0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+")
    records: Bytes | list[Any] | None = records("0+", nullable="0+")
    """A list of consecutive chunks, of any kind that has a length and that the connection can send."""
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords, "0+")


class ShareFetchableTopicResponse(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[FetchedPartition] = array(FetchedPartition, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("0+", nullable="0+", default=None)


class ShareFetchResponse(Message, api_key=78, versions="1-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "0+")


class AcknowledgePartition(Struct):
    partition_index: int = int32("0+")
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch, "0+")


class AcknowledgeTopic(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition, "0+")


class ShareAcknowledgeRequest(Message, api_key=79, versions="1-2", flexible="0+"):
    group_id: str | None = string("0+", nullable="0+", default=None)
    member_id: str | None = string("0+", nullable="0+")
    share_session_epoch: int = int32("0+")
    is_renew_ack: bool = boolean("2+")
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic, "0+")


class AcknowledgedPartition(Struct):
    """Kafka's PartitionData of ShareAcknowledge."""

    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+")


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: bytes = uuid("0+")
    partitions: list[AcknowledgedPartition] = array(AcknowledgedPartition, "0+")


class ShareAcknowledgeResponse(Message, api_key=79, versions="1-2", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+", ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "0+")
