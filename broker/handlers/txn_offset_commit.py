"""TxnOffsetCommit (28), versions 0 to 6: a group's offsets as part of a transaction. They count once it is committed.

v2: leader epochs; v3: flexible, and the member's identity (KIP-447); v4: TRANSACTION_ABORTABLE; v5: this request adds
the partition of the group's offsets to the transaction (KIP-890, transactions version 2), as AddOffsetsToTxn does for
older versions; v6: topic ids instead of names, GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319).

No coordinator is asked about topics and partitions that don't exist. For the rest, the transaction's coordinator has to
know the partition of the offsets; only then the group is checked.

All offsets of a request are one batch, as those of an OffsetCommit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.produce_verification import TransactionSupportedOperation
from broker.handlers.offset_commit import CommitAnswer
from broker.network.turns import runs_to_its_end
from broker.security.authorizer import GROUP, READ, TRANSACTIONAL_ID, WRITE
from coordinator.group.offsets.commit import (
    TXN_TOPIC_ID_VERSION,
    Committer,
    OffsetProducer,
    StagedOffsets,
)
from coordinator.ports import append_error
from coordinator.transaction.producer_ids import TransactionalProducer
from protocol.errors import NO_ERROR, Error, KafkaError
from protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.records.batch import NO_SEQUENCE

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
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
    answer = CommitAnswer(
        staged,
        TxnOffsetCommitResponse,
        TxnOffsetCommitResponseTopic,
        TxnOffsetCommitResponsePartition,
        by_id=context.api_version >= TXN_TOPIC_ID_VERSION,
    )
    refused = _refused(node.authorizer, context, request)
    if refused:
        return await answer.refused(request, refused)
    await answer.check(request, node.metadata.image, node.authorizer, context)
    if not answer.awaited:
        return await answer.response(())
    found = await _written(
        staged,
        node.metadata.image,
        node.partitions,
        node.groups,
        node.add_partitions_manager,
        context,
        request,
    )
    return await answer.response(found)


def _refused(authorizer: Authorizer, context: RequestContext, request: TxnOffsetCommitRequest) -> Error:
    """The error that refuses the whole request, or NO_ERROR."""
    if not authorizer.allows(context, WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not authorizer.allows(context, READ, GROUP, request.group_id):
        return Error.GROUP_AUTHORIZATION_FAILED
    return NO_ERROR


async def _written(
    staged: StagedOffsets,
    image: ClusterImage,
    partitions: Partitions,
    groups: Groups,
    add_partitions_manager: AddPartitionsToTxnManager,
    context: RequestContext,
    request: TxnOffsetCommitRequest,
) -> list[Error] | KafkaError:
    """Write the offsets once the transaction's coordinator knows the partition.

    Returns each offset's error, or one for all of them."""
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
    """The result with an error that clients of this version know."""
    if not isinstance(found, KafkaError) or found.error is not Error.COORDINATOR_LOAD_IN_PROGRESS:
        return found
    return found if context.api_version >= LOADING_VERSION else KafkaError(Error.COORDINATOR_NOT_AVAILABLE)
