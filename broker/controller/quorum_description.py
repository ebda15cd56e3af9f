"""What the leader of the metadata log says of its quorum, which is itself, and of those that fetch the log from it.

DescribeQuorum, versions 0 to 2 (KIP-595). v1: timestamps (KIP-836); v2: directory ids, texts, and where the voters are
(KIP-853).
Source: `KafkaRaftClient.handleDescribeQuorumRequest`, `RaftUtil.singletonDescribeQuorumResponse`, `LeaderState`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.observer import METADATA_TOPIC_NAME
from broker.controller.pause import Pause
from broker.controller.quorum_requests import SILENT_MS, ReplicaProgress
from protocol.errors import Error
from protocol.messages.cluster_admin import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumReplica,
    QuorumTopic,
)
from protocol.waiting import turn
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from protocol.messages.raft import Voter

DIRECTORY_IDS_SINCE = NODES_SINCE = 2  # versions; what an older one can't say is left out
UNKNOWN = -1


class QuorumOfOne(NamedTuple):
    """This node, as the only voter."""

    node_id: int
    metadata: MetadataLog
    replicas: Mapping[tuple[int, bytes], ReplicaProgress]
    """Those that have fetched since it leads, by node and directory id (`QuorumRequests.replicas`)."""
    listeners: Sequence[QuorumListener]
    """Where it is to be reached by what is configured. A voter that the log names is where the log says."""


async def describe_quorum(
    quorum: QuorumOfOne, request: DescribeQuorumRequest, version: int, now_ms: int
) -> DescribeQuorumResponse:
    """The errors stand with the partitions: UNKNOWN_TOPIC_OR_PARTITION unless the metadata's partition alone is asked
    for, NOT_LEADER_OR_FOLLOWER where this node doesn't lead (the forwarding broker asks another one then).

    Observers come in the order in which they fetched first; in Kafka by a hash of their ids.
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
    """And for nothing else."""
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
    """Its entry among the voters that the log names (`kraft.version` 1)."""
    named = quorum.metadata.quorum.voters
    if named is None:
        return None
    return next((voter for voter in named.voters if voter.voter_id == quorum.node_id), None)


def _high_watermark(metadata: MetadataLog) -> int:
    """−1 until something of this epoch is committed: what was committed before it isn't known by that (KIP-595)."""
    high_watermark = metadata.log.high_watermark
    entries = metadata.log.leader_epochs.entries
    began = entries[-1][1] if entries else 0
    return high_watermark if high_watermark > began else UNKNOWN
