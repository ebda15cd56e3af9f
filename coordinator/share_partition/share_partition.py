"""A partition as one share group consumes it, at its leader (Kafka: `SharePartition`, KIP-932).

Memory has the current holder of each record. The persister has the fate of records that were acknowledged or
given back. A record that was only acquired comes back after a restart as if it had never been delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from coordinator.persister import NO_START_OFFSET, Persister, ShareState, StateBatch
from coordinator.share_partition import acquiring
from coordinator.share_partition.acknowledging import Acknowledgement, Changes, release
from coordinator.share_partition.acquiring import Acquisition
from coordinator.share_partition.in_flight_records import (
    GapWindow,
    InFlightBatch,
    InFlightRecords,
    InFlightState,
    Lock,
    Locks,
    dead_state,
)
from coordinator.share_partition.ports import (
    EXHAUSTED,
    REJECTED,
    AbortedFrom,
    AcquiredRecords,
    Bury,
    DeadLetter,
    FetchedBatch,
    ShareRuntime,
    ShareSettings,
    bury_nothing,
)
from coordinator.share_partition.states import (
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    ON_INITIALIZE,
    RECORD_STATES,
    AcquireMode,
    PartitionState,
    RecordState,
)
from protocol.errors import Error, KafkaError
from protocol.messages.share_fetch import AcknowledgementBatch
from protocol.waiting import Waiting, carry_on

PERSISTER_ERRORS: dict[Error, Error] = {
    Error.NOT_COORDINATOR: Error.COORDINATOR_NOT_AVAILABLE,
    Error.COORDINATOR_NOT_AVAILABLE: Error.COORDINATOR_NOT_AVAILABLE,
    Error.COORDINATOR_LOAD_IN_PROGRESS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.GROUP_ID_NOT_FOUND: Error.GROUP_ID_NOT_FOUND,
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.FENCED_LEADER_EPOCH: Error.NOT_LEADER_OR_FOLLOWER,
    Error.FENCED_STATE_EPOCH: Error.NOT_LEADER_OR_FOLLOWER,
}
"""Errors of the share coordinator → errors for the client. All others become UNKNOWN_SERVER_ERROR."""


FENCED_AS_LEADER = frozenset(
    (Error.FENCED_LEADER_EPOCH, Error.FENCED_STATE_EPOCH, Error.NOT_LEADER_OR_FOLLOWER)
)
"""Errors of the share coordinator that mean that this leader's decisions don't count any more."""

MOST_GIVEN_BACK = 1_000_000
"""The most consecutive offsets in durable state that are to be delivered again: far more than a record batch has.
"""
MOST_EXPIRED_AT_ONCE = 500
"""The offsets of one lock to give back in one turn. Separate offsets need a write each."""


class SharePartition:
    """A share partition. `changed` is called whenever a waiting fetch may find records to acquire, or an error.

    Writes count in their order: the writer continues within the call that answers (`begun`).
    """

    def __init__(
        self,
        group_id: str,
        topic_id: bytes,
        partition: int,
        leader_epoch: int,
        *,
        runtime: ShareRuntime,
        persister: Persister,
        settings: Callable[[], ShareSettings],
        reset_offset: Callable[[], Waiting[int | KafkaError]],
        changed: Callable[[], None],
        bury: Bury = bury_nothing,
        refused: Callable[[KafkaError], None] | None = None,
        unwritten: Callable[[KafkaError], None] | None = None,
    ) -> None:
        """`reset_offset` returns the start offset by the group's settings, or the error. `refused` is called
        with an error first, if a member's change couldn't be written. `unwritten` is called if a write failed
        that nobody waits for."""
        self.group_id = group_id
        self.topic_id = topic_id
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.state = PartitionState.EMPTY
        self.records = InFlightRecords(0)
        self._state_epoch = 0
        self._persister = persister
        self._settings = settings
        self._reset_offset = reset_offset
        self._changed = changed
        self._bury = bury
        self._refused = refused
        self._unwritten = unwritten
        self.burying = 0
        """The number of dead letters that aren't in their queue yet, or aren't written as archived."""
        self._fetching: object | None = None
        self._was_refused = False
        self._is_expiring = False
        self._locks = Locks(runtime, self._lock_expired)

    @property
    def is_active(self) -> bool:
        return self.state is PartitionState.ACTIVE

    @property
    def is_over(self) -> bool:
        """True if it will never hand out anything again."""
        return self.state in (PartitionState.FAILED, PartitionState.FENCED)

    @property
    def lock_count(self) -> int:
        """The number of running locks."""
        return len(self._locks)

    # --- what is durable ------------------------------------------------------------------------------------

    async def initialize(self) -> KafkaError | None:
        """Read the durable state, unless that has begun before. Returns None once records can be acquired,
        else the error for the client.

        After an error another share partition has to be made, except after LEADER_NOT_AVAILABLE: it is being
        read already, or isn't this broker's any more, and those who wait are woken.
        """
        step = ON_INITIALIZE[self.state]
        if isinstance(step, Error):
            return None if step is Error.NONE else KafkaError(step)
        self.state = step
        found = await self._persister.read(self.group_id, self.topic_id, self.partition, self.leader_epoch)
        start = _told(found) if isinstance(found, KafkaError) else found.start_offset
        if start == NO_START_OFFSET:
            start = await self._reset_offset()
        if self.state is not PartitionState.INITIALIZING:
            return KafkaError(Error.LEADER_NOT_AVAILABLE)
        if isinstance(start, KafkaError):
            error: KafkaError | None = start
        else:
            assert not isinstance(found, KafkaError)
            error = self._take(start, found)
        self.state = PartitionState.ACTIVE if error is None else PartitionState.FAILED
        if error is None and not isinstance(found, KafkaError):
            self._bury_again(found)
        return error

    def _take(self, start: int, found: ShareState) -> KafkaError | None:
        """Begin with the state that was read. Returns an error if that contradicts itself."""
        records = InFlightRecords(start)
        gap_start: int | None = None
        following = start
        for first, last, state, count in found.batches:
            is_too_long = state == AVAILABLE and last - first >= MOST_GIVEN_BACK
            if first < start or last < first or state not in RECORD_STATES or is_too_long:
                message = f"Failed to initialize the share partition {self.group_id}-{self.partition}"
                return KafkaError(Error.UNKNOWN_SERVER_ERROR, message)
            if gap_start is None and first > following:
                gap_start = following
            following = last + 1
            whole = InFlightState(RecordState(state), count)
            records.put(InFlightBatch(first, last, whole))
            if whole.is_terminal:
                records.terminal_count += last - first + 1
        if records:
            records.may_have_available = True
            records.end_offset = records.last_batch.last_offset
            if gap_start is not None:
                records.gap_window = GapWindow(gap_start, records.end_offset)
            records.advance_start()
        self.records = records
        self._state_epoch = found.state_epoch
        return None

    async def _write(self, batches: Sequence[StateBatch]) -> KafkaError | None:
        """Write batches with the current start, before the change may move it. Returns the error for the client."""
        error = await self._persister.write(
            self.group_id,
            self.topic_id,
            self.partition,
            self._state_epoch,
            self.leader_epoch,
            self.records.start_offset,
            self.records.terminal_count,
            batches,
        )
        return None if error is None else _told(error)

    def fence(self) -> None:
        """Stop: it isn't this broker's any more, or another leader has taken over. Nothing is handed out, and
        no lock expires.

        Kafka's locks go on, and their writes are refused or come too late.
        """
        self.state = PartitionState.FENCED
        self._locks.end()
        self._bury = bury_nothing
        self._changed = _tell_nobody  # the callbacks hold this object: leave no cycle
        self._refused = None

    # --- fetching -------------------------------------------------------------------------------------------

    def begin_fetch(self, fetch: object) -> bool:
        """Start a fetch, if no other one is reading and there may be something to acquire. Returns True if it
        may read."""
        if not self.is_active:
            return False
        if self._fetching is not None:
            self._was_refused = True
            return False
        most = self._settings().partition_max_record_locks
        records = self.records
        # Perhaps everything in flight was archived but not written, like aborted records. No write moves the
        # start over it then. In Kafka such a group is stuck.
        if not (records.can_acquire(most) or (records.advance_start() and records.can_acquire(most))):
            return False
        self._fetching = fetch
        return True

    def end_fetch(self, fetch: object) -> bool:
        """End the fetch, if it is the one that reads. Returns True if another one wanted to read meanwhile."""
        if self._fetching is not fetch:
            return False
        self._fetching = None
        was_refused, self._was_refused = self._was_refused, False
        return was_refused

    def next_fetch_offset(self) -> int:
        return self.records.next_fetch_offset()

    def most_reached(self, base_offset: int, most_records: int) -> int:
        """How far to look at record batches: one that begins after this offset is enough to `acquire` as if
        all were known, if the first one begins at `base_offset`."""
        return max(self.records.end_offset, base_offset) + most_records

    def acquire(
        self,
        member_id: str,
        batches: Sequence[FetchedBatch],
        *,
        fetch_offset: int,
        most_records: int,
        batch_size: int,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        aborted: Sequence[AbortedFrom] = (),
    ) -> list[AcquiredRecords]:
        """Hand out what was read from `fetch_offset` on. Returns the offsets, in ranges, each with its
        delivery count.

        `most_records` is a soft limit if whole batches are acquired. `aborted` is for readers of committed records.
        """
        if not self.is_active or most_records <= 0 or not batches:
            return []
        acquisition = Acquisition(
            self.records,
            self._locks,
            self._settings(),
            member_id=member_id,
            batches=batches,
            fetch_offset=fetch_offset,
            most_records=most_records,
            batch_size=batch_size,
            limits_records=mode is AcquireMode.RECORD_LIMIT,
        )
        acquired = acquisition.run()
        if not acquired or not aborted:
            return acquired
        return acquiring.archive_aborted(self.records, batches, acquired, aborted)

    def begin_at(self, log_start_offset: int) -> None:
        """Note that the log now begins here."""
        self.records.begin_at(log_start_offset)

    # --- acknowledging --------------------------------------------------------------------------------------

    async def acknowledge(self, member_id: str, batches: Sequence[AcknowledgementBatch]) -> KafkaError | None:
        """Acknowledge records. Returns None once that is durable, or the error; then nothing has changed,
        except renewed locks.

        INVALID_RECORD_STATE, INVALID_REQUEST, and the errors of the write in `PERSISTER_ERRORS`.
        """
        settings = self._settings()
        changes = Changes(self.records, settings)
        try:
            Acknowledgement(self.records, self._locks, settings, member_id, changes).run(batches)
        except KafkaError as error:
            changes.complete(is_written=False)
            self._bury_each(changes.dead)
            return error.as_value()
        except BaseException:
            changes.complete(is_written=False)  # otherwise they stay pending, and nobody gets them any more
            raise
        return await self._finish(changes)

    async def release(self, member_id: str) -> KafkaError | None:
        """Give back everything that this member has; otherwise the same as `acknowledge`."""
        changes = Changes(self.records, self._settings())
        release(self.records, member_id, changes)
        return await self._finish(changes)

    async def _finish(self, changes: Changes) -> KafkaError | None:
        """Write the changes, and return the outcome."""
        if not changes:
            return None
        error = await self._write(changes.written)
        changes.complete(is_written=error is None)
        if error is None:
            self.records.advance_start()
        elif self._refused is not None:
            self._refused(error)
        self._changed()
        self._bury_each(changes.dead)
        return error

    def _lock_expired(self, lock: Lock) -> None:
        """Make offsets of an expired lock available again.

        The change is written, but doesn't wait for that: one write for each state, and for each separate
        offset, as in Kafka.
        """
        settings = self._settings()
        limit = settings.delivery_count_limit
        held, following = self._held_by(lock, limit)
        self._is_expiring = True  # those who wait shall find all of it
        for first, last, state, size in held:
            records = self.records
            if state.state is not ACQUIRED or state.lock is not lock:
                continue  # changed by the write before it
            state.move(
                ARCHIVED if last < records.start_offset else AVAILABLE, limit, exhausted=dead_state(settings)
            )
            state.relock(None)
            if state.state is AVAILABLE:
                records.may_have_available = True
            if state.is_terminal:
                records.terminal_count += records.count_from_start(first, last)
            now, count = state.state, state.delivery_count
            for offset in range(first, last + 1, size):
                dead = None
                if now is ARCHIVING:
                    dead = DeadLetter(offset, offset + size - 1, count, EXHAUSTED)
                batch = StateBatch(offset, offset + size - 1, now, count)
                carry_on(self._give_back(batch, dead))
        self._is_expiring = False
        if following is None:
            self._changed()
        else:
            lock.first_offset = following  # everything before it is done
            self._locks.go_on_expiring(lock)

    def _held_by(
        self, lock: Lock, limit: int
    ) -> tuple[list[tuple[int, int, InFlightState, int]], int | None]:
        """The acquired offsets under a lock: first, last, state, and the number of offsets in each write.

        These are as many as are given back in one turn; the second value is where the next turn continues.
        Offsets that become terminal are moved one by one, since the start may move over them with each write.
        """
        found: list[tuple[int, int, InFlightState, int]] = []
        left = MOST_EXPIRED_AT_ONCE
        for batch, first, last, state in self._runs_of(lock):
            if not left:
                return found, first
            if batch is None:
                found.append((first, last, state, last - first + 1))
                left -= 1
                continue
            here = min(last, first + left - 1)
            if here < self.records.start_offset or state.delivery_count >= limit:
                found += [(offset, offset, batch.cut(offset, offset), 1) for offset in range(first, here + 1)]
            else:
                found.append((first, here, batch.cut(first, here), 1))
            left -= here - first + 1
            if here < last:
                return found, here + 1
        return found, None

    def _runs_of(self, lock: Lock) -> Iterator[tuple[InFlightBatch | None, int, int, InFlightState]]:
        """The acquired offsets under a lock, split at the start, each with the batch if its offsets are separate."""
        records = self.records
        floor = records.floor(lock.first_offset)
        if floor is None:
            return
        start = records.start_offset
        for batch in records.between(floor.first_offset, lock.last_offset):
            whole = batch.whole
            if whole is not None and whole.lock is lock and whole.state is ACQUIRED:
                if not batch.first_offset < start <= batch.last_offset:
                    yield None, batch.first_offset, batch.last_offset, whole
                    continue
                batch.split()
            if batch.whole is None:
                for first, last, state in batch.runs(lock.first_offset, lock.last_offset):
                    if state.lock is not lock or state.state is not ACQUIRED:
                        continue
                    if first < start <= last:
                        yield batch, first, start - 1, state
                        first, state = start, batch.cut(start, last)
                    yield batch, first, last, state

    async def _give_back(self, batch: StateBatch, dead: DeadLetter | None) -> None:
        """Write that offsets are available again. The outcome doesn't matter."""
        error = await self._write([batch])
        self._tell_unwritten(error)
        self.records.advance_start()
        if not self._is_expiring:
            self._changed()
        # If it is fenced, another broker leads the partition and may still deliver it.
        if dead is not None and (error is None or error.error not in FENCED_AS_LEADER):
            self._bury_each([dead])

    # --- the dead letter queue (KIP-1191; Kafka: `initiateDLQAndArchive`) -----------------------------------
    #
    # ARCHIVING records are durable as such before they are written to the queue, and as ARCHIVED afterwards.
    # After a kill in between they are written once more. Otherwise none is written twice, and one that the
    # queue couldn't take isn't delivered again.

    def _bury_again(self, found: ShareState) -> None:
        """Write the dead letters that were under way when the state was loaded."""
        limit = self._settings().delivery_count_limit
        self._bury_each(
            [
                DeadLetter(first, last, count, EXHAUSTED if count >= limit else REJECTED)
                for first, last, state, count in found.batches
                if state == ARCHIVING
            ]
        )

    def _bury_each(self, letters: Sequence[DeadLetter]) -> None:
        if letters and self.is_active:
            self.burying += len(letters)
            self._bury(letters, lambda letter: carry_on(self._archive(letter)))

    async def _archive(self, buried: DeadLetter) -> None:
        if not self.is_active:
            return  # the next leader writes it once more
        first, last, count, _ = buried
        self.records.archive_buried(first, last)
        self._tell_unwritten(await self._write([StateBatch(first, last, ARCHIVED, count)]))
        self.burying -= 1
        self.records.advance_start()
        self._changed()

    def _tell_unwritten(self, error: KafkaError | None) -> None:
        """Report a failed write, unless another leader has taken over."""
        if error is not None and self._unwritten is not None and error.error not in FENCED_AS_LEADER:
            self._unwritten(error)


def _tell_nobody() -> None:
    """Those who waited have already heard that it is over."""


def _told(error: KafkaError) -> KafkaError:
    return KafkaError(PERSISTER_ERRORS.get(error.error, Error.UNKNOWN_SERVER_ERROR), error.message)
