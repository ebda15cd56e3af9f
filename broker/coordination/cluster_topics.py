"""The cluster's topics as the group coordinator sees them (Kafka: `KRaftCoordinatorMetadataImage`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from coordinator.group.ports import KnownTopic

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage, TopicChanges, TopicImage
    from broker.controller.metadata_log import MetadataLog


class ClusterTopics:
    """The port `coordinator.group.ports.KnownTopics`, over the metadata of now."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata
        self._seen: dict[bytes, KnownTopic] = {}
        self._racks: dict[int, str | None] = {}

    @property
    def image(self) -> ClusterImage:
        return self._metadata.image

    @property
    def version(self) -> int:
        return self._metadata.last_applied_offset

    def by_name(self, name: str) -> KnownTopic | None:
        topic = self.image.topics.get(name)
        return None if topic is None else self._metadata_of(topic)

    def by_id(self, topic_id: bytes) -> KnownTopic | None:
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else self._metadata_of(topic)

    def names(self) -> Iterable[str]:
        return self.image.topics

    def _metadata_of(self, topic: TopicImage) -> KnownTopic:
        seen = self._seen.get(topic.topic_id)
        # `follow` reads a topic again that has changed in any way. A new partition counts even before that.
        is_same = seen is not None and seen.partition_count == len(topic.partitions)
        return seen if seen is not None and is_same else self._read(topic)

    def _read(self, topic: TopicImage) -> KnownTopic:
        brokers = self.image.brokers
        racks = tuple(
            tuple(
                rack
                for replica in topic.partitions[index].replicas
                if replica in brokers and (rack := brokers[replica].record.rack) is not None
            )
            for index in sorted(topic.partitions)
        )
        return KnownTopic(topic.name, topic.topic_id, racks)

    def follow(self, changes: TopicChanges) -> tuple[list[str], bool]:
        """Names of topics that are new, others or gone by these changes, and whether some are new. Costs in proportion
        to the changes, however many topics there are, but where a broker's rack is another one.

        A rack alone is no change that is told, as it is none in Kafka, whose assignors just find the new one.
        """
        changed: list[str] = []
        created = False
        self._follow_racks()
        for topic in changes.removed:
            if self._seen.pop(topic.topic_id, None) is not None:
                changed.append(topic.name)
        for name in changes.touched:
            touched = self.image.topics.get(name)
            if touched is None:  # removed since
                continue
            seen = self._seen.get(touched.topic_id)
            now = self._read(touched)
            if now != seen:
                self._seen[touched.topic_id] = now
                changed.append(name)
                created = created or seen is None
        return changed, created

    def _follow_racks(self) -> None:
        racks = {node_id: broker.record.rack for node_id, broker in self.image.brokers.items()}
        if racks == self._racks:
            return
        self._racks = racks
        for topic_id in self._seen:
            topic = self.image.topics_by_id.get(topic_id)
            if topic is not None:
                self._seen[topic_id] = self._read(topic)
