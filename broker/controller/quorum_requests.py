"""What the leader of the metadata log answers to those that fetch it, and its snapshots.

Nothing waits here: who asks for what isn't there yet is told so by `Fetched.may_wait`, and asked for again by whoever
holds the request once something is appended or committed, or its time is up.
Source: `KafkaRaftClient` (handleFetchRequest, tryCompleteFetchRequest, handleFetchSnapshotRequest); KIP-595, KIP-630.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.metadata_log import METADATA_TOPIC_ID
from broker.controller.observer import METADATA_TOPIC_NAME
from broker.controller.snapshot_file import SnapshotId as LocalSnapshotId
from protocol.errors import Error
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from protocol.messages.raft import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    PartitionSnapshotRequest,
    QuorumLeaderIdAndEpoch,
    QuorumNodeEndpoint,
    TopicSnapshot,
)

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.observer import LeaderEndpoint

MOST_ANSWER_BYTES = 8 * 1024 * 1024
"""Whatever is asked for: of records, and of a snapshot, in one answer. Kafka gives as much as is asked for."""

SILENT_MS = 300_000
"""Who hasn't fetched for so long isn't known any more (Kafka: `LeaderState.OBSERVER_SESSION_TIMEOUT_MS`)."""

MOST_REPLICAS = 1_000
"""That have fetched: of more, who was silent the longest isn't known any more. Kafka's leader knows all."""

BOOTSTRAP_SNAPSHOT_ID = LocalSnapshotId(0, 0)


class Fetched(NamedTuple):
    """An answer, and whether it may wait for something better to say."""

    response: FetchResponse
    may_wait: bool


@dataclass(slots=True)
class ReplicaProgress:
    """How far somebody is who fetches the log (Kafka: `LeaderState.ReplicaState`)."""

    end_offset: int
    fetched_ms: int
    caught_up_ms: int
    leader_end_offset: int


class QuorumRequests:
    """Of one node. `lead` says that it leads the log; else whoever asks is told that it doesn't."""

    def __init__(self, metadata: MetadataLog, cluster_id: str) -> None:
        self._metadata = metadata
        self._log = metadata.log
        self._cluster_id = cluster_id
        self._leader: LeaderEndpoint | None = None
        self.replicas: dict[tuple[int, bytes], ReplicaProgress] = {}
        """By node and directory id, those that have fetched since this node leads."""

    def lead(self, here: LeaderEndpoint) -> None:
        """This node leads, and is to be reached here."""
        self._leader = here
        self.replicas.clear()

    # --- Fetch ----------------------------------------------------------------------------------------------

    def fetch(self, request: FetchRequest, now_ms: int) -> Fetched:
        """Of an observer, which says so by `replica_state`."""
        if not self._is_ours(request.cluster_id):
            return Fetched(FetchResponse(error_code=Error.INCONSISTENT_CLUSTER_ID), False)
        topics = request.topics
        if len(topics) != 1 or topics[0].topic_id != METADATA_TOPIC_ID or len(topics[0].partitions) != 1:
            return Fetched(FetchResponse(error_code=Error.INVALID_REQUEST), False)
        asked = topics[0].partitions[0]
        if asked.partition != 0:
            return Fetched(FetchResponse(error_code=Error.INVALID_REQUEST), False)
        error = self._refusal(request, asked)
        if error is not Error.NONE:
            return Fetched(self._response(PartitionData(error_code=error, high_watermark=-1)), False)
        found = self._found(request, asked, now_ms)
        is_news = bool(found.records) or found.diverging_epoch is not None or found.snapshot_id is not None
        knows_high_watermark = found.high_watermark <= asked.high_watermark
        may_wait = request.max_wait_ms > 0 and not is_news and knows_high_watermark
        return Fetched(self._response(found), may_wait)

    def _refusal(self, request: FetchRequest, asked: FetchPartition) -> Error:
        last_epoch = asked.last_fetched_epoch
        if (
            request.max_wait_ms < 0
            or asked.fetch_offset < 0
            or not 0 <= last_epoch <= asked.current_leader_epoch
        ):
            return Error.INVALID_REQUEST
        return self._refusal_by_epoch(asked.current_leader_epoch)

    def _refusal_by_epoch(self, epoch: int) -> Error:
        if epoch < self._metadata.epoch:
            return Error.FENCED_LEADER_EPOCH
        if epoch > self._metadata.epoch:
            return Error.UNKNOWN_LEADER_EPOCH
        return Error.NONE if self._metadata.is_leader else Error.NOT_LEADER_OR_FOLLOWER

    def _found(self, request: FetchRequest, asked: FetchPartition, now_ms: int) -> PartitionData:
        """By an asker who is in this epoch."""
        data = PartitionData(
            high_watermark=self._log.high_watermark, log_start_offset=self._log.log_start_offset, records=b""
        )
        offset = asked.fetch_offset
        snapshot_id = self._snapshot_instead(offset, asked.last_fetched_epoch)
        if snapshot_id is not None:
            data.snapshot_id = SnapshotId(end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)
            return data
        diverging = self._diverging(offset, asked.last_fetched_epoch)
        if diverging is not None:
            data.diverging_epoch = diverging
            return data
        end_offset = self._log.log_end_offset
        max_bytes = min(request.max_bytes, MOST_ANSWER_BYTES)
        data.records = self._log.read(offset, max_bytes, end_offset, min_one_batch=True).records
        self._note(request, asked, now_ms)
        return data

    def _snapshot_instead(self, offset: int, last_epoch: int) -> LocalSnapshotId | None:
        """Where the log isn't to be had from there, or from its beginning, when a snapshot is shorter."""
        ids = self._metadata.snapshots.ids
        if not ids:
            return None
        start_offset = self._log.log_start_offset
        if offset == 0 and (start_offset > 0 or ids[-1] != BOOTSTRAP_SNAPSHOT_ID):
            return ids[-1]
        earliest = ids[0]
        is_at_start = offset == start_offset and last_epoch != earliest.epoch
        if start_offset + offset > 0 and (
            offset < start_offset or is_at_start or last_epoch < earliest.epoch
        ):
            return ids[-1]
        return None

    def _diverging(self, offset: int, last_epoch: int) -> EpochEndOffset | None:
        if offset == 0 and self._log.log_start_offset == 0:
            return None
        epoch, end_offset = self._end_of(last_epoch)
        if epoch == last_epoch and offset <= end_offset:
            return None
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)

    def _end_of(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch up to this one (Kafka: `KafkaRaftLog.endOffsetForEpoch`)."""
        found, end_offset = self._log.leader_epochs.end_offset_for(epoch, self._log.log_end_offset)
        if found >= 0:
            return found, end_offset
        return max(self._log.leader_epochs.latest, 0), self._log.log_end_offset

    def _note(self, request: FetchRequest, asked: FetchPartition, now_ms: int) -> None:
        """How far whoever asks is, by what they ask for."""
        if request.replica_state is None or request.replica_state.replica_id < 0:
            return  # one that observes for itself, as Kafka's tools do
        key = (request.replica_state.replica_id, asked.replica_directory_id)
        if key not in self.replicas:
            self._forget_silent(now_ms)
        end_offset, before = self._log.log_end_offset, self.replicas.get(key)
        if asked.fetch_offset >= end_offset:
            caught_up_ms = now_ms
        elif before is not None and asked.fetch_offset >= before.leader_end_offset:
            caught_up_ms = max(before.caught_up_ms, before.fetched_ms)
        else:
            caught_up_ms = -1 if before is None else before.caught_up_ms
        self.replicas[key] = ReplicaProgress(asked.fetch_offset, now_ms, caught_up_ms, end_offset)

    def _forget_silent(self, now_ms: int) -> None:
        replicas = self.replicas
        silent = [each for each, known in replicas.items() if now_ms - known.fetched_ms >= SILENT_MS]
        for each in silent:
            del replicas[each]
        if len(replicas) >= MOST_REPLICAS:
            del replicas[min(replicas, key=lambda each: replicas[each].fetched_ms)]

    # --- FetchSnapshot --------------------------------------------------------------------------------------

    def fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """A piece of a snapshot. Raises OSError where it can't be read."""
        if not self._is_ours(request.cluster_id):
            return FetchSnapshotResponse(error_code=Error.INCONSISTENT_CLUSTER_ID)
        topics = request.topics
        if len(topics) != 1 or len(topics[0].partitions) != 1:
            return FetchSnapshotResponse(error_code=Error.INVALID_REQUEST)
        asked = topics[0].partitions[0]
        piece = PartitionSnapshot(index=asked.partition, unaligned_records=b"")
        if topics[0].name != METADATA_TOPIC_NAME or asked.partition != 0:
            piece.error_code = Error.UNKNOWN_TOPIC_OR_PARTITION
        else:
            leader_id, leader_epoch = self._current_leader()
            piece.current_leader = QuorumLeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            self._take_piece(request, asked, piece)
        here = self._here
        endpoints = (
            [] if here is None else [QuorumNodeEndpoint(node_id=here.node_id, host=here.host, port=here.port)]
        )
        return FetchSnapshotResponse(
            topics=[TopicSnapshot(name=topics[0].name, partitions=[piece])], node_endpoints=endpoints
        )

    def _take_piece(
        self, request: FetchSnapshotRequest, asked: PartitionSnapshotRequest, piece: PartitionSnapshot
    ) -> None:
        error = self._refusal_by_epoch(asked.current_leader_epoch)
        if error is not Error.NONE:
            piece.error_code = error
            return
        snapshot_id = LocalSnapshotId(asked.snapshot_id.epoch, asked.snapshot_id.end_offset)
        snapshots = self._metadata.snapshots
        if snapshot_id not in snapshots.ids or snapshot_id == BOOTSTRAP_SNAPSHOT_ID:
            piece.error_code = Error.SNAPSHOT_NOT_FOUND
            return
        size = snapshots.size_of(snapshot_id)
        if not 0 <= asked.position < size:
            piece.error_code = Error.POSITION_OUT_OF_RANGE
            return
        count = min(max(request.max_bytes, 0), MOST_ANSWER_BYTES, size - asked.position)
        piece.snapshot_id = asked.snapshot_id
        piece.size, piece.position = size, asked.position
        piece.unaligned_records = snapshots.read(snapshot_id, asked.position, count)

    # --- all ------------------------------------------------------------------------------------------------

    def _is_ours(self, cluster_id: str | None) -> bool:
        return cluster_id is None or cluster_id == self._cluster_id

    def _current_leader(self) -> tuple[int, int]:
        """(node id, epoch), −1 where it isn't this node."""
        here = self._here
        return -1 if here is None else here.node_id, self._metadata.epoch

    @property
    def _here(self) -> LeaderEndpoint | None:
        """Where the leader is, if it is this node."""
        return self._leader if self._metadata.is_leader else None

    def _response(self, data: PartitionData) -> FetchResponse:
        leader_id, leader_epoch = self._current_leader()
        data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        topic = FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[data])
        here = self._here
        endpoints = (
            [] if here is None else [NodeEndpoint(node_id=here.node_id, host=here.host, port=here.port)]
        )
        return FetchResponse(responses=[topic], node_endpoints=endpoints)
