"""Log directories that fail while others remain: they go offline, and the node goes on (KIP-112).

Kafka stops where the metadata's directory fails, or the last one. Here what was refused is answered with an error, and
the directory stays. Source: kafka.server.ReplicaManager.LogDirFailureHandler, handleLogDirFailure.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from broker.metadata import registration

if TYPE_CHECKING:
    from broker.server import Server
    from storage.log_directory import LogDirectory

log = logging.getLogger("barnabas.directories")


class FailingDirectories:
    """Those that have failed, until they are offline."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._failing: list[LogDirectory] = []
        self._started = False  # before that they are taken offline at the end of the start

    def report(self, directory: LogDirectory, failure: OSError) -> bool:
        """The disk refused something: whether the directory goes offline, once what is under way has ended."""
        if directory in self._failing:
            return True
        folders = self._server.folders
        if not folders.can_lose(directory) or len(folders.logs) - len(self._failing) == 1:
            return False
        log.error("%s has failed, and its partitions are offline: %s", directory.path, failure)
        self._failing.append(directory)
        if self._started:
            asyncio.get_running_loop().call_soon(self.take_offline)
        return True

    def forget(self) -> None:
        """What fails from here on is not closed cleanly, and that is all."""
        self._failing.clear()
        for directory in self._server.directories:
            directory.on_failure = None

    def take_offline(self) -> None:
        """Let go of the directories that have failed, and record it."""
        self._started = True
        server = self._server
        failing, self._failing = self._failing, []
        for directory in failing:
            server.moves.directory_failed(directory)
            lost = server.partitions.take_offline(directory)
            server.directories.remove(directory)
            server.placement.lose(server.folders.lose(directory))
            decided = registration.lose_directory(
                server.metadata.image, server.node_id, server.broker_epoch, lost, server.online_directories
            )
            failure = server.metadata.try_append(decided)
            if failure is not None:
                log.error("that %s has failed can't be recorded: %s", directory.path, failure)
