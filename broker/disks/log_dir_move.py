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
    - `assigning`: the controller has been asked to record the new directory, and hasn't answered yet.
    """

    __slots__ = ("assigning", "directory", "directory_id", "failed", "log", "synced", "syncing")

    def __init__(self, directory: LogDirectory, directory_id: bytes, log: PartitionLog) -> None:
        self.directory = directory
        self.directory_id = directory_id
        self.log = log
        self.failed = False
        self.synced = False
        self.syncing = False
        self.assigning = False
