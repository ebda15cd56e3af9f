"""The way to the durable state of share partitions: to this broker's own shards, or to those of other nodes.

If the coordinator can't be reached, or doesn't exist yet, it is asked again, as often and after the same waits as in
Kafka. Other requests for the share partition wait meanwhile. They also wait while another node is asked: if that
doesn't answer, a later write could come before an earlier one, whose older start offset would then count. Kafka sends
both.

A conscious difference: if a shard of this node doesn't know a partition, it isn't asked again, since it looks at the
same metadata as its caller. Kafka asks for half a minute.

Source: `DefaultStatePersister`, `PersisterStateManager`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from broker.controller.image import NO_LEADER
from broker.coordination.share_states import SHARE_STATE_TOPIC
from coordinator.persister import ShareState, ShareStateSummary, StateBatch
from coordinator.share.share_partition_key import SharePartitionKey
from protocol.errors import Error, KafkaError, error_of
from protocol.messages import share_state
from protocol.waiting import Later, carry_on
from protocol.wire.schema import Message, Struct

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.coordination.share_states import ShareStates
    from broker.environment.scheduler import Scheduled, Scheduler
    from coordinator.share.shard import ShareShard


# --------------------------------------------------------------------------------------------------------------
# Requests to the share coordinator about one share partition, to a shard in this process or to another node.


class ShareStateKind(NamedTuple):
    """One of the five kinds of requests."""

    request: Callable[..., Message]
    of_topic: Callable[..., Struct]
    said: Callable[[Any], Any]
    """Returns what a partition's result says, if it has no error."""


def _nothing(result: Any) -> None:
    """The result says only that it is done."""


def _state(result: share_state.ReadPartitionResult) -> ShareState:
    batches = [
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in result.state_batches
    ]
    return ShareState(result.state_epoch, result.start_offset, batches)


def _summary(result: share_state.SummaryPartitionResult) -> ShareStateSummary:
    return ShareStateSummary(
        result.state_epoch, result.leader_epoch, result.start_offset, result.delivery_complete_count
    )


INITIALIZE = ShareStateKind(
    share_state.InitializeShareGroupStateRequest, share_state.InitializeStateData, _nothing
)
READ = ShareStateKind(share_state.ReadShareGroupStateRequest, share_state.ReadStateData, _state)
WRITE = ShareStateKind(share_state.WriteShareGroupStateRequest, share_state.WriteStateData, _nothing)
DELETE = ShareStateKind(share_state.DeleteShareGroupStateRequest, share_state.DeleteStateData, _nothing)
SUMMARIZE = ShareStateKind(
    share_state.ReadShareGroupStateSummaryRequest, share_state.ReadStateSummaryData, _summary
)


class ShareStateAsk(NamedTuple):
    """A request. `ask` asks a shard here; `part` makes the partition's part of a request to another node."""

    key: SharePartitionKey
    kind: ShareStateKind
    ask: Callable[[ShareShard], Any]
    part: Callable[[], Struct]

    def answer_in(self, results: dict[tuple[bytes, int], Any]) -> Any:
        """The answer to this request among the results of another node, by topic id and partition; maybe a
        KafkaError."""
        result = results.get((self.key.topic_id, self.key.partition))
        if result is None:
            return KafkaError(Error.UNKNOWN_SERVER_ERROR, "The share coordinator doesn't answer for it.")
        if result.error_code:
            return KafkaError(error_of(result.error_code), result.error_message)
        return self.kind.said(result)


# --------------------------------------------------------------------------------------------------------------

RETRIES_S = (2.0, 4.0, 8.0, 16.0)
"""The waits before it is asked again. Kafka varies them by up to a fifth."""

_ASK_AGAIN = {
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NETWORK_EXCEPTION,
    Error.NOT_COORDINATOR,
    Error.REQUEST_TIMED_OUT,
}


class AskShareStates(Protocol):
    """The way to the share coordinators of other nodes."""

    def __call__(self, node_id: int, asked: ShareStateAsk, /) -> Later[Any]:
        """Ask a node. The answer, or a KafkaError, comes in a later turn."""
        ...


