"""TxnOffsetCommit (28), versions 0 to 5: a group's offsets as part of a transaction. They count once it is committed.

v2: leader epochs; v3: flexible, and the member's identity (KIP-447); v4: TRANSACTION_ABORTABLE; v5: the partition of
the group's offsets is added to the transaction by this request (KIP-890, transactions version 2), where before
AddOffsetsToTxn had to.

Topics and partitions that don't exist are answered without asking any coordinator. Then the transaction's coordinator
has to know of the partition, and only then the group is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.coordination.add_partitions_to_txn_manager import TransactionSupportedOperation, Verified
from broker.coordination.groups import OFFSETS_TOPIC
from broker.network.later import Later
from broker.security.authorizer import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from coordinator.group.offsets.commit import Committer, NewOffset, OffsetProducer
from coordinator.ports import append_error
from coordinator.transaction.transactional_producer import TransactionalProducer
from protocol.errors import Error, KafkaError
from protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.records.batch import NO_SEQUENCE
from protocol.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from broker.controller.image import TopicImage
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.add_partitions_to_txn_manager import AddPartitionsToTxnManager
    from broker.coordination.groups import Groups
    from broker.network.context import RequestContext
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer

LOADING_VERSION = 2  # clients before it don't know COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)


def handle(
    metadata: MetadataLog,
    partitions: Partitions,
    groups: Groups,
    add_partitions_manager: AddPartitionsToTxnManager,
    authorizer: Authorizer,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse | Later[TxnOffsetCommitResponse]:
    resource = (TRANSACTIONAL_ID, request.transactional_id)
    if not authorizer.allows(context, WRITE, *resource):
        return _fail_all(request, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not authorizer.allows(context, READ, GROUP, request.group_id):
        return _fail_all(request, Error.GROUP_AUTHORIZATION_FAILED)
    topics = metadata.image.topics
    answer = _Answer()
    for asked in request.topics:
        if not authorizer.allows(context, READ, TOPIC, asked.name):
            answer.refuse(asked, Error.TOPIC_AUTHORIZATION_FAILED)
        elif asked.name not in topics:
            answer.refuse(asked, Error.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            answer.add(asked, topics[asked.name])
    if not answer.offsets:
        return answer.response([])

    def refused(error: Error) -> TxnOffsetCommitResponse:
        if error is Error.COORDINATOR_LOAD_IN_PROGRESS and context.api_version < LOADING_VERSION:
            error = Error.COORDINATOR_NOT_AVAILABLE
        return answer.response([error] * len(answer.offsets))

    if not request.group_id:
        return refused(Error.INVALID_GROUP_ID)
    partition = partitions.find(OFFSETS_TOPIC, groups.partition_of(request.group_id))
    if partition is None:
        is_known = OFFSETS_TOPIC in topics
        return refused(Error.NOT_COORDINATOR if is_known else Error.COORDINATOR_NOT_AVAILABLE)
    later: Later[TxnOffsetCommitResponse] = Later()

    def commit(verified: Verified) -> None:
        error = verified.errors.get(partition)
        if error is not None:
            later.reply(refused(append_error(error)))
            return
        committer = Committer(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
        producer = OffsetProducer(request.producer_id, request.producer_epoch, verified.guards.get(partition))
        try:
            shard = groups.shard_of(request.group_id)
        except KafkaError as failure:
            reply(failure.as_value())
        else:
            shard.ask(lambda it: it.commit_offsets_in_transaction(committer, answer.offsets, producer), reply)

    def reply(errors: list[Error] | KafkaError) -> None:
        later.reply(refused(errors.error) if isinstance(errors, KafkaError) else answer.response(errors))

    producer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
    operation = TransactionSupportedOperation.of_txn_offset_commit(context.api_version)
    add_partitions_manager.add_or_verify(producer, {partition: NO_SEQUENCE}, operation, commit)
    return later.answer()


class _Answer:
    """The answer as it grows: what is refused at once, and what the group has to be asked for.

    Kafka puts what it refuses by itself together by topic and merges the coordinator's answer into that; where it
    refuses nothing, the coordinator's answer goes out as it is, a topic that was named twice in it twice.
    """

    def __init__(self) -> None:
        self.offsets: list[NewOffset] = []
        self._refused: dict[str, TxnOffsetCommitResponseTopic] = {}
        self._asked: list[tuple[str, list[int]]] = []

    def refuse(self, asked: TxnOffsetCommitRequestTopic, error: Error) -> None:
        """The whole topic."""
        partitions = self._refused_of(asked.name).partitions
        partitions += [_partition(wanted.partition_index, error) for wanted in asked.partitions]

    def add(self, asked: TxnOffsetCommitRequestTopic, topic: TopicImage) -> None:
        """Ask the group for the partitions that there are."""
        known: list[int] = []
        for wanted in asked.partitions:
            index = wanted.partition_index
            if index not in topic.partitions:
                unknown = _partition(index, Error.UNKNOWN_TOPIC_OR_PARTITION)
                self._refused_of(asked.name).partitions.append(unknown)
                continue
            known.append(index)
            self.offsets.append(
                NewOffset(
                    topic=asked.name,
                    topic_id=ZERO_UUID,
                    partition=index,
                    offset=wanted.committed_offset,
                    leader_epoch=wanted.committed_leader_epoch,
                    metadata=wanted.committed_metadata,
                )
            )
        if known:
            self._asked.append((asked.name, known))

    def response(self, errors: Iterable[Error]) -> TxnOffsetCommitResponse:
        """`errors` of the offsets that the group was asked for."""
        response = TxnOffsetCommitResponse.of(topics=[*self._refused.values()])
        found = iter(errors)
        for name, known in self._asked:
            partitions = [_partition(index, next(found)) for index in known]
            refused = self._refused.get(name)
            if refused is not None:
                refused.partitions += partitions
                continue
            topic = TxnOffsetCommitResponseTopic.of(name=name, partitions=partitions)
            response.topics.append(topic)
            if self._refused:
                self._refused[name] = topic
        return response

    def _refused_of(self, name: str) -> TxnOffsetCommitResponseTopic:
        return self._refused.setdefault(name, TxnOffsetCommitResponseTopic(name=name))


def _fail_all(request: TxnOffsetCommitRequest, error: Error) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=asked.name,
                partitions=[_partition(wanted.partition_index, error) for wanted in asked.partitions],
            )
            for asked in request.topics
        ]
    )


def _partition(index: int, error: Error) -> TxnOffsetCommitResponsePartition:
    return TxnOffsetCommitResponsePartition.of(partition_index=index, error_code=error)
