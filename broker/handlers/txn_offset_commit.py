"""TxnOffsetCommit (28), versions 0 to 5: a group's offsets as part of a transaction. They count once it is committed.

v2: leader epochs; v3: flexible, and the member's identity (KIP-447); v4: TRANSACTION_ABORTABLE; v5: the partition of
the group's offsets is added to the transaction by this request (KIP-890, transactions version 2), where before
AddOffsetsToTxn had to.

Topics and partitions that don't exist are answered without asking any coordinator. Then the transaction's coordinator
has to know of the partition, and only then the group is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.verification import Operation, TransactionalProducer, add_or_verify
from coordinator.group.offsets.commit import Committer, NewOffset, OffsetProducer
from coordinator.ports import append_error
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.records.batch import NO_SEQUENCE
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.server import Server
    from storage.producers.announcements import Verification

LOADING_VERSION = 2  # clients before it don't know COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)


def handle(
    server: Server, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    image = server.metadata.image
    refused: dict[str, TxnOffsetCommitResponseTopic] = {}
    offsets: list[NewOffset] = []
    of_topics: list[tuple[str, list[int]]] = []
    for asked in request.topics:
        topic = image.topics.get(asked.name)
        known: list[int] = []
        for wanted in asked.partitions:
            index = wanted.partition_index
            if topic is None or index not in topic.partitions:
                answer = refused.setdefault(asked.name, TxnOffsetCommitResponseTopic(name=asked.name))
                answer.partitions.append(_partition(index, Error.UNKNOWN_TOPIC_OR_PARTITION))
                continue
            known.append(index)
            offsets.append(
                NewOffset(
                    asked.name,
                    ZERO_UUID,
                    index,
                    wanted.committed_offset,
                    wanted.committed_leader_epoch,
                    wanted.committed_metadata,
                )
            )
        if topic is None and not asked.partitions:
            refused.setdefault(asked.name, TxnOffsetCommitResponseTopic(name=asked.name))
        if known:
            of_topics.append((asked.name, known))
    response = TxnOffsetCommitResponse(topics=[*refused.values()])
    if offsets:
        errors = iter(_commit(server, context, request, offsets))
        for name, known in of_topics:
            partitions = [_partition(index, next(errors)) for index in known]
            found = refused.get(name)
            if found is not None:
                found.partitions += partitions
                continue
            answer = TxnOffsetCommitResponseTopic(name=name, partitions=partitions)
            response.topics.append(answer)
            if refused:  # as Kafka merges: only what it refused by itself brings topics together
                refused[name] = answer
    return response


def _partition(index: int, error: Error) -> TxnOffsetCommitResponsePartition:
    return TxnOffsetCommitResponsePartition(partition_index=index, error_code=error)


def _commit(
    server: Server, context: RequestContext, request: TxnOffsetCommitRequest, offsets: list[NewOffset]
) -> list[Error]:
    committer = Committer(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    try:
        if not request.group_id:
            raise KafkaError(Error.INVALID_GROUP_ID)
        guard = _verify(server, context.api_version, request)
        return server.groups.shard_of(request.group_id).commit_offsets_in_transaction(
            committer,
            offsets,
            OffsetProducer(request.producer_id, request.producer_epoch, guard),
        )
    except KafkaError as failure:
        error = failure.error
        if error is Error.COORDINATOR_LOAD_IN_PROGRESS and context.api_version < LOADING_VERSION:
            error = Error.COORDINATOR_NOT_AVAILABLE
        return [error] * len(offsets)


def _verify(server: Server, version: int, request: TxnOffsetCommitRequest) -> Verification | None:
    """The guard to show at the append. Raises KafkaError with what the client is told."""
    index = server.groups.partition_of(request.group_id)
    operation = Operation.of_txn_offset_commit(version)
    partition = server.partitions.find(OFFSETS_TOPIC, index)
    if partition is None:
        known = OFFSETS_TOPIC in server.metadata.image.topics
        raise KafkaError(Error.NOT_COORDINATOR if known else Error.COORDINATOR_NOT_AVAILABLE)
    producer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
    verified = add_or_verify(server, producer, {partition: NO_SEQUENCE}, operation)
    error = verified.errors.get(partition)
    if error is not None:
        raise KafkaError(append_error(error))
    return verified.guards.get(partition)
