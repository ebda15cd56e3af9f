"""Answers of the metadata log's leader: to fetches of the log and its snapshots, and to questions about the
quorum.

Nothing here waits. `Fetched.may_wait` is True if there is no news yet. Then the holder of the request asks
again once the log grows, more is committed, or its time is up. The quorum is the leader itself, the only
voter.

Source: `KafkaRaftClient` (handleFetchRequest, tryCompleteFetchRequest, handleFetchSnapshotRequest); KIP-595,
KIP-630.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.metadata_log import METADATA_TOPIC_ID
from broker.controller.observer import METADATA_TOPIC_NAME
from broker.controller.snapshots import BOOTSTRAP_ID
from broker.controller.snapshots import SnapshotId as LocalSnapshotId
from broker.environment.scheduler import TURN_S
from protocol.errors import Error, KafkaError
from protocol.messages.cluster_admin import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumReplica,
    QuorumTopic,
)
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
from protocol.waiting import Later, Pause, turn
from protocol.wire.primitives import uuid_to_text
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.observer import LeaderEndpoint
    from broker.environment.scheduler import Clock, Scheduled, Scheduler
    from protocol.messages.raft import AddRaftVoterRequest, RemoveRaftVoterRequest, Voter


MOST_ANSWER_BYTES = 8 * 1024 * 1024
"""The most bytes of records or of a snapshot in one answer. Kafka sends as much as the request asks for."""

SILENT_MS = 300_000
"""A replica that hasn't fetched for so long is forgotten (Kafka:
`LeaderState.OBSERVER_SESSION_TIMEOUT_MS`)."""

MOST_REPLICAS = 1_000
"""The most replicas to remember. With more, the one that was silent longest is forgotten. Kafka's leader
knows all."""


class Fetched(NamedTuple):
    """An answer. `may_wait` is True if a later one could say more."""

    response: FetchResponse
    may_wait: bool


@dataclass(slots=True)
class ReplicaProgress:
    """How far a replica has fetched the log (Kafka: `LeaderState.ReplicaState`)."""

    end_offset: int
    fetched_ms: int
    caught_up_ms: int
    leader_end_offset: int


class QuorumRequests:
    """One node's answers. After `lead` it answers as the log's leader; before that it refuses."""

    def __init__(self, metadata: MetadataLog, cluster_id: str) -> None:
        self._metadata = metadata
        self._log = metadata.log
        self._cluster_id = cluster_id
        self._leader: LeaderEndpoint | None = None
        self.replicas: dict[tuple[int, bytes], ReplicaProgress] = {}
        """The replicas that have fetched since this node leads, by node and directory id."""

    def lead(self, here: LeaderEndpoint) -> None:
        """Begin to lead. Others reach this node at `here`."""
        self._leader = here
        self.replicas.clear()

    # --- Fetch ----------------------------------------------------------------------------------------------

    def fetch(self, request: FetchRequest, now_ms: int) -> Fetched:
        """Answer an observer's fetch. `replica_state` identifies the observer."""
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
        """Answer a replica that is in this epoch."""
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
        """Return the newest snapshot if the log doesn't reach back to `offset`, or if a reader from the start
        is served faster by it. None otherwise."""
        ids = self._metadata.snapshots.ids
        if not ids:
            return None
        start_offset = self._log.log_start_offset
        if offset == 0 and (start_offset > 0 or ids[-1] != BOOTSTRAP_ID):
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
        """(epoch, end offset) of the largest epoch up to this one (Kafka:
        `KafkaRaftLog.endOffsetForEpoch`)."""
        found, end_offset = self._log.leader_epochs.end_offset_for(epoch, self._log.log_end_offset)
        if found >= 0:
            return found, end_offset
        return max(self._log.leader_epochs.latest, 0), self._log.log_end_offset

    def _note(self, request: FetchRequest, asked: FetchPartition, now_ms: int) -> None:
        """Note how far the replica is, by the offset that it asks for."""
        if request.replica_state is None or request.replica_state.replica_id < 0:
            return  # a reader without a node id, such as Kafka's tools
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
        """Return a piece of a snapshot. Raises OSError if it can't be read."""
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
        if snapshot_id not in snapshots.ids or snapshot_id == BOOTSTRAP_ID:
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

    # --- for both -------------------------------------------------------------------------------------------

    def _is_ours(self, cluster_id: str | None) -> bool:
        return cluster_id is None or cluster_id == self._cluster_id

    def _current_leader(self) -> tuple[int, int]:
        """(node id, epoch); the id is −1 unless this node leads."""
        here = self._here
        return -1 if here is None else here.node_id, self._metadata.epoch

    @property
    def _here(self) -> LeaderEndpoint | None:
        """This node's address, if it leads."""
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


