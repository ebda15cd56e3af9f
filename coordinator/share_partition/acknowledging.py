"""The changes that acknowledgements, or the end of a session, make to records in flight (Kafka:
`SharePartition.acknowledge`).

Each change begins at once, as part of a `Changes`. It is final once it is written. It is taken back if the write
fails, or if another acknowledgement in the same list is wrong. Renewed locks stay renewed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from coordinator.persister import StateBatch
from coordinator.share_partition.in_flight_records import (
    NO_MEMBER,
    InFlightBatch,
    InFlightRecords,
    InFlightState,
    Locks,
    dead_state,
)
from coordinator.share_partition.ports import EXHAUSTED, REJECTED, DeadLetter, ShareSettings
from coordinator.share_partition.states import (
    ACKNOWLEDGED_AS,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    TERMINAL,
    AcknowledgeType,
    RecordState,
)
from protocol.errors import Error, KafkaError
from protocol.messages.share_fetch import AcknowledgementBatch

_NOT_FOUND = "Batch record not found. The request batch offsets are not found in the cache."
_FIRST_IS_PAST = "Batch record not found. The first offset in request is past acquired records."
_LAST_IS_PAST = "Batch record not found. The last offset in request is past acquired records."
_PENDING = "The record state is invalid. The acknowledgement of delivery could not be completed."
_BATCH_NOT_ACQUIRED = "The batch cannot be acknowledged. The batch is not in the acquired state."
_SUBSET_NOT_ACQUIRED = "The batch cannot be acknowledged. The subset batch is not in the acquired state."
_OFFSET_NOT_ACQUIRED = "The offset cannot be acknowledged. The offset is not acquired."
_NOT_OWNER_OF_BATCH = "Member is not the owner of batch record"
_NOT_OWNER_OF_OFFSET = "Member is not the owner of offset"
_NO_RENEWAL = "Renewing acquisition locks is not enabled for the group."


class Changes:
    """Changes that have begun and aren't written yet."""

    def __init__(self, records: InFlightRecords, settings: ShareSettings) -> None:
        self._records = records
        self._settings = settings
        self._begun: list[tuple[InFlightState, StateBatch, RecordState]] = []  # with the intended state
        self.dead: list[DeadLetter] = []
        """Dead letters to bury once the changes are complete."""

    def __bool__(self) -> bool:
        return bool(self._begun)

    @property
    def written(self) -> list[StateBatch]:
        """The batches to write, one for each change."""
        return [batch for _, batch, _ in self._begun]

    def begin(self, state: InFlightState, to: RecordState, first_offset: int, last_offset: int) -> None:
        """Begin a change of these offsets, which are acquired and have no pending change."""
        settings = self._settings
        begun = state.begin(to, settings.delivery_count_limit, dead_state(settings))
        assert begun, "what isn't acquired was acknowledged"
        self._begun.append(
            (state, StateBatch(first_offset, last_offset, state.state, state.delivery_count), to)
        )
        if state.is_terminal:
            self._records.terminal_count += self._records.count_from_start(first_offset, last_offset)

    def complete(self, *, is_written: bool) -> None:
        """Complete all of them, or take all back."""
        records = self._records
        for begun, batch, to in self._begun:
            for first, last, state in begun.parts(batch.first_offset, batch.last_offset):
                state.complete(is_written=is_written, exhausted=dead_state(self._settings))
                if not is_written and batch.delivery_state in TERMINAL and not state.is_terminal:
                    records.terminal_count -= records.count_from_start(first, last)
                if state.state is ARCHIVING:
                    cause = REJECTED if is_written and to is ARCHIVING else EXHAUSTED
                    self.dead.append(DeadLetter(first, last, state.delivery_count, cause))
                if state.state is AVAILABLE:
                    records.may_have_available |= last >= records.start_offset
                    if first < records.start_offset:
                        self._archive_before_start(state, first, last)

    def _archive_before_start(self, state: InFlightState, first: int, last: int) -> None:
        """Archive those of the returned offsets that are before the log start.

        Kafka fetches them forever, although the log doesn't have them any more.
        """
        records = self._records
        if last < records.start_offset:
            state.archive()
        else:
            batch = records.floor(first)
            batches = [] if batch is None else [batch]
            records.archive(first, records.start_offset, batches, AVAILABLE, counts=False)


