"""InitProducerId (22), versions 0 to 5 (KIP-98).

v3: the id and epoch that a producer has (KIP-360); v4: PRODUCER_FENCED. v6 (KIP-939) is unstable in Kafka 4.3 and not
served: its connection is closed, as Kafka without unstable versions does.

Without a transactional id anybody is given a fresh producer id. With one the transaction's coordinator fences whoever
had it before, aborts what that one left open, and answers CONCURRENT_TRANSACTIONS until this is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.fencing import as_known
from broker.network.later import Later
from broker.security.authorizer import CLUSTER, CLUSTER_NAME, IDEMPOTENT_WRITE, TOPIC, TRANSACTIONAL_ID, WRITE
from coordinator.transaction.transaction_metadata import ProducerIdAndEpoch
from coordinator.transaction.transactional_producer import TransactionalProducer
from protocol.errors import NO_ERROR, Error, KafkaError
from protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from broker.coordination.transactions import Transactions
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer
    from coordinator.transaction.producer_ids import ProducerIds

PRODUCER_FENCED_VERSION = 4


def handle(
    transactions: Transactions,
    producer_ids: ProducerIds,
    authorizer: Authorizer,
    context: RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse | Later[InitProducerIdResponse]:
    version = context.api_version
    transactional_id = request.transactional_id
    error = _check(authorizer, context, request)
    if error is not NO_ERROR:
        return _response(KafkaError(error), version)
    later: Later[InitProducerIdResponse] = Later()

    def reply(answer: ProducerIdAndEpoch | KafkaError) -> None:
        later.reply(_response(answer, version))

    def init(_: None = None) -> None:
        try:
            if transactional_id is None:
                reply(ProducerIdAndEpoch(producer_ids.next(), 0))
                return
            transactions.check_timeout(request.transaction_timeout_ms)
            shard = transactions.shard_of(transactional_id)
        except KafkaError as failure:
            reply(failure.as_value())
            return
        shard.init_producer_id(
            TransactionalProducer(transactional_id, request.producer_id, request.producer_epoch),
            timeout_ms=request.transaction_timeout_ms,
            reply=reply,
        )

    guarded = later.guarded(init)
    producer_ids.when_left(lambda: guarded(None))
    return later.answer()


def _check(authorizer: Authorizer, context: RequestContext, request: InitProducerIdRequest) -> Error:
    """What is wrong with the request, whoever the producer is."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not authorizer.allows(context, WRITE, TRANSACTIONAL_ID, transactional_id):
            return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    # Who may write to some topic may do so idempotently.
    elif not authorizer.allows(
        context, IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME
    ) and not authorizer.allows_any(context, WRITE, TOPIC):
        return Error.CLUSTER_AUTHORIZATION_FAILED
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return Error.INVALID_REQUEST
    return Error.INVALID_REQUEST if transactional_id == "" else NO_ERROR


def _response(answer: ProducerIdAndEpoch | KafkaError, version: int) -> InitProducerIdResponse:
    if isinstance(answer, KafkaError):
        return InitProducerIdResponse(
            error_code=as_known(answer.error, version, PRODUCER_FENCED_VERSION),
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
        )
    return InitProducerIdResponse(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)
