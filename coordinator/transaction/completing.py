"""From Prepare* to Complete*: each partition gets its marker, then the completion is logged.

A restart finds what was prepared and comes through here as well. Until Complete* is logged it is pending, and everybody
is told CONCURRENT_TRANSACTIONS.
Source: `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`, `prepareComplete`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from coordinator.ports import MarkerAnswers, TopicPartition, TxnMarker
from coordinator.transaction.metadata import TransactionMetadata, TransitMetadata
from coordinator.transaction.states import (
    AWAITS_MARKERS,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    PREPARE_COMMIT,
)
from protocol.errors import Error, KafkaError
from protocol.records.batch import NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator.transaction.shard import TransactionShard

log = logging.getLogger("barnabas.transactions")

MAX_RETRY_BACKOFF_MS = 1_000


class Reaction(Enum):
    """What the answer of a partition's leader means."""

    DONE = "the partition awaits no marker any more"
    RETRY = "ask again"
    GIVE_UP = "somebody else has taken over producer or coordinator: no more is sent for this transaction"


REACTIONS: dict[Error | None, Reaction] = {
    Error.NONE: Reaction.DONE,
    None: Reaction.DONE,  # the partition was deleted
    Error.UNSUPPORTED_FOR_MESSAGE_FORMAT: Reaction.DONE,  # no transaction can have written there
    Error.UNSUPPORTED_VERSION: Reaction.DONE,
    Error.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY,
    Error.NOT_LEADER_OR_FOLLOWER: Reaction.RETRY,
    Error.NOT_ENOUGH_REPLICAS: Reaction.RETRY,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Reaction.RETRY,
    Error.REQUEST_TIMED_OUT: Reaction.RETRY,
    Error.KAFKA_STORAGE_ERROR: Reaction.RETRY,
    Error.INVALID_PRODUCER_EPOCH: Reaction.GIVE_UP,
    Error.TRANSACTION_COORDINATOR_FENCED: Reaction.GIVE_UP,
}
"""Any other error must not happen (Kafka: IllegalStateException) and is given up too, with a louder word in the log."""

RETRIED_APPENDS = frozenset({Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR})
"""What may pass. Kafka leaves NOT_COORDINATOR to the next coordinator; here `unload` says that there is one, and
without it a disk that was full for a moment would leave the transaction prepared for ever."""


@dataclass(slots=True, eq=False)
class Completion:
    """A transaction whose Prepare* is logged, and Complete* not yet."""

    metadata: TransactionMetadata
    marker: TxnMarker
    transit: TransitMetadata
    """What it becomes; decided when the markers start, so that its last update is that moment."""
    to_retry: dict[TopicPartition, None] = field(default_factory=dict)
    retries: int = 0
    is_marked: bool = False


def begin(shard: TransactionShard, metadata: TransactionMetadata) -> TransitMetadata:
    """Send the markers of a prepared transaction. With nothing in the way it is complete when this returns.

    What the transactional id becomes by it.
    """
    commits = metadata.state is PREPARE_COMMIT
    metadata.has_failed_epoch_fence = False
    transit = _complete(shard, metadata, commits)
    metadata.propose(transit.state, transit.producer_epoch)
    marker = TxnMarker(
        metadata.producer_id,
        metadata.producer_epoch,
        shard.coordinator_epoch,
        commits,
        metadata.client_transaction_version,
    )
    completion = Completion(metadata, marker, transit)
    shard.completions[metadata.transactional_id] = completion
    if metadata.partitions:
        _send(shard, completion, [*metadata.partitions])
    else:
        _finish(shard, completion)
    return transit


def resume(shard: TransactionShard, metadata: TransactionMetadata) -> None:
    """After a restart: drive on what was prepared."""
    if metadata.state in AWAITS_MARKERS:
        begin(shard, metadata)


