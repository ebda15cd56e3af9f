"""`__cluster_metadata-0`, the log of the cluster's metadata.

Decide → append → commit → apply. Written is not committed: the only voter of a quorum commits once its own
disk has the batch (`commit_when_synced`; Kafka: `KafkaRaftClient.flushVoterLog`). So there may be two images.
Decisions go by `written`. `image` holds only what is committed; clients see it and the node follows it. Both
are one object until a decision is taken while an earlier one isn't committed. From then on `written` is ahead
of `image`. A node that loses the log drops `written`, so nothing has to be undone (Kafka:
`SnapshotRegistry.revertToSnapshot` of the controller's timeline structures; its brokers have images of their
own).

To act on a change or to report it to a client, wait for `committed`. Kafka writes a decision's records as one
batch if they are atomic, or between BeginTransaction and EndTransaction records (KIP-868). Both can be read
here. barnabas doesn't write Kafka's NoOp records, which move followers' high watermarks.

The parts of the log come first in this file: following its changes, encoding records as batches, replaying
batches into an image, and writing an image as records.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from broker.controller import quorum_state
from broker.controller.image import BrokerImage, ClusterImage, MetadataContradictionError, PartitionImage
from broker.controller.metadata_versions import (
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    decode_metadata_record,
    encode_metadata_record,
    fitted,
    level_in,
    written_version,
)
from broker.controller.quorum_state import Quorum
from broker.controller.snapshots import BOOTSTRAP_ID, MetadataSnapshots, Snapshot, SnapshotPolicy
from protocol.errors import BrokenInvariantError, CodecError, Error, KafkaError, cannot_apply, tell_each
from protocol.messages import metadata_records as records
from protocol.records.batch import CorruptRecordError, build_batch, read_records
from protocol.waiting import PER_STEP, Later, Waiting, at_once, turn
from protocol.wire.schema import Message
from storage.background import Lane
from storage.log.log_state import AppendOrigin
from storage.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from broker.environment.scheduler import Clock
    from protocol.messages.raft import Voter

log = logging.getLogger("barnabas.controller")


# --- Following the metadata's changes: one after the other, in steps, while the image may change again ------


class Following:
    """How far a node has followed the image that its clients see."""

    __slots__ = ("has_changed", "is_under_way", "told")

    def __init__(self) -> None:
        self.has_changed = False
        """The image has changed, and nobody follows the change yet."""
        self.is_under_way = False
        self.told: list[Callable[[], None]] = []
        """Called when the node begins to follow, and when nothing is left to follow."""

    @property
    def is_behind(self) -> bool:
        """True if the image has changes that aren't followed yet."""
        return self.is_under_way or self.has_changed

    async def follow(
        self, one: Callable[[], Waiting[None]], followed: Callable[[int], None], offset: Callable[[], int]
    ) -> None:
        """Follow all changes.

        `one` follows the image as it is when it is called. Then `followed` gets the `offset` up to which that
        image was committed. If a callback of `told` fails, its error is raised after everything is followed.
        """
        try:
            self._tell()
        finally:
            await self._follow_all(one, followed, offset)

    async def _follow_all(
        self, one: Callable[[], Waiting[None]], followed: Callable[[int], None], offset: Callable[[], int]
    ) -> None:
        while self.has_changed and not self.is_under_way:
            self.has_changed = False
            committed_offset = offset()
            self.is_under_way = True
            try:
                await one()
            finally:
                self.is_under_way = False
            followed(committed_offset)
        self._tell()

    def _tell(self) -> None:
        tell_each(self.told, lambda told: told(), log, "a callback for followed metadata failed")


# --- Decided records as a batch of the metadata log ---------------------------------------------------------


def encoded(decided: Iterable[Message], metadata_version: int) -> Iterator[bytes]:
    """Encode each record for a metadata.version."""
    for record in decided:
        yield encode_metadata_record(record, written_version(type(record), metadata_version))


async def batch_of(
    decided: Sequence[Message], metadata_version: int, now_ms: int, most_bytes: int
) -> bytearray:
    """Return the records as a batch. Raises KafkaError (UNKNOWN_SERVER_ERROR) if it is too large."""
    values = []
    for value in encoded(decided, metadata_version):
        values.append((now_ms, None, value, ()))
        if len(values) % PER_STEP == 0:
            await turn()
    batch = build_batch(values)
    if len(batch) > most_bytes:
        raise too_large_to_write(f"a batch of {len(batch)} bytes")
    return batch