class SharePersister:
    """The port `coordinator.persister.Persister`."""

    def __init__(
        self,
        node_id: int,
        image: ClusterImage,
        share_states: ShareStates,
        scheduler: Scheduler,
        create_topics: Callable[[Sequence[str]], Later[None]],
        elsewhere: AskShareStates | None,
    ) -> None:
        """`create_topics` replies even if creating fails. `elsewhere`: the way to other nodes, if there may be any."""
        self._node_id = node_id
        self._image = image
        self._share_states = share_states
        self._scheduler = scheduler
        self._create_topics = create_topics
        self._elsewhere = elsewhere
        self._pauses: dict[Later[None], Scheduled] = {}
        """The waits of requests that will be tried again."""
        self._ahead: dict[SharePartitionKey, ShareStateAsk] = {}
        """The request under way for each share partition: another node is asked, or it will be tried again."""
        self._behind: dict[SharePartitionKey, deque[Later[None]]] = {}
        """Requests that wait until the one ahead of them is answered."""
        self._is_stopped = False

    # --- the port -------------------------------------------------------------------------------------------

    def initialize(
        self, group_id: str, topic_id: bytes, partition: int, state_epoch: int, start_offset: int
    ) -> Later[KafkaError | None]:
        """See `Persister`."""
        key = SharePartitionKey(group_id, topic_id, partition)
        return self._ask(
            key,
            INITIALIZE,
            lambda shard: shard.initialize(key, state_epoch, start_offset),
            lambda: share_state.InitializePartition(
                partition=partition, state_epoch=state_epoch, start_offset=start_offset
            ),
        )

    def read(
        self, group_id: str, topic_id: bytes, partition: int, leader_epoch: int
    ) -> Later[ShareState | KafkaError]:
        """See `Persister`."""
        key = SharePartitionKey(group_id, topic_id, partition)
        return self._ask(
            key,
            READ,
            lambda shard: shard.read(key, leader_epoch),
            lambda: share_state.ReadPartition(partition=partition, leader_epoch=leader_epoch),
        )

    def write(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> Later[KafkaError | None]:
        """See `Persister`."""
        from coordinator.share.share_partitions import Write  # with the first shard

        key = SharePartitionKey(group_id, topic_id, partition)
        write = Write(state_epoch, leader_epoch, start_offset, delivery_complete_count, batches)
        return self._ask(
            key,
            WRITE,
            lambda shard: shard.write(key, write),
            lambda: share_state.WritePartition(
                partition=partition,
                state_epoch=state_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=delivery_complete_count,
                state_batches=[
                    share_state.StateBatch(
                        first_offset=batch.first_offset,
                        last_offset=batch.last_offset,
                        delivery_state=batch.delivery_state,
                        delivery_count=batch.delivery_count,
                    )
                    for batch in batches
                ],
            ),
        )

    def delete(self, group_id: str, topic_id: bytes, partition: int) -> Later[KafkaError | None]:
        """See `Persister`."""
        key = SharePartitionKey(group_id, topic_id, partition)
        return self._ask(
            key,
            DELETE,
            lambda shard: shard.delete(key),
            lambda: share_state.DeletePartition(partition=partition),
        )

    def read_summary(
        self, group_id: str, topic_id: bytes, partition: int, leader_epoch: int
    ) -> Later[ShareStateSummary | KafkaError]:
        """See `Persister`."""
        key = SharePartitionKey(group_id, topic_id, partition)
        return self._ask(
            key,
            SUMMARIZE,
            lambda shard: shard.summarize(key),
            lambda: share_state.SummaryPartition(partition=partition, leader_epoch=leader_epoch),
        )

    # --- the way there --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask and answer nothing any more."""
        self._is_stopped = True
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()
        self._ahead.clear()
        self._behind.clear()

    def _ask(
        self,
        key: SharePartitionKey,
        kind: ShareStateKind,
        ask: Callable[[ShareShard], Any],
        part: Callable[[], Struct],
    ) -> Later[Any]:
        told: Later[Any] = Later()
        carry_on(self._carry_out(ShareStateAsk(key, kind, ask, part), told))
        return told

    async def _carry_out(self, asked: ShareStateAsk, told: Later[Any]) -> None:
        key = asked.key
        answer: Any = None
        tries = 0
        while not self._is_stopped:
            # 1. Wait for the request ahead.
            if self._ahead.get(key, asked) is not asked:
                place: Later[None] = Later()
                self._behind.setdefault(key, deque()).append(place)
                await place
                continue

            # 2. Create the topic of states if it doesn't exist.
            if SHARE_STATE_TOPIC not in self._image.topics:
                await self._create_topics([SHARE_STATE_TOPIC])

            # 3. Ask the share coordinator, here or elsewhere.
            leader = self._leader_of(key)
            is_elsewhere = self._elsewhere is not None and leader not in (self._node_id, NO_LEADER)
            if leader == NO_LEADER:
                answer = KafkaError(Error.COORDINATOR_NOT_AVAILABLE)
            elif self._elsewhere is None or not is_elsewhere:
                answer = await self._share_states.ask(key, asked.ask)
            elif self._ahead.setdefault(key, asked) is asked:
                answer = await self._elsewhere(leader, asked)
            else:
                continue  # another request has gone ahead meanwhile

            # 4. After a transient error, wait and try again.
            if tries == len(RETRIES_S) or not _passes(answer, is_elsewhere=is_elsewhere):
                break
            if not self._is_stopped and self._ahead.setdefault(key, asked) is asked:
                await self._pause(RETRIES_S[tries])
                tries += 1

        # 5. Answer; then let the requests behind it go on.
        if self._is_stopped:
            return
        try:
            told.reply(answer)
        finally:
            if self._ahead.get(key) is asked:
                self._let_others_go(key)

    def _leader_of(self, key: SharePartitionKey) -> int:
        topic = self._image.topics.get(SHARE_STATE_TOPIC)
        partition = None if topic is None else topic.partitions.get(self._share_states.partition_of(key.text))
        return NO_LEADER if partition is None else partition.leader

    async def _pause(self, delay_s: float) -> None:
        over: Later[None] = Later()
        self._pauses[over] = self._scheduler.call_later(delay_s, over.reply, None)
        await over
        del self._pauses[over]

    def _let_others_go(self, key: SharePartitionKey) -> None:
        """Let the requests behind go on in order. If one of them has to wait, so does the rest."""
        del self._ahead[key]
        behind = self._behind.get(key)
        if behind is None:
            return
        while behind and key not in self._ahead:
            behind.popleft().reply(None)
        if not behind and self._behind.get(key) is behind:
            del self._behind[key]


def _passes(answer: Any, *, is_elsewhere: bool) -> bool:
    """True if the answer is a transient error, on which the coordinator is asked again."""
    if not isinstance(answer, KafkaError):
        return False
    return answer.error in _ASK_AGAIN or (is_elsewhere and answer.error is Error.UNKNOWN_TOPIC_OR_PARTITION)
