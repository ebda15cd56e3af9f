"""Produce (0), versions 3 to 13; 0 to 2 are advertised and refused, since old librdkafka asks for them (KAFKA-18659).

v7: zstd (KIP-110); v8: errors by record (KIP-467); v10: the current leader in answers (KIP-951); v11: as v10, for
clients that know TRANSACTION_ABORTABLE (KIP-890); v12: partitions are added to a transaction implicitly (KIP-890);
v13: topic ids (KIP-516).

The data plane: a batch is checked, patched and written where it was received, without an object per record. With one
replica what is in the log is committed, so acks=all waits for nothing but `flush.messages`.

A transactional batch that is the first of its transaction in a partition is appended once the transaction's
coordinator has said that it may be (KIP-890): it verifies that the partition is in the transaction, or from v12 on adds
it. Where an earlier end of the same transactional id is still under way then, v12 and later ask again for up to
`add.partitions.to.txn.retry.backoff.max.ms`.

A conscious difference: null records, which Kafka never answers, are answered with INVALID_RECORD.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING

from broker.coordination.verification import Operation, TransactionalProducer, Verified, add_or_verify
from broker.network.connection import CloseConnectionError
from protocol.errors import Error, KafkaError
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records.batch import ATTRIBUTES_POS, PRODUCER_ID_POS, TRANSACTIONAL_BIT
from protocol.records.checks import RecordValidationError, RequestFailedError, check_shape, validate

if TYPE_CHECKING:
    from broker.network.context import RequestContext
    from broker.replicas.partitions import Partition
    from broker.server import Server
    from storage.log.partition_log import PartitionLog
    from storage.producers.announcements import Verification

ATTRIBUTES_LOW_BYTE_POS = ATTRIBUTES_POS + 1
_PRODUCER = Struct(">qhi")  # id, epoch, base sequence: neighbours in a batch's header

ADMIN_CLIENT_ID = "__admin_client"  # AdminUtils: the one client that may write to internal topics

Key = tuple[str | bytes, int]
Accepted = dict[Key, tuple["Partition", memoryview]]
Unsynced = tuple[PartitionProduceResponse, asyncio.Future[Exception | None]]

# Found out beside the log, the answer of these errors tells where it starts.
_TOLD_WITH_LOG_START = frozenset(
    {
        Error.UNKNOWN_SERVER_ERROR,
        Error.INVALID_RECORD,
        Error.INVALID_TIMESTAMP,
        Error.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Error.INVALID_PRODUCER_EPOCH,
        Error.INVALID_TXN_STATE,
    }
)

# What keeps the coordinator from answering is told in a way that has every client come again.
_NOT_VERIFIED = frozenset(
    {
        Error.NETWORK_EXCEPTION,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
    }
)


def handle(
    server: Server, context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    version = context.api_version
    by_id = version >= 13
    try:
        sizes = _check_shapes(request, version)
    except RequestFailedError as failure:
        return _fail_all(request, by_id, failure.error, failure.message)
    transactional = _has_transactional_records(request)
    if transactional and request.transactional_id is None:
        return _fail_all(request, by_id, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused: dict[Key, PartitionProduceResponse] = {}
    accepted: Accepted = {}
    for topic in request.topic_data:
        name: str | bytes = topic.topic_id if by_id else topic.name
        hosted = (
            server.partitions.by_id.get(topic.topic_id)
            if by_id
            else server.partitions.by_name.get(topic.name)
        )
        for data in topic.partition_data:
            key = (name, data.index)
            size = next(sizes)
            partition = None if hosted is None else hosted.partitions.get(data.index)
            if partition is None:
                if hosted is not None:
                    error = hosted.missing(data.index)
                else:
                    error = Error.UNKNOWN_TOPIC_ID if by_id else Error.UNKNOWN_TOPIC_OR_PARTITION
                refused[key] = _refused(data.index, error)
            elif isinstance(size, KafkaError):
                refused[key] = _refused(data.index, size.error)
            else:
                assert data.records is not None
                accepted[key] = (partition, data.records[:size])
    if transactional:
        producers: set[tuple[int, int]] = set()
        sequences: dict[Partition, int] = {}
        for partition, batch in accepted.values():
            # With a negative producer id the flag means nothing, as in Kafka.
            if _is_transactional(batch) and batch[PRODUCER_ID_POS] < 0x80:
                if len(batch) < PRODUCER_ID_POS + _PRODUCER.size:
                    # Here Kafka reads past the end.
                    return _fail_all(request, by_id, Error.UNKNOWN_SERVER_ERROR)
                producer_id, producer_epoch, sequence = _PRODUCER.unpack_from(batch, PRODUCER_ID_POS)
                producers.add((producer_id, producer_epoch))
                sequences[partition] = sequence
        if len(producers) > 1:
            message = "Transactional records contained more than one producer ID"
            return _fail_all(request, by_id, Error.INVALID_PRODUCER_ID_MAPPING, message)
        if producers:
            assert request.transactional_id is not None
            producer = TransactionalProducer(request.transactional_id, *producers.pop())
            return _append_verified(server, context, request, accepted, refused, producer, sequences)
    return _append_all(server, context, request, accepted, refused)


def _append_verified(
    server: Server,
    context: RequestContext,
    request: ProduceRequest,
    accepted: Accepted,
    refused: dict[Key, PartitionProduceResponse],
    producer: TransactionalProducer,
    sequences: dict[Partition, int],
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Append what the transaction's coordinator lets pass."""
    operation = Operation.of_produce(context.api_version)
    verified = add_or_verify(server, producer, sequences, operation)
    if operation is not Operation.ADD or not _is_ending(verified):
        _refuse_unverified(accepted, refused, verified, operation)
        return _append_all(server, context, request, accepted, refused, verified.guards)
    return _append_once_added(server, context, request, accepted, refused, producer, sequences)


