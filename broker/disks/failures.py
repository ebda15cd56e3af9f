"""What follows when a log directory fails while others remain: it goes offline, and the node goes on (KIP-112).

Kafka stops where the metadata's directory fails, or the last one. Here what was refused is answered with an error, and
the directory stays; the node stops where somebody has deleted it.
Source: kafka.server.ReplicaManager.LogDirFailureHandler, handleLogDirFailure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.controller import registration
from broker.controller.assigned_directories import assignment, is_online
from broker.controller.controller_result import ControllerResult
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.controller.controller import Controller
    from broker.controller.image import ClusterImage
    from broker.controller.registration import BrokerIncarnation
    from broker.disks.log_dirs import LogDirs
    from broker.disks.moves import LogDirMoves
    from broker.replicas.partitions import Partitions

log = logging.getLogger("barnabas.directories")


class LogDirFailures:
    """Takes directories offline that the register says have failed, and has the controller record it."""

    def __init__(
        self,
        broker: BrokerIncarnation,
        log_dirs: LogDirs,
        partitions: Partitions,
        moves: LogDirMoves,
        controller: Controller,
    ) -> None:
        self._broker = broker
        self._log_dirs = log_dirs
        self._partitions = partitions
        self._moves = moves
        self._controller = controller
        self._is_recorded = True
        # Where partitions are that were to move, until that is recorded. None of them can be sent anywhere meanwhile
        # (`alter_replica_log_dirs._move`), so that it stays true.
        self._stayed: dict[tuple[bytes, int], bytes] = {}

    def start(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        stop_on_failure: Callable[[BaseException], None],
    ) -> None:
        """Take offline what has failed during the start, and from now on whatever fails, in a turn of its own."""

        def later() -> None:
            call_soon(self.take_offline)

        self._log_dirs.on_failing = later
        self._log_dirs.on_lost = stop_on_failure
        self._is_recorded = not self._partitions.any_failed_at_start
        self.take_offline()

    def take_offline(self) -> None:
        """Let go of the directories that have failed, and record it."""
        failing = self._log_dirs.failing
        while failing:
            directory = failing[0]
            self._stayed |= self._moves.directory_failed(directory)
            self._partitions.take_offline(directory)
            self._log_dirs.lose(directory)
            self._is_recorded = False
        self.record()

    def record(self) -> None:
        """Have the controller record which directories and partitions are offline, as far as it hasn't yet: what it
        refuses is tried again (Kafka: `BrokerLifecycleManager` says it with each heartbeat until it is known)."""
        if self._is_recorded:
            return
        self._is_recorded = True  # before it is followed: who follows may come here
        stayed, self._stayed = self._stayed, {}

        def recorded(error: KafkaError | None) -> None:
            if error is not None:
                self._is_recorded = False
                self._stayed = stayed | self._stayed
                log.error("that a log directory has failed can't be recorded yet: %s", error)

        def failed(error: BaseException) -> None:
            log.error("what a failed log directory has lost can't be decided", exc_info=error)
            recorded(KafkaError(Error.UNKNOWN_SERVER_ERROR, str(error)))

        self._controller.submit_own(lambda image: self._decide(image, stayed), recorded, failed)

    def _decide(
        self, image: ClusterImage, stayed: dict[tuple[bytes, int], bytes]
    ) -> ControllerResult[KafkaError | None]:
        reverts = (
            assignment(image, topic_id, index, self._broker.node_id, directory_id)
            for (topic_id, index), directory_id in stayed.items()
            if topic_id in image.topics_by_id
        )
        decided = [record for record in reverts if record is not None]
        decided += registration.lose_directory(
            image,
            self._broker,
            lost=self._partitions.offline() | self._lost_before_followed(image),
            online=self._log_dirs.ids,
        )
        return ControllerResult(decided, lambda error: error, may_split=True)

    def _lost_before_followed(self, image: ClusterImage) -> set[tuple[bytes, int]]:
        """Those that were placed in a directory which failed before this was committed, so that no log was made of
        them; by topic id and number."""
        node_id, online = self._broker.node_id, self._log_dirs.ids
        return {
            (topic.topic_id, index)
            for topic in image.topics.values()
            for index, partition in topic.partitions.items()
            if node_id in partition.replicas
            and not is_online(partition, node_id, online)
            and self._partitions.find(topic.name, index) is None
        }
