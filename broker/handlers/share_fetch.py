"""ShareFetch (78), versions 1 and 2 (KIP-932).

v2: the mode of acquiring (KIP-1206), renewed locks (KIP-1222). Tiered storage plays no part here. A conscious
difference: a session has 5,000 partitions at most, and so has its last request. Kafka has no limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from broker.environment.scheduler import passed
from broker.handlers.fetch import FRAME_SIZE_BYTES
from broker.handlers.share_requests import (
    RENEWING_VERSION,
    Acknowledgements,
    TopicAccess,
    acknowledge,
    check_sender,
    refuse_too_many,
    tell_leaders,
)
from broker.shares.share_fetching import DelayedShareFetch, ShareFetchParameters, ShareReading
from broker.shares.share_session_cache import FINAL_EPOCH, FIRST_EPOCH, ShareSession, next_epoch
from coordinator.share_partition.states import AcquireMode
from protocol.errors import Error, KafkaError
from protocol.messages.share_fetch import (
    FetchedPartition,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.waiting import Later
from protocol.wire.codec import encoder

if TYPE_CHECKING:
    from broker.handlers.node_ports import BrokerPorts
    from broker.network.context import RequestContext
    from broker.quotas import ClientQuotas
    from broker.shares.share_fetching import Answers
    from broker.shares.share_partition_manager import AcknowledgedPartitions, SharePartitionManager
    from broker.shares.share_session_cache import ShareKey

ACQUIRE_MODES = frozenset(AcquireMode)


async def handle(
    node: BrokerPorts, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse:
    """If the client hangs up while this reads or waits, other members may get the records that it holds."""
    # 1. Check the sender, and update its session.
    version = context.api_version
    renews = version >= RENEWING_VERSION and request.is_renew_ack
    try:
        group_id, member_id = check_sender(
            node.groups, node.authorizer, context, request.group_id, request.member_id
        )
        if renews and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
            raise KafkaError(Error.INVALID_REQUEST)
        session = _session(node.shares, context, request, group_id, member_id)
    except KafkaError as error:
        if error.error is Error.SHARE_SESSION_LIMIT_REACHED:
            await passed(
                node.scheduler, max(request.max_wait_ms, 0) / 1000
            )  # else it would ask again all the time
        return ShareFetchResponse(error_code=error.error)
    access = TopicAccess(node.metadata.image, node.authorizer, context)

    # 2. Write its acknowledgements while it reads. A session ends with its last acknowledgements, even if its client
    # has hung up.
    async def acknowledging() -> AcknowledgedPartitions:
        acks = _acknowledgements(request)
        found = await acknowledge(
            node.shares, access, group_id, member_id, acks, version=version, renews=renews
        )
        if session is None:
            node.shares.end_session(group_id, member_id)
        return found

    acknowledged = node.turns.answer(acknowledging(), to_the_end=True)

    # 3. Read.
    answers: Answers = {}
    refused: dict[ShareKey, KafkaError] = {}
    if session is not None and not renews:
        keys = _readable(session, access, request.share_session_epoch, refused)
        max_bytes = _max_bytes(node.fetch_max_bytes, node.quotas, context, request)
        reads = bool(keys and request.max_records and max_bytes)
        if reads and request.share_acquire_mode not in ACQUIRE_MODES:
            return ShareFetchResponse(error_code=Error.UNKNOWN_SERVER_ERROR)
        if reads:
            parameters = _parameters(node.shares, request, group_id, member_id, max_bytes)
            reading = ShareReading(node.partitions, node.shares, node.chance, parameters)
            await node.shares.lines.behind((group_id, member_id), reading.want(keys, node.turns))
            answers = await DelayedShareFetch(reading).answers(node.scheduler, node.shares.looking)
            refused |= reading.errors

    # 4. Answer, once both are done.
    found = await acknowledged if isinstance(acknowledged, Later) else acknowledged
    epoch = request.share_session_epoch
    return _response(node, context, group_id, session, epoch, answers, refused, found)


def _parameters(
    shares: SharePartitionManager, request: ShareFetchRequest, group_id: str, member_id: str, max_bytes: int
) -> ShareFetchParameters:
    return ShareFetchParameters(
        group_id=group_id,
        member_id=member_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=max_bytes,
        max_records=request.max_records,
        batch_size=request.batch_size,
        mode=AcquireMode(request.share_acquire_mode),
        read_committed=shares.settings_of(group_id).read_committed,
    )


def _readable(
    session: ShareSession, access: TopicAccess, epoch: int, refused: dict[ShareKey, KafkaError]
) -> list[ShareKey]:
    """The session's partitions, beginning with the one whose turn it is. Those that can't be read go to `refused`."""
    keys: list[ShareKey] = []
    for key in session.partitions:
        error = access.error(key) if access.is_known(key[0]) else Error.UNKNOWN_TOPIC_ID
        if error is None:
            keys.append(key)
        else:
            refused[key] = KafkaError(error)
    place = epoch % len(keys) if keys and epoch > 0 else 0
    return keys[place:] + keys[:place]


def _session(
    shares: SharePartitionManager,
    context: RequestContext,
    request: ShareFetchRequest,
    group_id: str,
    member_id: str,
) -> ShareSession | None:
    """The session, updated by the request; None for its last request, whose answer ends it.

    Raises KafkaError: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH, INVALID_REQUEST (acknowledgements before
    anything was fetched, or too many partitions in the last request), SHARE_SESSION_LIMIT_REACHED.
    """
    sessions, epoch = shares.sessions, request.share_session_epoch
    if epoch == FINAL_EPOCH:
        sessions.get(group_id, member_id)
        refuse_too_many(shares, group_id, member_id, epoch, request.topics)
        return None
    named: list[ShareKey] = [
        (topic.topic_id, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if epoch == FIRST_EPOCH:
        if _acknowledgements(request):
            raise KafkaError(Error.INVALID_REQUEST)
        return sessions.open(group_id, member_id, context.connection, named)
    forgotten: Iterable[ShareKey] = (
        (topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    )
    return sessions.update(group_id, member_id, epoch, named, forgotten)


def _acknowledgements(request: ShareFetchRequest) -> Acknowledgements:
    """The acknowledgements of all partitions; empty if no partition has any."""
    every: Acknowledgements = {
        (topic.topic_id, partition.partition_index): partition.acknowledgement_batches
        for topic in request.topics
        for partition in topic.partitions
    }
    return every if any(every.values()) else {}


def _max_bytes(
    fetch_max_bytes: int, quotas: ClientQuotas, context: RequestContext, request: ShareFetchRequest
) -> int:
    """The bytes to read at most: limited to what a quota lets through at once, as for a Fetch."""
    allowed = min(request.max_bytes, fetch_max_bytes)
    if quotas.enforced:
        most = quotas.fetch.most_at_once(context.principal.name, context.client_id or "")
        if most is not None:
            return int(min(allowed, most))
    return allowed


# --- The answer: the records that were read, and the results of the acknowledgements ------------------------------
#
# Kafka: `KafkaApis.processShareFetchResponse`, `ShareSessionContext`.


def _response(
    node: BrokerPorts,
    context: RequestContext,
    group_id: str,
    session: ShareSession | None,
    epoch: int,
    fetched: Answers,
    refused: Mapping[ShareKey, KafkaError],
    acknowledged: AcknowledgedPartitions,
) -> ShareFetchResponse:
    """The answer. `refused` has the partitions that couldn't be read. A throttled answer has acknowledgements only."""
    answers = fetched | {
        key: FetchedPartition(partition_index=key[1], error_code=error.error, records=b"")
        for key, error in refused.items()
    }
    response = ShareFetchResponse(
        acquisition_lock_timeout_ms=node.shares.settings_of(group_id).record_lock_duration_ms
    )
    response.throttle_time_ms = _throttled(node, context, answers) if node.quotas.enforced else 0
    goes_on = session is not None and epoch != FIRST_EPOCH
    if goes_on and session is not None and session.epoch != next_epoch(epoch):
        response.error_code = Error.INVALID_SHARE_SESSION_EPOCH  # another request came in between
        answers = {}
    elif response.throttle_time_ms:
        answers = {}
    elif goes_on and session is not None:
        answers = {key: answer for key, answer in answers.items() if session.tell(key, answer)}
    for key, error in acknowledged.items():
        listed = answers.get(key)
        if listed is None:
            listed = answers[key] = FetchedPartition(partition_index=key[1], records=b"")
        if error is not None:
            listed.acknowledge_error_code = error.error
            listed.acknowledge_error_message = error.message
    response.responses = _by_topic(answers)
    response.node_endpoints = tell_leaders(
        node.current_leaders, context, [(topic_id, answer) for (topic_id, _), answer in answers.items()]
    )
    return response


def _throttled(node: BrokerPorts, context: RequestContext, answers: Answers) -> int:
    """Charge the records. Returns how long, in ms, the consumer has to wait instead of getting them.

    It isn't charged for records that it doesn't get."""
    chunks: list[bytes | bytearray | memoryview] = []
    encoder(ShareFetchResponse, context.api_version)(ShareFetchResponse(responses=_by_topic(answers)), chunks)
    size = FRAME_SIZE_BYTES + sum(map(len, chunks))
    quota, now_ms = node.quotas.fetch, node.clock.now_ms()
    user, client_id = context.principal.name, context.client_id or ""
    throttle_ms = quota.charge(user, client_id, size, now_ms)
    if throttle_ms > 0:
        quota.charge(user, client_id, -size, now_ms)
    return throttle_ms


def _by_topic(answers: Answers) -> list[ShareFetchableTopicResponse]:
    topics: dict[bytes, list[FetchedPartition]] = {}
    for (topic_id, _), answer in answers.items():
        topics.setdefault(topic_id, []).append(answer)
    return [
        ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in topics.items()
    ]
