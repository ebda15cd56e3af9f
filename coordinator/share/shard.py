"""The share coordinator of one partition of `__share_group_state`: the durable state of share partitions.

Decide → append → apply: what is appended is applied at once, but isn't committed yet, so that every answer, of reads
too, waits at the gate: `ask` sees to that. A start replays the log through the same `apply`.
Source: KIP-932; `ShareCoordinatorShard`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeVar

from coordinator.gate import Gate, when_committed_within
from coordinator.persister import ShareState, ShareStateSummary
from coordinator.ports import Runtime
from coordinator.share.decisions import Decisions, PartitionCountOf, Write
from coordinator.share.records import ShareRecord, decode_record, encode_record
from coordinator.share.settings import ShareCoordinatorSettings
from coordinator.share.share_partition_key import SharePartitionKey
from coordinator.share.share_partitions import SharePartitions
from coordinator.share.share_upkeep import ShareUpkeep
from protocol.errors import KafkaError, cannot_apply
from protocol.wire.primitives import Bytes

log = logging.getLogger("barnabas.share")

A = TypeVar("A")

TOMBSTONES_AT_ONCE = 500
"""In one batch."""


class ShareShard:
    """One shard, of one thread. What is asked of one share partition raises KafkaError as `decisions` says, or as the
    append does (`append_error`)."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ShareCoordinatorSettings,
        partition_count_of: PartitionCountOf,
        delete_before: Callable[[int], None],
        is_served: Callable[[], bool],
    ) -> None:
        """`delete_before` has all records of the shard's log below an offset deleted, and may raise KafkaError.
        `is_served`: whether share groups are."""
        self._runtime = runtime
        self._settings = settings
        self.gate = Gate(runtime, closes_on_loss=True)
        self.known = SharePartitions(settings.updates_per_snapshot)
        self._decisions = Decisions(self.known, partition_count_of, runtime.now_ms)
        self._upkeep = ShareUpkeep(
            runtime,
            self.gate,
            self.known,
            settings,
            is_served=is_served,
            write=self._write,
            delete_before=delete_before,
        )

    # --- the way out of every answer ------------------------------------------------------------------------

    def ask(self, question: Callable[[ShareShard], A], reply: Callable[[A | KafkaError], None]) -> None:
        """Ask the shard something that it answers at once, or refuses with KafkaError.

        The answer goes to `reply` once all is committed that the shard has appended: in this call where it is already.
        COORDINATOR_NOT_AVAILABLE after `share.coordinator.write.timeout.ms`; NOT_COORDINATOR where it isn't known any
        more, since the partition is led elsewhere.
        """
        answer: A | KafkaError
        try:
            answer = question(self)
        except KafkaError as error:
            answer = error.as_value()
        if self.gate.is_open:
            reply(answer)
            return

        def committed(lost: KafkaError | None) -> None:
            reply(answer if lost is None else lost)

        when_committed_within(self._settings.write_timeout_ms, self.gate, self._runtime, committed)

    # --- one share partition --------------------------------------------------------------------------------

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Begin anew, whatever there is."""
        self._write((self._decisions.initialize(key, state_epoch, start_offset),))

    def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """What is there; earlier leader epochs are refused from now on."""
        state, record = self._decisions.read(key, leader_epoch)
        if record is not None:
            self._write((record,))
        return state

    def write(self, key: SharePartitionKey, write: Write) -> None:
        self._write((self._decisions.write(key, write),))

    def delete(self, key: SharePartitionKey) -> None:
        """One that isn't there is none to delete."""
        record = self._decisions.delete(key)
        if record is not None:
            self._write((record,))

    def summarize(self, key: SharePartitionKey) -> ShareStateSummary:
        """The default values where it isn't there."""
        return self._decisions.summarize(key)

    # --- what the broker asks -------------------------------------------------------------------------------

    def forget_topics(self, topic_ids: Collection[bytes]) -> Iterator[int]:
        """These topics were deleted. Yields the cost of each step, in records. Raises KafkaError where that can't be
        written: what was written before is in force."""
        for topic_id in topic_ids:
            keys = [*self.known.of_topic(topic_id)]
            for first in range(0, len(keys), TOMBSTONES_AT_ONCE):
                part = keys[first : first + TOMBSTONES_AT_ONCE]
                self._write([ShareRecord(key, None) for key in part if key in self.known])
                yield len(part)

    def served_again(self) -> None:
        """Share groups are, after they weren't."""
        self._upkeep.tick()

    @staticmethod
    def stands_alone(_value: Bytes | None) -> bool:
        """No record does: updates hang on their snapshots."""
        return False

    def replay(self, key: Bytes, value: Bytes | None, record_offset: int, producer_id: int) -> None:
        """One record of the log, at a start. Raises CodecError for one that makes no sense."""
        record = decode_record(key, value)
        if record is None:
            log.warning("the record at offset %d is of no known type; it stays in the log", record_offset)
        else:
            self.known.apply(record, record_offset)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """A marker in the shard's own partition: nobody has transactions there, and it would mean nothing."""

    def start(self, end_offset: int = 0) -> None:
        """Everything is replayed, up to this offset. Nobody is told of any of it before that is committed."""
        if end_offset:
            self.gate.appended(end_offset)
        self._upkeep.tick()

    def unload(self) -> None:
        """The partition is led elsewhere, or gone: who waits here has to look for the coordinator again."""
        self._upkeep.stop()
        self.gate.close()
        self.known.clear()

    # --- records --------------------------------------------------------------------------------------------

    def _write(self, records: Sequence[ShareRecord]) -> None:
        """Append records as one batch and apply them. Raises KafkaError where they can't be written: nothing is changed
        then."""
        if not records:
            return
        end_offset = self.gate.append([encode_record(record) for record in records])
        try:
            for record_offset, record in enumerate(records, end_offset - len(records)):
                self.known.apply(record, record_offset)
        except Exception as error:
            raise cannot_apply(error) from error
        self._upkeep.tick()