# --- DescribeQuorum: the leader and the replicas that fetch its log -----------------------------------------
#
# Versions 0 to 2 (KIP-595). v1: timestamps (KIP-836); v2: directory ids, texts, and where the voters are (KIP-853).
# Source: `KafkaRaftClient.handleDescribeQuorumRequest`, `RaftUtil.singletonDescribeQuorumResponse`, `LeaderState`.

DIRECTORY_IDS_SINCE = NODES_SINCE = 2  # older versions can't hold these fields
UNKNOWN = -1


class QuorumOfOne(NamedTuple):
    """A quorum with this node as its only voter."""

    node_id: int
    metadata: MetadataLog
    replicas: Mapping[tuple[int, bytes], ReplicaProgress]
    """The replicas that have fetched since it leads, by node and directory id (`QuorumRequests.replicas`)."""
    listeners: Sequence[QuorumListener]
    """The node's configured addresses. If the log names the voter, its addresses in the log count instead."""


async def describe_quorum(
    quorum: QuorumOfOne, request: DescribeQuorumRequest, version: int, now_ms: int
) -> DescribeQuorumResponse:
    """Describe the quorum.

    Errors are in the partitions: UNKNOWN_TOPIC_OR_PARTITION unless the request is for exactly the metadata's
    partition, NOT_LEADER_OR_FOLLOWER if this node doesn't lead (the forwarding broker then asks another one).
    Observers are in the order of their first fetch; in Kafka, in the order of a hash of their ids.
    """
    pause = Pause()
    if not _asks_for_metadata(request):
        return await _unknown(request, pause)
    if not quorum.metadata.is_leader:
        return _of_metadata(
            QuorumPartition(
                error_code=Error.NOT_LEADER_OR_FOLLOWER,
                error_message="This node doesn't lead the metadata log.",
            )
        )
    voter = _voter_in_log(quorum)
    has_ids = version >= DIRECTORY_IDS_SINCE
    own_id = ZERO_UUID if voter is None else voter.voter_directory_id
    partition = QuorumPartition(
        error_message="",
        leader_id=quorum.node_id,
        leader_epoch=quorum.metadata.epoch,
        high_watermark=_high_watermark(quorum.metadata),
        current_voters=[
            QuorumReplica(
                replica_id=quorum.node_id,
                replica_directory_id=own_id if has_ids else ZERO_UUID,
                log_end_offset=quorum.metadata.log.log_end_offset,
                last_fetch_timestamp=now_ms,
                last_caught_up_timestamp=now_ms,
            )
        ],
    )
    for (node_id, directory_id), replica in [*quorum.replicas.items()]:
        if pause.is_due():
            await turn()
        is_observer = node_id >= 0 and node_id != quorum.node_id  # neither a consumer nor this node
        if is_observer and now_ms - replica.fetched_ms < SILENT_MS:
            partition.observers.append(
                QuorumReplica(
                    replica_id=node_id,
                    replica_directory_id=directory_id if has_ids else ZERO_UUID,
                    log_end_offset=replica.end_offset,
                    last_fetch_timestamp=replica.fetched_ms,
                    last_caught_up_timestamp=replica.caught_up_ms,
                )
            )
    response = _of_metadata(partition)
    if version >= NODES_SINCE:
        listeners = [*quorum.listeners]
        if voter is not None:
            listeners = [
                QuorumListener(name=each.name, host=each.host, port=each.port) for each in voter.endpoints
            ]
        response.nodes = [QuorumNode(node_id=quorum.node_id, listeners=listeners)]
    return response