def too_large_to_write(what: str) -> KafkaError:
    """Return the error. Kafka's controller begins a new epoch in this case."""
    return KafkaError(Error.UNKNOWN_SERVER_ERROR, f"{what} is larger than the metadata log allows")


# --- Replaying the records of the metadata log into an image ------------------------------------------------

_MARKS: set[type[Message]] = {
    records.BeginTransactionRecord,
    records.EndTransactionRecord,
    records.AbortTransactionRecord,
}


def apply_batch(
    image: ClusterImage, transaction: list[Message] | None, batch: memoryview
) -> list[Message] | None:
    """Apply a batch. Returns what `apply_in_force` returns for the last record.

    Raises MetadataContradictionError, CorruptRecordError. If applying a record fails in any way, the record
    is to blame.
    """
    for record in read_records(batch):
        try:
            if record.value is None:
                raise MetadataContradictionError("it has no value")
            transaction = apply_in_force(image, transaction, decode_metadata_record(bytes(record.value)))
        except Exception as error:
            raise MetadataContradictionError(
                f"the record at offset {record.offset}: {_reason(error)}"
            ) from error
    return transaction


def apply_in_force(
    image: ClusterImage, transaction: list[Message] | None, record: Message
) -> list[Message] | None:
    """Apply a record. Records between Begin and End count together or not at all. Returns those of an open
    transaction."""
    if type(record) in _MARKS:
        if isinstance(record, records.BeginTransactionRecord):
            return []
        if isinstance(record, records.EndTransactionRecord):
            for each in transaction or ():
                image.apply(each)
        return None
    if transaction is None:
        image.apply(record)
    else:
        transaction.append(record)
    return transaction


def replay_snapshot(image: ClusterImage, held: Sequence[Message], path: str) -> None:
    """Apply a snapshot's records. Raises MetadataContradictionError, which says where the fault is."""
    for number, record in enumerate(held):
        try:
            image.apply(record)
        except Exception as error:
            where = f"{path}: record {number}, {type(record).__name__}"
            raise MetadataContradictionError(f"{where}: {_reason(error)}") from error


def contradiction(log: PartitionLog, offset: int, error: Exception) -> MetadataContradictionError:
    """Return the error for a faulty batch, with its file. In Kafka, MetadataLoader reports a fault, which
    ends the process."""
    path = log.segments.row[log.segments.slot_of(offset)].log.path
    where = "" if isinstance(error, MetadataContradictionError) else f"the batch at offset {offset}: "
    return MetadataContradictionError(f"{path}: {where}{_reason(error)}")


def _reason(error: Exception) -> str:
    known = isinstance(error, CodecError | CorruptRecordError | MetadataContradictionError)
    return str(error) if known else f"{type(error).__name__} {error}".rstrip()


# --- An image as records, in the order of Kafka's snapshots (Kafka: `MetadataImage.write`) ------------------


def image_records(image: ClusterImage) -> Iterator[Message]:
    """Return the records that build this image from an empty one. The image must not change meanwhile."""
    # metadata.version comes first, since readers need it to decode the rest
    names = sorted(image.features, key=lambda name: name != METADATA_VERSION)
    for name in names:
        yield records.FeatureLevelRecord(name=name, feature_level=image.features[name])
    for broker in image.brokers.values():
        yield _broker_record(broker)
    yield from image.controllers.values()
    for topic in image.topics.values():
        yield records.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for index, partition in topic.partitions.items():
            yield _partition_record(topic.topic_id, index, partition)
    for (resource_type, resource_name), values in image.configs.items():
        for name, value in values.items():
            yield records.ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
    yield from image.kept.of_type(records.ClientQuotaRecord)
    if image.next_producer_id > 0:
        yield records.ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
    yield from image.kept.of_type(records.AccessControlEntryRecord)
    yield from image.kept.of_type(records.UserScramCredentialRecord)
    yield from image.kept.of_type(records.DelegationTokenRecord)


def _broker_record(broker: BrokerImage) -> records.RegisterBrokerRecord:
    """The registration, with all changes since."""
    registered = broker.record
    return records.RegisterBrokerRecord(
        broker_id=registered.broker_id,
        is_migrating_zk_broker=registered.is_migrating_zk_broker,
        incarnation_id=registered.incarnation_id,
        broker_epoch=registered.broker_epoch,
        end_points=registered.end_points,
        features=registered.features,
        rack=registered.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
        cordoned_log_dirs=broker.cordoned_log_dirs,
    )


