"""DeleteRecords (21), versions 0 to 2 (KIP-107): deletes everything below an offset.

The leader's log start moves at once, and that of the other replicas with their next fetch. The answer waits for these,
and for a log on its way to another directory, and has the lowest of their log starts. The next retention run deletes
segments. The offset goes to the disk (`log-start-offset-checkpoint`) when the answer goes out, or a tenth of a second
later if there are many such requests. So deleted records don't come back if the broker is killed later. Kafka writes
it only by the clock and at shutdown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.turns import runs_to_its_end
from broker.replicas.leader import Leader
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
    from collections.abc import Callable

    from broker.handlers.node_ports import ReplicaPorts
    from broker.network.context import RequestContext
    from broker.replicas.partitions import Partitions
    from storage.directory.log_directory import LogDirectory

HIGH_WATERMARK = -1
INVALID_LOW_WATERMARK = -1


@runs_to_its_end
async def handle(
    node: ReplicaPorts, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    turns = node.turns

    # 1. The last offset counts if a partition is named twice.
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = wanted.setdefault(topic.name, {})
        offsets.update((partition.partition_index, partition.offset) for partition in topic.partitions)
        if turns.is_over:
            await turn()

    # 2. Move the log starts.
    response = DeleteRecordsResponse()
    awaited: list[AwaitedDeletion] = []
    directories: dict[LogDirectory, None] = {}
    for name, offsets in wanted.items():
        if not offsets:
            continue
        is_allowed = node.authorizer.allows(context, Operation.DELETE, ResourceType.TOPIC, name)
        results = []
        for index, offset in offsets.items():
            result = DeleteRecordsPartitionResult(partition_index=index)
            try:
                if not is_allowed:
                    raise KafkaError(Error.TOPIC_AUTHORIZATION_FAILED)
                directories[_delete(node.partitions, name, index, offset, result, awaited)] = None
            except KafkaError as error:
                result.low_watermark, result.error_code = INVALID_LOW_WATERMARK, error.error
            results.append(result)
            if turns.is_over:
                await turn()
        response.topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    for directory in directories:
        directory.log_start_moved()

    # 3. Wait until those of all replicas have moved: for all partitions together, however many.
    if awaited:
        await turns.all_done(awaited, request.timeout_ms, node.scheduler)
    return response


def _delete(
    partitions: Partitions,
    name: str,
    index: int,
    offset: int,
    result: DeleteRecordsPartitionResult,
    awaited: list[AwaitedDeletion],
) -> LogDirectory:
    """Move the log start. The result gets the present low watermark; `awaited` gets it too if it isn't there yet.

    Returns the directory of the log. Raises KafkaError."""
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
        awaited.append(AwaitedDeletion(partitions, name, offset, result))
    return partition.directory


class AwaitedDeletion:
    """One partition's part of a request (Kafka: `DelayedDeleteRecords`). Its records count as deleted once the other
    replicas, and a log on its way to another directory, begin at the offset."""

    __slots__ = ("_done", "_is_over", "_leader", "_name", "_offset", "_partitions", "_result")

    def __init__(
        self, partitions: Partitions, name: str, offset: int, result: DeleteRecordsPartitionResult
    ) -> None:
        self._partitions = partitions
        self._name = name
        self._offset = offset
        self._result = result
        self._leader: Leader | None = None
        self._is_over = False
        self._done: Callable[[], None] | None = None

    def start(self, done: Callable[[], None]) -> None:
        """See `Awaited`."""
        self._done = done
        if self._is_over:  # it expired before
            self._end()
            return
        partition = self._partitions.find(self._name, self._result.partition_index)
        if partition is not None and isinstance(partition.role, Leader):
            self._leader = partition.role
            self._leader.await_deletion(self.recheck)
        self.recheck()

    def recheck(self) -> None:
        """Called when a replica has reported its log start, or when another broker leads."""
        result = self._result
        try:
            low_watermark = self._partitions.get(self._name, result.partition_index).low_watermark
        except KafkaError as error:
            result.low_watermark, result.error_code = INVALID_LOW_WATERMARK, error.error
        else:
            if low_watermark < self._offset:
                return
            result.low_watermark = low_watermark
        self._end()

    def expire(self) -> None:
        """End with REQUEST_TIMED_OUT. The result keeps the low watermark that it had at first."""
        if not self._is_over:
            self._result.error_code = Error.REQUEST_TIMED_OUT
            self._end()

    def abandon(self) -> None:
        """See `Awaited`."""
        self._done = None
        if self._leader is not None:
            self._leader.end_deletion(self.recheck)

    def _end(self) -> None:
        self._is_over = True
        done = self._done
        self.abandon()
        if done is not None:
            done()
