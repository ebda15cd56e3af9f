"""ShareFetch (78), versions 1 and 2 (KIP-932).

v2: the mode of acquiring (KIP-1206), renewed locks (KIP-1222). Tiered storage has nothing to say here. A conscious
difference: a session has 5,000 partitions at most, and its last request names no more. Kafka has no limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from broker.handlers.share_fetch_answers import ShareFetchAnswers
from broker.handlers.share_requests import (
    RENEWING_VERSION,
    Acknowledgements,
    TopicAccess,
    acknowledge,
    check_sender,
    refuse_too_many,
)
from broker.network.later import Later
from broker.shares.delayed_share_fetch import DelayedShareFetch
from broker.shares.share_fetching import ShareFetchParameters, ShareReading
from broker.shares.share_session_cache import FINAL_EPOCH, FIRST_EPOCH, ShareSession
from coordinator.share_partition.states import AcquireMode
from protocol.errors import Error, KafkaError
from protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduler
    from broker.handlers.node_ports import BrokerPorts
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from broker.quotas import ClientQuotas
    from broker.shares.share_fetching import Answers
    from broker.shares.share_partition_manager import AcknowledgedPartitions, SharePartitionManager
    from broker.shares.share_session_cache import ShareKey

ACQUIRE_MODES = frozenset(AcquireMode)


def handle(
    node: BrokerPorts,
    context: RequestContext,
    request: ShareFetchRequest,
) -> ShareFetchResponse | Later[ShareFetchResponse]:
    renews = context.api_version >= RENEWING_VERSION and request.is_renew_ack
    try:
        group_id, member_id = check_sender(
            node.groups, node.authorizer, context, request.group_id, request.member_id
        )
        if renews and (request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms):
            raise KafkaError(Error.INVALID_REQUEST)
        session = _session(node.shares, context, request, group_id, member_id)
    except KafkaError as error:
        if error.error is Error.SHARE_SESSION_LIMIT_REACHED:
            return _limit_reached(node.scheduler, request.max_wait_ms)
        return ShareFetchResponse(error_code=error.error)
    fetch = _ShareFetch(
        node.shares,
        TopicAccess(node.metadata.image, node.authorizer, context),
        ShareFetchAnswers(node.shares, node.quotas, node.current_leaders, node.clock, context),
        request,
        group_id,
        member_id,
        session,
    )
    fetch.acknowledge(context.api_version, renews=renews)
    if renews or session is None:
        fetch.fetched({})
        return fetch.later.answer()
    keys = fetch.readable()
    max_bytes = _max_bytes(node.fetch_max_bytes, node.quotas, context, request)
    # Kafka can't put a topic without a name into its answer. It has read for the others by then.
    fails = fetch.names_unknown_topic
    if not fails and keys and request.max_records and max_bytes:
        if request.share_acquire_mode in ACQUIRE_MODES:
            parameters = _parameters(node.shares, request, group_id, member_id, max_bytes)
            reading = ShareReading(node.partitions, node.shares, node.chance, parameters)
            fetch.read(reading, keys, node.scheduler, node.turns)
            return fetch.later.answer()
        fails = True
    if fails:
        fetch.later.reply(ShareFetchResponse(error_code=Error.UNKNOWN_SERVER_ERROR))
    else:
        fetch.fetched({})
    return fetch.later.answer()


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


class _ShareFetch:
    """One request behind its session: it is answered once it has read and its acknowledgements are written."""

    def __init__(
        self,
        shares: SharePartitionManager,
        access: TopicAccess,
        answers: ShareFetchAnswers,
        request: ShareFetchRequest,
        group_id: str,
        member_id: str,
        session: ShareSession | None,
    ) -> None:
        """`session`: None in its last request, which reads nothing."""
        self.later: Later[ShareFetchResponse] = Later()
        self.names_unknown_topic = False
        self._shares = shares
        self._access = access
        self._answers = answers
        self._request = request
        self._group_id = group_id
        self._member_id = member_id
        self._session = session
        self._refused: dict[ShareKey, KafkaError] = {}
        self._acknowledged: AcknowledgedPartitions | None = None
        self._fetched: Answers | None = None

    def acknowledge(self, version: int, *, renews: bool) -> None:
        """What comes along with the request."""
        if not _has_acknowledgements(self._request):
            self._acknowledged = {}
            return
        batches: Acknowledgements = {
            (topic.topic_id, partition.partition_index): partition.acknowledgement_batches
            for topic in self._request.topics
            for partition in topic.partitions
        }
        acknowledge(
            self._shares,
            self._access,
            self._group_id,
            self._member_id,
            batches,
            version=version,
            renews=renews,
            then=self.later.guarded(self._take_acknowledged),
        )

    def readable(self) -> list[ShareKey]:
        """The session's partitions from the one on whose turn it is; what may not be read is put aside."""
        session = self._session
        assert session is not None
        keys: list[ShareKey] = []
        for key in session.partitions:
            if not self._access.is_known(key[0]):
                self.names_unknown_topic = True
                continue
            error = self._access.error(key)
            if error is None:
                keys.append(key)
            else:
                self._refused[key] = KafkaError(error)
        epoch = self._request.share_session_epoch
        place = epoch % len(keys) if keys and epoch > 0 else 0
        return keys[place:] + keys[:place]

    def read(self, reading: ShareReading, keys: list[ShareKey], scheduler: Scheduler, turns: Turns) -> None:
        """Find what is to be read, in turns where that is much, and wait for what is asked for."""
        member = (self._group_id, self._member_id)
        found = turns.answer(self._shares.lines.behind(member, reading.want(keys, turns)))
        if not isinstance(found, Later):
            self._wait(reading, scheduler, turns)
            return

        def go_on(found: Later[None]) -> None:
            found.result()  # raises what it failed with
            self._wait(reading, scheduler, turns)

        found.when_answered(partial(self.later.guarded(go_on), found))
        self.later.waits_for(found.abandon)

    def _wait(self, reading: ShareReading, scheduler: Scheduler, turns: Turns) -> None:
        def reply(answers: Answers) -> None:
            self._refused |= reading.errors
            self.fetched(answers)

        delayed = DelayedShareFetch(
            reading, scheduler, turns, self._shares.looking, self.later.guarded(reply), self.later.fail
        )
        if not delayed.is_over:
            self.later.waits_for(delayed.abandon)

    def fetched(self, answers: Answers) -> None:
        """What was read."""
        self._fetched = answers
        self._reply_once_done()

    def _take_acknowledged(self, found: AcknowledgedPartitions) -> None:
        self._acknowledged = found
        self._reply_once_done()

    def _reply_once_done(self) -> None:
        if self._fetched is None or self._acknowledged is None:
            return
        response = self._answers.answer(
            self._group_id,
            self._session,
            self._request.share_session_epoch,
            self._fetched,
            self._refused,
            self._acknowledged,
        )
        if self._session is None:
            self._shares.end_session(self._group_id, self._member_id)
        self.later.reply(response)