def _asks_for_metadata(request: DescribeQuorumRequest) -> bool:
    """True if the request is for the metadata's partition and nothing else."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    (topic,) = request.topics
    return topic.topic_name == METADATA_TOPIC_NAME and topic.partitions[0].partition_index == 0


async def _unknown(request: DescribeQuorumRequest, pause: Pause) -> DescribeQuorumResponse:
    response = DescribeQuorumResponse(error_message="")
    for topic in request.topics:
        if pause.is_due():
            await turn()
        found = QuorumTopic(topic_name=topic.topic_name)
        response.topics.append(found)
        for partition in topic.partitions:
            if pause.is_due():
                await turn()
            found.partitions.append(
                QuorumPartition(
                    partition_index=partition.partition_index,
                    error_code=Error.UNKNOWN_TOPIC_OR_PARTITION,
                    error_message="This server does not host this topic-partition.",
                )
            )
    return response


def _of_metadata(partition: QuorumPartition) -> DescribeQuorumResponse:
    topic = QuorumTopic(topic_name=METADATA_TOPIC_NAME, partitions=[partition])
    return DescribeQuorumResponse(error_message="", topics=[topic])


def _voter_in_log(quorum: QuorumOfOne) -> Voter | None:
    """This node's entry among the voters that the log names (`kraft.version` 1)."""
    named = quorum.metadata.quorum.voters
    if named is None:
        return None
    return next((voter for voter in named.voters if voter.voter_id == quorum.node_id), None)


def _high_watermark(metadata: MetadataLog) -> int:
    """The high watermark. −1 until something of this epoch is committed: before that, the leader doesn't know
    how much is committed (KIP-595)."""
    high_watermark = metadata.log.high_watermark
    entries = metadata.log.leader_epochs.entries
    began = entries[-1][1] if entries else 0
    return high_watermark if high_watermark > began else UNKNOWN


# --- AddRaftVoter, RemoveRaftVoter: refused, since a quorum here has one voter ------------------------------
# The refusals are those of Kafka's leader of a quorum of one, where it has them. Source: `KafkaRaftClient`
# (handleAddVoterRequest, handleRemoveVoterRequest), `AddVoterHandler`, `RemoveVoterHandler`; KIP-853.


def refusal_to_add(
    metadata: MetadataLog, cluster_id: str, listener_name: str, request: AddRaftVoterRequest
) -> KafkaError:
    """Return the refusal. `listener_name` is the listener for connections between controllers."""
    refused = _not_asked_well(metadata, cluster_id, request, "Add")
    if refused is not None:
        return refused
    if all(each.name != listener_name for each in request.listeners):
        endpoints = ", ".join(f"{each.name}={each.host}:{each.port}" for each in request.listeners)
        return KafkaError(
            Error.INVALID_REQUEST,
            f"Add voter request didn't include the endpoint (Endpoints(endpoints={{{endpoints}}})) for the "
            f"default listener ListenerName({listener_name})",
        )
    refused = _not_dynamic(metadata, "adding")
    if refused is not None:
        return refused
    voters = _voters(metadata)
    if request.voter_id in [voter.voter_id for voter in voters]:
        return KafkaError(
            Error.DUPLICATE_VOTER,
            f"The voter id for {_key(request.voter_id, request.voter_directory_id)} is already part of the "
            f"set of voters {_keys(voters)}.",
        )
    return KafkaError(
        Error.UNSUPPORTED_VERSION, "The quorum of a cluster that barnabas controls has one voter."
    )


def refusal_to_remove(metadata: MetadataLog, cluster_id: str, request: RemoveRaftVoterRequest) -> KafkaError:
    """Return the refusal. The only voter can't be removed, in Kafka either."""
    refused = _not_asked_well(metadata, cluster_id, request, "Remove") or _not_dynamic(metadata, "removing")
    if refused is not None:
        return refused
    key = _key(request.voter_id, request.voter_directory_id)
    return KafkaError(
        Error.VOTER_NOT_FOUND, f"Cannot remove voter {key} from the set of voters {_keys(_voters(metadata))}"
    )


def _not_asked_well(
    metadata: MetadataLog, cluster_id: str, request: AddRaftVoterRequest | RemoveRaftVoterRequest, verb: str
) -> KafkaError | None:
    if request.cluster_id is not None and request.cluster_id != cluster_id:
        return KafkaError(
            Error.INCONSISTENT_CLUSTER_ID,
            f'The given id "{request.cluster_id}" doesn\'t match the cluster id "{cluster_id}"',
        )
    if not metadata.is_leader:
        return KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
    if request.voter_id < 0 or request.voter_directory_id == ZERO_UUID:
        return KafkaError(Error.INVALID_REQUEST, f"{verb} voter request didn't include a valid voter")
    return None


