"""TxnOffsetCommit (28), versions 0 to 6: a group's offsets as part of a transaction. They count once it is committed.

v2: leader epochs; v3: flexible, and the member's identity (KIP-447); v4: TRANSACTION_ABORTABLE; v5: the partition of
the group's offsets is added to the transaction by this request (KIP-890, transactions version 2), where before
AddOffsetsToTxn had to; v6: topic ids instead of names, GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319).

Topics and partitions that don't exist are answered without asking any coordinator. Then the transaction's coordinator
has to know of the partition, and only then the group is looked at.

The offsets of a request are one batch, as those of an OffsetCommit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.produce_verification import TransactionSupportedOperation
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import GROUP, READ, TOPIC, TRANSACTIONAL_ID, WRITE
from coordinator.group.offsets.commit import (
    STAGED_PER_TURN,
    TXN_TOPIC_ID_VERSION,
    Committer,
    NewOffset,
    OffsetProducer,
    StagedOffsets,
)
from coordinator.ports import append_error
from coordinator.transaction.producer_ids import TransactionalProducer
from protocol.errors import NO_ERROR, Error, KafkaError
from protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.records.batch import NO_SEQUENCE
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage, TopicImage
    from broker.coordination.groups import Groups
    from broker.coordination.produce_verification import AddPartitionsToTxnManager
    from broker.handlers.node_ports import BrokerPorts
    from broker.network.context import RequestContext
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer
    from coordinator.group.shard import GroupShard

LOADING_VERSION = 2  # clients before it don't know COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)


@runs_to_its_end
async def handle(
    node: BrokerPorts,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
) -> TxnOffsetCommitResponse:
    staged = StagedOffsets(
        request.group_id, node.clock.now_ms(), max_metadata=node.groups.max_offset_metadata
    )
    answer = _Answer(staged, by_id=context.api_version >= TXN_TOPIC_ID_VERSION)

    refused = _refused(node.authorizer, context, request)
    if refused:
        answer.await_all(request)
        return await answer.response(KafkaError(refused))
    await _checked(answer, node.metadata.image, node.authorizer, context, request)
    if not answer.awaited:
        return TxnOffsetCommitResponse.of(topics=answer.topics)
    found = await _written(
        answer.staged,
        node.metadata.image,
        node.partitions,
        node.groups,
        node.add_partitions_manager,
        context,
        request,
    )
    return await answer.response(found)


def _refused(authorizer: Authorizer, context: RequestContext, request: TxnOffsetCommitRequest) -> Error:
    """Why the whole of it is."""
    if not authorizer.allows(context, WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not authorizer.allows(context, READ, GROUP, request.group_id):
        return Error.GROUP_AUTHORIZATION_FAILED
    return NO_ERROR


async def _checked(
    answer: _Answer,
    image: ClusterImage,
    authorizer: Authorizer,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
) -> None:
    """What there is of topics and partitions is made ready to be written, the rest is refused."""
    pause = Pause(STAGED_PER_TURN)
    by_id = answer.by_id
    for asked in request.topics:
        topic = image.topics_by_id.get(asked.topic_id) if by_id else image.topics.get(asked.name)
        error = _error_of(asked, topic, authorizer, context, by_id=by_id)
        known: list[int] = []
        for wanted in asked.partitions:
            if pause.is_due():
                await turn()
            index = wanted.partition_index
            if error or topic is None:
                answer.refuse(asked, index, error)
            elif index not in topic.partitions:
                answer.refuse(asked, index, Error.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                known.append(index)
                answer.staged.add(
                    NewOffset(
                        topic=topic.name,
                        topic_id=topic.topic_id,
                        partition=index,
                        offset=wanted.committed_offset,
                        leader_epoch=wanted.committed_leader_epoch,
                        metadata=wanted.committed_metadata,
                    )
                )
        if known:
            answer.awaited.append((asked, known))


def _error_of(
    asked: TxnOffsetCommitRequestTopic,
    topic: TopicImage | None,
    authorizer: Authorizer,
    context: RequestContext,
    *,
    by_id: bool,
) -> Error:
    """What is wrong with the whole topic."""
    if topic is None and by_id:
        return Error.UNKNOWN_TOPIC_ID
    if not authorizer.allows(context, READ, TOPIC, asked.name if topic is None else topic.name):
        return Error.TOPIC_AUTHORIZATION_FAILED
    return NO_ERROR if topic is not None else Error.UNKNOWN_TOPIC_OR_PARTITION


async def _written(
    staged: StagedOffsets,
    image: ClusterImage,
    partitions: Partitions,
    groups: Groups,
    add_partitions_manager: AddPartitionsToTxnManager,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
) -> list[Error] | KafkaError:
    """Once the transaction's coordinator knows of the partition: each offset's error, or one for all of them."""
    if not request.group_id:
        return KafkaError(Error.INVALID_GROUP_ID)
    partition = partitions.find(OFFSETS_TOPIC, groups.partition_of(request.group_id))
    if partition is None:
        is_known = OFFSETS_TOPIC in image.topics
        return KafkaError(Error.NOT_COORDINATOR if is_known else Error.COORDINATOR_NOT_AVAILABLE)
    producer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
    operation = TransactionSupportedOperation.of_txn_offset_commit(context.api_version)
    verified = await add_partitions_manager.added_or_verified(producer, {partition: NO_SEQUENCE}, operation)
    error = verified.errors.get(partition)
    if error is not None:
        return _as_known(context, KafkaError(append_error(error)))
    committer = Committer(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
    )
    by = OffsetProducer(request.producer_id, request.producer_epoch, verified.guards.get(partition))

    def question(shard: GroupShard) -> list[Error]:
        return shard.commit_offsets_in_transaction(committer, staged, by, api_version=context.api_version)

    found = await groups.ask(request.group_id, question)
    return _as_known(context, found)


def _as_known(context: RequestContext, found: list[Error] | KafkaError) -> list[Error] | KafkaError:
    """By clients of this version."""
    if not isinstance(found, KafkaError) or found.error is not Error.COORDINATOR_LOAD_IN_PROGRESS:
        return found
    return found if context.api_version >= LOADING_VERSION else KafkaError(Error.COORDINATOR_NOT_AVAILABLE)


class _Answer:
    """The answer as it grows: what is refused at once, and what the group has to be asked for.

    Kafka puts what it refuses by itself together by topic and merges the coordinator's answer into that; where it
    refuses nothing, the coordinator's answer goes out as it is, a topic that was named twice in it twice.
    """

    def __init__(self, staged: StagedOffsets, *, by_id: bool) -> None:
        self.staged = staged
        self.by_id = by_id
        self.topics: list[TxnOffsetCommitResponseTopic] = []
        self.awaited: list[tuple[TxnOffsetCommitRequestTopic, list[int]]] = []
        """The partitions that the group is asked for, by topic."""
        self._found: dict[str | bytes, TxnOffsetCommitResponseTopic] = {}

    def refuse(self, asked: TxnOffsetCommitRequestTopic, index: int, error: Error) -> None:
        topic = self._found.get(self._key(asked))
        if topic is None:
            topic = TxnOffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id)
            self._found[self._key(asked)] = topic
            self.topics.append(topic)
        topic.partitions.append(_partition(index, error))

    def await_all(self, request: TxnOffsetCommitRequest) -> None:
        self.awaited = [
            (asked, [each.partition_index for each in asked.partitions]) for asked in request.topics
        ]

    async def response(self, found: Sequence[Error] | KafkaError) -> TxnOffsetCommitResponse:
        """With the group's answer: an error for each of `awaited`, or one for all."""
        errors = repeat(found.error) if isinstance(found, KafkaError) else iter(found)
        pause = Pause(STAGED_PER_TURN)
        for asked, indexes in self.awaited:
            partitions = self._partitions(asked)
            for index in indexes:
                partitions.append(_partition(index, next(errors)))
                if pause.is_due():
                    await turn()
        return TxnOffsetCommitResponse.of(topics=self.topics)

    def _partitions(self, asked: TxnOffsetCommitRequestTopic) -> list[TxnOffsetCommitResponsePartition]:
        """Where those of a topic are answered."""
        topic = self._found.get(self._key(asked)) if self._found else None
        if topic is None:
            topic = TxnOffsetCommitResponseTopic.of(name=asked.name, topic_id=asked.topic_id, partitions=[])
            self.topics.append(topic)
            if self._found:
                self._found[self._key(asked)] = topic
        return topic.partitions

    def _key(self, asked: TxnOffsetCommitRequestTopic) -> str | bytes:
        return asked.topic_id if self.by_id else asked.name


def _partition(index: int, error: Error) -> TxnOffsetCommitResponsePartition:
    return TxnOffsetCommitResponsePartition.of(partition_index=index, error_code=error)
