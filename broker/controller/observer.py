"""How a node that doesn't lead the metadata log keeps up with it: what it asks, and what it makes of the answers.

    request = observer.request()
    then = observer.answered(answer)

It fetches the log as it is, offsets and epochs and all, cuts off what the leader hasn't, and begins anew with a
snapshot where the log below isn't to be had any more. What is committed is applied by `MetadataLog.catch_up`.
Source: `KafkaRaftClient` of a replica that is no voter, unattached or a follower; KIP-595, KIP-630.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from broker.controller import quorum_state
from broker.controller.image import NO_LEADER
from broker.controller.metadata_log import METADATA_TOPIC_ID
from broker.controller.snapshots import SnapshotError
from broker.controller.snapshots import SnapshotId as LocalSnapshotId
from protocol.errors import BrokenInvariantError, CodecError, Error, KafkaError, error_name
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
    SnapshotId,
)
from protocol.messages.raft import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    PartitionSnapshotRequest,
    QuorumNodeEndpoint,
    TopicSnapshotRequest,
)
from protocol.records.batch import CorruptRecordError
from protocol.waiting import Later, begun
from storage.log.partition_log import append_as_follower

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.environment.scheduler import Clock

log = logging.getLogger("barnabas.metadata")

METADATA_TOPIC_NAME = "__cluster_metadata"
FETCH_WAIT_MS = 500  # KafkaRaftClient.MAX_FETCH_WAIT_MS
FETCH_BYTES = 128 * 1024
"""Of the log at a time. All that an answer commits is applied in one turn of the loop: some 15 ms. (Kafka has 1 MiB,
`controller.quorum.fetch.max.bytes`, and a thread for it.)"""
SNAPSHOT_PIECE_BYTES = 1024 * 1024  # `controller.quorum.fetch.snapshot.max.bytes`: applied once it is whole
MOST_SNAPSHOT_BYTES = 1024 * 1024 * 1024
"""A snapshot that says more of itself isn't fetched. Kafka has no limit: it is fetched into a file."""

NodeEndpoints = Sequence[NodeEndpoint | QuorumNodeEndpoint]

NO_HIGH_WATERMARK = -1


class AfterAnswer(Enum):
    """What comes after an answer."""

    ASK = "the next request may go at once"
    BACK_OFF = "the next one goes after a while, to whomever"


@dataclass(frozen=True, slots=True)
class ObserverIdentity:
    """Who asks."""

    node_id: int
    cluster_id: str
    directory_id: bytes
    """Of the metadata's directory."""


@dataclass(frozen=True, slots=True)
class LeaderEndpoint:
    """Where the leader is; `host` is empty where nobody has said."""

    node_id: int
    host: str = ""
    port: int = 0


class _FetchedSnapshot:
    """A snapshot on its way."""

    __slots__ = ("data", "id", "size")

    def __init__(self, snapshot_id: LocalSnapshotId) -> None:
        self.id = snapshot_id
        self.data = bytearray()
        self.size: int | None = None  # as the first piece says


