"""DeleteRecords (21), versions 0 to 2 (KIP-107): everything below an offset goes.

The log start moves at once, and that of the other replicas with what they fetch next, for which the answer waits: it
has the lowest of them. Segments go at the next retention run, and the offset is written down by the clock and
at shutdown (`log-start-offset-checkpoint`), as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.later import Later
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

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.network.context import RequestContext
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer

HIGH_WATERMARK = -1


def handle(
    partitions: Partitions,
    authorizer: Authorizer,
    scheduler: Scheduler,
    context: RequestContext,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse | Later[DeleteRecordsResponse]:
    wanted: dict[str, dict[int, int]] = {}  # of a partition that is named twice the last offset counts
    for topic in request.topics:
        offsets = wanted.setdefault(topic.name, {})
        offsets.update((partition.partition_index, partition.offset) for partition in topic.partitions)
    allowed = {
        name: authorizer.allows(context, Operation.DELETE, ResourceType.TOPIC, name) for name in wanted
    }
    response = DeleteRecordsResponse()
    awaited: list[AwaitedDeletion] = []
    for name, offsets in wanted.items():
        if not offsets:
            continue
        results = []
        for index, offset in offsets.items():
            result = DeleteRecordsPartitionResult(partition_index=index)
            try:
                if not allowed[name]:
                    raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
                deletion = _delete(partitions, name, index, offset, result)
                if deletion is not None:
                    awaited.append(deletion)
            except KafkaError as error:
                result.low_watermark, result.error_code = INVALID_LOW_WATERMARK, error.error
            results.append(result)
        response.topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    if not awaited:
        return response
    later: Later[DeleteRecordsResponse] = Later()
    delayed = DelayedDeleteRecords(awaited, lambda: later.reply(response))
    later.waits_for(delayed.abandon)
    delayed.start(scheduler, request.timeout_ms)
    return later


def _delete(
    partitions: Partitions, name: str, index: int, offset: int, result: DeleteRecordsPartitionResult
) -> AwaitedDeletion | None:
    """Whose result has the low watermark as it is; what is to be awaited, if anything. Raises KafkaError."""
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
    result.low_watermark = leader.low_watermark
    return AwaitedDeletion(partition.leader, offset, result) if result.low_watermark < offset else None
