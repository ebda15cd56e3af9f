"""The ends of partitions for consumers that read uncommitted records, wherever they are led (Kafka:
`PartitionMetadataClient`). The lag of a share group is computed from them.

A conscious difference: a leader that can't be reached is asked once. Kafka asks it again for some seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from broker.controller.image import NO_LEADER
from protocol.errors import Error, KafkaError
from protocol.waiting import Later

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.environment.scheduler import Scheduler
    from broker.replicas.partitions import Partitions
    from protocol.topic_partition import TopicPartition


class AskLatestOffset(Protocol):
    """The way to the leaders on other nodes."""

    def __call__(self, node_id: int, partition: TopicPartition, /) -> Later[int | KafkaError]:
        """Ask a node for the offset after the last one that consumers may read. The answer comes in a later turn."""
        ...


class LatestOffsets:
    """The latest offsets of partitions on this node and others."""

    def __init__(
        self, node_id: int, image: ClusterImage, partitions: Partitions, elsewhere: AskLatestOffset | None
    ) -> None:
        """`elsewhere`: the way to other nodes, if there may be any."""
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._elsewhere = elsewhere

    async def ask(self, name: str, index: int) -> int | KafkaError:
        """The offset after the last one that consumers may read. Errors: LEADER_NOT_AVAILABLE, also if there is no such
        partition; the leader's."""
        topic = self._image.topics.get(name)
        partition = None if topic is None else topic.partitions.get(index)
        if partition is None or partition.leader == NO_LEADER:
            return KafkaError(Error.LEADER_NOT_AVAILABLE, "The partition has no leader.")
        if partition.leader != self._node_id and self._elsewhere is not None:
            return await self._elsewhere(partition.leader, (name, index))
        try:
            return self._partitions.get(name, index).leader().log.high_watermark
        except KafkaError as error:
            return error.as_value()

    async def of_many(
        self, partitions: Iterable[TopicPartition], scheduler: Scheduler, within_s: float
    ) -> Mapping[TopicPartition, int]:
        """The latest offsets of the partitions that other nodes lead, as far as these answer within this time."""
        found: dict[TopicPartition, int] = {}
        awaited: set[TopicPartition] = set()
        over: Later[None] | None = None

        def told(partition: TopicPartition, later: Later[int | KafkaError]) -> None:
            answer = later.result()
            if isinstance(answer, int):
                found[partition] = answer
            awaited.discard(partition)
            if not awaited:
                end()

        def end() -> None:
            nonlocal over
            waiting, over = over, None
            if waiting is not None:
                timer.cancel()
                waiting.reply(None)

        for partition in partitions:
            leader = self._leader_elsewhere(partition)
            if leader is not None and self._elsewhere is not None:
                awaited.add(partition)
                later = self._elsewhere(leader, partition)
                later.when_answered(partial(told, partition, later))
        if awaited:
            timer = scheduler.call_later(within_s, end)
            answered = over = Later()
            answered.waits_for(timer.cancel)
            await answered
        return {**found}  # a copy: later answers don't count

    def _leader_elsewhere(self, partition: TopicPartition) -> int | None:
        """The leader on another node; None if this node leads the partition, or no node."""
        topic = self._image.topics.get(partition[0])
        found = None if topic is None else topic.partitions.get(partition[1])
        return None if found is None or found.leader in (NO_LEADER, self._node_id) else found.leader
