"""The share coordinator of one partition of `__share_group_state`: the durable state of share partitions (KIP-932).

Decide → append → apply. Appended records are applied at once, although they aren't committed yet. So every
answer waits at the gate, those of reads too: `ask` takes care of that. At a start the log is replayed through
the same `apply`.

Two timers keep the log from growing forever: share partitions that nobody has written to for long get a new
snapshot, and everything before the oldest snapshot is deleted. The timers run as long as there are share
partitions, and share groups are served. In Kafka all shards share one timer.

Source: `ShareCoordinatorShard` (snapshotColdPartitions), `ShareCoordinatorService.setupPeriodicJobs`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import TypeVar

from coordinator.commit_waiters import Gate, let_out
from coordinator.persister import ShareState, ShareStateSummary
from coordinator.ports import Barriers, Runtime
from coordinator.settings import ShareCoordinatorSettings
from coordinator.share.share_partition_key import SharePartitionKey
from coordinator.share.share_partitions import (
    Decisions,
    PartitionCountOf,
    SharePartitions,
    ShareRecord,
    Write,
    decode_record,
    encode_record,
)
from protocol.errors import KafkaError, cannot_apply
from protocol.wire.primitives import Bytes

log = logging.getLogger("barnabas.share")


# --- timers ---------------------------------------------------------------------------------------------------

MANY = 100
"""The share partitions to look at before others are served."""

_SNAPSHOTS = "cold snapshots"
_PRUNING = "pruning"


class ShareUpkeep:
    """The timers of one shard."""

    def __init__(
        self,
        runtime: Runtime,
        gate: Gate,
        known: SharePartitions,
        settings: ShareCoordinatorSettings,
        *,
        is_served: Callable[[], bool],
        write: Callable[[Sequence[ShareRecord]], None],
        delete_before: Callable[[int], None],
    ) -> None:
        """`is_served` is true if share groups are served. `delete_before` deletes all records of the shard's
        log below an offset. `write` and `delete_before` may raise KafkaError."""
        self._runtime = runtime
        self._gate = gate
        self._known = known
        self._settings = settings
        self._is_served = is_served
        self._write = write
        self._delete_before = delete_before
        self._is_running = False
        self._pruned_before = 0

    def tick(self) -> None:
        """Start the timers, after something was written or loaded, or share groups are served again."""
        if not self._is_running and len(self._known) and self._is_served():
            self._is_running = True
            self._again(_SNAPSHOTS, self._settings.cold_snapshot_interval_ms, self._begin_snapshots)
            self._again(_PRUNING, self._settings.prune_interval_ms, self._prune)

    def stop(self) -> None:
        self._is_running = False
        self._runtime.cancel(_SNAPSHOTS)
        self._runtime.cancel(_PRUNING)

    def _again(self, key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        self._runtime.schedule(key, delay_ms, callback)

    # --- snapshots of cold share partitions ---------------------------------------------------------------------

    def _begin_snapshots(self) -> None:
        if not self._is_served():
            self.stop()
            return
        # If the last round only rewrote all of them, nobody is active, and there is nothing to gain.
        active = any(state.create_timestamp == state.write_timestamp for state in self._known.states())
        self._go_on_with_snapshots(self._known.keys() if active else [])

    def _go_on_with_snapshots(self, keys: list[SharePartitionKey]) -> None:
        """Continue with `keys`, which haven't been looked at yet."""
        now_ms = self._runtime.now_ms()
        records = []
        for key in keys[:MANY]:
            known = self._known.get(key)
            if known is None:
                continue
            state = known.state
            if now_ms - state.write_timestamp >= self._settings.cold_snapshot_interval_ms:
                state = state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_timestamp=now_ms)
                records.append(ShareRecord(key, state))
        try:
            self._write(records)
        except KafkaError as error:
            log.warning("can't take new snapshots of share partitions that nobody writes to: %s", error)
        rest = keys[MANY:]
        if rest:
            self._again(_SNAPSHOTS, 0, lambda: self._go_on_with_snapshots(rest))
        elif len(self._known):
            self._again(_SNAPSHOTS, self._settings.cold_snapshot_interval_ms, self._begin_snapshots)
        else:
            self.stop()

    # --- pruning --------------------------------------------------------------------------------------------

    def _prune(self) -> None:
        if not self._is_served():
            self.stop()
            return
        self._again(_PRUNING, self._settings.prune_interval_ms, self._prune)
        before = self._known.redundant_before
        if before is not None and before != self._pruned_before:
            self._gate.when_committed(lambda lost: None if lost else self._prune_before(before))

    def _prune_before(self, offset: int) -> None:
        try:
            self._delete_before(offset)
        except KafkaError as error:
            log.warning("can't delete the obsolete records below offset %d: %s", offset, error)
        else:
            self._pruned_before = offset


