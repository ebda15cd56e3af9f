"""The register of this node's log directories: `log.dirs`, and `metadata.log.dir` if that is a different one.

It knows which directories can be used, which have failed, which are cordoned (KIP-1066), and which one has
the metadata log. `broker.disks.failures` handles a failure.

Source: Kafka's LogManager, LogDirFailureChannel.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError
from protocol.wire.primitives import uuid_from_text
from storage.background import RunAll, run_in_turn
from storage.directory.log_directory import LogDirectory
from storage.files import is_out_of_descriptors
from storage.producer_state import ProducerMemory

if TYPE_CHECKING:
    from storage.log.partition_log import PartitionLog


log = logging.getLogger("barnabas.directories")

EVERY_DIRECTORY = "*"  # in cordoned.log.dirs


class LogDirs:
    """The log directories. This node has them locked until `close`.

    - `online`: the usable ones of `log.dirs`, by directory id, in the order of the setting.
    - `metadata`: the one with the metadata log. It may be one of `online`.
    - `cluster_id`: the cluster that they belong to.
    - `failing`: those that have failed and aren't offline yet.
    - `on_failing` is called when another one fails.
    - `on_cordoned` is called when the cordoned ones change.
    - `stops_without`: as in Kafka, the node stops if an indispensable directory fails. If False, it stops
      only if that directory was deleted; whatever the disk refuses is answered with an error.
    - `on_lost` is called with the reason for the stop.
    """

    def __init__(
        self,
        paths: Sequence[str],
        online: Mapping[bytes, LogDirectory],
        metadata: LogDirectory,
        cluster_id: str,
    ) -> None:
        """`paths` are `log.dirs`, including those that couldn't be opened. `online` is by directory id."""
        self.online: dict[bytes, LogDirectory] = dict(online)
        self.metadata = metadata
        self.cluster_id = cluster_id
        self.failing: list[LogDirectory] = []
        self.on_failing: Callable[[], None] = lambda: None
        self.on_cordoned: Callable[[], None] = lambda: None
        self.stops_without = False
        self.on_lost: Callable[[OSError], None] = lambda failure: None
        self._paths = tuple(paths)
        self._cordoned: frozenset[str] = frozenset()
        producer_memory = ProducerMemory()
        for directory in self.all():
            directory.on_failure = self.report
            directory.producer_memory = producer_memory

    def all(self) -> list[LogDirectory]:
        """Each usable directory once, the metadata's last."""
        others = [directory for directory in self.online.values() if directory is not self.metadata]
        return [*others, self.metadata]

    @property
    def ids(self) -> Collection[bytes]:
        """The directory ids of the usable ones. They change when one is lost."""
        return self.online.keys()

    @property
    def metadata_id(self) -> bytes:
        """The id of the directory with the metadata log."""
        assert self.metadata.meta_properties is not None
        return uuid_from_text(self.metadata.meta_properties["directory.id"])

    def id_of(self, directory: LogDirectory) -> bytes:
        """The id of a usable directory."""
        return next(key for key, known in self.online.items() if known is directory)

    # --- by path --------------------------------------------------------------------------------------------

    def by_path(self) -> dict[str, LogDirectory | None]:
        """The directories of `log.dirs` by absolute path, as the APIs name them. None for an offline one."""
        opened = {directory.path: directory for directory in self.online.values()}
        return {os.path.abspath(path): opened.get(path) for path in self._paths}

    @property
    def offline_paths(self) -> list[str]:
        """The paths of `log.dirs` that can't be used. What isn't found may be in one of them."""
        opened = {directory.path for directory in self.online.values()}
        return [path for path in self._paths if path not in opened]

    # --- cordoned -------------------------------------------------------------------------------------------

    def cordon(self, paths: Iterable[str]) -> None:
        """Apply `cordoned.log.dirs`: from now on these get no new partitions, and all others do."""
        before, self._cordoned = self._cordoned, frozenset(paths)
        if self._cordoned != before:
            self.on_cordoned()

    @property
    def cordoned_ids(self) -> list[bytes]:
        """The ids of the usable directories that get no new partitions."""
        return [directory_id for directory_id in self.online if self.is_cordoned(directory_id)]

    def is_cordoned_path(self, path: str) -> bool:
        """True if a directory with this path gets no new partitions."""
        return EVERY_DIRECTORY in self._cordoned or path in self._cordoned

    def is_cordoned(self, directory_id: bytes) -> bool:
        """True if a usable directory gets no new partitions."""
        return bool(self._cordoned) and self.is_cordoned_path(self.online[directory_id].path)

    # --- failures -------------------------------------------------------------------------------------------

    def can_lose(self, directory: LogDirectory) -> bool:
        """True if the node can go on without it: it isn't the metadata's, nor the last one."""
        return (
            directory is not self.metadata
            and len(self.online) - len(self.failing) > 1
            and self._has(directory)
        )

    def _has(self, directory: LogDirectory) -> bool:
        """True unless the directory was let go of. Operations in progress may still report failures of it."""
        return directory is self.metadata or any(known is directory for known in self.online.values())

    def report(self, directory: LogDirectory, failure: OSError) -> bool:
        """Report that the disk refused something. Returns True if the directory goes offline, once operations
        in progress have ended. It doesn't if the system is merely out of descriptors."""
        if directory in self.failing or not self._has(directory):
            return True
        if is_out_of_descriptors(failure):
            return False
        if not self.can_lose(directory):
            if _was_deleted(directory):
                self.on_lost(_deleted(directory))
            elif self.stops_without:
                self.on_lost(_failed(directory, failure))
            return False
        log.error("%s has failed, and its partitions are offline: %s", directory.path, failure)
        self.failing.append(directory)
        self.on_failing()
        return True

    def find_deleted(self) -> None:
        """Report each directory that somebody has deleted while it is in use. The system still accepts
        appends to its open files, and acknowledged records would be lost."""
        for directory in self.all():
            try:
                failure = _deleted(directory) if directory.was_deleted else None
            except OSError as error:
                failure = error
            if failure is not None:
                self.report(directory, failure)

    def lose(self, directory: LogDirectory) -> None:
        """Let go of everything in a failed directory."""
        del self.online[self.id_of(directory)]
        if directory in self.failing:
            self.failing.remove(directory)
        try:
            directory.close(clean=False)
        except (OSError, KafkaError) as error:
            log.error("can't close %s: %s", directory.path, error)

    def forget_failures(self) -> None:
        """Ignore failures from here on, at the stop: the directories just aren't closed cleanly."""
        self.failing.clear()
        for directory in self.all():
            directory.on_failure = None

    # --- end ------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool, broker_epoch: int = -1, run_all: RunAll = run_in_turn) -> list[Exception]:
        """Close all directories, the metadata's last. Returns the errors that prevented a clean end.

        If a directory has unsynced data, only that one gets no mark of a clean shutdown. After one that
        couldn't be closed, no directory gets it.
        """
        unclean: list[Exception] = []
        is_refused = False
        for directory in self.all():
            try:
                if directory.close(
                    clean=clean and not is_refused, broker_epoch=broker_epoch, run_all=run_all
                ):
                    continue
                failure: Exception = KafkaError(
                    Error.KAFKA_STORAGE_ERROR, f"not all of {directory.path} could be synced"
                )
            except (OSError, KafkaError) as error:
                is_refused = True
                failure = error
            log.error("can't close %s cleanly: %s", directory.path, failure)
            unclean.append(failure)
        return unclean


