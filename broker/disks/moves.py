"""The directories of replicas on this node: finding them, choosing them, and moving replicas between them
(KIP-113).

AlterReplicaLogDirs begins a move, or the start finds one by its `-future` folder. The loop fills the future
log in slices of a few milliseconds; others are served in between, and appends go on. Once the future log has
caught up and is synced as far as the present one, the controller is asked to record the new directory (Kafka:
`AssignmentsManager`). When that is committed, the two logs change places. If more was appended meanwhile, the
future log catches up first.

Source: `ReplicaAlterLogDirsThread`, `Partition.createLogInAssignedDirectoryId`, `LogManager.getOrCreateLog`,
`ReplicaManager.maybeUpdateTopicAssignment`; KIP-858.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from broker.controller.metadata_versions import DIRECTORIES_SINCE, METADATA_VERSION
from broker.controller.replica_directories import actual_directory, directory_of
from broker.disks.log_dirs import LogDirMove
from broker.replicas.partitions import FAULTS
from protocol.errors import Error, KafkaError
from protocol.waiting import carry_on
from storage.directory import future_log_copying
from storage.log.partition_log import sync_cut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from broker.controller.image import ClusterImage, PartitionImage
    from broker.controller.replica_placer import Placement
    from broker.disks.log_dirs import LogDirs
    from broker.environment.scheduler import Chance, Clock, Scheduled, Scheduler
    from broker.quotas import ReplicationQuota
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from protocol.waiting import Later
    from storage.directory.log_directory import LogDirectory

log = logging.getLogger("barnabas.log_dir_moves")

AssignDirectory: TypeAlias = "Callable[[tuple[bytes, int], bytes], Later[None]]"
"""Has the controller record the directory id of a replica, which is given by topic id and number. The answer
comes once that is committed, or at once if it is known. KafkaError if it is refused."""


class ReplicaDirectories:
    """Finds or chooses the directory of a replica. A folder found by the start counts first, then the record,
    then a choice."""

    def __init__(
        self,
        image: ClusterImage,
        log_dirs: LogDirs,
        placement: Placement,
        assign: AssignDirectory,
        found: Mapping[tuple[bytes, int], bytes],
    ) -> None:
        """`found` holds the directory id of each replica with a folder, by topic id and number."""
        self._image = image
        self._log_dirs = log_dirs
        self._placement = placement
        self._assign = assign
        self._found = found

    def directory_of(
        self, topic: str, topic_id: bytes, index: int, wanted: PartitionImage
    ) -> LogDirectory | None:
        """Return the replica's directory, or None if it may be in an offline one. Raises as
        `AssignDirectory`."""
        online = self._log_dirs.online
        named = directory_of(wanted, self._placement.node_id)
        actual = actual_directory(
            named,
            self._found_in(topic, topic_id, index),
            online,
            bool(self._log_dirs.offline_paths),
            partial(self._choose, topic, index),
        )
        if actual is None:
            return None
        if actual != named and self._image.features.get(METADATA_VERSION, 0) >= DIRECTORIES_SINCE:
            self._assign((topic_id, index), actual).answer()
        return online[actual]

    def _choose(self, topic: str, index: int) -> bytes:
        """Choose for a replica that comes here: the directory that AlterReplicaLogDirs named, or the next one
        in turn."""
        chosen = self._placement.directory_of(topic, index)
        self._placement.forget_preferred(topic, (index,))
        return chosen

    def _found_in(self, topic: str, topic_id: bytes, index: int) -> bytes | None:
        """Return where the start found the replica, unless its log was opened since: a replica that leaves
        and comes back is a new one."""
        found = self._found.get((topic_id, index))
        directory = None if found is None else self._log_dirs.online.get(found)
        return found if directory is not None and directory.has_unopened_folder(topic, index) else None


# --- Moves --------------------------------------------------------------------------------------------------


SLICE_BYTES = 512 * 1024
SLICE_BATCHES = 128
RETRY_S = 1.0  # replica.fetch.backoff.ms


class LogDirMoves:
    """All moves in progress."""

    def __init__(
        self,
        log_dirs: LogDirs,
        partitions: Partitions,
        assign: AssignDirectory,
        *,
        clock: Clock,
        scheduler: Scheduler,
        chance: Chance,
        quota: ReplicationQuota,
    ) -> None:
        """While the quota is exceeded, nothing is copied."""
        self._log_dirs = log_dirs
        self._partitions = partitions
        self._assign = assign
        self._clock = clock
        self._scheduler = scheduler
        self._new_folder_name = chance.folder_name
        self._jitter = chance.randrange
        self._quota = quota
        self._moving: dict[Partition, None] = {}
        self._next: Scheduled | None = None
        self._stopped = False

    def resume(self, found: Iterable[tuple[str, int, bytes]]) -> None:
        """Continue the moves that the start found, by topic, partition and directory id."""
        for topic, index, directory_id in found:
            partition = self._partitions.find(topic, index)
            if partition is None:
                continue  # offline: whatever brings it back resumes the move
            try:
                self.begin(partition, directory_id)
            except FAULTS as error:
                log.error("can't resume the move of %s-%d: %s", topic, index, error)

    def begin(self, partition: Partition, directory_id: bytes) -> None:
        """Begin to move the partition. An earlier move to another directory is given up first. If that has to
        be committed, this one begins afterwards. Raises one of `FAULTS`."""
        directory = self._log_dirs.online[directory_id]
        move = partition.move
        if move is not None and (move.cancelling or move.directory is not directory):
            self.cancel(partition)
            if partition.move is move and partition.directory is not directory:
                move.next_directory_id = directory_id
        if partition.directory is directory or partition.move is not None:
            return
        future = directory.open_future(
            partition.log, self._new_folder_name(), now_ms=self._clock.now_ms(), jitter=self._jitter
        )
        partition.move = LogDirMove(directory, directory_id, future)
        partition.log.end_cleaning()  # what is copied has to stay unchanged until the future log takes over
        log.info(
            "moving %s-%d from %s to %s",
            partition.topic.name,
            partition.index,
            partition.directory.path,
            directory.path,
        )
        self._moving[partition] = None
        self._soon()

    def cancel(self, partition: Partition) -> None:
        """Cancel the move: it ends once that is committed, and pauses until then.

        Raises KafkaError if the controller refuses to record it, and nothing has changed; or if the disk
        refuses to delete the future folder, and the move has ended nevertheless.
        """
        move = partition.move
        if move is None:
            return
        move.next_directory_id = None
        if move.cancelling:
            return

        recorded = self._assign(replica_of(partition), self._log_dirs.id_of(partition.directory))
        if recorded.answer() is None:
            self._give_up(partition, move)
        else:
            move.cancelling = True
            carry_on(self._cancel_once(recorded, partition, move))

    async def _cancel_once(self, recorded: Later[None], partition: Partition, move: LogDirMove) -> None:
        try:
            await recorded
        except KafkaError as refusal:
            move.cancelling = False
            move.next_directory_id = None
            self._soon(RETRY_S)  # the move goes on
            _not_given_up(partition, refusal)
            return
        move.cancelling = False
        try:
            self._give_up(partition, move)
            self._go_elsewhere(partition, move)
        except FAULTS as failure:
            _not_given_up(partition, failure)

    def _go_elsewhere(self, partition: Partition, given_up: LogDirMove) -> None:
        """Begin the next move. It was granted while the earlier one still had to be given up. Raises one of
        `FAULTS`."""
        directory_id = given_up.next_directory_id
        if directory_id is None or self._stopped or partition.is_gone or partition.move is not None:
            return
        if directory_id not in self._log_dirs.online or self._log_dirs.offline_paths:
            # As in AlterReplicaLogDirs: the offline directory may have a future log of it.
            where = f"{partition.topic.name}-{partition.index}"
            raise KafkaError(Error.KAFKA_STORAGE_ERROR, f"{where} stays, because a log directory has failed")
        self.begin(partition, directory_id)

    def _give_up(self, partition: Partition, move: LogDirMove) -> None:
        if partition.move is not move:
            return
        partition.move = None
        self._moving.pop(partition, None)
        log.info("gave up moving %s-%d", partition.topic.name, partition.index)
        try:
            move.directory.delete_future(move.log, self._new_folder_name())
        finally:
            partition.recheck_deletions()

    def directory_failed(self, directory: LogDirectory) -> dict[tuple[bytes, int], bytes]:
        """End all moves from and to a failed directory. The next start resumes those that it can.

        Returns where their partitions are, by topic id and number. A record may already name the target
        directory: that has to be reverted (Kafka: `ReplicaAlterLogDirsThread.removePartitions`).
        """
        stayed = {}
        for partition in [*self._moving]:
            move = partition.move
            if move is None or directory not in (partition.directory, move.directory):
                continue
            del self._moving[partition]
            partition.move = None
            if move.directory is not directory:
                move.directory.leave_future(move.log)
            stayed[replica_of(partition)] = self._log_dirs.id_of(partition.directory)
            partition.recheck_deletions()
        return stayed

    def stop(self) -> None:
        """Stop moving. The logs are closed as they are, and the next start goes on."""
        self._stopped = True
        if self._next is not None:
            self._next.cancel()

    def go_on(self) -> None:
        """Schedule a turn if there was too little memory to do so."""
        if self._moving and self._next is None:
            self._soon()

    def _soon(self, delay_s: float = 0) -> None:
        if self._stopped:
            return
        if self._next is not None:
            self._next.cancel()
            self._next = None
        scheduler = self._scheduler
        self._next = scheduler.call_later(delay_s, self._turn) if delay_s else scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        """Copy a slice of each move, as long as the quota allows it."""
        self._next = None
        busy = failed = False
        for partition in [*self._moving]:
            if self._quota.is_exceeded():
                self._soon(RETRY_S)
                return
            move = partition.move
            if move is None or partition.is_gone:
                self._moving.pop(partition, None)
                continue
            try:
                busy |= self._advance(partition, move)
            except (*FAULTS, MemoryError) as error:
                if not move.failed:
                    move.failed = True
                    log.error("can't move %s-%d now: %s", partition.topic.name, partition.index, error)
                failed = True
        if busy:
            self._soon()
        elif failed:
            self._soon(RETRY_S)

    def _advance(self, partition: Partition, move: LogDirMove) -> bool:
        """Return True if there is more to do at once. Otherwise something else will call `_soon`."""
        if move.cancelling or move.syncing_cut:
            return False
        present, future = partition.log, move.log
        if future_log_copying.follow_cut(future, present, self._clock.now_ms()):
            move.synced = False
        if future.cut is not None and self._sync_cut(move):
            return False
        copied = future_log_copying.copy(
            future,
            present,
            max_bytes=SLICE_BYTES,
            max_batches=SLICE_BATCHES,
            now_ms=self._clock.now_ms(),
        )
        if copied:
            move.failed = False
            self._quota.record(copied)
        partition.recheck_deletions()
        if not future_log_copying.is_caught_up(future, present):
            if not copied:
                raise KafkaError(
                    Error.KAFKA_STORAGE_ERROR, f"{future.directory} differs from {present.directory}"
                )
            return True
        if move.syncing or move.assigning:
            return False
        if future.failure is not None:
            raise future.failure
        if future.flushing.running or not move.synced:
            self._sync(move)
            return False
        self._change_places(partition, move)
        return False

    def _sync_cut(self, move: LogDirMove) -> bool:
        """Wait until a cut of the future log is on the disk, before more is appended. Returns False if there
        is no need to wait."""

        def then(failure: Exception | None) -> None:
            move.syncing_cut = False
            self._soon(0 if failure is None else RETRY_S)

        move.syncing_cut = True
        if sync_cut(move.log, then):
            return True
        move.syncing_cut = False
        return False

    def _sync(self, move: LogDirMove) -> None:
        """Sync what has come so far in the background, so that little is left when the logs change places."""
        end_offset = move.log.log_end_offset
        move.log.flush(self._clock.now_ms())

        def then(failure: Exception | None) -> None:
            move.syncing = False
            self._scheduler.call_soon(
                self._soon
            )  # not within the flush, which isn't over while it calls this

        move.syncing = True
        try:
            move.log.when_flushed(end_offset, then)
        except MemoryError:
            move.syncing = False
            raise
        move.synced = True

    def _change_places(self, partition: Partition, move: LogDirMove) -> None:
        """Record the new directory, then promote the future log. Raises one of `FAULTS`."""
        if partition.log.open_hole is not None:
            # The future log has the hole, too, but in the middle of a segment, where no start would find it.
            self._soon(RETRY_S)
            return
        if move.log.recovery_point < partition.log.recovery_point:
            move.log.sync()

        recorded = self._assign(replica_of(partition), move.directory_id)
        if recorded.answer() is None:
            self._promote(partition, move)
        else:
            move.assigning = True
            carry_on(self._go_on_once(recorded, move))

    async def _go_on_once(self, recorded: Later[None], move: LogDirMove) -> None:
        wait_s = 0.0  # if it is already recorded, the next answer comes at once
        try:
            await recorded
        except KafkaError:
            wait_s = RETRY_S
        move.assigning = False
        self._soon(wait_s)

    def _promote(self, partition: Partition, move: LogDirMove) -> None:
        source = partition.directory
        move.directory.promote(move.log, partition.log, source, self._new_folder_name())
        partition.replace_log(move.log, move.directory)
        self._moving.pop(partition, None)
        where = os.path.abspath(move.directory.path)
        log.info("moved %s-%d to %s", partition.topic.name, partition.index, where)


def _not_given_up(partition: Partition, failure: Exception) -> None:
    log.error("can't give up the move of %s-%d: %s", partition.topic.name, partition.index, failure)


def replica_of(partition: Partition) -> tuple[bytes, int]:
    """The replica as the controller knows it: topic id and number."""
    return partition.topic.topic_id, partition.index
