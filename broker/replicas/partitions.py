"""The partitions with replicas on this node, and how they follow the metadata (Kafka: `ReplicaManager`).

`Partitions.follow` runs after every change of the metadata. It opens or creates logs, begins leader epochs,
and removes deleted partitions. Handlers find partitions here by topic name or topic id.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from broker.config.setting_checks import COMPRESSION_TYPE, REMEDY, is_missing
from broker.replicas.partition import HostedTopic, Partition
from protocol.errors import Error, KafkaError
from protocol.records.batch import CorruptRecordError
from protocol.waiting import Pause, at_once, turn
from storage.checkpoints import CheckpointError
from storage.log.log_config import LogConfig
from storage.log.recovery import InconsistentTopicIdError
from storage.log.segment_recovery import UnsupportedFormatError

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage, PartitionImage, TopicChanges, TopicImage
    from broker.environment.scheduler import Chance, Clock
    from broker.replicas.in_sync_replicas import Replication
    from coordinator.commit_waiters import Failed
    from storage.directory.log_directory import LogDirectory
    from storage.log.partition_log import PartitionLog

log = logging.getLogger("barnabas.partitions")

# Errors that opening or deleting a log may raise without a fault of the program.
FAULTS = (
    OSError,
    KafkaError,
    CheckpointError,
    InconsistentTopicIdError,
    CorruptRecordError,
    UnsupportedFormatError,
)

TOPIC_COST = 10
"""The cost of following a topic, besides its partitions."""


class Partitions:
    """All partitions with a replica on this node."""

    def __init__(
        self,
        node_id: int,
        directories: dict[bytes, LogDirectory],
        directory_of: Callable[[str, bytes, int, PartitionImage], LogDirectory | None],
        *,
        clock: Clock,
        chance: Chance,
        config_of_topic: Callable[[str], LogConfig],
        is_internal: Callable[[str], bool],
        replication: Replication,
        failed: Failed,
    ) -> None:
        """`directories` are by directory id. `directory_of` returns a partition's directory, by topic, topic
        id, number and record, or None if that can't be used. `failed` gets a broken invariant that a callback
        for a commit raised."""
        self.by_name: dict[str, HostedTopic] = {}
        self.by_id: dict[bytes, HostedTopic] = {}
        self._node_id = node_id
        self._directories = directories
        self._directory_of = directory_of
        self._clock = clock
        self._config_of_topic = config_of_topic
        self._is_internal = is_internal
        self._replication = replication
        self.isr_changes = replication.changes
        self._new_folder_name = chance.folder_name
        self._jitter = chance.randrange
        self._failed = failed
        self.any_failed_at_start = False
        """True if the start couldn't open a log although its directory can be used."""
        self._replicated: dict[Partition, None] = {}
        """The partitions led here that have other replicas. Some may have none any more: they are removed on
        the next call."""
        self._to_follow: dict[str, None] = {}  # topics with a partition that failed
        self._to_delete: list[Partition] = []
        self._codecs: set[str] = set()  # codecs of topics: a missing one is logged once

    def find(self, topic: str, index: int) -> Partition | None:
        hosted = self.by_name.get(topic)
        return None if hosted is None else hosted.partitions.get(index)

    def get(self, topic: str, index: int) -> Partition:
        """Find a partition. Raises KafkaError if it isn't here (UNKNOWN_TOPIC_OR_PARTITION), or if its log
        directory can't be used (KAFKA_STORAGE_ERROR)."""
        partition = self.find(topic, index)
        if partition is None:
            raise KafkaError(self.missing(topic, index))
        return partition

    def missing(self, topic: str, index: int) -> Error:
        """The error for a partition that `find` doesn't find."""
        hosted = self.by_name.get(topic)
        return Error.UNKNOWN_TOPIC_OR_PARTITION if hosted is None else hosted.missing(index)

    def all(self) -> list[Partition]:
        return _partitions_of(self.by_name.values())

    def all_compacted(self) -> list[Partition]:
        """The partitions of compacted topics."""
        return _partitions_of(topic for topic in self.by_name.values() if topic.config.compacts)

    def all_flushed_by_time(self) -> list[Partition]:
        """The partitions of topics with `flush.ms`, set for the topic or the broker."""
        return _partitions_of(topic for topic in self.by_name.values() if topic.config.flushes_by_time)

    def replicated(self) -> list[Partition]:
        """The partitions led here that have replicas on other nodes."""
        self._replicated = {each: None for each in self._replicated if each.is_replicated}
        return [*self._replicated]

    async def follow(self, image: ClusterImage) -> TopicChanges:
        """Bring the partitions in line with the metadata. Returns what changed since the last call, and what
        was retried.

        This goes in steps, and the image may change in between; the result describes the image as it was. If
        the disk refuses something, that is logged and retried on the next call. Until then the partition is
        offline.
        """
        changes = image.take_changes()
        retried, self._to_delete = self._to_delete, []
        pause = Pause()
        for partition in retried:
            self._delete(partition)
            if pause.is_due():
                await turn()
        for topic in changes.removed:
            await self._remove(topic, pause)
        again = {name: None for name in self._to_follow if name in image.topics}
        changes = changes._replace(touched=changes.touched | again)
        self._to_follow = {}
        for name in changes.touched:
            if name in image.topics:
                await self._follow_topic(image.topics[name], pause)
        return changes

    def open_all(self, image: ClusterImage) -> TopicChanges:
        """Follow the metadata at the start. A partition that can't be opened is logged and stays offline
        until the next start. Its files stay as they are."""
        changes = image.take_changes()
        for name in changes.touched:
            at_once(self._follow_topic(image.topics[name], Pause(), at_start=True))
        return changes

    async def configure_all(self) -> None:
        """Apply a changed setting of the broker that topics inherit."""
        pause = Pause()
        for topic in [*self.by_name.values()]:
            if pause.is_due(TOPIC_COST + len(topic.partitions)):
                await turn()
            self._configure(topic)

    def _configure(self, topic: HostedTopic) -> None:
        config = self._config_of_topic(topic.name)
        topic.configure(config)
        packed = config.compression_type
        if packed not in self._codecs:
            self._codecs.add(packed)
            if is_missing(packed):
                log.warning(
                    "topic %s: %s=%s: %s; until then, this broker stores batches for such topics as they arrive",
                    *(topic.name, COMPRESSION_TYPE, packed, REMEDY),
                )

    async def _follow_topic(self, topic: TopicImage, pause: Pause, *, at_start: bool = False) -> None:
        hosted = self.by_name.get(topic.name)
        if hosted is not None and hosted.topic_id != topic.topic_id:
            return  # deleted and created again since then: that is followed next
        if pause.is_due(TOPIC_COST):
            await turn()
        if hosted is None:
            hosted = HostedTopic(topic.name, topic.topic_id, self._is_internal(topic.name), self._replication)
            self.by_name[topic.name] = hosted
            self.by_id[topic.topic_id] = hosted
        self._configure(hosted)
        for index, wanted in [*topic.partitions.items()]:
            if pause.is_due():
                await turn()
            hosted.to_open.discard(index)
            if self._node_id not in wanted.replicas:
                self._let_go(hosted, index)
                continue
            if hosted.elsewhere:
                hosted.elsewhere.discard(index)
            try:
                self._follow_partition(hosted, index, wanted)
            except FAULTS as error:
                log.error("%s-%d is offline: %s", topic.name, index, error)
                if at_start:
                    hosted.offline.add(index)
                    self.any_failed_at_start = True
                else:
                    self._to_follow[topic.name] = None
                    if index not in hosted.partitions:
                        hosted.to_open.add(index)

    def _let_go(self, hosted: HostedTopic, index: int) -> None:
        """Delete what an earlier time left here: other nodes have the partition now."""
        hosted.elsewhere.add(index)
        hosted.offline.discard(index)
        partition = hosted.partitions.pop(index, None)
        if partition is not None:
            partition.give_up(Error.NOT_LEADER_OR_FOLLOWER)
            self._delete(partition)

    def _follow_partition(self, hosted: HostedTopic, index: int, wanted: PartitionImage) -> None:
        """Raises one of `FAULTS`. Then a partition that is new to the topic isn't added."""
        partition = hosted.partitions.get(index)
        if partition is None:
            directory = None
            if index not in hosted.offline:
                directory = self._directory_of(hosted.name, hosted.topic_id, index, wanted)
            opened = None if directory is None else self._open(directory, hosted, index)
            if directory is None or opened is None:
                hosted.offline.add(index)
                return
            partition = Partition(hosted, index, opened, directory, self._failed)
        partition.follow(self._node_id, wanted)
        hosted.partitions[index] = partition
        if partition.is_replicated:
            self._replicated[partition] = None

    def _open(self, directory: LogDirectory, hosted: HostedTopic, index: int) -> PartitionLog | None:
        """Open the partition's log. Returns None if its directory goes offline. Raises one of `FAULTS`."""
        try:
            return directory.open_log(
                hosted.name,
                index,
                hosted.config,
                now_ms=self._clock.now_ms(),
                topic_id=hosted.topic_id_text,
                jitter=self._jitter,
            )
        except (OSError, KafkaError) as error:
            failure = error if isinstance(error, OSError) else error.__cause__
            if not (isinstance(failure, OSError) and directory.report(failure)):
                raise
            log.error("can't open %s-%d: %s", hosted.name, index, failure)
            return None

    def take_offline(self, directory: LogDirectory) -> None:
        """Take a failed directory's partitions offline: they answer KAFKA_STORAGE_ERROR from now on (Kafka:
        `ReplicaManager.handleLogDirFailure`)."""
        for topic in self.by_name.values():
            for index, partition in [*topic.partitions.items()]:
                if partition.directory is directory:
                    del topic.partitions[index]
                    topic.offline.add(index)
                    partition.give_up(Error.KAFKA_STORAGE_ERROR)

    def offline(self) -> set[tuple[bytes, int]]:
        """The partitions in log directories that can't be used, by topic id and number."""
        return {(topic.topic_id, index) for topic in self.by_name.values() for index in topic.offline}

    async def _remove(self, topic: TopicImage, pause: Pause) -> None:
        hosted = self.by_id.pop(topic.topic_id, None)
        if hosted is None:
            return
        if self.by_name.get(hosted.name) is hosted:
            del self.by_name[hosted.name]
        for index in [*hosted.partitions]:
            partition = hosted.partitions.pop(index)  # otherwise they keep each other and the log alive
            partition.give_up(Error.NOT_LEADER_OR_FOLLOWER)  # first, or waiters learn of a closed log
            self._delete(partition)
            if pause.is_due():
                await turn()
        self._discard_unopened_futures(hosted.name)

    def _discard_unopened_futures(self, topic: str) -> None:
        """Discard the folders of moves that couldn't go on in this run because their partitions are
        offline."""
        for directory in [*self._directories.values()]:
            for folder in directory.future_folders():
                if folder.topic == topic:
                    try:
                        directory.discard_future(folder, self._new_folder_name())
                    except OSError as error:
                        log.error("can't delete %s: %s", folder.path, error)

    def _delete(self, partition: Partition) -> None:
        move, partition.move = partition.move, None
        if move is not None:
            try:
                move.directory.delete_future(move.log, self._new_folder_name())
            except FAULTS as error:
                log.error("can't delete the future log %s: %s", move.log.directory, error)
        directory, deleted = partition.directory, partition.log
        if directory.logs.get((deleted.topic, deleted.partition)) is not deleted:
            return  # its folder is gone, and a later step had failed
        try:
            directory.delete_log(deleted, self._new_folder_name())
        except FAULTS as error:
            log.error("can't delete %s-%d: %s", deleted.topic, deleted.partition, error)
            failure = error.__cause__
            if not (isinstance(failure, OSError) and directory.report(failure)):
                self._to_delete.append(partition)


def _partitions_of(topics: Iterable[HostedTopic]) -> list[Partition]:
    return [partition for topic in topics for partition in topic.partitions.values()]
