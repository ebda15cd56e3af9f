"""What is asked of the share coordinator about one share partition: of a shard in this process, or of another node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from coordinator.persister import ShareState, ShareStateSummary, StateBatch
from protocol.errors import Error, KafkaError, error_of
from protocol.messages import share_state
from protocol.wire.schema import Message, Struct

if TYPE_CHECKING:
    from coordinator.share.shard import ShareShard
    from coordinator.share.share_partition_key import SharePartitionKey

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
