"""What a shard of the share coordinator does by the clock, so that its log doesn't grow for ever: what nobody has
written to for long is written down again, and all that lies before the oldest snapshot goes.

Time runs as long as there are share partitions, and share groups are served. In Kafka one clock is all shards'.
Source: `ShareCoordinatorService.setupPeriodicJobs`, `ShareCoordinatorShard.snapshotColdPartitions`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence

from coordinator.gate import Gate
from coordinator.ports import Runtime
from coordinator.share.records import ShareRecord
from coordinator.share.settings import ShareCoordinatorSettings
from coordinator.share.share_partition_key import SharePartitionKey
from coordinator.share.share_partitions import SharePartitions
from protocol.errors import KafkaError

log = logging.getLogger("barnabas.share")

MANY = 100
"""So many share partitions are looked at before others are served."""

_SNAPSHOTS = "cold snapshots"
_PRUNING = "pruning"


class ShareUpkeep:
    """Of one shard."""

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
        """`is_served`: whether share groups are. `delete_before` has all records of the shard's log below an offset
        deleted. `write` and it may raise KafkaError."""
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
        """Something was written, or loaded, or share groups are served again: time runs from now on."""
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

    # --- snapshots of what is cold --------------------------------------------------------------------------

    def _begin_snapshots(self) -> None:
        if not self._is_served():
            self.stop()
            return
        # Where all of them were only written down again last time nobody is at work, and nothing is to be gained.
        active = any(state.create_timestamp == state.write_timestamp for state in self._known.states())
        self._go_on_with_snapshots(self._known.keys() if active else [])

    def _go_on_with_snapshots(self, keys: list[SharePartitionKey]) -> None:
        """`keys` are those that haven't been looked at."""
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
            log.warning("share partitions that nobody writes to can't be written down again: %s", error)
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
            log.warning(
                "records below offset %d that aren't needed any more can't be deleted: %s", offset, error
            )
        else:
            self._pruned_before = offset