def _partition_record(topic_id: bytes, index: int, partition: PartitionImage) -> records.PartitionRecord:
    return records.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=partition.elr or None,
        last_known_elr=partition.last_known_elr or None,
    )


# --- The log ------------------------------------------------------------------------------------------------

METADATA_TOPIC_ID = bytes(15) + b"\x01"
MAX_RECORDS_PER_BATCH = 10_000  # QuorumController.DEFAULT_MAX_RECORDS_PER_BATCH
MAX_BATCH_BYTES = 8 * 1024 * 1024  # KafkaRaftClient.MAX_BATCH_SIZE_BYTES


class MetadataLog:
    """The metadata log, with the images built from it.

    - `on_change` follows each committed change before anybody learns of the commit. It may work in steps.
      `metadata_publisher.py` sets it.
    - `replicate(end_offset)` is called after each batch. At first the only voter commits at once; from
      `commit_when_synced` on it commits when the disk has the batch. A leader with other voters calls
      `commit` once a majority has the batch.
    - `on_written(records, offset of the first)` reports this node's decisions. `on_progress` is called when
      the log grows or more of it is committed. `on_lost(failure)` is called when the disk refuses what isn't
      committed yet.
    """

    def __init__(
        self, log: PartitionLog, image: ClusterImage, clock: Clock, policy: SnapshotPolicy | None = None
    ) -> None:
        self.log = log
        self.image = image
        self._written: ClusterImage | None = None
        self._uncommitted: deque[tuple[int, int, int, Sequence[Message]]] = deque()
        """Decisions that aren't in `image` yet: for each batch its first offset, its end offset, its size and
        its records."""
        self.epoch = 0  # the leader epoch of this run
        self.quorum = Quorum()
        self.own_voter: Voter | None = None  # this node's entry among the voters, if the log names them
        self.snapshots = MetadataSnapshots(log, policy or SnapshotPolicy(), log.background)
        self.on_change: Callable[[], Waiting[None] | None] = lambda: None
        self.carry_out: Callable[[Waiting[None]], Later[None] | None] = at_once
        """Runs steps to their end, within this call if that is possible. The first step's errors are raised;
        the node learns of later ones."""
        self.replicate: Callable[[int], None] = self.commit
        self.on_written: Callable[[Sequence[Message], int], None] = lambda records, base_offset: None
        self.on_progress: Callable[[], None] = lambda: None
        self.on_lost: Callable[[Exception], None] = lambda failure: None
        self.is_leader = False
        self._leads = 0  # the epoch in which this node leads the log; 0: another node does
        self._clock = clock
        self._followed_offset = 0
        """Everything below it is committed and followed."""
        self._waiting: deque[tuple[int, Later[KafkaError | None]]] = deque()
        """The calls that wait for an offset, lowest first (Kafka: `DeferredEventQueue`)."""
        self._committed_offset = 0  # a majority has everything below it
        self._applied_offset = 0  # `image` holds everything below it; it never goes back
        self._transaction: list[Message] | None = None  # records behind a Begin, not in `image` yet
        self._is_writing = False
        self.following = Following()
        self._lost: KafkaError | None = None

    @property
    def written(self) -> ClusterImage:
        """The image for the next decision. It becomes a separate one if earlier decisions aren't committed
        yet."""
        if self._written is None and self._uncommitted:
            self._divide()
        return self.image if self._written is None else self._written

    def replay(self, *, only_voter: bool = True) -> None:
        """Apply the newest snapshot, and everything in the log behind it if this is the only voter: then all
        is committed.

        Raises MetadataContradictionError, which says where the fault is, and KafkaError if the folder can't
        be used.
        """
        self._applied_offset = self.log.log_start_offset
        snapshot = self.snapshots.load(self._clock.now_ms())
        if snapshot is not None and self.snapshots.newest is not None:
            self.quorum = snapshot.quorum
            if self.snapshots.newest != BOOTSTRAP_ID:
                replay_snapshot(self.image, snapshot.records, self.snapshots.path_of_newest)
            self._applied_offset = self.snapshots.newest.offset
        self._note_committed(self.log.log_end_offset if only_voter else self._applied_offset)
        self._apply_committed()
        self.following.has_changed = False  # a starting node reads all of it
        self._tell_followed(self._committed_offset)

    def catch_up(self, high_watermark: int) -> None:
        """Apply and follow what is committed of an observer's log, as far as it was fetched. Raises as
        `replay`."""
        self.commit(high_watermark)

    def take_over(self, snapshot: Snapshot) -> None:
        """Take over a snapshot: an observer's log has begun anew behind it. Raises as `replay`."""
        image = ClusterImage()
        replay_snapshot(image, snapshot.records, self.snapshots.path_of_newest)
        self.image.become(image)
        self.quorum, self._transaction, self.following.has_changed = snapshot.quorum, None, True
        self._applied_offset = self._committed_offset = self.log.log_end_offset
        self._advance()

    def _apply_committed(self) -> None:
        """Apply to the image whatever is committed but not in it yet."""
        committed_offset = self._committed_offset
        self.following.has_changed = True
        waiting = self._uncommitted
        while waiting and waiting[0][0] == self._applied_offset and waiting[0][1] <= committed_offset:
            base_offset, self._applied_offset, size_bytes, appended = waiting.popleft()
            self.snapshots.count(size_bytes)
            try:
                for record in appended:
                    self.image.apply(record)
            except Exception as error:  # a copy of the image took it when it was decided
                raise contradiction(self.log, base_offset, error) from error
        while waiting and waiting[0][1] <= committed_offset:  # applied from the log already
            waiting.popleft()
        if self._applied_offset == committed_offset:
            return
        for header, batch in self.log.batches(self._applied_offset, upper_bound=committed_offset):
            self.snapshots.count(header.size_bytes)
            try:
                if header.is_control:
                    for control in read_records(batch):
                        self.quorum.apply(control)
                else:
                    self._transaction = apply_batch(self.image, self._transaction, batch)
            except Exception as error:
                raise contradiction(self.log, header.base_offset, error) from error
        self._applied_offset = committed_offset

    def _divide(self) -> list[Message] | None:
        """Make `written` a separate image, ahead of `image` by what isn't committed. It stays separate, since
        decisions that overlapped once will overlap again.

        Returns the records of a transaction that the log doesn't end.
        """
        self._written = written = self.image.copy()
        transaction = None if self._transaction is None else [*self._transaction]
        for header, batch in self.log.batches(self._applied_offset, upper_bound=self.log.log_end_offset):
            if not header.is_control:
                transaction = apply_batch(written, transaction, batch)
        written.forget_changes()
        return transaction

    def become_leader(self, node_id: int, voter: Voter | None = None) -> None:
        """Begin an epoch of our own with a LeaderChange record, as KRaft leaders do.

        `quorum-state` records the epoch first, so no epoch is used twice. An unfinished transaction of the
        previous leader is aborted. `voter` is this node, if the log should name its voters.
        """
        stored = quorum_state.read_leader_epoch(self.log.files, self.log.directory)
        of_snapshot = 0 if self.snapshots.newest is None else self.snapshots.newest.epoch
        self._leads = self.epoch = max(0, self.log.leader_epochs.latest, stored, of_snapshot) + 1
        self.log.assign_leader_epoch(self.epoch)
        is_new = self.log.log_end_offset == 0
        batch = self.quorum.begin_epoch(node_id, voter, is_new=is_new, now_ms=self._clock.now_ms())
        state = self.quorum.encode_state(node_id, self.epoch)
        if self.log.created:
            quorum_state.write_state(self.log.files, self.log.directory, state)
            self._append_batch(batch)
        else:  # the first batch creates the folder
            self._append_batch(batch)
            quorum_state.write_state(self.log.files, self.log.directory, state)

        is_committed = self._committed_offset == self.log.log_end_offset
        transaction = self._transaction if is_committed else self._divide()
        if transaction is not None:
            self._append_records([records.AbortTransactionRecord(reason="Controller failover")])
        self.is_leader = True
        if is_committed:  # the records written here change nothing else
            self._transaction = None
            self._applied_offset = self.log.log_end_offset
        else:
            self._advance()

    def flush(self) -> None:
        """Begin to sync everything appended. Later syncs of other logs come after this one."""
        self.log.flush(self._clock.now_ms(), at_once=True)

    def commit_when_synced(self) -> None:
        """From now on, commit what the disk has: this is the only voter. Writes during a sync wait for the
        next one.

        It syncs beside the other logs: nothing in these follows from a change that isn't committed.
        """
        self.log.flushing.lane = Lane.METADATA
        self.replicate = self._sync

    def commit_at_once(self) -> None:
        """Commit without waiting for the disk, because the node stops: nobody waits any more, and closing the
        log syncs it."""
        self.replicate = self.commit
        self.carry_out = at_once
        self.following.is_under_way = False

    def _sync(self, end_offset: int) -> None:
        self.log.when_flushed(end_offset, partial(self._synced, self._leads))
        with suppress(MemoryError):  # a later sync begins instead (`PartitionLog.go_on_flushing`)
            self.log.flush(self._clock.now_ms())

    def _synced(self, epoch: int, failure: Exception | None) -> None:
        if epoch != self._leads:
            return  # another leader commits or cuts off what this node wrote as the leader
        if failure is None:
            self.commit(self.log.recovery_point)
        elif self._lost is None:
            self._lost = KafkaError(Error.KAFKA_STORAGE_ERROR, str(failure))
            self._forget_written(self._lost)
            self.on_lost(failure)

    def resign(self) -> None:
        """Stop leading: another node leads the log. Whether the waiting changes will be committed is unknown.

        `image` holds nothing that could be lost. The new leader confirms or cuts off what the log has beyond
        it.
        """
        self.is_leader = False
        self._leads = 0
        self._forget_written(KafkaError(Error.NOT_CONTROLLER))

    def _forget_written(self, reason: KafkaError) -> None:
        """Forget whatever isn't committed: nobody must learn of a topic whose creation was refused."""
        self._written = None
        self._uncommitted.clear()
        failed, self._waiting = self._waiting, deque()
        for _, later in failed:
            later.reply(reason)

    def committed(self, end_offset: int) -> Later[KafkaError | None]:
        """Answer None once everything below `end_offset` is committed and followed.

        The answer is a KafkaError if another node leads the log before that (NOT_CONTROLLER), or the disk has
        failed (KAFKA_STORAGE_ERROR).
        """
        later: Later[KafkaError | None] = Later()
        if self._lost is not None and end_offset > self._committed_offset:
            later.reply(self._lost)
        elif end_offset <= self._followed_offset:
            later.reply(None)
        else:
            self._waiting.append((end_offset, later))
        return later

    def _tell_followed(self, end_offset: int) -> None:
        self._followed_offset = max(self._followed_offset, end_offset)
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._followed_offset:
            waiting.popleft()[1].reply(None)

    def commit(self, end_offset: int) -> None:
        """Commit everything below `end_offset`, which a majority of the voters have in their logs."""
        self._note_committed(end_offset)
        if not self._is_writing:  # otherwise the writer goes on with it
            self._advance()
            self.on_progress()

    def _note_committed(self, end_offset: int) -> None:
        self._committed_offset = max(self._committed_offset, min(end_offset, self.log.log_end_offset))
        self.log.update_high_watermark(self._committed_offset)

    def _advance(self) -> None:
        """Apply what is committed, follow it, and answer the calls that wait for it."""
        if self._applied_offset < self._committed_offset:
            self._apply_committed()
        if self.following.is_under_way:
            return  # and continues with it
        if self.following.has_changed:
            self.carry_out(
                self.following.follow(
                    self._follow_change, self._tell_followed, lambda: self._committed_offset
                )
            )
        else:
            self._tell_followed(self._committed_offset)

    def append(self, decided: Sequence[Message], *, may_split: bool = False) -> int:
        """Run `append_in_steps` at once."""
        return at_once(self.append_in_steps(decided, may_split=may_split))

    async def append_in_steps(self, decided: Sequence[Message], *, may_split: bool = False) -> int:
        """Write a decision and apply it to `written`, completely or not at all. Only what is in the log gets
        applied.

        Returns the offset at which the decision ends, for `committed`.

        With `may_split`, more than 10,000 records become several batches, and each takes effect by itself.
        That is for events of this node, such as its start, its stop and its disks, never for requests (Kafka:
        `ControllerResult.of` and `atomicOf`).

        Raises KafkaError if the decision can't be written: UNKNOWN_SERVER_ERROR if it has too many records or
        more than 8 MiB; NOT_CONTROLLER if this node doesn't lead the log, or stops leading it between steps.
        Batches written before stay in force. Raises BrokenInvariantError if the decision is written but can't
        be applied or followed.
        """
        if len(decided) > MAX_RECORDS_PER_BATCH and not may_split:
            raise too_large_to_write(f"a batch of {len(decided)} records")
        metadata_version = self._metadata_version
        epoch = self._leads
        try:
            for first in range(0, len(decided), MAX_RECORDS_PER_BATCH):
                part = [
                    fitted(record, metadata_version)
                    for record in decided[first : first + MAX_RECORDS_PER_BATCH]
                ]
                batch = await self._batch_of(part, metadata_version)
                if not epoch or epoch != self._leads:
                    raise KafkaError(Error.NOT_CONTROLLER)
                self._append_batch(batch, part)
        except KafkaError:
            self._advance()  # earlier batches are in force
            raise
        self._advance()
        return self.log.log_end_offset

    def append_transaction(self, name: str, decided: Sequence[Message]) -> None:
        """Write a decision between Begin and End records, then apply it (for the first records of a new
        cluster)."""
        whole = [records.BeginTransactionRecord(name=name), *decided, records.EndTransactionRecord()]
        self._append_batch(at_once(self._batch_of(whole, level_in(decided))), decided)
        self._advance()

    def move_voters(self) -> None:
        """Move to `kraft.version` 1: from here on, the log names this node as its only voter."""
        assert self.own_voter is not None
        before = self.quorum.kraft_version, self.quorum.voters
        try:
            self._append_batch(self.quorum.move_voters(self.own_voter, self._clock.now_ms()))
        except BaseException:  # the log doesn't say so
            self.quorum.kraft_version, self.quorum.voters = before
            raise
        self._advance()

    def _apply(self, base_offset: int, size_bytes: int, appended: Sequence[Message]) -> None:
        """Apply what was just written, so that the next decision goes by it.

        The image must agree with the log. Otherwise no start could replay what we write after this.
        """
        try:
            if self._written is not None:
                for record in appended:
                    self._written.apply(record)
                self._written.forget_changes()
            self._uncommitted.append((base_offset, self.log.log_end_offset, size_bytes, appended))
        except Exception as error:
            raise cannot_apply(error) from error

    def _append_records(self, decided: Sequence[Message]) -> None:
        """Append records that change no image."""
        self._append_batch(at_once(self._batch_of(decided)))

    def _batch_of(self, decided: Sequence[Message], version: int | None = None) -> Waiting[bytearray]:
        version = self._metadata_version if version is None else version
        return batch_of(decided, version, self._clock.now_ms(), MAX_BATCH_BYTES)

    @property
    def _metadata_version(self) -> int:
        return self.written.features.get(METADATA_VERSION, LATEST_METADATA_VERSION)

    async def _follow_change(self) -> None:
        try:
            following = self.on_change()
            if following is not None:
                await following
        except Exception as error:
            raise BrokenInvariantError(f"can't follow a change of the metadata: {error}") from error
        now_ms = self._clock.now_ms()
        # Not within a transaction: a log that begins there would lack the transaction's Begin record.
        if self._transaction is None and self.snapshots.is_due(now_ms):
            version = self.image.features.get(METADATA_VERSION, LATEST_METADATA_VERSION)
            values = encoded(image_records(self.image.copy()), version)  # as of now
            self.carry_out(self.snapshots.write(values, self.quorum, self._applied_offset, now_ms))

    def _append_batch(self, batch: bytearray, applied: Sequence[Message] = ()) -> None:
        """Write a batch, apply its records to an image, and start committing it."""
        base_offset = self.log.log_end_offset
        self.log.append(
            batch,
            leader_epoch=self.epoch,
            now_ms=self._clock.now_ms(),
            origin=AppendOrigin.RAFT_LEADER,
        )
        if applied:
            self._apply(base_offset, len(batch), applied)
            self.on_written(applied, base_offset)
        self._is_writing = True  # a commit may come at once; it is applied before others learn of it
        try:
            self.replicate(self.log.log_end_offset)
        finally:
            self._is_writing = False
        self.on_progress()

    @property
    def next_offset(self) -> int:
        """The offset of the next record. A broker's epoch is the offset of its registration."""
        return self.log.log_end_offset

    @property
    def last_applied_offset(self) -> int:
        """The offset of the last record in `image` (Kafka: `MetadataProvenance.lastContainedOffset`)."""
        return self._applied_offset - 1
