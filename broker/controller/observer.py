"""Following the metadata log on a node that doesn't lead it: requests, and the handling of answers.

    request = observer.request()
    then = observer.answered(answer)

An observer fetches the log unchanged, with offsets and epochs. It cuts off what the leader doesn't have. If
the leader no longer has the start of the log, it begins anew with a snapshot. `MetadataLog.catch_up` applies
what is committed.

Source: `KafkaRaftClient` for a replica that isn't a voter, unattached or a follower; KIP-595, KIP-630.
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
"""How much of the log to fetch at a time. One turn of the loop applies all that an answer commits, in some
15 ms. (Kafka fetches 1 MiB, `controller.quorum.fetch.max.bytes`, and has a thread for it.)"""
SNAPSHOT_PIECE_BYTES = 1024 * 1024  # `controller.quorum.fetch.snapshot.max.bytes`
MOST_SNAPSHOT_BYTES = 1024 * 1024 * 1024
"""A snapshot that claims to be larger isn't fetched. Kafka has no limit, since it fetches into a file."""

NodeEndpoints = Sequence[NodeEndpoint | QuorumNodeEndpoint]

NO_HIGH_WATERMARK = -1


class AfterAnswer(Enum):
    """What to do after an answer."""

    ASK = "send the next request at once"
    BACK_OFF = "send the next one after a while, perhaps to another node"


@dataclass(frozen=True, slots=True)
class ObserverIdentity:
    """The node that asks."""

    node_id: int
    cluster_id: str
    directory_id: bytes
    """The id of the metadata's directory."""


@dataclass(frozen=True, slots=True)
class LeaderEndpoint:
    """The leader's address. `host` is empty if it isn't known."""

    node_id: int
    host: str = ""
    port: int = 0


class _FetchedSnapshot:
    """A snapshot that is being fetched."""

    __slots__ = ("data", "id", "size")

    def __init__(self, snapshot_id: LocalSnapshotId) -> None:
        self.id = snapshot_id
        self.data = bytearray()
        self.size: int | None = None  # from the first piece


