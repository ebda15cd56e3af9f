"""The snapshots of the metadata log: read at start, written now and then, and given up with the log below them.

They are written, kept and deleted by the same settings as Kafka's. A log that begins above 0 goes with a snapshot of
all below. Source: KafkaRaftLog, SnapshotGenerator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.image import MetadataContradictionError
from broker.controller.quorum_state import Quorum
from broker.controller.snapshot_file import (
    DELETED_SNAPSHOT_SUFFIX,
    PART_SUFFIX,
    SUFFIX,
    Snapshot,
    SnapshotError,
    SnapshotId,
    encode_snapshot,
    parse_name,
    read_last_contained_log_timestamp_ms,
    read_snapshot,
)
from storage.background import Lane
from storage.files import File

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from storage.background import Background, Then
    from storage.log.partition_log import PartitionLog

log = logging.getLogger("barnabas.metadata")


class SnapshotPolicy(NamedTuple):
    """When snapshots are written, and how long they are kept."""

    max_bytes_between: int = 20 * 1024 * 1024
    """metadata.log.max.record.bytes.between.snapshots"""
    max_interval_ms: int = 3_600_000
    """metadata.log.max.snapshot.interval.ms; 0: never by time"""
    retention_bytes: int = 100 * 1024 * 1024
    """metadata.max.retention.bytes, of log and snapshots together; negative: no limit"""
    retention_ms: int = 604_800_000
    """metadata.max.retention.ms; negative: no limit"""

    @staticmethod
    def of(config: BrokerConfig) -> SnapshotPolicy:
        return SnapshotPolicy(
            config.get_int("metadata.log.max.record.bytes.between.snapshots"),
            config.get_int("metadata.log.max.snapshot.interval.ms"),
            config.get_int("metadata.max.retention.bytes"),
            config.get_int("metadata.max.retention.ms"),
        )


class MetadataSnapshots:
    """The snapshots beside one metadata log."""

    def __init__(self, of_log: PartitionLog, policy: SnapshotPolicy, background: Background) -> None:
        self.ids: list[SnapshotId] = []
        """Of those on the disk, ascending."""
        self._log = of_log
        self._files = of_log.files
        self._policy = policy
        self._background = background
        self.is_writing = False
        self._bytes_since = 0
        self._last_ms: int | None = None
        self._kept: dict[SnapshotId, tuple[int, int]] = {}  # size, last timestamp: read once

    # --- start ----------------------------------------------------------------------------------------------

    def load(self, now_ms: int) -> Snapshot | None:
        """The newest snapshot that is whole, None without any; what isn't needed any more is deleted.

        Where the log ends before it (a follower of Kafka's fetched it), the log begins anew at its end. Raises
        MetadataContradictionError where the log begins above 0 without a snapshot of what is below.
        """
        log_start_offset = self._log.log_start_offset
        directory = self._log.directory
        names = self._files.list_directory(directory) if self._files.exists(directory) else []
        for name in names:
            parsed = parse_name(name)
            if parsed is None:
                continue
            snapshot_id, suffix = parsed
            if suffix != SUFFIX or snapshot_id.offset < log_start_offset:
                self._files.remove(f"{directory}/{name}")
            else:
                self.ids.append(snapshot_id)
        self.ids.sort()
        found = self._newest_whole()
        if log_start_offset > 0 and found is None:
            raise MetadataContradictionError(
                f"the metadata log begins at offset {log_start_offset}, and there is no snapshot of what is below"
            )
        self._last_ms = now_ms
        if found is not None:
            newest = self.ids[-1]
            if newest.offset > self._log.log_end_offset or newest.epoch > max(
                self._log.leader_epochs.latest, 0
            ):
                self._log.truncate_fully_and_start_at(newest.offset, now_ms)
                self._remove(self.ids[:-1])
        return found

    def _newest_whole(self) -> Snapshot | None:
        while self.ids:
            path = self._path(self.ids[-1])
            try:
                return read_snapshot(self._files, path)
            except SnapshotError as error:
                log.warning("a snapshot of the metadata is passed over: %s", error)
                # aside, else Kafka would take it for the newest and end
                self._files.rename(path, path.removesuffix(SUFFIX) + PART_SUFFIX)
                self.ids.pop()
        return None

    @property
    def newest(self) -> SnapshotId | None:
        return self.ids[-1] if self.ids else None

    @property
    def path_of_newest(self) -> str:
        """There has to be one."""
        return self._path(self.ids[-1])

    # --- for others -----------------------------------------------------------------------------------------

    def size_of(self, snapshot_id: SnapshotId) -> int:
        """In bytes, of one that is there."""
        return self._size_and_timestamp(snapshot_id)[0]

    def read(self, snapshot_id: SnapshotId, position: int, size: int) -> bytes:
        """A piece of one that is there."""
        file = File(self._path(snapshot_id))
        try:
            return self._files.read(file, size, position)
        finally:
            self._files.close(file)

    # --- writing --------------------------------------------------------------------------------------------

    def count(self, size: int) -> None:
        """So many bytes of the log came behind the newest snapshot."""
        self._bytes_since += size

    def is_due(self, now_ms: int) -> bool:
        """Whether a snapshot is to be written now, something having been appended."""
        if self.is_writing:
            return False
        if self._bytes_since >= self._policy.max_bytes_between:
            return True
        interval_ms = self._policy.max_interval_ms
        return interval_ms > 0 and self._last_ms is not None and now_ms - self._last_ms >= interval_ms

    async def write(self, values: Iterable[bytes], quorum: Quorum, end_offset: int, now_ms: int) -> None:
        """Begin to write the snapshot of all that is below `end_offset`, where a batch ends; `values` are its
        records."""
        epoch = self._log.leader_epochs.epoch_for(end_offset - 1)
        snapshot_id = SnapshotId(epoch, end_offset)
        self._bytes_since = 0
        self._last_ms = now_ms
        if snapshot_id in self.ids:
            return
        self.is_writing = True
        path = self._path(snapshot_id)

        def then(size: int, failure: Exception | None) -> None:
            if failure is not None:
                log.error("the snapshot %s of the metadata can't be written: %s", path, failure)
                return
            log.info("wrote the snapshot %s of the metadata, %d bytes", path, size)
            if end_offset < self._log.log_start_offset:
                return  # the log has begun anew meanwhile, behind one that was fetched: the next start deletes this one
            self.ids.append(snapshot_id)
            self._kept[snapshot_id] = (size, now_ms)

        try:
            data = await encode_snapshot(
                values,
                quorum,
                epoch=epoch,
                # what was committed last, was appended just now
                last_contained_log_timestamp_ms=now_ms,
                now_ms=now_ms,
            )
            self._put(path, data, lambda part: None, partial(then, len(data)))
        except BaseException as error:
            self.is_writing = False  # else no other one would ever be written
            if not isinstance(error, MemoryError):
                raise
            log.error("there is too little memory for the snapshot %s of the metadata", path)

    def take(
        self,
        snapshot_id: SnapshotId,
        data: bytes,
        then: Callable[[Snapshot | None, Exception | None], None],
    ) -> None:
        """A snapshot that was fetched is written; `then` is told what is in it once it is on the disk, or why it isn't:
        SnapshotError and CodecError, too, where it makes no sense. Then it isn't kept."""
        found: list[Snapshot] = []

        def read(part: str) -> None:
            found.append(read_snapshot(self._files, part))

        def written(failure: Exception | None) -> None:
            if failure is None:
                self._kept.pop(snapshot_id, None)
                if snapshot_id not in self.ids:
                    self.ids.append(snapshot_id)
                    self.ids.sort()
            then(found[0] if failure is None else None, failure)

        self._put(self._path(snapshot_id), data, read, written)

    def _put(self, path: str, data: bytes, check: Callable[[str], None], then: Then) -> None:
        """Write it in the background, as a part until it is whole and `check` has looked at it, and tell `then`."""
        part = path.removesuffix(SUFFIX) + PART_SUFFIX
        directory, files = self._log.directory, self._files

        def work() -> None:
            if not files.exists(directory):  # a log that has no batch yet
                files.make_directory(directory)
            files.write_whole(part, data)
            check(part)
            files.sync(part)
            files.rename(part, path)
            files.sync_directory(directory)

        def written(failure: Exception | None) -> None:
            self.is_writing = False
            then(failure)

        self.is_writing = True
        try:
            self._background(work, written, lane=Lane.WRITING)
        except MemoryError:
            self.is_writing = False
            raise

    def begin_with(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """The log begins anew where this snapshot ends, and no other one is needed. Raises KafkaError where the disk
        fails."""
        self._log.truncate_fully_and_start_at(snapshot_id.offset, now_ms)
        self._remove([each for each in self.ids if each != snapshot_id])
        self._bytes_since, self._last_ms = 0, now_ms

    # --- giving up ------------------------------------------------------------------------------------------

    def clean(self, now_ms: int) -> None:
        """Give up the oldest snapshots, and the log below those that stay, by size and by age. The newest stays
        (Kafka: `KafkaRaftLog.maybeClean`, every minute)."""
        limit_bytes, limit_ms = self._policy.retention_bytes, self._policy.retention_ms
        if limit_bytes >= 0:
            total = sum(self._size_and_timestamp(snapshot_id)[0] for snapshot_id in self.ids)
            while len(self.ids) > 1 and self._log.size + total > limit_bytes:
                total -= self._size_and_timestamp(self.ids[0])[0]
                self._begin_at(self.ids[1], now_ms)
        if limit_ms >= 0:
            while len(self.ids) > 1 and now_ms - self._size_and_timestamp(self.ids[0])[1] > limit_ms:
                self._begin_at(self.ids[1], now_ms)

    def _begin_at(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """Nothing below the snapshot is needed any more: segments that lie wholly below it go."""
        self._log.delete_records_before(snapshot_id.offset)
        self._log.apply_retention(now_ms)
        self._remove([older for older in self.ids if older < snapshot_id])

    def _remove(self, snapshot_ids: list[SnapshotId]) -> None:
        marked = []
        for snapshot_id in snapshot_ids:
            path = self._path(snapshot_id)
            deleted = path.removesuffix(SUFFIX) + DELETED_SNAPSHOT_SUFFIX
            self._files.rename(path, deleted)
            marked.append(deleted)
            self.ids.remove(snapshot_id)
            self._kept.pop(snapshot_id, None)
            log.info("the snapshot %s of the metadata is given up", path)

        files = self._files

        def work() -> None:
            for path in marked:
                files.remove(path)

        def then(failure: Exception | None) -> None:
            if failure is not None:
                log.warning("old snapshots of the metadata can't be deleted: %s", failure)

        if marked:
            self._background(work, then, lane=Lane.DELETING, delay_ms=self._log.config.file_delete_delay_ms)

    def _size_and_timestamp(self, snapshot_id: SnapshotId) -> tuple[int, int]:
        known = self._kept.get(snapshot_id)
        if known is None:
            path = self._path(snapshot_id)
            try:
                timestamp_ms = read_last_contained_log_timestamp_ms(self._files, path)
            except SnapshotError:
                timestamp_ms = 0
            known = self._kept[snapshot_id] = (self._files.size_of(File(path)), timestamp_ms)
        return known

    def _path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._log.directory}/{snapshot_id.name}{SUFFIX}"
