"""The quorum of controllers: the requests between its members, and its records."""

from __future__ import annotations

from protocol.messages.fetch import SnapshotId
from protocol.wire.primitives import Bytes
from protocol.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uuid,
)

# ---- Control records of `__cluster_metadata`, and the quorum's own file
#
# A control record's key is {version int16, type int16}: 2 LeaderChange, 3 SnapshotHeader, 4 SnapshotFooter,
# 5 KRaftVersion, 6 Voters (KIP-595, KIP-630, KIP-853). `QuorumStateData` is kept as JSON in `quorum-state`.


class LeaderChangeVoter(Struct):
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: int = int16("0+")
    leader_id: int = int32("0+")
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter, "0+")
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter, "0+")


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: int = int16("0+")
    last_contained_log_timestamp: int = int64("0+")


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: int = int16("0+")


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: int = int16("0+")
    kraft_version: int = int16("0+")


class Endpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class Voter(Struct):
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")
    endpoints: list[Endpoint] = array(Endpoint, "0+")
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, "0+")


class VotersRecord(Message, versions="0", flexible="0+"):
    version: int = int16("0+")
    voters: list[Voter] = array(Voter, "0+")


class QuorumStateVoter(Struct):
    voter_id: int = int32("0")


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    cluster_id: str = string("0")
    leader_id: int = int32("0+", default=-1)
    leader_epoch: int = int32("0+", default=-1)
    voted_id: int = int32("0+", default=-1)
    voted_directory_id: bytes = uuid("1+")
    applied_offset: int = int64("0")
    current_voters: list[QuorumStateVoter] | None = array(QuorumStateVoter, "0", nullable="0")


# ---- Vote (52), BeginQuorumEpoch (53), EndQuorumEpoch (54), FetchSnapshot (59), and changes of voters (80 to 82)
#
# Vote: v1 directory ids (KIP-853), v2 pre-vote (KIP-996). BeginQuorumEpoch, EndQuorumEpoch: v1 endpoints and directory
# ids (KIP-853). FetchSnapshot: KIP-630; v1 the replica's directory id. AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter:
# KIP-853; AddRaftVoter v1 may be answered before the change is committed.


class QuorumNodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class VotePartition(Struct):
    partition_index: int = int32("0+")
    replica_epoch: int = int32("0+")
    replica_id: int = int32("0+")
    replica_directory_id: bytes = uuid("1+", ignorable=True)
    voter_directory_id: bytes = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32("0+")
    last_offset: int = int64("0+")
    pre_vote: bool = boolean("2+")


class VoteTopic(Struct):
    topic_name: str = string("0+")
    partitions: list[VotePartition] = array(VotePartition, "0+")