def _was_deleted(directory: LogDirectory) -> bool:
    """True if the directory was deleted, as far as a disk that has refused something else can say."""
    try:
        return directory.was_deleted
    except OSError:
        return False


def _deleted(directory: LogDirectory) -> OSError:
    return OSError(f"{directory.path} was deleted or replaced while the broker was using it")


def _failed(directory: LogDirectory, failure: OSError) -> OSError:
    return OSError(
        failure.errno, f"{directory.path} has failed, and others are to lead what is in it: {failure}"
    )


# --- The move of a partition from one log directory to another; see `broker.disks.moves` --------------------


class LogDirMove:
    """The target of a move, and the future log there.

    - `failed`: it has failed since it last progressed, so that a failure is logged once.
    - `synced`: what came so far was synced at least once, so little is left for the end.
    - `syncing`: such a sync is in progress.
    - `syncing_cut`: the end of the future log was cut off, like the present one's, and the disk is getting
      that. The move pauses meanwhile: appends would wait for the disk.
    - `assigning`: the controller was asked to record the new directory, and hasn't answered yet.
    - `cancelling`: the controller was asked to record that the partition stays, and hasn't answered yet. The
      move pauses meanwhile: its own record would come after that one.
    - `next_directory_id`: where the partition goes once that is committed. None if it stays.
    """

    __slots__ = (
        "assigning",
        "cancelling",
        "directory",
        "directory_id",
        "failed",
        "log",
        "next_directory_id",
        "synced",
        "syncing",
        "syncing_cut",
    )

    def __init__(self, directory: LogDirectory, directory_id: bytes, log: PartitionLog) -> None:
        self.directory = directory
        self.directory_id = directory_id
        self.log = log
        self.failed = False
        self.synced = False
        self.syncing = False
        self.syncing_cut = False
        self.assigning = False
        self.cancelling = False
        self.next_directory_id: bytes | None = None
