"""Produce (0), versions 3 to 13. 0 to 2 are advertised but refused, since old librdkafka looks for them (KAFKA-18659).

v7: zstd (KIP-110); v8: errors by record (KIP-467); v10: the current leader in answers (KIP-951); v11: as v10, for
clients that know TRANSACTION_ABORTABLE (KIP-890); v12: a Produce adds its partitions to the transaction (KIP-890);
v13: topic ids (KIP-516).

The leader of the partition appends a batch. acks=all waits until the batch is committed. With one replica that is in
the same call, so it waits only if `flush.messages` is reached. A transactional batch is appended once the transaction's
coordinator lets it pass.

A conscious difference: the answer to null records is INVALID_RECORD. Kafka never answers them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING

from broker.coordination.produce_verification import sender_of, told_to_producer
from broker.environment.threads import Alone, Brief
from broker.network.answers import CloseConnectionError
from broker.network.pieces import EntryList, pieces, produced
from broker.network.turns import PER_TURN, in_turns, portions, runs_to_its_end
from broker.replicas.append_records import (
    Answers,
    Appends,
    Batches,
    Key,
    checking,
    refused,
)
from broker.security.authorizer import TOPIC, TRANSACTIONAL_ID, WRITE
from protocol.errors import Error, KafkaError
from protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.records.batch import ATTRIBUTES_LOW_BYTE_POS, TRANSACTIONAL_BIT
from protocol.records.checks import RequestFailedError, check_shape
from protocol.records.validation_budget import ANY, BRIEF, MODERATE, MOST_OF_REQUEST, Unpacked
from protocol.waiting import compute, turn

if TYPE_CHECKING:
    from broker.coordination.produce_verification import Verified
    from broker.environment.scheduler import Clock
    from broker.handlers.node_ports import ReplicaPorts
    from broker.network.context import RequestContext
    from broker.replicas.current_leaders import CurrentLeaders
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer
    from storage.producer_state import VerificationGuard

ADMIN_CLIENT_ID = "__admin_client"  # AdminUtils: the one client that may write to internal topics
FIRST_VERSION_TOLD_LEADERS = 10
FIRST_VERSION_WITH_IDS = 13
MOST_TOLD = 100  # failed partitions of a request that a line of the log names

ID_REFUSED = RequestFailedError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
NO_GUARDS: Mapping[Partition, VerificationGuard] = MappingProxyType({})

PARTITIONS_OF_TOPICS = EntryList(
    "topic_data", "responses", "partition_data", "partition_responses", at_once=PER_TURN
)
"""The part of a request that one turn goes through."""

ProduceAnswer = ProduceResponse | None


@runs_to_its_end
async def handle(node: ReplicaPorts, context: RequestContext, request: ProduceRequest) -> ProduceAnswer:
    version = context.api_version
    topics = request.topic_data

    # 1. Cut a request with many partitions into parts, one for each turn, in the same order. Nearly all have one.
    parts: list[Sequence[TopicProduceData]] = [topics]
    is_long = False
    if not (len(topics) == 1 and len(topics[0].partition_data) == 1):
        is_long = (entries := produced(request)) > PER_TURN
        if is_long:
            context.connection.hold_produced(entries)
            parts = await _in_parts(request)

    # 2. Check the shape of each batch, before anything is looked up.
    sizes: list[int | Error] = []
    transactional = False
    try:
        for part in parts:
            of_part, any_of_part = check_shapes(part, version)
            sizes += of_part
            transactional = transactional or any_of_part
            if is_long:
                await turn()
    except RequestFailedError as failure:
        return await _all_failed(node, context, request, failure)
    if transactional and not may_use_id(request, node.authorizer, context):
        return await _all_failed(node, context, request, ID_REFUSED)

    # 3. Sort into batches to append and partitions to refuse.
    batches: Batches = {}
    refusals: Answers = {}
    sizes_left = iter(sizes)
    for part in parts:
        _sort(part, sizes_left, node.partitions, node.authorizer, context, batches, refusals)
        if is_long:
            await turn()

    # 4. Ask the transaction's coordinator whether it lets the batches pass.
    guards = NO_GUARDS
    if transactional:
        assert request.transactional_id is not None
        try:
            sender = await sender_of(request.transactional_id, [*batches.values()])
        except RequestFailedError as failure:
            return await _all_failed(node, context, request, failure)
        if sender is not None:
            verified = await node.produce_verification.verified(*sender, version)
            if verified.errors:
                refuses = partial(
                    refuse, batches=batches, verified=verified, refusals=refusals, version=version
                )
                await in_turns([*batches], refuses)
            guards = verified.guards

    # 5. Append. The connection's next request waits; other connections may append between two turns.
    appends = Appends(request.acks, context.client_id == ADMIN_CLIENT_ID)
    rest = appends.append(batches, node.clock, guards)
    while rest:
        await turn()
        rest = appends.append(rest, node.clock, guards)
    if appends.left:
        await _append_left(appends, node.clock, guards)

    # 6. Wait until they can be acknowledged.
    if appends.awaited:
        is_limited = any(append.commits for append in appends.awaited)  # waiting for the disk has no timeout
        await node.turns.all_done(appends.awaited, request.timeout_ms if is_limited else None, node.scheduler)

    # 7. Answer.
    if appends.are_done and not refusals:
        return response_of(request.acks, appends.answers)
    answers = appends.answers
    answers.update(refusals)
    return await _told(node, context, request.acks, answers)


async def _in_parts(request: ProduceRequest) -> list[Sequence[TopicProduceData]]:
    parts: list[Sequence[TopicProduceData]] = []
    for part, _ in pieces(request, PARTITIONS_OF_TOPICS):
        parts.append(part.topic_data)
        await turn()
    return parts


async def _append_left(appends: Appends, clock: Clock, guards: Mapping[Partition, VerificationGuard]) -> None:
    """Check the batches that take long beside the loop, then append them."""
    unpacked_bytes = 0
    for key, (partition, batch) in appends.left.items():
        if unpacked_bytes > MOST_OF_REQUEST:
            refusal = KafkaError(Error.MESSAGE_TOO_LARGE)  # producers split the batch on it
            appends.append_checked(key, refusal, clock.now_ms(), guards)
            continue
        unpacked = Unpacked()
        checked = await compute(Brief(checking(partition, batch, clock.now_ms(), BRIEF, unpacked)))
        if checked is None:
            checked = await compute(checking(partition, batch, clock.now_ms(), MODERATE, unpacked))
        if checked is None:
            checked = await compute(Alone(checking(partition, batch, clock.now_ms(), ANY, unpacked)))
        unpacked_bytes += unpacked.size_bytes
        appends.append_checked(key, checked, clock.now_ms(), guards)


def _sort(
    topics: Sequence[TopicProduceData],
    sizes: Iterator[int | Error],
    partitions: Partitions,
    authorizer: Authorizer,
    context: RequestContext,
    batches: Batches,
    refusals: Answers,
) -> None:
    """Put the batches of these topics into `batches`, or their refusals into `refusals`.

    `sizes` has the results of `check_shapes`, partition by partition."""
    by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    for topic in topics:
        name: str | bytes = topic.topic_id if by_id else topic.name
        hosted = partitions.by_id.get(topic.topic_id) if by_id else partitions.by_name.get(topic.name)
        known_name = topic.name if hosted is None else hosted.name
        refusal = None
        if by_id and hosted is None:
            refusal = Error.UNKNOWN_TOPIC_ID
        elif not (authorizer.allows_everything or authorizer.allows(context, WRITE, TOPIC, known_name)):
            refusal = Error.TOPIC_AUTHORIZATION_FAILED
        elif hosted is None:
            refusal = Error.UNKNOWN_TOPIC_OR_PARTITION
        for data in topic.partition_data:
            index = data.index
            size = next(sizes)
            if refusal is not None or hosted is None:
                refusals[name, index] = refused(index, refusal or Error.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            partition = hosted.partitions.get(index)
            if partition is None:
                refusals[name, index] = refused(index, hosted.missing(index))
            elif isinstance(size, Error):
                refusals[name, index] = refused(index, size)
            else:
                records = data.records
                assert records is not None
                batches[name, index] = (partition, records if len(records) == size else records[:size])


def may_use_id(request: ProduceRequest, authorizer: Authorizer, context: RequestContext) -> bool:
    return request.transactional_id is not None and authorizer.allows(
        context, WRITE, TRANSACTIONAL_ID, request.transactional_id
    )


def check_shapes(topics: Sequence[TopicProduceData], version: int) -> tuple[list[int | Error], bool]:
    """For each partition in turn: the size of its batch in bytes, or the error of its records. This looks nothing up.

    Also whether any partition's first batch is transactional (Kafka: `RequestUtils.hasTransactionalRecords`).
    """
    found: list[int | Error] = []
    transactional = False
    for topic in topics:
        for data in topic.partition_data:
            try:
                found.append(check_shape(data.records, version))
            except KafkaError as failure:
                found.append(failure.error)
            records = data.records
            if (
                records is not None
                and len(records) > ATTRIBUTES_LOW_BYTE_POS
                and records[ATTRIBUTES_LOW_BYTE_POS] & TRANSACTIONAL_BIT
            ):
                transactional = True
    return found, transactional


def refuse(
    keys: Iterable[Key], batches: Batches, verified: Verified, refusals: Answers, version: int
) -> None:
    """Move the partitions among `keys` that the transaction's coordinator refuses from `batches` to `refusals`."""
    for key in keys:
        partition = batches[key][0]
        error = verified.errors.get(partition)
        if error is not None:
            told, message = told_to_producer(error, version)
            refusals[key] = refused(partition.index, told, message)
            del batches[key]


