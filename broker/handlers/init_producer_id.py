"""InitProducerId (22), versions 0 to 5 (KIP-98).

v3: the producer's present id and epoch (KIP-360); v4: PRODUCER_FENCED. v6 (KIP-939) is unstable in Kafka 4.3 and isn't
served: the broker closes the connection, as Kafka does without unstable versions.

Without a transactional id every producer gets a fresh producer id. With one the transaction's coordinator fences the
previous producer, aborts the transaction that it left open, and answers CONCURRENT_TRANSACTIONS until this is done.

A request for a fresh producer id depends on the controller, which hands out blocks of them; other requests don't. If
none is left, Kafka makes the client ask again at once. Here the request waits a little for a block, so that a first
producer sees no error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.coordination.transactions import as_known
from broker.security.authorizer import CLUSTER, CLUSTER_NAME, IDEMPOTENT_WRITE, TOPIC, TRANSACTIONAL_ID, WRITE
from coordinator.transaction.producer_ids import NoProducerIdError, ProducerIds, TransactionalProducer
from coordinator.transaction.state_manager import ProducerIdAndEpoch
from protocol.errors import NO_ERROR, Error, KafkaError
from protocol.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from protocol.waiting import begun

if TYPE_CHECKING:
    from broker.coordination.transactions import Transactions
    from broker.handlers.node_ports import TransactionPorts
    from broker.network.context import RequestContext
    from broker.security.authorizer import Authorizer

PRODUCER_FENCED_VERSION = 4

LONGEST_WAIT_S = 1.0
"""The longest wait for a block of producer ids. A block takes some ms, unless the controller is away. Then the client
asks again, and its connection is free meanwhile."""


async def handle(
    node: TransactionPorts,
    context: RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse:
    version = context.api_version
    error = _check(node.authorizer, context, request)
    if error is not NO_ERROR:
        return _response(KafkaError(error), version)
    found = await _init(node.transactions, node.producer_ids, request)
    if isinstance(found, NoProducerIdError):
        found = await _init_once_left(node, request)
    return _response(found, version)


async def _init(
    transactions: Transactions, producer_ids: ProducerIds, request: InitProducerIdRequest
) -> ProducerIdAndEpoch | KafkaError:
    """Give the producer its id and epoch. If this fails with NoProducerIdError, nothing has changed."""
    transactional_id = request.transactional_id
    try:
        if transactional_id is None:
            return ProducerIdAndEpoch(producer_ids.next(), 0)
        transactions.check_timeout(request.transaction_timeout_ms)
        shard = transactions.shard_of(transactional_id)
    except KafkaError as failure:
        return failure.as_value()
    return await shard.init_producer_id(
        TransactionalProducer(transactional_id, request.producer_id, request.producer_epoch),
        timeout_ms=request.transaction_timeout_ms,
    )


async def _init_once_left(
    node: TransactionPorts, request: InitProducerIdRequest
) -> ProducerIdAndEpoch | KafkaError:
    """Try again once there is a producer id, once none can be had, or after LONGEST_WAIT_S. This try decides.

    There is no other try if the client hangs up meanwhile."""
    left = node.producer_ids.left()
    is_over = False

    def over() -> None:
        nonlocal is_over
        is_over = True
        node.producer_ids.withdraw(left)
        left.reply(None)

    timer = node.scheduler.call_later(LONGEST_WAIT_S, over)

    async def init() -> ProducerIdAndEpoch | KafkaError:
        await left
        if not is_over:
            timer.cancel()
        return await _init(node.transactions, node.producer_ids, request)

    def withdraw() -> None:
        node.producer_ids.withdraw(left)
        timer.cancel()

    answer = begun(init())
    answer.waits_for(withdraw)
    return await answer


def _check(authorizer: Authorizer, context: RequestContext, request: InitProducerIdRequest) -> Error:
    """The error of the request that doesn't depend on the producer's state."""
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not authorizer.allows(context, WRITE, TRANSACTIONAL_ID, transactional_id):
            return Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    # A client that may write to any topic may do so idempotently.
    elif not authorizer.allows(
        context, IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME, log_denied=False
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