def _complete(shard: TransactionShard, metadata: TransactionMetadata, commits: bool) -> TransitMetadata:
    producer_id, epoch = metadata.producer_id, metadata.producer_epoch
    if metadata.client_transaction_version >= 2 and metadata.next_producer_id != NO_PRODUCER_ID:
        producer_id, epoch = metadata.next_producer_id, 0
    return TransitMetadata(
        COMPLETE_COMMIT if commits else COMPLETE_ABORT,
        producer_id,
        metadata.producer_id,
        NO_PRODUCER_ID,
        epoch,
        metadata.last_producer_epoch,
        metadata.timeout_ms,
        {},
        metadata.start_timestamp_ms,
        shard.runtime.now_ms(),
        metadata.client_transaction_version,
    )


def _send(shard: TransactionShard, completion: Completion, partitions: list[TopicPartition]) -> None:
    shard.markers.write(
        completion.marker, partitions, lambda answers: _on_answers(shard, completion, answers)
    )


def _is_current(shard: TransactionShard, completion: Completion) -> bool:
    return shard.completions.get(completion.metadata.transactional_id) is completion


def _on_answers(shard: TransactionShard, completion: Completion, answers: MarkerAnswers) -> None:
    if not _is_current(shard, completion):
        return
    awaited = completion.metadata.partitions
    waits_already = bool(completion.to_retry)
    for partition, error in answers.items():
        if partition not in awaited:
            continue  # answered before
        reaction = REACTIONS.get(error)
        if reaction is Reaction.DONE:
            del awaited[partition]
        elif reaction is Reaction.RETRY:
            completion.to_retry[partition] = None
        else:
            _give_up(shard, completion, partition, error, is_expected=reaction is not None)
    if not _is_current(shard, completion):
        return
    if completion.to_retry and not waits_already:
        _later(shard, completion, _send_again)
    if not awaited and not completion.is_marked:
        _finish(shard, completion)


def _give_up(
    shard: TransactionShard,
    completion: Completion,
    partition: TopicPartition,
    error: Error | None,
    *,
    is_expected: bool,
) -> None:
    """It stays prepared, and pending, until the shard is loaded anew: as in Kafka."""
    level = logging.INFO if is_expected else logging.ERROR
    transactional_id = completion.metadata.transactional_id
    log.log(
        level, "the markers of %s end here: %s of %s-%d", transactional_id, error and error.name, *partition
    )
    shard.completions.pop(transactional_id, None)
    shard.runtime.cancel(_key(completion))


def _send_again(shard: TransactionShard, completion: Completion) -> None:
    awaited = completion.metadata.partitions
    partitions = [each for each in completion.to_retry if each in awaited]
    completion.to_retry = {}
    if partitions:
        _send(shard, completion, partitions)


def _finish(shard: TransactionShard, completion: Completion) -> None:
    """Every partition has its marker: log that. Where that has to wait it stays pending."""
    completion.is_marked = True
    metadata, transit = completion.metadata, completion.transit
    if shard.transaction_version() < 1 and transit.client_transaction_version:
        # The level went down to 0 meanwhile: better a record without the client's version than none.
        transit = transit._replace(client_transaction_version=0)
    try:
        shard.append(metadata, transit)
    except KafkaError as error:
        if error.error in RETRIED_APPENDS:
            log.info("the completion of %s waits: %s", metadata.transactional_id, error)
            _later(shard, completion, _finish)
            return
        log.error("the completion of %s can't be logged: %s", metadata.transactional_id, error)
        metadata.pending_state = None
    del shard.completions[metadata.transactional_id]
    if completion.retries:
        shard.runtime.cancel(_key(completion))


def _key(completion: Completion) -> tuple[str, str]:
    return ("markers", completion.metadata.transactional_id)


def _later(
    shard: TransactionShard,
    completion: Completion,
    step: Callable[[TransactionShard, Completion], None],
) -> None:
    def go_on() -> None:
        if _is_current(shard, completion):
            step(shard, completion)

    delay_ms = min(shard.settings.retry_backoff_ms << min(completion.retries, 10), MAX_RETRY_BACKOFF_MS)
    completion.retries += 1
    shard.runtime.schedule(_key(completion), delay_ms, go_on)