# --- the answer ---------------------------------------------------------------------------------------------


def response_of(acks: int, answers: Answers) -> ProduceAnswer:
    """The answer. With acks=0 there is none, and an error closes the connection: nothing else can tell the client.

    Raises CloseConnectionError."""
    if acks == 0:
        failures = (
            f"{key[1]}: {Error(answer.error_code).name}"
            for key, answer in answers.items()
            if answer.error_code
        )
        if failed := [*islice(failures, MOST_TOLD)]:
            raise CloseConnectionError(f"Produce with acks=0 failed on partition {', '.join(failed)}")
        return None
    topics: dict[str | bytes, TopicProduceResponse] = {}
    for (name, _), answer in answers.items():
        if name in topics:
            topics[name].partition_responses.append(answer)
        elif isinstance(name, bytes):
            topics[name] = TopicProduceResponse.of(topic_id=name, partition_responses=[answer])
        else:
            topics[name] = TopicProduceResponse.of(name=name, partition_responses=[answer])
    return ProduceResponse.of(responses=[*topics.values()])


async def _all_failed(
    node: ReplicaPorts, context: RequestContext, request: ProduceRequest, failure: RequestFailedError
) -> ProduceAnswer:
    """The answer to a request that fails as a whole: each of its partitions has the error."""
    by_id = context.api_version >= FIRST_VERSION_WITH_IDS
    answers: Answers = {}
    for part, _ in pieces(request, PARTITIONS_OF_TOPICS):
        for topic in part.topic_data:
            for data in topic.partition_data:
                key: Key = (topic.topic_id if by_id else topic.name, data.index)
                answers[key] = refused(data.index, failure.error, failure.message)
        if len(answers) >= PER_TURN:
            await turn()
    return await _told(node, context, request.acks, answers)