class Acknowledgement:
    """The acknowledgements of one member, for one share partition."""

    def __init__(
        self,
        records: InFlightRecords,
        locks: Locks,
        settings: ShareSettings,
        member_id: str,
        changes: Changes,
    ) -> None:
        self._records = records
        self._locks = locks
        self._settings = settings
        self._member_id = member_id
        self._changes = changes
        self._cut: InFlightBatch | None = None

    def run(self, batches: Sequence[AcknowledgementBatch]) -> None:
        """Begin all changes. `batches` are ascending.

        Raises KafkaError with the first error: INVALID_RECORD_STATE, INVALID_REQUEST.
        """
        for number, batch in enumerate(batches):
            if batch.last_offset < self._records.start_offset:
                continue  # already finished, or no longer in the log
            for in_flight in self._in_flight(batch):
                if in_flight.last_offset >= self._records.start_offset and self._tells_apart(
                    batch, in_flight
                ):
                    if in_flight is not self._cut and batch.first_offset <= in_flight.last_offset:
                        self._cut = in_flight
                        in_flight.cut_at(self._edges(batches, number, in_flight))
                    self._acknowledge_each(batch, in_flight)

    def _edges(
        self, batches: Sequence[AcknowledgementBatch], number: int, in_flight: InFlightBatch
    ) -> list[int]:
        """The offsets in a batch at which the type of acknowledgement changes, from batch `number` on."""
        edges: list[int] = []
        for place in range(number, len(batches)):  # `islice` would walk through all those before
            batch = batches[place]
            if batch.first_offset > in_flight.last_offset:
                break
            first = max(batch.first_offset, self._records.start_offset, in_flight.first_offset)
            last = min(batch.last_offset, in_flight.last_offset)
            types = batch.acknowledge_types
            if len(types) > 1:
                for _, neighbours in groupby(
                    types[first - batch.first_offset : last - batch.first_offset + 1]
                ):
                    edges.append(first)
                    first += sum(1 for _ in neighbours)
            else:
                edges.append(first)
            edges.append(last + 1)
        return edges

    def _in_flight(self, batch: AcknowledgementBatch) -> list[InFlightBatch]:
        """The batches in flight that a batch of acknowledgements touches."""
        records = self._records
        floor = records.floor(batch.first_offset)
        if floor is None and batch.first_offset < records.start_offset:
            floor = records.floor(records.start_offset)
        if floor is None:
            raise KafkaError(Error.INVALID_RECORD_STATE, _NOT_FOUND)
        found = records.between(floor.first_offset, batch.last_offset)
        if found[-1].last_offset < batch.first_offset:
            raise KafkaError(Error.INVALID_REQUEST, _FIRST_IS_PAST)
        if batch.last_offset > found[-1].last_offset:
            raise KafkaError(Error.INVALID_REQUEST, _LAST_IS_PAST)
        return found

    def _tells_apart(self, batch: AcknowledgementBatch, in_flight: InFlightBatch) -> bool:
        """True if the offsets have to be looked at one by one. Otherwise all of them are acknowledged together."""
        whole = in_flight.whole
        if whole is not None:
            if whole.member_id == NO_MEMBER:
                raise KafkaError(Error.INVALID_RECORD_STATE, _BATCH_NOT_ACQUIRED)
            if whole.member_id != self._member_id:
                raise KafkaError(Error.INVALID_RECORD_STATE, _NOT_OWNER_OF_BATCH)
            if whole.is_pending:
                raise KafkaError(Error.INVALID_RECORD_STATE, _PENDING)
            is_subset = not in_flight.is_within(batch.first_offset, batch.last_offset)
            is_cut = in_flight.first_offset < self._records.start_offset
            if not (is_subset or is_cut or len(batch.acknowledge_types) > 1):
                self._acknowledge_whole(batch, in_flight, whole)
                return False
            if whole.state is not ACQUIRED:
                raise KafkaError(Error.INVALID_RECORD_STATE, _SUBSET_NOT_ACQUIRED)
            in_flight.split()
        return True

    def _acknowledge_whole(
        self, batch: AcknowledgementBatch, in_flight: InFlightBatch, whole: InFlightState
    ) -> None:
        if whole.state is not ACQUIRED:
            raise KafkaError(Error.INVALID_RECORD_STATE, _BATCH_NOT_ACQUIRED)
        self._change(whole, batch.acknowledge_types[0], in_flight.first_offset, in_flight.last_offset)

    def _acknowledge_each(self, batch: AcknowledgementBatch, in_flight: InFlightBatch) -> None:
        types = batch.acknowledge_types
        first = max(batch.first_offset, self._records.start_offset)
        for run_first, run_last, state in in_flight.runs(first, batch.last_offset):
            if state.state is not ACQUIRED:
                raise KafkaError(Error.INVALID_RECORD_STATE, _OFFSET_NOT_ACQUIRED)
            if state.member_id != self._member_id:
                raise KafkaError(Error.INVALID_RECORD_STATE, _NOT_OWNER_OF_OFFSET)
            # runs were cut where the types change
            kind = types[0] if len(types) == 1 else types[run_first - batch.first_offset]
            self._change(in_flight.cut(run_first, run_last), kind, run_first, run_last)

    def _change(self, state: InFlightState, kind: int, first_offset: int, last_offset: int) -> None:
        if kind != AcknowledgeType.RENEW:
            rejects = kind == AcknowledgeType.REJECT
            to = dead_state(self._settings) if rejects else ACKNOWLEDGED_AS[kind]
            self._changes.begin(state, to, first_offset, last_offset)
            return
        if not self._settings.renew_acknowledge_enable:
            raise KafkaError(Error.INVALID_RECORD_STATE, _NO_RENEWAL)
        state.relock(self._locks.take(first_offset, last_offset, self._settings.record_lock_duration_ms))


def release(records: InFlightRecords, member_id: str, changes: Changes) -> None:
    """Give back everything that a member has acquired, as its session is over. Offsets before the start are
    archived."""
    start = records.start_offset
    for batch in records:
        whole = batch.whole
        if whole is not None:
            if whole.state is not ACQUIRED or whole.member_id != member_id:
                continue
            if not batch.first_offset < start <= batch.last_offset:
                to = ARCHIVED if batch.last_offset < start else AVAILABLE
                changes.begin(whole, to, batch.first_offset, batch.last_offset)
                continue
            batch.split()
        for first, last, state in batch.runs(batch.first_offset, batch.last_offset):
            if state.state is not ACQUIRED or state.member_id != member_id:
                continue
            if first < start:
                archived_to = min(last, start - 1)
                changes.begin(batch.cut(first, archived_to), ARCHIVED, first, archived_to)
                first = archived_to + 1
            if first <= last:
                changes.begin(batch.cut(first, last), AVAILABLE, first, last)
