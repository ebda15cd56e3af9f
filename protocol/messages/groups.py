"""Groups as all clients know them: the classic protocol, the data that consumers exchange in it, committed
offsets, and administration. Messages for only consumer, share or streams groups are in `groups_…`."""

from __future__ import annotations

from protocol.wire.schema import Message, Struct, array, binary, boolean, int16, int32, int64, string, uuid

# ---- The classic group protocol: JoinGroup (11), Heartbeat (12), LeaveGroup (13) and SyncGroup (14)
#
# JoinGroup: v1 rebalance timeout (KIP-62), v4 the member id is handed out first (KIP-394), v5 static members (KIP-345),
# v6 flexible, v7 the protocol's type and name in the answer (KIP-559), v8 a reason (KIP-800), v9 the leader may skip
# the assignment (KIP-814). SyncGroup: v3 static members, v4 flexible, v5 protocol type and name (KIP-559). Heartbeat:
# v3 static members, v4 flexible. LeaveGroup: v3 several members at once (KIP-345), v4 flexible, v5 a reason (KIP-800).


class JoinGroupRequestProtocol(Struct):
    name: str = string("0+")
    metadata: bytes = binary("0+")


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    """v0 has no rebalance timeout: its session timeout is used for both."""

    group_id: str = string("0+")
    session_timeout_ms: int = int32("0+")
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string("0+")
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol, "0+")
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = binary("0+")


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16("0+")
    generation_id: int = int32("0+", default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string("0+", nullable="7+")
    leader: str = string("0+")
    skip_assignment: bool = boolean("9+")
    member_id: str = string("0+")
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember, "0+")


class SyncGroupRequestAssignment(Struct):
    member_id: str = string("0+")
    assignment: bytes = binary("0+")


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment, "0+")


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = binary("0+")


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
    group_id: str = string("0+")
    generation_id: int = int32("0+")
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")


class MemberIdentity(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    group_id: str = string("0+")
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    error_code: int = int16("3+")


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    members: list[MemberResponse] = array(MemberResponse, "3+")


# ---- The data that consumers exchange inside the classic protocol: subscriptions and assignments
#
# Both begin with their version (int16). Subscription: v1 owned partitions (KIP-429), v2 generation (KIP-792),
# v3 rack (KIP-881).


class TopicPartition(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[TopicPartition] = array(TopicPartition, "0+")
    user_data: bytes | None = binary("0+", nullable="0+", default=None)


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[str] = array(string, "0+")
    user_data: bytes | None = binary("0+", nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


# ---- A group's offsets: OffsetCommit (8), OffsetFetch (9) and OffsetDelete (47)
#
# OffsetCommit: v5 no retention time any more (KIP-211), v6 leader epoch (KIP-320), v7 static members (KIP-345), v8
# flexible, v9 serves consumer groups too, v10 topic ids (KIP-848). OffsetFetch: v2 null topics are all, v5 leader
# epoch, v6 flexible, v7 waits for open transactions (KIP-447), v8 several groups at once (KIP-709), v9 serves consumer
# groups too, v10 topic ids (KIP-848). OffsetDelete: KIP-496.


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, "0+")


class OffsetCommitRequest(Message, api_key=8, versions="2-10", flexible="8+"):
    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+")


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class OffsetCommitResponseTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition, "0+")


class OffsetCommitResponse(Message, api_key=8, versions="2-10", flexible="8+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, "0+")


class OffsetFetchRequestTopic(Struct):
    name: str = string("0-7")
    partition_indexes: list[int] = array(int32, "0-7")


class OffsetFetchRequestTopics(Struct):
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partition_indexes: list[int] = array(int32, "8+")


class OffsetFetchRequestGroup(Struct):
    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")


class OffsetFetchRequest(Message, api_key=9, versions="1-10", flexible="6+"):
    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")


class OffsetFetchResponseTopic(Struct):
    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


class OffsetFetchResponseTopics(Struct):
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


class OffsetFetchResponseGroup(Struct):
    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


class OffsetFetchResponse(Message, api_key=9, versions="1-10", flexible="6+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")


class OffsetDeleteRequestPartition(Struct):
    partition_index: int = int32("0+")


class OffsetDeleteRequestTopic(Struct):
    name: str = string("0+")
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition, "0+")


class OffsetDeleteRequest(Message, api_key=47, versions="0"):
    group_id: str = string("0+")
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic, "0+")


class OffsetDeleteResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class OffsetDeleteResponseTopic(Struct):
    name: str = string("0+")
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition, "0+")


class OffsetDeleteResponse(Message, api_key=47, versions="0"):
    error_code: int = int16("0+")
    throttle_time_ms: int = int32("0+", ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic, "0+")


# ---- Administration of groups: DescribeGroups (15), ListGroups (16) and DeleteGroups (42)
#
# DescribeGroups: v3 authorized operations (KIP-430), v4 static members (KIP-345), v5 flexible, v6
# GROUP_ID_NOT_FOUND (KIP-1043). ListGroups: v3 flexible, v4 states (KIP-518), v5 types (KIP-848).
# DeleteGroups: v2 flexible.


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListedGroup(Struct):
    group_id: str = string("0+")
    protocol_type: str = string("0+")
    group_state: str = string("4+", ignorable=True)
    group_type: str = string("5+", ignorable=True)


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0+")
    groups: list[ListedGroup] = array(ListedGroup, "0+")


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    groups: list[str] = array(string, "0+")
    include_authorized_operations: bool = boolean("3+")


class DescribedGroupMember(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    member_metadata: bytes = binary("0+")
    member_assignment: bytes = binary("0+")


class DescribedGroup(Struct):
    error_code: int = int16("0+")
    error_message: str | None = string("6+", nullable="6+", default=None)
    group_id: str = string("0+")
    group_state: str = string("0+")
    protocol_type: str = string("0+")
    protocol_data: str = string("0+")
    members: list[DescribedGroupMember] = array(DescribedGroupMember, "0+")
    authorized_operations: int = int32("3+", default=-(2**31))


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup, "0+")


class DeleteGroupsRequest(Message, api_key=42, versions="0-3", flexible="2+"):
    groups_names: list[str] = array(string, "0+")


class DeletableGroupResult(Struct):
    group_id: str = string("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class DeleteGroupsResponse(Message, api_key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    results: list[DeletableGroupResult] = array(DeletableGroupResult, "0+")