async def _told(node: ReplicaPorts, context: RequestContext, acks: int, answers: Answers) -> ProduceAnswer:
    """The answer, with the leaders of partitions that aren't led here. Many are gone through in turns."""
    if len(answers) <= PER_TURN or acks == 0:
        return _with_leaders(node.current_leaders, context, response_of(acks, answers))
    await turn()
    whole = ProduceResponse.of(responses=[])
    topics: dict[str | bytes, int] = {}
    for some in portions([*answers.items()]):
        part = _with_leaders(node.current_leaders, context, response_of(acks, dict(some)))
        assert part is not None
        put_behind(whole, part, topics)
        await turn()
    return whole


def put_behind(whole: ProduceResponse, part: ProduceResponse, topics: dict[str | bytes, int]) -> None:
    """Append a part of the answer to the whole. `topics` has each topic's place in the whole."""
    for topic in part.responses:
        place = topics.setdefault(topic.name or topic.topic_id, len(whole.responses))
        if place == len(whole.responses):
            whole.responses.append(topic)
        else:
            whole.responses[place].partition_responses += topic.partition_responses
    known = {each.node_id for each in whole.node_endpoints}
    whole.node_endpoints += [each for each in part.node_endpoints if each.node_id not in known]


def _with_leaders(leaders: CurrentLeaders, context: RequestContext, response: ProduceAnswer) -> ProduceAnswer:
    if response is not None and context.api_version >= FIRST_VERSION_TOLD_LEADERS:
        for topic in response.responses:
            for each in topic.partition_responses:
                if each.error_code == Error.NOT_LEADER_OR_FOLLOWER:
                    _tell_leader(leaders, context, response, topic, each)
    return response


def _tell_leader(
    leaders: CurrentLeaders,
    context: RequestContext,
    response: ProduceResponse,
    topic: TopicProduceResponse,
    answer: PartitionProduceResponse,
) -> None:
    if context.api_version >= FIRST_VERSION_WITH_IDS:
        leader_id, leader_epoch = leaders.of_topic_id(topic.topic_id, answer.index)
    else:
        leader_id, leader_epoch = leaders.of(topic.name, answer.index)
    answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    node = leaders.node(leader_id, context.listener_name)
    if node is not None and all(each.node_id != leader_id for each in response.node_endpoints):
        response.node_endpoints.append(
            NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        )