class VoteRequest(Message, api_key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[VoteTopic] = array(VoteTopic, "0+")


class VotePartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    vote_granted: bool = boolean("0+")


class VoteTopicResult(Struct):
    topic_name: str = string("0+")
    partitions: list[VotePartitionResult] = array(VotePartitionResult, "0+")


class VoteResponse(Message, api_key=52, versions="0-2", flexible="0+"):
    error_code: int = int16("0+")
    topics: list[VoteTopicResult] = array(VoteTopicResult, "0+")
    node_endpoints: list[QuorumNodeEndpoint] = array(QuorumNodeEndpoint, "1+", tag=0)


class BeginQuorumEpochPartition(Struct):
    partition_index: int = int32("0+")
    voter_directory_id: bytes = uuid("1+", ignorable=True)
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class BeginQuorumEpochTopic(Struct):
    topic_name: str = string("0+")
    partitions: list[BeginQuorumEpochPartition] = array(BeginQuorumEpochPartition, "0+")


class BeginQuorumEpochRequest(Message, api_key=53, versions="0-1", flexible="1+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[BeginQuorumEpochTopic] = array(BeginQuorumEpochTopic, "0+")
    leader_endpoints: list[Endpoint] = array(Endpoint, "1+", ignorable=True)


class QuorumPartitionResult(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class QuorumTopicResult(Struct):
    topic_name: str = string("0+")
    partitions: list[QuorumPartitionResult] = array(QuorumPartitionResult, "0+")


class BeginQuorumEpochResponse(Message, api_key=53, versions="0-1", flexible="1+"):
    error_code: int = int16("0+")
    topics: list[QuorumTopicResult] = array(QuorumTopicResult, "0+")
    node_endpoints: list[QuorumNodeEndpoint] = array(QuorumNodeEndpoint, "1+", tag=0)


class QuorumCandidate(Struct):
    candidate_id: int = int32("1+")
    candidate_directory_id: bytes = uuid("1+")


class EndQuorumEpochPartition(Struct):
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    preferred_successors: list[int] = array(int32, "0", ignorable=True)
    preferred_candidates: list[QuorumCandidate] = array(QuorumCandidate, "1+", ignorable=True)


class EndQuorumEpochTopic(Struct):
    topic_name: str = string("0+")
    partitions: list[EndQuorumEpochPartition] = array(EndQuorumEpochPartition, "0+")


class EndQuorumEpochRequest(Message, api_key=54, versions="0-1", flexible="1+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    topics: list[EndQuorumEpochTopic] = array(EndQuorumEpochTopic, "0+")
    leader_endpoints: list[Endpoint] = array(Endpoint, "1+", ignorable=True)


class EndQuorumEpochResponse(Message, api_key=54, versions="0-1", flexible="1+"):
    error_code: int = int16("0+")
    topics: list[QuorumTopicResult] = array(QuorumTopicResult, "0+")
    node_endpoints: list[QuorumNodeEndpoint] = array(QuorumNodeEndpoint, "1+", tag=0)


class QuorumLeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class PartitionSnapshotRequest(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("0+")
    snapshot_id: SnapshotId = struct(SnapshotId, "0+")
    position: int = int64("0+")
    replica_directory_id: bytes = uuid("1+", tag=0, ignorable=True)


class TopicSnapshotRequest(Struct):
    name: str = string("0+")
    partitions: list[PartitionSnapshotRequest] = array(PartitionSnapshotRequest, "0+")


class FetchSnapshotRequest(Message, api_key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None, tag=0)
    replica_id: int = int32("0+", default=-1)
    max_bytes: int = int32("0+", default=2**31 - 1)
    topics: list[TopicSnapshotRequest] = array(TopicSnapshotRequest, "0+")


class PartitionSnapshot(Struct):
    """`size`, `position` in bytes; the records need not end on a batch."""

    index: int = int32("0+")
    error_code: int = int16("0+")
    snapshot_id: SnapshotId = struct(SnapshotId, "0+")
    current_leader: QuorumLeaderIdAndEpoch | None = struct(QuorumLeaderIdAndEpoch, "0+", tag=0)
    size: int = int64("0+")
    position: int = int64("0+")
    unaligned_records: Bytes = records("0+")


class TopicSnapshot(Struct):
    name: str = string("0+")
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot, "0+")


class FetchSnapshotResponse(Message, api_key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    topics: list[TopicSnapshot] = array(TopicSnapshot, "0+")
    node_endpoints: list[QuorumNodeEndpoint] = array(QuorumNodeEndpoint, "1+", tag=0)


class AddRaftVoterRequest(Message, api_key=80, versions="0-1", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+")
    timeout_ms: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")
    listeners: list[Endpoint] = array(Endpoint, "0+")
    ack_when_committed: bool = boolean("1+", default=True)


class AddRaftVoterResponse(Message, api_key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)


class RemoveRaftVoterRequest(Message, api_key=81, versions="0", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")


class RemoveRaftVoterResponse(Message, api_key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)


class UpdateRaftVoterRequest(Message, api_key=82, versions="0", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+")
    current_leader_epoch: int = int32("0+")
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("0+")
    listeners: list[Endpoint] = array(Endpoint, "0+")
    k_raft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, "0+")


class QuorumLeader(Struct):
    leader_id: int = int32("0+", default=-1)
    leader_epoch: int = int32("0+", default=-1)
    host: str = string("0+")
    port: int = int32("0+")


class UpdateRaftVoterResponse(Message, api_key=82, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    current_leader: QuorumLeader | None = struct(QuorumLeader, "0+", tag=0)
