"""What a node that controls its cluster records of its own failed directories."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.controller.assigned_directories import assignment, is_online
from broker.controller.broker_change import BrokerChange
from broker.controller.controller_result import ControllerResult
from broker.controller.partition_updates import updates_of
from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import BrokerRegistrationChangeRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    from broker.controller.controller import Controller
    from broker.controller.image import ClusterImage
    from broker.controller.partition_terms import OwnSettings
    from broker.controller.partition_updates import SomeOf
    from broker.controller.registration import BrokerIncarnation
    from broker.disks.log_dirs import LogDirs
    from broker.replicas.partitions import Partitions

log = logging.getLogger("barnabas.directories")


class RecordedLosses:
    """`failures.DirectoryLosses` by decisions of the node's own controller."""

    others_take_over = False

    def __init__(
        self,
        broker: BrokerIncarnation,
        log_dirs: LogDirs,
        partitions: Partitions,
        controller: Controller,
        own_settings: Callable[[], OwnSettings],
    ) -> None:
        self._broker = broker
        self._log_dirs = log_dirs
        self._partitions = partitions
        self._controller = controller
        self._own_settings = own_settings
        self._is_recorded = True
        # Where partitions are that were to move, until that is recorded. None of them can be sent anywhere meanwhile
        # (`alter_replica_log_dirs._move`), so that it stays true.
        self._stayed: dict[tuple[bytes, int], bytes] = {}

    def lost_partitions(self) -> None:
        self._is_recorded = False

    def lost(self, directory_id: bytes, stayed: Mapping[tuple[bytes, int], bytes]) -> None:
        self._stayed |= stayed
        self._is_recorded = False

    def record(self) -> None:
        """See `DirectoryLosses`."""
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

    async def _decide(
        self, image: ClusterImage, stayed: dict[tuple[bytes, int], bytes]
    ) -> ControllerResult[KafkaError | None]:
        reverts = (
            assignment(image, topic_id, index, self._broker.node_id, directory_id)
            for (topic_id, index), directory_id in stayed.items()
            if topic_id in image.topics_by_id
        )
        decided = [record for record in reverts if record is not None]
        node_id, broker_epoch = self._broker
        lost = self._partitions.offline() | self._lost_before_followed(image)
        change = BrokerChange(removed=node_id)
        decided += await updates_of(image, change, _named(image, lost), own=self._own_settings())
        decided.append(
            BrokerRegistrationChangeRecord(
                broker_id=node_id, broker_epoch=broker_epoch, log_dirs=sorted(self._log_dirs.ids)
            )
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


def _named(image: ClusterImage, lost: Container[tuple[bytes, int]]) -> Iterator[SomeOf]:
    """Those of these partitions, by topic id and number, that there are."""
    for topic in image.topics.values():
        yield topic, [each for each in topic.partitions.items() if (topic.topic_id, each[0]) in lost]