async def _append_once_added(
    server: Server,
    context: RequestContext,
    request: ProduceRequest,
    accepted: Accepted,
    refused: dict[Key, PartitionProduceResponse],
    producer: TransactionalProducer,
    sequences: dict[Partition, int],
) -> ProduceResponse | None:
    """The end of the transaction before is under way: ask again for a while, which is quicker than the client is."""
    config = server.config
    backoff_ms = config.get_int("add.partitions.to.txn.retry.backoff.ms")
    limit_ms = min(
        config.get_int("add.partitions.to.txn.retry.backoff.max.ms"), config.get_int("request.timeout.ms")
    )
    begun_s = server.clock.monotonic_s()
    while True:
        await server.timers.sleep(backoff_ms)
        verified = add_or_verify(server, producer, sequences, Operation.ADD)
        if (server.clock.monotonic_s() - begun_s) * 1000 >= limit_ms or not _is_ending(verified):
            break
    _refuse_unverified(accepted, refused, verified, Operation.ADD)
    answer = _append_all(server, context, request, accepted, refused, verified.guards)
    return answer if answer is None or isinstance(answer, ProduceResponse) else await answer


def _is_ending(verified: Verified) -> bool:
    return Error.CONCURRENT_TRANSACTIONS in verified.errors.values()


def _refuse_unverified(
    accepted: Accepted,
    refused: dict[Key, PartitionProduceResponse],
    verified: Verified,
    operation: Operation,
) -> None:
    if not verified.errors:
        return
    for key, (partition, _) in [*accepted.items()]:
        error = verified.errors.get(partition)
        if error is None:
            continue
        message = None
        if error in _NOT_VERIFIED or (
            error is Error.CONCURRENT_TRANSACTIONS and operation is not Operation.ADD
        ):
            message = f"It can't be verified now that the partition is in the transaction: {error.name}"
            error = Error.NOT_ENOUGH_REPLICAS
        elif error is Error.INVALID_TXN_STATE:
            message = "The partition was not added to the transaction"
        refused[key] = _refused(partition.index, error, message)
        del accepted[key]


