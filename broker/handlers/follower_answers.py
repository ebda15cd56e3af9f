"""What Fetch answers a follower: no client's quota holds it up, and what is throttled of replication is counted.

Source: `KafkaApis.handleFetchRequest`, `KafkaApis.sizeOfThrottledPartitions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers.fetch_answers import FetchAnswers, Listed, news_of
from protocol.waiting import turn

if TYPE_CHECKING:
    from broker.environment.scheduler import Clock
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from broker.quotas import ClientQuotas, ReplicationQuota
    from broker.replicas.current_leaders import CurrentLeaders
    from broker.replicas.fetch_sessions import FetchPlan, FetchSessions
    from broker.replicas.fetching import FetchParameters, Results
    from protocol.messages.fetch import FetchResponse


class FollowerAnswers(FetchAnswers):
    """As for a consumer otherwise."""

    __slots__ = ("_replication",)

    def __init__(
        self,
        sessions: FetchSessions,
        quotas: ClientQuotas,
        leaders: CurrentLeaders,
        clock: Clock,
        replication: ReplicationQuota,
    ) -> None:
        super().__init__(sessions, quotas, leaders, clock)
        self._replication = replication

    def answer(
        self, context: RequestContext, plan: FetchPlan, results: Results, parameters: FetchParameters
    ) -> FetchResponse:
        """See `FetchAnswers`."""
        if self._replication.throttled:
            self._replication.record(self._size(context, self._throttled_of(plan, results)))
        return super().answer(context, plan, results, parameters)

    async def answer_in_turns(
        self,
        turns: Turns,
        context: RequestContext,
        plan: FetchPlan,
        results: Results,
        parameters: FetchParameters,
    ) -> FetchResponse:
        """See `FetchAnswers`."""
        if self._replication.throttled:
            size = await self._size_in_turns(
                turns, context, results, lambda some: self._throttled_of(plan, some)
            )
            self._replication.record(size)
            await turn()
        return await super().answer_in_turns(turns, context, plan, results, parameters)

    def _throttled_of(self, plan: FetchPlan, results: Listed) -> Listed:
        """What the answer will list of throttled partitions, be their replicas in sync or not."""
        is_throttled = self._replication.is_throttled
        return [each for each in news_of(plan, results) if is_throttled(each[0].topic_name, each[0].index)]

    def _throttled(self, context: RequestContext, plan: FetchPlan, results: Results) -> int:
        return 0

    async def _throttled_in_turns(
        self, turns: Turns, context: RequestContext, plan: FetchPlan, results: Results
    ) -> int:
        return 0