def _not_dynamic(metadata: MetadataLog, doing: str) -> KafkaError | None:
    if metadata.quorum.kraft_version > 0:
        return None
    return KafkaError(
        Error.UNSUPPORTED_VERSION,
        f"Cluster doesn't support {doing} voter because the kraft.version feature is 0",
    )


def _voters(metadata: MetadataLog) -> Collection[Voter]:
    named = metadata.quorum.voters
    return () if named is None else named.voters


def _keys(voters: Collection[Voter]) -> str:
    return f"[{', '.join(_key(voter.voter_id, voter.voter_directory_id) for voter in voters)}]"


def _key(voter_id: int, directory_id: bytes) -> str:
    return f"ReplicaKey(id={voter_id}, directoryId={uuid_to_text(directory_id)})"


# --------------------------------------------------------------------------------------------------------------
# Fetches of the metadata log that wait until there is more of it, or more of it is committed
# (`KafkaRaftClient`).

MOST_WAIT_MS = 30_000
"""The longest wait, whatever the request says. Kafka's observers ask for 500 ms. Kafka waits as long as a
request asks for."""


class _Waiting(NamedTuple):
    request: FetchRequest
    tells_endpoints: bool
    timer: Scheduled


class DelayedMetadataFetches:
    """The fetches that wait. Each is the only request of its connection and ends with it, so their number is
    bounded."""

    def __init__(self, quorum: QuorumRequests, clock: Clock, scheduler: Scheduler) -> None:
        self._quorum = quorum
        self._clock = clock
        self._scheduler = scheduler
        self._waiting: dict[Later[FetchResponse], _Waiting] = {}
        self._to_look_at: deque[Later[FetchResponse]] = deque()
        self._turn: Scheduled | None = None
        self._has_more = False  # the log grew during the walk

    def fetch(self, request: FetchRequest, *, tells_endpoints: bool) -> FetchResponse | Later[FetchResponse]:
        """Return the answer, at the latest after `max_wait_ms`. With `tells_endpoints` it includes the
        leader's address."""
        fetched = self._fetch(request, tells_endpoints)
        if not fetched.may_wait:
            return fetched.response
        later: Later[FetchResponse] = Later()
        wait_s = min(request.max_wait_ms, MOST_WAIT_MS) / 1000
        timer = self._scheduler.call_later(wait_s, self._answer_at_last, later)
        self._waiting[later] = _Waiting(request, tells_endpoints, timer)
        later.on_abandon = partial(self._forget, later)
        return later

    def progress(self) -> None:
        """Look at the waiting fetches in a later turn: the log has grown, or more of it is committed."""
        if not self._waiting:
            return
        if self._turn is None:
            self._to_look_at.extend(self._waiting)
            self._turn = self._scheduler.call_soon(self._look)
        else:
            self._has_more = True

    def stop(self) -> None:
        """Stop answering."""
        for waiting in self._waiting.values():
            waiting.timer.cancel()
        self._waiting.clear()
        self._to_look_at.clear()
        self._has_more = False
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def _look(self) -> None:
        """Look at the waiting fetches, in turns: each answer may read up to 8 MiB."""
        self._turn = None
        until_s = self._clock.monotonic_s() + TURN_S
        while self._to_look_at:
            if self._clock.monotonic_s() > until_s:
                self._turn = self._scheduler.call_soon(self._look)
                return
            later = self._to_look_at.popleft()
            waiting = self._waiting.get(later)
            if waiting is None:
                continue
            self._answer(later, waiting, at_last=False)
        if self._has_more:
            self._has_more = False
            self.progress()

    def _answer_at_last(self, later: Later[FetchResponse]) -> None:
        waiting = self._waiting.get(later)
        if waiting is not None:
            self._answer(later, waiting, at_last=True)

    def _answer(self, later: Later[FetchResponse], waiting: _Waiting, *, at_last: bool) -> None:
        try:
            fetched = self._fetch(waiting.request, waiting.tells_endpoints)
        except Exception as error:
            self._forget(later)
            later.fail(error)
            return
        if at_last or not fetched.may_wait:
            self._forget(later)
            later.reply(fetched.response)

    def _fetch(self, request: FetchRequest, tells_endpoints: bool) -> Fetched:
        fetched = self._quorum.fetch(request, self._clock.now_ms())
        if not tells_endpoints:
            fetched.response.node_endpoints = []
        return fetched

    def _forget(self, later: Later[FetchResponse]) -> None:
        waiting = self._waiting.pop(later, None)
        if waiting is not None:
            waiting.timer.cancel()
