"""The register of this node's log directories: `log.dirs`, and `metadata.log.dir` where that is another one.

It says which can be used, which have failed, which are cordoned (KIP-1066), and which one has the metadata log. Who
wants to know what a directory is, asks here; what follows where one fails is in `broker.disks.failures`.
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
    """The log directories; this node has them locked until `close`.

    - `online`: those of `log.dirs` that can be used, by directory id, in the order of the setting.
    - `metadata`: the one with the metadata log, one of `online` or one of its own.
    - `cluster_id`: whose they are.
    - `failing`: those that have failed and aren't let go of yet.
    - `on_failing` is called when one more is.
    - `on_cordoned` is called when others are cordoned than before.
    - `stops_without`: whether the node stops where one fails that it can't go on without, as Kafka's does. Else it does
      so where that was deleted, and what its disk refuses is answered with an error for as long as it does.
    - `on_lost` is called with why it stops.
    """

    def __init__(
        self,
        paths: Sequence[str],
        online: Mapping[bytes, LogDirectory],
        metadata: LogDirectory,
        cluster_id: str,
    ) -> None:
        """`paths`: `log.dirs`, those included that couldn't be opened; `online` by directory id."""
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
        """Each that can be used once, the metadata's last."""
        others = [directory for directory in self.online.values() if directory is not self.metadata]
        return [*others, self.metadata]

    @property
    def ids(self) -> Collection[bytes]:
        """The directory ids of those that can be used: they change when one is lost."""
        return self.online.keys()

    @property
    def metadata_id(self) -> bytes:
        """The id of the directory that has the metadata log."""
        assert self.metadata.meta_properties is not None
        return uuid_from_text(self.metadata.meta_properties["directory.id"])

    def id_of(self, directory: LogDirectory) -> bytes:
        """Of one that can be used."""
        return next(key for key, known in self.online.items() if known is directory)

    # --- by path --------------------------------------------------------------------------------------------

    def by_path(self) -> dict[str, LogDirectory | None]:
        """Those of `log.dirs` by absolute path, as the APIs name them; None for one that is offline."""
        opened = {directory.path: directory for directory in self.online.values()}
        return {os.path.abspath(path): opened.get(path) for path in self._paths}

    @property
    def offline_paths(self) -> list[str]:
        """Those of `log.dirs` that can't be used: what isn't found may be in one of them."""
        opened = {directory.path for directory in self.online.values()}
        return [path for path in self._paths if path not in opened]

    # --- cordoned -------------------------------------------------------------------------------------------

    def cordon(self, paths: Iterable[str]) -> None:
        """`cordoned.log.dirs`: they get no new partitions from now on, and others do again."""
        before, self._cordoned = self._cordoned, frozenset(paths)
        if self._cordoned != before:
            self.on_cordoned()

    @property
    def cordoned_ids(self) -> list[bytes]:
        """Of those that can be used, which get no new partitions."""
        return [directory_id for directory_id in self.online if self.is_cordoned(directory_id)]

    def is_cordoned_path(self, path: str) -> bool:
        """Whether a directory of this path gets no new partitions."""
        return EVERY_DIRECTORY in self._cordoned or path in self._cordoned

    def is_cordoned(self, directory_id: bytes) -> bool:
        """Whether one that can be used gets no new partitions."""
        return bool(self._cordoned) and self.is_cordoned_path(self.online[directory_id].path)

    # --- failures -------------------------------------------------------------------------------------------

    def can_lose(self, directory: LogDirectory) -> bool:
        """Whether the node goes on without it: it isn't the metadata's, nor the last one."""
        return (
            directory is not self.metadata
            and len(self.online) - len(self.failing) > 1
            and self._has(directory)
        )

    def _has(self, directory: LogDirectory) -> bool:
        """Whether it isn't let go of: what is under way in one that is may still report."""
        return directory is self.metadata or any(known is directory for known in self.online.values())

    def report(self, directory: LogDirectory, failure: OSError) -> bool:
        """The disk refused something: whether the directory goes offline, once what is under way has ended. It doesn't
        where it wasn't the disk that refused, but the system a descriptor."""
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
        """Report each that somebody has deleted while it is in use: the system goes on taking what is appended to its
        open files, and what is acknowledged would be gone."""
        for directory in self.all():
            try:
                failure = _deleted(directory) if directory.was_deleted else None
            except OSError as error:
                failure = error
            if failure is not None:
                self.report(directory, failure)

    def lose(self, directory: LogDirectory) -> None:
        """It has failed: let go of all that is in it."""
        del self.online[self.id_of(directory)]
        if directory in self.failing:
            self.failing.remove(directory)
        try:
            directory.close(clean=False)
        except (OSError, KafkaError) as error:
            log.error("%s can't be let go of: %s", directory.path, error)

    def forget_failures(self) -> None:
        """At the stop: what fails from here on is not closed cleanly, and that is all."""
        self.failing.clear()
        for directory in self.all():
            directory.on_failure = None

    # --- end ------------------------------------------------------------------------------------------------

    def close(self, *, clean: bool, broker_epoch: int = -1, run_all: RunAll = run_in_turn) -> list[Exception]:
        """Close each of them, the metadata's last. Returns what stood in the way of a clean end. A directory that holds
        what couldn't be synced is without a mark of its own alone; after one that couldn't be closed none has it."""
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
            log.error("%s can't be closed cleanly: %s", directory.path, failure)
            unclean.append(failure)
        return unclean


def _was_deleted(directory: LogDirectory) -> bool:
    """As far as a disk that has refused something else says it."""
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


# --- One partition on its way from one log directory to another; see `broker.disks.moves` -------------------


class LogDirMove:
    """Where it goes, and the future log that is filled there.

    - `failed`: since it last got on, so that a failure is logged once.
    - `synced`: what has come so far was sent to the disk at least once, after which little is left for the end.
    - `syncing`: that is under way.
    - `syncing_cut`: the end of the future log was cut off, as the present one's was, and the disk is getting that. The
      move doesn't go on meanwhile: what is appended would wait for the disk.
    - `assigning`: the controller has been asked to record the new directory, and hasn't answered yet.
    - `cancelling`: the controller has been asked to record that the partition stays, and hasn't answered yet. The move
      doesn't go on meanwhile: its own record would come behind that one.
    - `next_directory_id`: where the partition goes once that is committed, None where it stays.
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