def _session(
    shares: SharePartitionManager,
    context: RequestContext,
    request: ShareFetchRequest,
    group_id: str,
    member_id: str,
) -> ShareSession | None:
    """The session as the request leaves it; None where it is the last one, that ends it when it is answered.

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
        if _has_acknowledgements(request):
            raise KafkaError(Error.INVALID_REQUEST)
        return sessions.open(group_id, member_id, context.connection, named)
    forgotten: Iterable[ShareKey] = (
        (topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    )
    return sessions.update(group_id, member_id, epoch, named, forgotten)


def _has_acknowledgements(request: ShareFetchRequest) -> bool:
    return any(
        partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions
    )


def _limit_reached(scheduler: Scheduler, max_wait_ms: int) -> Later[ShareFetchResponse]:
    """After the wait: a client that asks again at once would do so all the time."""
    later: Later[ShareFetchResponse] = Later()
    response = ShareFetchResponse(error_code=Error.SHARE_SESSION_LIMIT_REACHED)
    timer = scheduler.call_later(max(max_wait_ms, 0) / 1000, later.reply, response)
    later.on_abandon = timer.cancel
    return later


def _max_bytes(
    fetch_max_bytes: int, quotas: ClientQuotas, context: RequestContext, request: ShareFetchRequest
) -> int:
    """At most what a quota lets through at once, as of a Fetch."""
    allowed = min(request.max_bytes, fetch_max_bytes)
    if quotas.enforced:
        most = quotas.fetch.most_at_once(context.principal.name, context.client_id or "")
        if most is not None:
            return int(min(allowed, most))
    return allowed
