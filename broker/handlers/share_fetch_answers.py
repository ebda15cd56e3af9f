"""What ShareFetch answers, made of what was read and of what became of the acknowledgements that came along.

Kafka: `KafkaApis.processShareFetchResponse`, `ShareSessionContext`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.handlers.fetch import FRAME_SIZE_BYTES
from broker.handlers.share_requests import tell_leaders
from broker.shares.share_session_cache import FIRST_EPOCH, ShareSession, next_epoch
from protocol.errors import Error, KafkaError
from protocol.messages.share_fetch import (
    FetchedPartition,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from protocol.wire.codec import encoder

if TYPE_CHECKING:
    from broker.environment.scheduler import Clock
    from broker.network.context import RequestContext
    from broker.quotas import ClientQuotas
    from broker.replicas.current_leaders import CurrentLeaders
    from broker.shares.share_fetching import Answers
    from broker.shares.share_partition_manager import AcknowledgedPartitions, SharePartitionManager
    from broker.shares.share_session_cache import ShareKey


class ShareFetchAnswers:
    """Makes the answer of one request, now or later."""

    def __init__(
        self,
        shares: SharePartitionManager,
        quotas: ClientQuotas,
        leaders: CurrentLeaders,
        clock: Clock,
        context: RequestContext,
    ) -> None:
        self._shares = shares
        self._quotas = quotas
        self._leaders = leaders
        self._clock = clock
        self._context = context

    def answer(
        self,
        group_id: str,
        session: ShareSession | None,
        epoch: int,
        fetched: Answers,
        refused: Mapping[ShareKey, KafkaError],
        acknowledged: AcknowledgedPartitions,
    ) -> ShareFetchResponse:
        """`refused`: of what couldn't be read. A throttled answer has acknowledgements alone."""
        answers = fetched | {
            key: FetchedPartition(partition_index=key[1], error_code=error.error, records=b"")
            for key, error in refused.items()
        }
        response = ShareFetchResponse(
            acquisition_lock_timeout_ms=self._shares.settings_of(group_id).record_lock_duration_ms
        )
        response.throttle_time_ms = self._throttled(answers) if self._quotas.enforced else 0
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
            self._leaders, self._context, [(topic_id, answer) for (topic_id, _), answer in answers.items()]
        )
        return response

    def _throttled(self, answers: Answers) -> int:
        """For how long the consumer has to wait instead of being answered; what it isn't given isn't charged."""
        chunks: list[bytes | bytearray | memoryview] = []
        encoder(ShareFetchResponse, self._context.api_version)(
            ShareFetchResponse(responses=_by_topic(answers)), chunks
        )
        size = FRAME_SIZE_BYTES + sum(map(len, chunks))
        quota, now_ms = self._quotas.fetch, self._clock.now_ms()
        user, client_id = self._context.principal.name, self._context.client_id or ""
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
