"""The partitions that this node has replicas of, and how they follow the metadata (Kafka: `ReplicaManager`).

`Partitions.follow` is called after every change of the metadata, a start included: it opens or makes logs, begins
leader epochs, and takes away what was deleted. Handlers find partitions here by name or by topic id.
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

# What opening or deleting a log may end with, without the program being at fault.
FAULTS = (
    OSError,
    KafkaError,
    CheckpointError,
    InconsistentTopicIdError,
    CorruptRecordError,
    UnsupportedFormatError,
)

TOPIC_COST = 10
"""What it takes to follow a topic, beside its partitions."""


class Partitions:
    """All partitions that this node has a replica of."""

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
        """`directories` by directory id. `directory_of` says where a partition is, or goes to, by topic, topic id,
        number and record; None where that can't be used. `failed` learns of a broken invariant of somebody who waited
        for a commit."""
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
        """Whether a log couldn't be opened by the start, though its directory can be used."""
        self._replicated: dict[Partition, None] = {}
        """Those that are led here and that other nodes have replicas of; and some that were, until they are asked for.
        """
        self._to_follow: dict[str, None] = {}  # topics with a partition that failed
        self._to_delete: list[Partition] = []
        self._codecs: set[str] = set()  # that topics asked for: of a missing one there is one line

    def find(self, topic: str, index: int) -> Partition | None:
        hosted = self.by_name.get(topic)
        return None if hosted is None else hosted.partitions.get(index)

    def get(self, topic: str, index: int) -> Partition:
        """Raises KafkaError where there is no such partition here (UNKNOWN_TOPIC_OR_PARTITION), or where its log
        directory can't be used (KAFKA_STORAGE_ERROR)."""
        partition = self.find(topic, index)
        if partition is None:
            raise KafkaError(self.missing(topic, index))
        return partition

    def missing(self, topic: str, index: int) -> Error:
        """What is said of a partition that `find` doesn't find."""
        hosted = self.by_name.get(topic)
        return Error.UNKNOWN_TOPIC_OR_PARTITION if hosted is None else hosted.missing(index)

    def all(self) -> list[Partition]:
        return _partitions_of(self.by_name.values())

    def all_compacted(self) -> list[Partition]:
        """Those of topics that are compacted."""
        return _partitions_of(topic for topic in self.by_name.values() if topic.config.compacts)

    def all_flushed_by_time(self) -> list[Partition]:
        """Those of topics with `flush.ms`, their own or the broker's."""
        return _partitions_of(topic for topic in self.by_name.values() if topic.config.flushes_by_time)

    def replicated(self) -> list[Partition]:
        """Those that are led here and that other nodes have replicas of."""
        self._replicated = {each: None for each in self._replicated if each.is_replicated}
        return [*self._replicated]

    async def follow(self, image: ClusterImage) -> TopicChanges:
        """Make the partitions what the metadata says, as far as it changed since the last call: what is returned, with
        what was tried again.

        In steps, between which the image may change again; what is returned holds for the image as it was. What the
        disk refuses is logged and tried again at the next call; until then the partition is offline.
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
        """`follow` of a start. A partition that can't be opened is told and offline until the next start: its files
        stay as they are."""
        changes = image.take_changes()
        for name in changes.touched:
            at_once(self._follow_topic(image.topics[name], Pause(), at_start=True))
        return changes

    async def configure_all(self) -> None:
        """A setting of the broker changed that topics inherit."""
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
                    "topic %s: %s=%s: %s; here its batches are stored as they come, and other topics' too",
                    *(topic.name, COMPRESSION_TYPE, packed, REMEDY),
                )

    async def _follow_topic(self, topic: TopicImage, pause: Pause, *, at_start: bool = False) -> None:
        hosted = self.by_name.get(topic.name)
        if hosted is not None and hosted.topic_id != topic.topic_id:
            return  # deleted and created anew since: that is followed next
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
        """Other nodes have the partition; what is here of it, from a time before, is deleted."""
        hosted.elsewhere.add(index)
        hosted.offline.discard(index)
        partition = hosted.partitions.pop(index, None)
        if partition is not None:
            partition.give_up(Error.NOT_LEADER_OR_FOLLOWER)
            self._delete(partition)

    def _follow_partition(self, hosted: HostedTopic, index: int, wanted: PartitionImage) -> None:
        """Raises one of `FAULTS`; a partition that wasn't among the topic's isn't then."""
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
        """The partition's log; None where its directory goes offline. Raises one of `FAULTS`."""
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
            log.error("%s-%d can't be opened: %s", hosted.name, index, failure)
            return None

    def take_offline(self, directory: LogDirectory) -> None:
        """The directory failed: its partitions are answered with KAFKA_STORAGE_ERROR from now on (Kafka:
        `ReplicaManager.handleLogDirFailure`)."""
        for topic in self.by_name.values():
            for index, partition in [*topic.partitions.items()]:
                if partition.directory is directory:
                    del topic.partitions[index]
                    topic.offline.add(index)
                    partition.give_up(Error.KAFKA_STORAGE_ERROR)

    def offline(self) -> set[tuple[bytes, int]]:
        """Those in a log directory that can't be used, by topic id and number."""
        return {(topic.topic_id, index) for topic in self.by_name.values() for index in topic.offline}

    async def _remove(self, topic: TopicImage, pause: Pause) -> None:
        hosted = self.by_id.pop(topic.topic_id, None)
        if hosted is None:
            return
        if self.by_name.get(hosted.name) is hosted:
            del self.by_name[hosted.name]
        for index in [*hosted.partitions]:
            partition = hosted.partitions.pop(index)  # else they hold each other, and the log with them
            partition.give_up(Error.NOT_LEADER_OR_FOLLOWER)  # first: else who waits is told of a closed log
            self._delete(partition)
            if pause.is_due():
                await turn()
        self._discard_unopened_futures(hosted.name)

    def _discard_unopened_futures(self, topic: str) -> None:
        """Of moves that couldn't go on in this run, their partitions being offline."""
        for directory in [*self._directories.values()]:
            for folder in directory.future_folders():
                if folder.topic == topic:
                    try:
                        directory.discard_future(folder, self._new_folder_name())
                    except OSError as error:
                        log.error("%s can't be deleted: %s", folder.path, error)

    def _delete(self, partition: Partition) -> None:
        move, partition.move = partition.move, None
        if move is not None:
            try:
                move.directory.delete_future(move.log, self._new_folder_name())
            except FAULTS as error:
                log.error("the future %s can't be deleted: %s", move.log.directory, error)
        directory, deleted = partition.directory, partition.log
        if directory.logs.get((deleted.topic, deleted.partition)) is not deleted:
            return  # its folder has gone, and what came behind that had failed
        try:
            directory.delete_log(deleted, self._new_folder_name())
        except FAULTS as error:
            log.error("%s-%d can't be deleted: %s", deleted.topic, deleted.partition, error)
            failure = error.__cause__
            if not (isinstance(failure, OSError) and directory.report(failure)):
                self._to_delete.append(partition)


def _partitions_of(topics: Iterable[HostedTopic]) -> list[Partition]:
    return [partition for topic in topics for partition in topic.partitions.values()]
