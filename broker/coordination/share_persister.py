"""The durable state of share partitions, as a broker reaches it: by its own shards, or by those of other nodes.

Where the coordinator can't be reached, or isn't there yet, it is asked again, as often and after as long as Kafka does;
meanwhile what else is asked of the share partition waits behind. So it does while another node is asked: where that
doesn't answer a later write would come before an earlier one, whose older start would hold then. Kafka sends both.

A conscious difference: where a shard of this node doesn't know a partition it isn't asked again. It looks at the same
metadata as whoever asks; Kafka asks for half a minute.

Source: `DefaultStatePersister`, `PersisterStateManager`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from broker.controller.image import NO_LEADER
from broker.coordination.share_states import SHARE_STATE_TOPIC
from coordinator.persister import ShareState, ShareStateSummary, StateBatch
from coordinator.share.share_partition_key import SharePartitionKey
from protocol.errors import Error, KafkaError, error_of
from protocol.messages import share_state
from protocol.wire.schema import Message, Struct

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.coordination.share_states import ShareStates
    from broker.environment.scheduler import Scheduled, Scheduler
    from coordinator.ports import WhenCommitted
    from coordinator.share.shard import ShareShard


# --------------------------------------------------------------------------------------------------------------
# What is asked of the share coordinator about one share partition: of a shard in this process, or of
# another node.

A = TypeVar("A")


class ShareStateKind(NamedTuple):
    """One of the five requests."""

    request: Callable[..., Message]
    of_topic: Callable[..., Struct]
    said: Callable[[Any], Any]
    """What a partition's result says that has no error."""


def _nothing(result: Any) -> None:
    """That it is done."""


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


class ShareStateAsk(Generic[A]):
    """`ask` asks a shard here, `part` is what a request to another node says of the partition."""

    __slots__ = ("ask", "key", "kind", "part", "then", "tries")

    def __init__(
        self,
        key: SharePartitionKey,
        kind: ShareStateKind,
        *,
        ask: Callable[[ShareShard], A],
        part: Callable[[], Struct],
        then: Callable[[A | KafkaError], None],
    ) -> None:
        self.key = key
        self.kind = kind
        self.ask = ask
        self.part = part
        self.then = then
        self.tries = 0

    def answer_in(self, results: dict[tuple[bytes, int], Any]) -> A | KafkaError:
        """What is said of this one by another node, by topic id and partition."""
        result = results.get((self.key.topic_id, self.key.partition))
        if result is None:
            return KafkaError(Error.UNKNOWN_SERVER_ERROR, "The share coordinator doesn't answer for it.")
        if result.error_code:
            return KafkaError(error_of(result.error_code), result.error_message)
        said: A = self.kind.said(result)
        return said


# --------------------------------------------------------------------------------------------------------------

RETRIES_S = (2.0, 4.0, 8.0, 16.0)
"""What is waited before it is asked again. Kafka's waits differ by up to a fifth from time to time."""

_ASK_AGAIN = {
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NETWORK_EXCEPTION,
    Error.NOT_COORDINATOR,
    Error.REQUEST_TIMED_OUT,
}


class AskShareStates(Protocol):
    """The way to the share coordinators of other nodes."""

    def __call__(self, node_id: int, asked: ShareStateAsk[Any], answered: Callable[[Any], None], /) -> None:
        """`answered` is told in a later turn what the node says, or a KafkaError."""
        ...


class CreateTopics(Protocol):
    """`TopicRequests.auto_create`."""

    def __call__(
        self, names: Sequence[str], then: Callable[[], None], failed: Callable[[BaseException], None], /
    ) -> object: ...


