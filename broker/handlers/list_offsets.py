"""ListOffsets (2), versions 1 to 11.

v2: isolation level; v4: leader epochs; v5: OFFSET_NOT_AVAILABLE (KIP-207); v7: the offset of the largest
timestamp (KIP-734); v8: the earliest local offset (KIP-405); v9: the last tiered offset (KIP-1005); v10: TimeoutMs,
for lookups in remote storage; v11: the earliest offset pending upload (KIP-1023). barnabas has no remote storage, so
nothing is tiered or pending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.replicas.fetching import CONSUMER, READ_COMMITTED, READ_UNCOMMITTED
from broker.replicas.leader import Leader
from broker.replicas.searches_by_time import MAX_TIMESTAMP, search_by_time
from broker.security.authorizer import DESCRIBE, TOPIC
from protocol.errors import Error, KafkaError
from protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.handlers.node_ports import ReplicaPorts
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6

# special timestamp → the first version that knows it
FIRST_VERSIONS = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}

DEBUGGER = -2  # the replica id of a tool, which any replica may answer

_NOTHING = (-1, -1, -1)


async def handle(
    node: ReplicaPorts,
    context: RequestContext,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse:
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED):
        return ListOffsetsResponse(topics=_refused(request.topics, Error.UNKNOWN_SERVER_ERROR))
    return await _answered(node.partitions, node.authorizer, node.turns, context, request)


async def _answered(
    partitions: Partitions,
    authorizer: Authorizer,
    turns: Turns,
    context: RequestContext,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse:
    version = context.api_version
    asked = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    denied: list[ListOffsetsTopic] = []
    topics: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    for topic in request.topics:
        if not authorizer.allows(context, DESCRIBE, TOPIC, topic.name):
            denied.append(topic)
            continue
        for wanted in topic.partitions:
            # Entries of one topic are merged, a partition has one answer, and a topic without any isn't listed.
            answers = topics.setdefault(topic.name, {})
            index = wanted.partition_index
            if index in answers:
                continue
            answer = answers[index] = ListOffsetsPartitionResponse(partition_index=index)
            if asked[topic.name, index] > 1:
                answer.error_code = Error.INVALID_REQUEST
                continue
            try:
                answer.timestamp, answer.offset, leader_epoch = await _look_up(
                    partitions, topic.name, wanted, version, request
                )
            except KafkaError as error:
                answer.error_code = error.error
            else:
                if version >= 4:
                    answer.leader_epoch = leader_epoch
            if turns.is_over:
                await turn()
    answered = [
        ListOffsetsTopicResponse(name=name, partitions=[*answers.values()])
        for name, answers in topics.items()
    ]
    if denied:
        answered += _refused(denied, Error.TOPIC_AUTHORIZATION_FAILED)
    return ListOffsetsResponse(topics=answered)


async def _look_up(
    partitions: Partitions,
    topic: str,
    wanted: ListOffsetsPartition,
    version: int,
    request: ListOffsetsRequest,
) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch), each −1 if there is none."""
    timestamp = wanted.timestamp
    if timestamp < 0 and not FIRST_VERSIONS.get(timestamp, version + 1) <= version:
        raise KafkaError(Error.UNSUPPORTED_VERSION)
    partition = partitions.get(topic, wanted.partition_index)
    partition.check_leader_epoch(wanted.current_leader_epoch)
    role = partition.role
    if isinstance(role, Leader):
        lags = request.replica_id == CONSUMER and role.high_watermark_lags
    elif request.replica_id != DEBUGGER:
        raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)
    else:
        lags = False
    log = partition.log
    if request.replica_id != CONSUMER:
        bound = log.log_end_offset
    elif request.isolation_level == READ_COMMITTED:
        bound = log.last_stable_offset
    else:
        bound = log.high_watermark
    if timestamp == LATEST_TIMESTAMP:
        if lags:
            raise _not_available(version)
        return -1, bound, partition.leader_epoch
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        epoch = log.leader_epochs.epoch_for(log.log_start_offset)
        return -1, log.log_start_offset, epoch
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return _NOTHING
    found = await search_by_time(log, timestamp)
    if found is None or found.offset >= bound:
        if lags:
            raise _not_available(version)
        return _NOTHING
    return found.timestamp_ms, found.offset, found.leader_epoch


def _not_available(version: int) -> KafkaError:
    """The error while the high watermark may lag: an earlier leader may have shown the consumer more. It asks again
    rather than go back."""
    return KafkaError(Error.OFFSET_NOT_AVAILABLE if version >= 5 else Error.LEADER_NOT_AVAILABLE)


def _refused(topics: Sequence[ListOffsetsTopic], error: Error) -> list[ListOffsetsTopicResponse]:
    return [
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=error)
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]