# --- the shard ------------------------------------------------------------------------------------------------


A = TypeVar("A")

TOMBSTONES_AT_ONCE = 500
"""The tombstones in one batch."""


class ShareShard:
    """One shard, used by one thread.

    Requests for one share partition raise KafkaError as in `share_partitions.py`, or as the append does
    (`append_error`).
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: ShareCoordinatorSettings,
        partition_count_of: PartitionCountOf,
        delete_before: Callable[[int], None],
        is_served: Callable[[], bool],
    ) -> None:
        """`delete_before` deletes all records of the shard's log below an offset, and may raise KafkaError.
        `is_served` is true if share groups are served."""
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

    async def ask(self, question: Callable[[ShareShard], A]) -> A | KafkaError:
        """Answer a question at once, and return the answer, or the KafkaError, once it may be known: see
        `let_out`. Its timeout here is `share.coordinator.write.timeout.ms`."""
        answer: A | KafkaError
        try:
            answer = question(self)
        except KafkaError as error:
            answer = error.as_value()
        return await let_out(answer, self.gate, self._runtime, self._settings.write_timeout_ms)

    # --- one share partition --------------------------------------------------------------------------------

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """Start anew, whatever state there is."""
        self._write((self._decisions.initialize(key, state_epoch, start_offset),))

    def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """Return the state. From now on earlier leader epochs are refused."""
        state, record = self._decisions.read(key, leader_epoch)
        if record is not None:
            self._write((record,))
        return state

    def write(self, key: SharePartitionKey, write: Write) -> None:
        self._write((self._decisions.write(key, write),))

    def delete(self, key: SharePartitionKey) -> None:
        """Delete the state. If there is none, do nothing."""
        record = self._decisions.delete(key)
        if record is not None:
            self._write((record,))

    def summarize(self, key: SharePartitionKey) -> ShareStateSummary:
        """Return the state's summary, or the default values if there is none."""
        return self._decisions.summarize(key)

    # --- what the broker asks -------------------------------------------------------------------------------

    def forget_topics(self, topic_ids: Collection[bytes]) -> Iterator[int]:
        """Delete the states of deleted topics. Each step yields its cost, in records.

        Raises KafkaError if that can't be written; what was written before is in force.
        """
        for topic_id in topic_ids:
            keys = [*self.known.of_topic(topic_id)]
            for first in range(0, len(keys), TOMBSTONES_AT_ONCE):
                part = keys[first : first + TOMBSTONES_AT_ONCE]
                self._write([ShareRecord(key, None) for key in part if key in self.known])
                yield len(part)

    def served_again(self) -> None:
        """Note that share groups are served again."""
        self._upkeep.tick()

    @staticmethod
    def stands_alone(_value: Bytes | None) -> bool:
        """False: no record stands alone, because updates depend on their snapshots."""
        return False

    def replay(self, key: Bytes, value: Bytes | None, record_offset: int, producer_id: int) -> None:
        """Apply one record of the log while loading. Raises CodecError if it makes no sense."""
        record = decode_record(key, value)
        if record is None:
            log.warning("the record at offset %d has an unknown type; it stays in the log", record_offset)
        else:
            self.known.apply(record, record_offset)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Ignore a marker in the shard's own partition. Nobody has transactions there, so it means nothing."""

    def start(self, end_offset: int = 0) -> None:
        """Start the shard after everything up to this offset is replayed. Answers wait until that is committed."""
        if end_offset:
            self.gate.appended(end_offset)
        self._upkeep.tick()

    def interpose(self, barriers: Barriers | None) -> None:
        """It has none of these barriers."""

    def unload(self) -> None:
        """Stop the shard, as its partition is gone or has another leader. Those who wait have to look for the
        coordinator again."""
        self._upkeep.stop()
        self.gate.close()
        self.known.clear()

    # --- records --------------------------------------------------------------------------------------------

    def _write(self, records: Sequence[ShareRecord]) -> None:
        """Append records as one batch and apply them. Raises KafkaError if they can't be written; then
        nothing has changed."""
        if not records:
            return
        end_offset = self.gate.append([encode_record(record) for record in records])
        try:
            for record_offset, record in enumerate(records, end_offset - len(records)):
                self.known.apply(record, record_offset)
        except Exception as error:
            raise cannot_apply(error) from error
        self._upkeep.tick()
