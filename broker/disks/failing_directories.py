"""Log directories that fail while others remain: they go offline, and the node goes on (KIP-112).

Kafka stops where the metadata's directory fails, or the last one. Here what was refused is answered with an error, and
the directory stays. Source: kafka.server.ReplicaManager.LogDirFailureHandler, handleLogDirFailure.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.controller import registration
from broker.disks import placement
from protocol.errors import KafkaError

if TYPE_CHECKING:
    from broker.server import Server
    from storage.directory.log_directory import LogDirectory

log = logging.getLogger("barnabas.directories")


class FailingDirectories:
    """Those that have failed, until they are offline and that is recorded."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._failing: list[LogDirectory] = []
        self._started = False  # before that they are taken offline at the end of the start
        self._is_recorded = True
        # Where partitions are that were to move, not yet recorded. It stays true until it is: none of them can be sent
        # anywhere meanwhile (`alter_replica_log_dirs._move`).
        self._stayed: dict[tuple[bytes, int], bytes] = {}

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
            self._server.scheduler.call_soon(self.take_offline)
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
        while self._failing:
            directory = self._failing[0]
            self._stayed |= server.moves.directory_failed(directory)
            server.partitions.take_offline(directory)
            server.directories.remove(directory)
            server.placement.lose(server.folders.lose(directory))
            self._failing.remove(directory)
            self._is_recorded = False
        self.record()

    def record(self) -> None:
        """Write down which directories and partitions are offline, as far as that isn't in the metadata log yet: what
        can't be is tried again (Kafka: `BrokerLifecycleManager` says it with each heartbeat until it is known)."""
        if self._is_recorded:
            return
        server, image = self._server, self._server.metadata.image
        reverts = (
            placement.assignment(image, topic_id, index, server.node_id, directory_id)
            for (topic_id, index), directory_id in self._stayed.items()
            if topic_id in image.topics_by_id
        )
        decided = [record for record in reverts if record is not None]
        decided += registration.lose_directory(
            image,
            server.node_id,
            server.broker_epoch,
            server.partitions.offline(),
            server.online_directories,
        )
        # known before it is followed: who follows may come here
        self._is_recorded = True
        try:
            server.metadata.append(decided, may_split=True)
        except KafkaError as failure:
            self._is_recorded = False
            log.error("that a log directory has failed can't be recorded yet: %s", failure)
        else:
            self._stayed.clear()
