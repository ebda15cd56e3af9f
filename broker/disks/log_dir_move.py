"""One partition on its way from one log directory to another; see `broker.disks.moves`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from storage.directory.log_directory import LogDirectory
    from storage.log.partition_log import PartitionLog


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
