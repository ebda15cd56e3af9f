"""Produce (0), versions 3 to 13; 0 to 2 are advertised and refused, since old librdkafka asks for them (KAFKA-18659).

v7: zstd (KIP-110); v8: errors by record (KIP-467); v10: the current leader in answers (KIP-951); v11: as v10, for
clients that know TRANSACTION_ABORTABLE (KIP-890); v12: partitions are added to a transaction implicitly (KIP-890);
v13: topic ids (KIP-516).

A batch is appended by the leader of its partition. acks=all waits until it is committed: with one replica that is in
the same call, and nothing waits but where `flush.messages` is reached. A transactional batch is appended once the
transaction's coordinator lets it pass.

A conscious difference: null records, which Kafka never answers, are answered with INVALID_RECORD.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from broker.coordination.produce_verification import (
    Verifying,
    is_transactional,
    told_to_producer,
    transactional_producer,
)
from broker.network.connection import CloseConnectionError
from broker.network.later import Later
from broker.replicas.appending import Answers, Appends, Batches, Key, refused
from broker.replicas.delayed_produce import DelayedProduce
from broker.security.authorizer import TOPIC, TRANSACTIONAL_ID, WRITE
from protocol.errors import Error, KafkaError
from protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records.checks import RequestFailedError, check_shape

if TYPE_CHECKING:
    from broker.coordination.add_partitions_to_txn_manager import Verified
    from broker.coordination.produce_verification import ProduceVerification
    from broker.environment.clock import Clock
    from broker.environment.scheduler import Scheduler
    from broker.network.context import RequestContext
    from broker.replicas.current_leaders import CurrentLeaders
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer
    from storage.producers.verification_guards import VerificationGuard

ADMIN_CLIENT_ID = "__admin_client"  # AdminUtils: the one client that may write to internal topics
FIRST_VERSION_TOLD_LEADERS = 10

NO_GUARDS: Mapping[Partition, VerificationGuard] = MappingProxyType({})

Answer = ProduceResponse | None


def handle(
    partitions: Partitions,
    produce_verification: ProduceVerification,
    current_leaders: CurrentLeaders,
    authorizer: Authorizer,
    clock: Clock,
    scheduler: Scheduler,
    context: RequestContext,
    request: ProduceRequest,
) -> Answer | Later[Answer]:
    by_id = context.api_version >= 13
    try:
        sizes, transactional = _check_shapes(request, context.api_version)
    except RequestFailedError as failure:
        return _fail_all(request, by_id, failure.error, failure.message)
    if transactional and (
        request.transactional_id is None
        or not authorizer.allows(context, WRITE, TRANSACTIONAL_ID, request.transactional_id)
    ):
        return _fail_all(request, by_id, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    batches: Batches = {}
    refusals: Answers = {}
    for topic in request.topic_data:
        name: str | bytes = topic.topic_id if by_id else topic.name
        hosted = partitions.by_id.get(topic.topic_id) if by_id else partitions.by_name.get(topic.name)
        known_name = topic.name if hosted is None else hosted.name
        refusal = None
        if by_id and hosted is None:
            refusal = Error.UNKNOWN_TOPIC_ID
        elif not authorizer.allows(context, WRITE, TOPIC, known_name):
            refusal = Error.TOPIC_AUTHORIZATION_FAILED
        elif hosted is None:
            refusal = Error.UNKNOWN_TOPIC_OR_PARTITION
        for data in topic.partition_data:
            key = (name, data.index)
            size = next(sizes)
            if refusal is not None or hosted is None:
                refusals[key] = refused(data.index, refusal or Error.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            partition = hosted.partitions.get(data.index)
            if partition is None:
                refusals[key] = refused(data.index, hosted.missing(data.index))
            elif isinstance(size, KafkaError):
                refusals[key] = refused(data.index, size.error)
            else:
                assert data.records is not None
                batches[key] = (partition, data.records[:size])
    guards = NO_GUARDS
    if transactional:
        assert request.transactional_id is not None
        try:
            sender = transactional_producer(request.transactional_id, batches.values())
        except RequestFailedError as failure:
            return _fail_all(request, by_id, failure.error, failure.message)
        if sender is not None:
            verified = produce_verification.verify(*sender, context.api_version)
            if isinstance(verified, Verifying):
                producing = _Producing(context, request, current_leaders, clock, scheduler)
                return producing.append_once_verified(verified, batches, refusals)
            if verified.errors:
                _refuse(batches, verified, refusals, context.api_version)
            guards = verified.guards
    appends = Appends(request.acks, context.client_id == ADMIN_CLIENT_ID)
    appends.append(batches, clock.now_ms(), guards)
    if appends.are_done and not refusals:
        return _answer(request, appends.answers)
    later: Later[Answer] = Later()
    producing = _Producing(context, request, current_leaders, clock, scheduler)
    producing.reply(appends, refusals, later)
    return later.answer()


def _refuse(batches: Batches, verified: Verified, refusals: Answers, version: int) -> None:
    """Take out what the transaction's coordinator refuses."""
    for key, (partition, _) in [*batches.items()]:
        error = verified.errors.get(partition)
        if error is not None:
            told, message = told_to_producer(error, version)
            refusals[key] = refused(partition.index, told, message)
            del batches[key]