class Observer:
    """Of a log that was replayed as no voter's. Whoever drives it has one request under way at a time."""

    def __init__(self, metadata: MetadataLog, identity: ObserverIdentity, clock: Clock) -> None:
        self._metadata = metadata
        self._log = metadata.log
        self._identity = identity
        self._clock = clock
        self.epoch = max(
            quorum_state.read_leader_epoch(self._log.files, self._log.directory),
            self._log.leader_epochs.latest,
            0,
        )
        self.leader: LeaderEndpoint | None = None
        self.high_watermark = NO_HIGH_WATERMARK
        """Of the leader, as far as it was told in this run."""
        self._snapshot: _FetchedSnapshot | None = None
        self.complaint = ""
        """What is wrong with what the leader says; empty again once its answer counts."""
        self.is_leader_lost = False
        """Whether the leader can't be reached where it was."""
        self._is_stopped = False

    @property
    def has_caught_up(self) -> bool:
        """Whether all is applied that was committed when the leader was last heard of."""
        return 0 <= self.high_watermark <= self._metadata.last_applied_offset + 1

    # --- asking ---------------------------------------------------------------------------------------------

    def request(self) -> FetchRequest | FetchSnapshotRequest:
        """The next one."""
        return self._fetch() if self._snapshot is None else self._fetch_snapshot(self._snapshot)

    def _fetch(self) -> FetchRequest:
        identity = self._identity
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=self.epoch,
            fetch_offset=self._log.log_end_offset,
            last_fetched_epoch=self._last_epoch(),
            log_start_offset=-1,
            partition_max_bytes=0,
            replica_directory_id=identity.directory_id,
            high_watermark=self.high_watermark,
        )
        return FetchRequest(
            cluster_id=identity.cluster_id,
            replica_state=ReplicaState(replica_id=identity.node_id, replica_epoch=-1),
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
        )

    def _last_epoch(self) -> int:
        """Of the last record, or of the snapshot that the log begins with; 0 where there is neither."""
        newest = self._metadata.snapshots.newest
        of_snapshot = 0 if newest is None else newest.epoch
        return max(self._log.leader_epochs.last, of_snapshot, 0)

    def _fetch_snapshot(self, snapshot: _FetchedSnapshot) -> FetchSnapshotRequest:
        partition = PartitionSnapshotRequest(
            partition=0,
            current_leader_epoch=self.epoch,
            snapshot_id=SnapshotId(end_offset=snapshot.id.offset, epoch=snapshot.id.epoch),
            position=len(snapshot.data),
            replica_directory_id=self._identity.directory_id,
        )
        return FetchSnapshotRequest(
            cluster_id=self._identity.cluster_id,
            replica_id=self._identity.node_id,
            max_bytes=SNAPSHOT_PIECE_BYTES,
            topics=[TopicSnapshotRequest(name=METADATA_TOPIC_NAME, partitions=[partition])],
        )

    # --- answers --------------------------------------------------------------------------------------------

    def answered(
        self, answer: FetchResponse | FetchSnapshotResponse | KafkaError
    ) -> AfterAnswer | Later[AfterAnswer]:
        """Later where a snapshot is written first. Raises BrokenInvariantError where the log can't go on: the leader
        has not what it said to be committed, or it is another one in the same epoch. Raises as `MetadataLog.catch_up`;
        KafkaError, OSError where the disk fails."""
        if isinstance(answer, KafkaError):
            return AfterAnswer.BACK_OFF
        if answer.error_code:
            return self._complain(self._refused(answer.error_code))
        if isinstance(answer, FetchResponse):
            topics = answer.responses
            if len(topics) != 1 or len(topics[0].partitions) != 1 or topics[0].topic_id != METADATA_TOPIC_ID:
                return self._odd("another topic")
            found = topics[0].partitions[0]
            then = self._follow(found, answer.node_endpoints)
            return self._fetched(found) if then is None else then
        of_topic = answer.topics
        if len(of_topic) != 1 or len(of_topic[0].partitions) != 1 or of_topic[0].name != METADATA_TOPIC_NAME:
            return self._odd("another topic")
        piece = of_topic[0].partitions[0]
        then = self._follow(piece, answer.node_endpoints)
        return self._took_piece(piece) if then is None else then

    def lost(self) -> None:
        """The leader can't be reached: others are asked where it is. It leads for all that."""
        self.is_leader_lost = True

    def stop(self) -> None:
        """What was being written comes to nothing."""
        self._is_stopped = True

    def _refused(self, error_code: int) -> str:
        if error_code == Error.INCONSISTENT_CLUSTER_ID:
            return (
                f"the controller is of another cluster than {self._identity.cluster_id}, whose id the log directories "
                "here have: INCONSISTENT_CLUSTER_ID"
            )
        return f"the controller refuses to tell of the metadata: {error_name(error_code)}"

    def _odd(self, what: str) -> AfterAnswer:
        return self._complain(f"the controller's answer has {what}")

    def _complain(self, what: str) -> AfterAnswer:
        """Once, until something else comes: it is asked again every few milliseconds."""
        if what != self.complaint:
            self.complaint = what
            log.warning("%s", what)
        return AfterAnswer.BACK_OFF

    def _follow(
        self, found: PartitionData | PartitionSnapshot, endpoints: NodeEndpoints
    ) -> AfterAnswer | None:
        """Who leads, by this answer. None: it counts, and has its content."""
        self.is_leader_lost = False
        said = found.current_leader
        leader_id = NO_LEADER if said is None else said.leader_id
        epoch = -1 if said is None else said.leader_epoch
        if leader_id == self._identity.node_id:
            raise BrokenInvariantError(
                f"the controller has node.id={leader_id}, as this broker does, which needs another one"
            )
        error = found.error_code
        if epoch < self.epoch or error == Error.UNKNOWN_LEADER_EPOCH:
            if error and said is None:
                return self._complain(f"who is asked for the metadata is no controller: {error_name(error)}")
            return AfterAnswer.BACK_OFF if error else AfterAnswer.ASK
        if epoch > self.epoch or error in (Error.FENCED_LEADER_EPOCH, Error.NOT_LEADER_OR_FOLLOWER):
            self._check_consistent(leader_id, epoch)
            changed = epoch > self.epoch or (self.leader is None and leader_id != NO_LEADER)
            if changed:
                self._transition(epoch, leader_id, endpoints)
            return AfterAnswer.ASK if changed else AfterAnswer.BACK_OFF
        if leader_id != NO_LEADER and self.leader is None:
            self._transition(epoch, leader_id, endpoints)
            return None if not error else AfterAnswer.ASK
        self._check_consistent(leader_id, epoch)
        if error == Error.INVALID_REQUEST:
            raise BrokenInvariantError(
                "the controller says that what it was asked for the metadata makes no sense"
            )
        return None

    def _check_consistent(self, leader_id: int, epoch: int) -> None:
        known = self.leader
        if epoch == self.epoch and known is not None and leader_id not in (NO_LEADER, known.node_id):
            raise BrokenInvariantError(
                f"the controllers {known.node_id} and {leader_id} both say that they lead in epoch {epoch}"
            )

    def _transition(self, epoch: int, leader_id: int, endpoints: NodeEndpoints) -> None:
        """On the disk first: what was said in an epoch holds."""
        log.info("the metadata log is led by %s in epoch %d", "nobody" if leader_id < 0 else leader_id, epoch)
        state = self._metadata.quorum.encode_state(leader_id, epoch)
        if self._log.created:
            quorum_state.write_state(self._log.files, self._log.directory, state)
        self.epoch = epoch
        self._snapshot = None
        self.leader = None
        if leader_id != NO_LEADER:
            self.leader = self._endpoint_of(leader_id, endpoints)

    def _endpoint_of(self, leader_id: int, endpoints: NodeEndpoints) -> LeaderEndpoint:
        for endpoint in endpoints:
            if endpoint.node_id == leader_id:
                return LeaderEndpoint(leader_id, endpoint.host, endpoint.port)
        voters = self._metadata.quorum.voters
        for voter in () if voters is None else voters.voters:
            if voter.voter_id == leader_id and voter.endpoints:
                return LeaderEndpoint(leader_id, voter.endpoints[0].host, voter.endpoints[0].port)
        return LeaderEndpoint(leader_id)

    # --- the log --------------------------------------------------------------------------------------------

    def _fetched(self, found: PartitionData) -> AfterAnswer:
        if found.error_code:
            return self._complain(f"the metadata can't be fetched: {error_name(found.error_code)}")
        diverging, snapshot_id = found.diverging_epoch, found.snapshot_id
        if diverging is not None and diverging.epoch >= 0:
            self._truncate(diverging.epoch, diverging.end_offset)
        elif snapshot_id is not None and (snapshot_id.epoch >= 0 or snapshot_id.end_offset >= 0):
            if snapshot_id.epoch < 0 or snapshot_id.end_offset < 0:
                return self._odd(f"half an id of a snapshot: {snapshot_id}")
            if snapshot_id.end_offset < self._log.high_watermark:
                raise BrokenInvariantError(
                    f"the controller has but a snapshot of offset {snapshot_id.end_offset} of the metadata, which is "
                    f"committed up to {self._log.high_watermark}"
                )
            self._snapshot = _FetchedSnapshot(LocalSnapshotId(snapshot_id.epoch, snapshot_id.end_offset))
            log.info("the metadata begins with the snapshot %s, which is fetched", self._snapshot.id.name)
        else:
            if not self._append(found):
                return AfterAnswer.BACK_OFF
            self.high_watermark = max(
                self.high_watermark, min(found.high_watermark, self._log.log_end_offset)
            )
            if self.high_watermark >= 0:
                self._metadata.catch_up(self.high_watermark)
            self.complaint = ""
        return AfterAnswer.ASK

    def _append(self, found: PartitionData) -> bool:
        """Whether all of it makes sense; what comes before what doesn't is kept."""
        data = found.records
        if not data:
            return True
        assert isinstance(data, memoryview | bytes)
        try:
            append_as_follower(
                self._log, data, leader_epoch=self.epoch, now_ms=self._clock.now_ms(), has_gaps=False
            )
        except CorruptRecordError as error:
            self._complain(f"what was fetched of the metadata makes no sense: {error}")
            return False
        return True

    def _truncate(self, epoch: int, end_offset: int) -> None:
        """To where this log and the leader's part. Raises BrokenInvariantError below what is committed."""
        own_epoch, own_end = self._log.leader_epochs.end_offset_for(epoch, self._log.log_end_offset)
        if own_epoch < 0:
            own_end = self._log.log_end_offset
        offset = min(own_end, end_offset) if own_epoch == epoch else own_end
        if offset < self._log.high_watermark:
            raise BrokenInvariantError(
                f"the controller would have the metadata cut off at offset {offset}, and it is committed up to "
                f"{self._log.high_watermark}"
            )
        self._log.truncate_to(offset, self._clock.now_ms())
        log.info("the metadata log is cut off at offset %d, where the leader's is another", offset)

    # --- snapshots ------------------------------------------------------------------------------------------

    def _took_piece(self, piece: PartitionSnapshot) -> AfterAnswer | Later[AfterAnswer]:
        snapshot = self._snapshot
        if piece.error_code or snapshot is None:
            self._snapshot = None  # whether there is another one the next Fetch tells
            return self._complain(
                f"the snapshot of the metadata can't be fetched: {error_name(piece.error_code)}"
            )
        found = piece.snapshot_id
        is_ours = (found.epoch, found.end_offset) == (snapshot.id.epoch, snapshot.id.offset)
        is_next = piece.position == len(snapshot.data) and snapshot.size in (None, piece.size)
        if not is_ours or not is_next or piece.size > MOST_SNAPSHOT_BYTES:
            self._snapshot = None
            return self._odd(f"another piece of a snapshot: {found} at {piece.position} of {piece.size}")
        snapshot.size = piece.size
        snapshot.data += piece.unaligned_records or b""
        if len(snapshot.data) < piece.size:
            return AfterAnswer.ASK if piece.unaligned_records else AfterAnswer.BACK_OFF
        self._snapshot = None
        return begun(self._begin_with(snapshot.id, bytes(snapshot.data))).answer()

    async def _begin_with(self, snapshot_id: LocalSnapshotId, data: bytes) -> AfterAnswer:
        """Once the snapshot is on the disk the log begins anew behind it."""
        try:
            snapshot = await self._metadata.snapshots.take(snapshot_id, data)
        except (SnapshotError, CodecError) as error:
            return self._complain(f"a snapshot of the metadata makes no sense: {error}")
        if self._is_stopped:
            return AfterAnswer.BACK_OFF
        self._metadata.snapshots.begin_with(snapshot_id, self._clock.now_ms())
        self._metadata.take_over(snapshot)
        self.high_watermark = self._log.log_end_offset
        return AfterAnswer.ASK