class Observer:
    """Follows a log that was not replayed as a voter's. `MetadataFetcher` in `broker/peers/joined_cluster.py` drives
    it, with one request in flight at a time."""

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
        """The leader's high watermark, as far as this run has heard of it."""
        self._snapshot: _FetchedSnapshot | None = None
        self.complaint = ""
        """The last problem with the leader's answers. Empty once an answer is good."""
        self.is_leader_lost = False
        """True if the leader can't be reached at its last address."""
        self._is_stopped = False

    @property
    def has_caught_up(self) -> bool:
        """True if everything is applied that was committed when the leader last answered."""
        return 0 <= self.high_watermark <= self._metadata.last_applied_offset + 1

    # --- asking ---------------------------------------------------------------------------------------------

    def request(self) -> FetchRequest | FetchSnapshotRequest:
        """Return the next request."""
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
        """The epoch of the last record, or of the snapshot at the log's start. 0 if there is neither."""
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
        """Handle an answer. Returns a Later if a snapshot has to be written first.

        Raises BrokenInvariantError if the log can't go on: the leader lacks what it reported as committed, or
        the leader changed within an epoch. Raises as `MetadataLog.catch_up`; KafkaError, OSError if the disk
        fails.
        """
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
        """Note that the leader can't be reached, so that other nodes are asked for its address. It still
        counts as the leader."""
        self.is_leader_lost = True

    def stop(self) -> None:
        """Stop: whatever is being written is abandoned."""
        self._is_stopped = True

    def _refused(self, error_code: int) -> str:
        if error_code == Error.INCONSISTENT_CLUSTER_ID:
            return (
                f"the controller belongs to another cluster than {self._identity.cluster_id}, the cluster id of "
                "the log directories here: INCONSISTENT_CLUSTER_ID"
            )
        return f"the controller refuses to send the metadata: {error_name(error_code)}"

    def _odd(self, what: str) -> AfterAnswer:
        return self._complain(f"the controller's answer has {what}")

    def _complain(self, what: str) -> AfterAnswer:
        """Log a problem once, until a different one comes: the next request goes within milliseconds."""
        if what != self.complaint:
            self.complaint = what
            log.warning("%s", what)
        return AfterAnswer.BACK_OFF

    def _follow(
        self, found: PartitionData | PartitionSnapshot, endpoints: NodeEndpoints
    ) -> AfterAnswer | None:
        """Learn from an answer who leads. Returns None if the answer is good and has content."""
        self.is_leader_lost = False
        said = found.current_leader
        leader_id = NO_LEADER if said is None else said.leader_id
        epoch = -1 if said is None else said.leader_epoch
        if leader_id == self._identity.node_id:
            raise BrokenInvariantError(
                f"the controller has the same node.id={leader_id} as this broker, which needs another one"
            )
        error = found.error_code
        if epoch < self.epoch or error == Error.UNKNOWN_LEADER_EPOCH:
            if error and said is None:
                return self._complain(
                    f"the node asked for the metadata isn't a controller: {error_name(error)}"
                )
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
            raise BrokenInvariantError("the controller rejects the request for the metadata as invalid")
        return None

    def _check_consistent(self, leader_id: int, epoch: int) -> None:
        known = self.leader
        if epoch == self.epoch and known is not None and leader_id not in (NO_LEADER, known.node_id):
            raise BrokenInvariantError(
                f"the controllers {known.node_id} and {leader_id} both say that they lead in epoch {epoch}"
            )

    def _transition(self, epoch: int, leader_id: int, endpoints: NodeEndpoints) -> None:
        """Note the new epoch and leader. The disk comes first: what was said in an epoch holds."""
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
            return self._complain(f"can't fetch the metadata: {error_name(found.error_code)}")
        diverging, snapshot_id = found.diverging_epoch, found.snapshot_id
        if diverging is not None and diverging.epoch >= 0:
            self._truncate(diverging.epoch, diverging.end_offset)
        elif snapshot_id is not None and (snapshot_id.epoch >= 0 or snapshot_id.end_offset >= 0):
            if snapshot_id.epoch < 0 or snapshot_id.end_offset < 0:
                return self._odd(f"half an id of a snapshot: {snapshot_id}")
            if snapshot_id.end_offset < self._log.high_watermark:
                raise BrokenInvariantError(
                    f"the controller only has a snapshot of the metadata up to offset {snapshot_id.end_offset}, but "
                    f"it is committed up to {self._log.high_watermark}"
                )
            self._snapshot = _FetchedSnapshot(LocalSnapshotId(snapshot_id.epoch, snapshot_id.end_offset))
            log.info("the metadata begins with the snapshot %s: fetching it", self._snapshot.id.name)
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
        """Append what was fetched. Returns False if part of it is corrupt; the batches before that are
        kept."""
        data = found.records
        if not data:
            return True
        assert isinstance(data, memoryview | bytes)
        try:
            append_as_follower(
                self._log, data, leader_epoch=self.epoch, now_ms=self._clock.now_ms(), has_gaps=False
            )
        except CorruptRecordError as error:
            self._complain(f"the fetched metadata is corrupt: {error}")
            return False
        return True

    def _truncate(self, epoch: int, end_offset: int) -> None:
        """Truncate to where this log and the leader's diverge. Raises BrokenInvariantError if that is below
        the high watermark."""
        own_epoch, own_end = self._log.leader_epochs.end_offset_for(epoch, self._log.log_end_offset)
        if own_epoch < 0:
            own_end = self._log.log_end_offset
        offset = min(own_end, end_offset) if own_epoch == epoch else own_end
        if offset < self._log.high_watermark:
            raise BrokenInvariantError(
                f"the controller wants the metadata truncated to offset {offset}, but it is committed up to "
                f"{self._log.high_watermark}"
            )
        self._log.truncate_to(offset, self._clock.now_ms())
        log.info("truncated the metadata log to offset %d, where it diverges from the leader's", offset)

    # --- snapshots ------------------------------------------------------------------------------------------

    def _took_piece(self, piece: PartitionSnapshot) -> AfterAnswer | Later[AfterAnswer]:
        snapshot = self._snapshot
        if piece.error_code or snapshot is None:
            self._snapshot = None  # the next Fetch tells whether there is another one
            return self._complain(f"can't fetch the snapshot of the metadata: {error_name(piece.error_code)}")
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
        """Write the snapshot to the disk, then begin the log anew behind it."""
        try:
            snapshot = await self._metadata.snapshots.take(snapshot_id, data)
        except (SnapshotError, CodecError) as error:
            return self._complain(f"the snapshot of the metadata is corrupt: {error}")
        if self._is_stopped:
            return AfterAnswer.BACK_OFF
        self._metadata.snapshots.begin_with(snapshot_id, self._clock.now_ms())
        self._metadata.take_over(snapshot)
        self.high_watermark = self._log.log_end_offset
        return AfterAnswer.ASK