class _Producing:
    """A request that isn't simply appended and answered."""

    __slots__ = ("_clock", "_context", "_leaders", "_request", "_scheduler")

    def __init__(
        self,
        context: RequestContext,
        request: ProduceRequest,
        leaders: CurrentLeaders,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        self._context = context
        self._request = request
        self._leaders = leaders
        self._clock = clock
        self._scheduler = scheduler

    def append_once_verified(
        self, verifying: Verifying, batches: Batches, refusals: Answers
    ) -> Answer | Later[Answer]:
        """Append what the transaction's coordinator lets pass, once it has said so."""
        later: Later[Answer] = Later()

        def then(verified: Verified) -> None:
            later.on_abandon = None
            try:
                _refuse(batches, verified, refusals, self._context.api_version)
                appends = Appends(self._request.acks, self._context.client_id == ADMIN_CLIENT_ID)
                appends.append(batches, self._clock.now_ms(), verified.guards)
                self.reply(appends, refusals, later)
            except Exception as error:
                later.fail(error)

        later.on_abandon = verifying.abandon
        verifying.when_verified(then)
        return later.answer()

    def reply(self, appends: Appends, refusals: Answers, later: Later[Answer]) -> None:
        """Answer once nothing is waited for any more. Raises CloseConnectionError, as `_answer`."""
        answers = appends.answers
        answers.update(refusals)
        if not appends.awaited:
            later.reply(self._answer(answers))
            return

        def then() -> None:
            try:
                answer = self._answer(answers)
            except Exception as error:
                later.fail(error)
            else:
                later.reply(answer)

        delayed = DelayedProduce(appends.awaited, then)
        later.on_abandon = delayed.abandon
        delayed.start(self._scheduler, self._request.timeout_ms)

    def _answer(self, answers: Answers) -> Answer:
        response = _answer(self._request, answers)
        if response is not None and self._context.api_version >= FIRST_VERSION_TOLD_LEADERS:
            for topic in response.responses:
                for each in topic.partition_responses:
                    if each.error_code == Error.NOT_LEADER_OR_FOLLOWER:
                        self._tell_leader(response, topic, each)
        return response

    def _tell_leader(
        self, response: ProduceResponse, topic: TopicProduceResponse, answer: PartitionProduceResponse
    ) -> None:
        if self._context.api_version >= 13:
            leader_id, leader_epoch = self._leaders.of_topic_id(topic.topic_id, answer.index)
        else:
            leader_id, leader_epoch = self._leaders.of(topic.name, answer.index)
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        node = self._leaders.node(leader_id, self._context.listener_name)
        if node is not None and all(each.node_id != leader_id for each in response.node_endpoints):
            response.node_endpoints.append(
                NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            )


def _check_shapes(request: ProduceRequest, version: int) -> tuple[Iterator[int | KafkaError], bool]:
    """For each partition in turn the size of its batch, or what is wrong with its records; nothing is looked up yet.

    And whether the first batch of any has the flag of a transaction (Kafka: `RequestUtils.hasTransactionalRecords`).
    """
    found: list[int | KafkaError] = []
    transactional = False
    for topic in request.topic_data:
        for data in topic.partition_data:
            try:
                found.append(check_shape(data.records, version))
            except KafkaError as failure:
                found.append(failure)
            transactional = transactional or is_transactional(data.records)
    return iter(found), transactional


def _answer(request: ProduceRequest, answers: Answers) -> Answer:
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


def _fail_all(request: ProduceRequest, by_id: bool, error: Error, message: str | None = None) -> Answer:
    """The whole request fails: each of its partitions is answered with the error."""
    answers: Answers = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            key: Key = (topic.topic_id if by_id else topic.name, data.index)
            answers[key] = refused(data.index, error, message)
    return _answer(request, answers)
