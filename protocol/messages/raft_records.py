"""Control records of `__cluster_metadata`, and the quorum's own file.

A control record's key is {version int16, type int16}: 2 LeaderChange, 3 SnapshotHeader, 4 SnapshotFooter,
5 KRaftVersion, 6 Voters (KIP-595, KIP-630, KIP-853). `QuorumStateData` is kept as JSON in `quorum-state`.
"""

from protocol.wire.schema import Message, Struct, array, int16, int32, int64, string, struct, uint16, uuid


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