class SharePersister:
    """The port `coordinator.persister.Persister`."""

    def __init__(
        self,
        node_id: int,
        image: ClusterImage,
        share_states: ShareStates,
        scheduler: Scheduler,
        create_topics: CreateTopics,
        elsewhere: AskShareStates | None,
    ) -> None:
        """`elsewhere`: where there may be other nodes."""
        self._node_id = node_id
        self._image = image
        self._share_states = share_states
        self._scheduler = scheduler
        self._create_topics = create_topics
        self._elsewhere = elsewhere
        self._retries: dict[ShareStateAsk[Any], Scheduled] = {}
        self._ahead: dict[SharePartitionKey, ShareStateAsk[Any]] = {}
        """What is asked of another node, or is to be asked again."""
        self._behind: dict[SharePartitionKey, deque[ShareStateAsk[Any]]] = {}
        """What waits until what is ahead of it is answered."""
        self._is_stopped = False

    # --- the port -------------------------------------------------------------------------------------------

    def initialize(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        state_epoch: int,
        start_offset: int,
        then: WhenCommitted,
    ) -> None:
        """See `Persister`."""
        key = SharePartitionKey(group_id, topic_id, partition)
        self._ask(
            ShareStateAsk(
                key,
                INITIALIZE,
                ask=lambda shard: shard.initialize(key, state_epoch, start_offset),
                part=lambda: share_state.InitializePartition(
                    partition=partition, state_epoch=state_epoch, start_offset=start_offset
                ),
                then=then,
            )
        )

    def read(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        leader_epoch: int,
        then: Callable[[ShareState | KafkaError], None],
    ) -> None:
        """See `Persister`."""
        key = SharePartitionKey(group_id, topic_id, partition)
        self._ask(
            ShareStateAsk(
                key,
                READ,
                ask=lambda shard: shard.read(key, leader_epoch),
                part=lambda: share_state.ReadPartition(partition=partition, leader_epoch=leader_epoch),
                then=then,
            )
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
        then: WhenCommitted,
    ) -> None:
        """See `Persister`."""
        from coordinator.share.share_partitions import Write  # with the first shard

        key = SharePartitionKey(group_id, topic_id, partition)
        write = Write(state_epoch, leader_epoch, start_offset, delivery_complete_count, batches)
        self._ask(
            ShareStateAsk(
                key,
                WRITE,
                ask=lambda shard: shard.write(key, write),
                part=lambda: share_state.WritePartition(
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
                then=then,
            )
        )

    def delete(self, group_id: str, topic_id: bytes, partition: int, then: WhenCommitted) -> None:
        """See `Persister`."""
        key = SharePartitionKey(group_id, topic_id, partition)
        self._ask(
            ShareStateAsk(
                key,
                DELETE,
                ask=lambda shard: shard.delete(key),
                part=lambda: share_state.DeletePartition(partition=partition),
                then=then,
            )
        )

    def read_summary(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        leader_epoch: int,
        then: Callable[[ShareStateSummary | KafkaError], None],
    ) -> None:
        """See `Persister`."""
        key = SharePartitionKey(group_id, topic_id, partition)
        self._ask(
            ShareStateAsk(
                key,
                SUMMARIZE,
                ask=lambda shard: shard.summarize(key),
                part=lambda: share_state.SummaryPartition(partition=partition, leader_epoch=leader_epoch),
                then=then,
            )
        )

    # --- the way there --------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Nobody is asked any more, and nobody told."""
        self._is_stopped = True
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()
        self._ahead.clear()
        self._behind.clear()

    def _ask(self, asked: ShareStateAsk[Any]) -> None:
        if not self._has_to_wait(asked):
            self._go(asked)

    def _has_to_wait(self, asked: ShareStateAsk[Any]) -> bool:
        """Whether something else is ahead of it, behind which it is then."""
        if self._ahead.get(asked.key, asked) is asked:
            return False
        self._behind.setdefault(asked.key, deque()).append(asked)
        return True

    def _go(self, asked: ShareStateAsk[Any]) -> None:
        if self._is_stopped:
            return
        if SHARE_STATE_TOPIC in self._image.topics:
            self._go_to_leader(asked)
        else:
            # Whatever comes of it, who looks for the topic again is told.
            created = partial(self._go_to_leader, asked)
            self._create_topics([SHARE_STATE_TOPIC], created, lambda failure: created())

    def _go_to_leader(self, asked: ShareStateAsk[Any]) -> None:
        topic = self._image.topics.get(SHARE_STATE_TOPIC)
        index = self._share_states.partition_of(asked.key.text)
        partition = None if topic is None else topic.partitions.get(index)
        if partition is None or partition.leader == NO_LEADER:
            self._answered(asked, True, KafkaError(Error.COORDINATOR_NOT_AVAILABLE))
        elif partition.leader == self._node_id or self._elsewhere is None:
            self._share_states.ask(asked.key, asked.ask, partial(self._answered, asked, True))
        elif not self._has_to_wait(asked):
            self._ahead[asked.key] = asked
            self._elsewhere(partition.leader, asked, partial(self._answered, asked, False))

    def _answered(self, asked: ShareStateAsk[Any], is_here: bool, answer: Any) -> None:
        if self._is_stopped:
            return
        if isinstance(answer, KafkaError) and asked.tries < len(RETRIES_S):
            is_unknown = answer.error is Error.UNKNOWN_TOPIC_OR_PARTITION
            if answer.error in _ASK_AGAIN or (is_unknown and not is_here):
                if not self._has_to_wait(asked):
                    self._ahead[asked.key] = asked
                    delay_s = RETRIES_S[asked.tries]
                    asked.tries += 1
                    self._retries[asked] = self._scheduler.call_later(delay_s, self._again, asked)
                return
        try:
            asked.then(answer)
        finally:
            if self._ahead.get(asked.key) is asked:
                self._let_others_go(asked.key)

    def _again(self, asked: ShareStateAsk[Any]) -> None:
        del self._retries[asked]
        self._go(asked)

    def _let_others_go(self, key: SharePartitionKey) -> None:
        """In their order; where one of them has to wait the rest does so behind it."""
        del self._ahead[key]
        behind = self._behind.get(key)
        if behind is None:
            return
        while behind and key not in self._ahead:
            self._go(behind.popleft())
        if not behind and self._behind.get(key) is behind:
            del self._behind[key]
