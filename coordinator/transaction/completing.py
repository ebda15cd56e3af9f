"""From Prepare* to Complete*: each partition gets its marker, then the completion is logged.

A restart finds what was prepared and comes through here as well. Until Complete* is committed it is pending, and
everybody is told CONCURRENT_TRANSACTIONS.
Source: `TransactionMarkerChannelManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from coordinator.ports import MarkerAnswers, Markers, TxnMarker
from coordinator.transaction.marker_reactions import DONE, MARKER_REACTIONS, RETRY
from coordinator.transaction.settings import TransactionSettings
from coordinator.transaction.state_manager import TransactionStateManager
from coordinator.transaction.states import AWAITS_MARKERS, PREPARE_COMMIT
from coordinator.transaction.transaction_metadata import TransactionMetadata, TransitMetadata
from protocol.errors import Error, KafkaError
from protocol.topic_partition import TopicPartition

log = logging.getLogger("barnabas.transactions")

MAX_RETRY_BACKOFF_MS = 1_000


RETRIED_APPENDS = frozenset({Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR})
"""What may pass. Kafka leaves NOT_COORDINATOR to the next coordinator; here `stop` says that there is one, and without
it a disk that was full for a moment would leave the transaction prepared for ever."""


@dataclass(slots=True, eq=False)
class Completion:
    """A transaction whose Prepare* is committed, and Complete* not yet."""

    metadata: TransactionMetadata
    marker: TxnMarker
    transit: TransitMetadata
    """What it becomes; decided when the markers start, so that its last update is that moment."""
    to_retry: dict[TopicPartition, None] = field(default_factory=dict)
    retries: int = 0
    is_marked: bool = False


class Completing:
    """Sends markers, and logs that a transaction is complete."""

    def __init__(
        self,
        manager: TransactionStateManager,
        markers: Markers,
        settings: TransactionSettings,
        coordinator_epoch: int,
    ) -> None:
        self._manager = manager
        self._markers = markers
        self._settings = settings
        self._coordinator_epoch = coordinator_epoch
        self.completions: dict[str, Completion] = {}
        """By transactional id."""

    def begin(self, metadata: TransactionMetadata) -> Completion:
        """A prepared transaction is about to be completed: from here on that is pending. Nothing is sent yet."""
        transit = metadata.prepare_complete(self._manager.runtime.now_ms())
        metadata.propose(transit.state, transit.producer_epoch)
        marker = TxnMarker(
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            coordinator_epoch=self._coordinator_epoch,
            commit=metadata.state is PREPARE_COMMIT,
            transaction_version=metadata.client_transaction_version,
        )
        completion = Completion(metadata, marker, transit)
        self.completions[metadata.transactional_id] = completion
        return completion

    def send(self, completion: Completion) -> None:
        """Send the markers. With nothing in the way the transaction is complete when this returns."""
        partitions = completion.metadata.partitions
        if partitions:
            self._send(completion, [*partitions])
        else:
            self._finish(completion)

    def resume(self) -> None:
        """After a start: drive on what was prepared."""
        for metadata in [*self._manager.transactions.values()]:
            if metadata.state in AWAITS_MARKERS:
                self.send(self.begin(metadata))

    def stop(self) -> None:
        """The shard is given up: what markers are answered with counts no more."""
        self.completions.clear()

    # ---- markers

    def _send(self, completion: Completion, partitions: list[TopicPartition]) -> None:
        self._markers.write(
            completion.marker, partitions, lambda answers: self._on_answers(completion, answers)
        )

    def _is_current(self, completion: Completion) -> bool:
        return self.completions.get(completion.metadata.transactional_id) is completion

    def _on_answers(self, completion: Completion, answers: MarkerAnswers) -> None:
        metadata = completion.metadata
        if self.completions.get(metadata.transactional_id) is not completion:
            return
        waits_already = bool(completion.to_retry)
        for partition, error in answers.items():
            if partition not in metadata.partitions:
                continue  # answered before
            reaction = MARKER_REACTIONS.get(error)
            if reaction is DONE:
                metadata.remove_partition(partition)
            elif reaction is RETRY:
                completion.to_retry[partition] = None
            else:
                self._give_up(completion, partition, error)
        if self.completions.get(metadata.transactional_id) is not completion:
            return
        if completion.to_retry and not waits_already:
            self._later(completion, self._send_again)
        if not metadata.partitions and not completion.is_marked:
            self._finish(completion)

    def _give_up(self, completion: Completion, partition: TopicPartition, error: Error | None) -> None:
        """It stays prepared, and pending, until the shard is loaded anew: as in Kafka."""
        transactional_id = completion.metadata.transactional_id
        log.log(
            logging.INFO if error in MARKER_REACTIONS else logging.ERROR,
            "the markers of %s end here: %s of %s-%d",
            transactional_id,
            error and error.name,
            *partition,
        )
        self.completions.pop(transactional_id, None)
        self._manager.runtime.cancel(_key(completion))

    def _send_again(self, completion: Completion) -> None:
        awaited = completion.metadata.partitions
        partitions = [each for each in completion.to_retry if each in awaited]
        completion.to_retry = {}
        if partitions:
            self._send(completion, partitions)

    # ---- the end

    def _finish(self, completion: Completion) -> None:
        """Every partition has its marker: log that. Where that has to wait it stays pending."""
        completion.is_marked = True
        transit = completion.transit
        if self._manager.transaction_version() < 1 and transit.client_transaction_version:
            # The level went down to 0 meanwhile: better a record without the client's version than none.
            transit = replace(transit, client_transaction_version=0)
        try:
            self._manager.log(
                completion.metadata,
                transit,
                lambda error: self._finished(completion, error),
                retried=RETRIED_APPENDS,
            )
        except BaseException:  # what nobody thought of must not leave it prepared for ever
            if self._is_current(completion):
                self._later(completion, self._finish)
            raise

    def _finished(self, completion: Completion, error: KafkaError | None) -> None:
        if not self._is_current(completion):
            return
        metadata = completion.metadata
        if error is not None:
            if error.error in RETRIED_APPENDS:
                log.info("the completion of %s waits: %s", metadata.transactional_id, error)
                self._later(completion, self._finish)
                return
            log.error("the completion of %s can't be logged: %s", metadata.transactional_id, error)
        del self.completions[metadata.transactional_id]
        if completion.retries:
            self._manager.runtime.cancel(_key(completion))

    def _later(self, completion: Completion, step: Callable[[Completion], None]) -> None:
        def go_on() -> None:
            if self._is_current(completion):
                step(completion)

        backoff_ms = self._settings.retry_backoff_ms << min(completion.retries, 10)
        completion.retries += 1
        self._manager.runtime.schedule(_key(completion), min(backoff_ms, MAX_RETRY_BACKOFF_MS), go_on)


def _key(completion: Completion) -> tuple[str, str]:
    return ("markers", completion.metadata.transactional_id)