def _append_all(
    server: Server,
    context: RequestContext,
    request: ProduceRequest,
    accepted: Accepted,
    refused: dict[Key, PartitionProduceResponse],
    guards: Mapping[Partition, Verification] = MappingProxyType({}),
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    answers: dict[Key, PartitionProduceResponse] = {}
    unsynced: list[Unsynced] = []
    if request.acks not in (-1, 0, 1):
        for key in accepted:
            answers[key] = _refused(key[1], Error.INVALID_REQUIRED_ACKS)
    else:
        now_ms = server.clock.now_ms()
        internal_allowed = context.client_id == ADMIN_CLIENT_ID
        for key, (partition, batch) in accepted.items():
            if partition.topic.is_internal and not internal_allowed:
                answers[key] = _refused(key[1], Error.INVALID_TOPIC_EXCEPTION)
            else:
                answers[key] = _append(partition, batch, now_ms, unsynced, guards.get(partition))
    answers.update(refused)
    if unsynced:
        return _finish_when_synced(request, answers, unsynced)
    return _finish(request, answers)


def _check_shapes(request: ProduceRequest, version: int) -> Iterator[int | KafkaError]:
    """For each partition in turn the size of its batch, or what is wrong with its records; nothing is looked up yet."""
    found: list[int | KafkaError] = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                found.append(check_shape(data.records, version))
            except KafkaError as failure:
                found.append(failure)
    return iter(found)


def _is_transactional(records: memoryview | None) -> bool:
    return (
        records is not None
        and len(records) > ATTRIBUTES_LOW_BYTE_POS
        and bool(records[ATTRIBUTES_LOW_BYTE_POS] & TRANSACTIONAL_BIT)
    )


def _has_transactional_records(request: ProduceRequest) -> bool:
    """Whether the first batch of any partition has the flag (Kafka: `RequestUtils.hasTransactionalRecords`)."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if _is_transactional(data.records):
                return True
    return False


def _append(
    partition: Partition,
    batch: memoryview,
    now_ms: int,
    unsynced: list[Unsynced],
    guard: Verification | None,
) -> PartitionProduceResponse:
    """Check one batch and append it; whatever is wrong with it becomes the partition's answer."""
    try:
        leader = partition.leader()
    except KafkaError as failure:
        return _refused(partition.index, failure.error)
    log = leader.log
    try:
        checked = validate(batch, partition.topic.rules, now_ms, partition.topic.name, partition.index)
        appended = log.append(
            checked.batch,
            leader_epoch=leader.leader_epoch,
            now_ms=now_ms,
            header=checked.header,
            guard=guard,
        )
    except RecordValidationError as failure:
        answer = _refused(partition.index, failure.error, failure.message, log.log_start_offset)
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in failure.record_errors
        ]
        return answer
    except KafkaError as failure:
        start = log.log_start_offset if failure.error in _TOLD_WITH_LOG_START else -1
        return _refused(partition.index, failure.error, None, start)
    answer = PartitionProduceResponse(
        index=partition.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )
    if not appended.duplicate:
        leader.advance()
        if appended.flushing:
            unsynced.append((answer, _when_synced(log, appended.last_offset + 1)))
    return answer


def _when_synced(log: PartitionLog, end_offset: int) -> asyncio.Future[Exception | None]:
    """Done once a batch that ends there is on the disk; asked at its append, when a flush up to there is wanted."""
    synced: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    def then(failure: Exception | None) -> None:
        # cancelled where the client has gone meanwhile
        if not synced.done():
            synced.set_result(failure)

    log.when_flushed(end_offset, then)
    return synced


async def _finish_when_synced(
    request: ProduceRequest, answers: dict[Key, PartitionProduceResponse], unsynced: list[Unsynced]
) -> ProduceResponse | None:
    """`flush.messages` was reached: a batch is acknowledged once it is on the disk."""
    for answer, synced in unsynced:
        if await synced is not None:
            answer.error_code = Error.KAFKA_STORAGE_ERROR
            answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
    return _finish(request, answers)


def _finish(request: ProduceRequest, answers: dict[Key, PartitionProduceResponse]) -> ProduceResponse | None:
    """The answer; with acks=0 none, and an error closes the connection, being all that the client can be told."""
    if request.acks == 0:
        failed = [
            f"{key[1]}: {Error(answer.error_code).name}"
            for key, answer in answers.items()
            if answer.error_code
        ]
        if failed:
            raise CloseConnectionError(f"Produce with acks=0 failed on partition {', '.join(failed)}")
        return None
    topics: dict[str | bytes, TopicProduceResponse] = {}
    for (name, _), answer in answers.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = (
                TopicProduceResponse(topic_id=name)
                if isinstance(name, bytes)
                else TopicProduceResponse(name=name)
            )
        topic.partition_responses.append(answer)
    return ProduceResponse(responses=[*topics.values()])


def _fail_all(
    request: ProduceRequest, by_id: bool, error: Error, message: str | None = None
) -> ProduceResponse | None:
    """The whole request fails: each of its partitions is answered with the error."""
    answers: dict[Key, PartitionProduceResponse] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            answers[topic.topic_id if by_id else topic.name, data.index] = _refused(
                data.index, error, message
            )
    return _finish(request, answers)


def _refused(
    index: int, error: Error, message: str | None = None, log_start_offset: int = -1
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=log_start_offset,
        error_message=message,
    )
