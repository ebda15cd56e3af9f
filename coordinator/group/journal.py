"""How a shard's decisions become its state: written to its partition, then applied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from coordinator.gate import Gate
from coordinator.group.classic.group import ClassicGroup
from coordinator.group.offsets.commit import NO_PRODUCER, OffsetProducer
from coordinator.group.offsets.staging import StagedOffsets, Tombstones
from coordinator.group.records import AnyRecord, encode_record
from coordinator.group.store import GroupStore, StageableGroup, StagedGroup
from coordinator.ports import CoordinatorRecord
from protocol.errors import cannot_apply

PART_BYTES = 64 * 1024  # of records that need not be one batch; far below what a batch may have


class StagedRecords(NamedTuple):
    """Records that are ready to be written, and what becomes of their group then."""

    encoded: Sequence[CoordinatorRecord]
    group: StagedGroup


class Journal:
    """Writes records and applies them at once. What is written isn't committed yet: answers wait for that."""

    def __init__(self, gate: Gate, store: GroupStore) -> None:
        self._gate = gate
        self._store = store

    def write(self, records: Sequence[AnyRecord]) -> None:
        """Append records as one batch and apply them. Raises KafkaError where they can't be written: nothing is
        changed then."""
        if records:
            self._write(records, [encode_record(record) for record in records])

    def write_in_parts(self, records: Iterable[AnyRecord]) -> None:
        """Append and apply records that need not come to be together, some at a time. Raises KafkaError where one part
        can't be written: those before it are in force."""
        part: list[AnyRecord] = []
        encoded: list[CoordinatorRecord] = []
        size_bytes = 0
        for record in records:
            key, value = encode_record(record)
            if part and size_bytes + len(key) + len(value or b"") > PART_BYTES:
                self._write(part, encoded)
                part, encoded, size_bytes = [], [], 0
            part.append(record)
            encoded.append((key, value))
            size_bytes += len(key) + len(value or b"")
        if part:
            self._write(part, encoded)

    def staged(self, group: StageableGroup, records: Sequence[AnyRecord]) -> StagedRecords:
        """All that is long in writing records of a group that the server assigns: they are encoded, and applied to a
        copy of it. It changes nothing, so that another thread may do it."""
        return StagedRecords(
            [encode_record(record) for record in records], self._store.staged(group, records)
        )

    def write_offsets(self, staged: StagedOffsets, producer: OffsetProducer = NO_PRODUCER) -> None:
        """Append the offsets as one batch and apply them. Raises KafkaError as `write`."""
        committed = staged.committed
        if not committed:
            return
        producer_id = producer.producer_id
        end_offset = self._gate.append(
            staged.encoded, producer_id=producer_id, producer_epoch=producer.epoch, guard=producer.guard
        )
        try:
            first_offset = end_offset - len(committed)
            self._store.apply_offsets(staged.group_id, committed, first_offset, producer_id)
        except Exception as error:
            raise cannot_apply(error) from error

    def write_tombstones(self, staged: Tombstones) -> None:
        """Append them as one batch and apply them. Raises KafkaError as `write`."""
        if not staged.encoded:
            return
        self._gate.append(staged.encoded)
        try:
            for group_id, places in staged.places.items():
                self._store.offsets.remove(group_id, places)
            for record in staged.others:
                self._store.apply(record)
        except Exception as error:
            raise cannot_apply(error) from error

    def write_staged(self, staged: StagedRecords) -> None:
        """Append them as one batch; the copy takes the group's place. Raises KafkaError as `write`."""
        self._gate.append(staged.encoded)
        try:
            self._store.adopt(staged.group)
        except Exception as error:
            raise cannot_apply(error) from error

    def write_replacement(self, classic: ClassicGroup, records: Sequence[AnyRecord]) -> None:
        """Append, as one batch, the records by which a classic group takes the place of the consumer group of its id.
        Raises KafkaError as `write`."""
        self._gate.append([encode_record(record) for record in records])
        try:
            self._store.replace(classic)
        except Exception as error:
            raise cannot_apply(error) from error

    def _write(self, records: Sequence[AnyRecord], encoded: Sequence[CoordinatorRecord]) -> None:
        self._gate.append(encoded)
        try:
            for record in records:
                self._store.apply(record)
        except Exception as error:
            raise cannot_apply(error) from error
