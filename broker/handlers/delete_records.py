"""DeleteRecords (21), versions 0 to 2 (KIP-107): everything below an offset goes.

The log start moves at once, and that of the other replicas with what they fetch next, for which the answer waits: it
has the lowest of them; a log on its way to another directory is one. Segments go at the next retention run. The offset
is on its way to the disk (`log-start-offset-checkpoint`) as the answer is, or a tenth of a second later where there are
many such requests, so that what was deleted doesn't come back with a broker that is killed later. Kafka writes it by
the clock and at shutdown alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.later import Later
from broker.network.turns import runs_to_its_end
from broker.replicas.delayed_delete_records import (
    INVALID_LOW_WATERMARK,
    AwaitedDeletion,
    DelayedDeleteRecords,
)
from broker.security.authorizer import Operation, ResourceType
from protocol.errors import Error, KafkaError
from protocol.messages.topics import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.handlers.node_ports import ReplicaPorts
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer
    from storage.directory.log_directory import LogDirectory

HIGH_WATERMARK = -1


@runs_to_its_end
async def handle(
    node: ReplicaPorts,
    context: RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse:
    steps = _deleted(node.partitions, node.authorizer, node.scheduler, node.turns, context, request)
    return await steps


async def _deleted(
    partitions: Partitions,
    authorizer: Authorizer,
    scheduler: Scheduler,
    turns: Turns,
    context: RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse:
    """However many there are, they are waited for together."""
    wanted: dict[str, dict[int, int]] = {}  # of a partition that is named twice the last offset counts
    for topic in request.topics:
        offsets = wanted.setdefault(topic.name, {})
        offsets.update((partition.partition_index, partition.offset) for partition in topic.partitions)
        if turns.is_over:
            await turn()
    response = DeleteRecordsResponse()
    delayed = DelayedDeleteRecords()
    directories: dict[LogDirectory, None] = {}
    for name, offsets in wanted.items():
        if not offsets:
            continue
        is_allowed = authorizer.allows(context, Operation.DELETE, ResourceType.TOPIC, name)
        results = []
        for index, offset in offsets.items():
            result = DeleteRecordsPartitionResult(partition_index=index)
            try:
                if not is_allowed:
                    raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
                directories[_delete(partitions, name, index, offset, result, delayed)] = None
            except KafkaError as error:
                result.low_watermark, result.error_code = INVALID_LOW_WATERMARK, error.error
            results.append(result)
            if turns.is_over:
                await turn()
        response.topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    for directory in directories:
        directory.log_start_moved()
    later: Later[None] = Later()
    later.waits_for(delayed.abandon)
    delayed.start(scheduler, request.timeout_ms, lambda: later.reply(None))
    await later
    return response


def _delete(
    partitions: Partitions,
    name: str,
    index: int,
    offset: int,
    result: DeleteRecordsPartitionResult,
    delayed: DelayedDeleteRecords,
) -> LogDirectory:
    """The result has the low watermark as it is; where that is to come, it is waited for. Returns where the log is.
    Raises KafkaError."""
    partition = partitions.get(name, index)
    if partition.topic.is_internal:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION)
    leader = partition.leader()
    policy = partition.topic.config.cleanup_policy
    if policy and "delete" not in policy:
        raise KafkaError(Error.POLICY_VIOLATION)
    if offset == HIGH_WATERMARK:
        offset = leader.log.high_watermark
    leader.log.delete_records_before(offset)
    result.low_watermark = partition.low_watermark
    if result.low_watermark < offset:
        delayed.add(AwaitedDeletion(lambda: partitions.get(name, index), offset, result))
    return partition.directory
