"""The share coordinators of this broker: a shard for each partition of `__share_group_state` that it leads.

Source: `ShareCoordinatorService`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from broker.controller.broker_records import serves_share_groups
from broker.coordination.hosted_shards import HostedShards
from protocol.errors import Error, KafkaError
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import ClusterImage, TopicChanges
    from broker.coordination.hosted_shards import PartitionRuntime
    from broker.environment.scheduler import Scheduler
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from coordinator.settings import ShareCoordinatorSettings
    from coordinator.share.shard import ShareShard
    from coordinator.share.share_partition_key import SharePartitionKey

log = logging.getLogger("barnabas.coordination")

A = TypeVar("A")

SHARE_STATE_TOPIC = "__share_group_state"


class ShareStates:
    """Finds the shard of a share partition, and tells the shards about changes of topics."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        scheduler: Scheduler,
        runtime_of: Callable[[Partition], PartitionRuntime],
        image: ClusterImage,
    ) -> None:
        self._config = config
        self._image = image
        self._were_served = False
        self.hosted = HostedShards(
            SHARE_STATE_TOPIC,
            config.get_int("share.coordinator.state.topic.num.partitions"),
            partitions,
            scheduler,
            runtime_of,
            self._new_shard,
            content="share groups' states",
            unreadable=Error.NOT_COORDINATOR,
            reloads_in_new_epoch=False,
        )

    def _new_shard(self, runtime: PartitionRuntime, leader_epoch: int) -> ShareShard:
        # Imported here, so that a start without share groups doesn't wait for it.
        from coordinator.share.shard import ShareShard

        return ShareShard(
            runtime, self._settings, self._partition_count_of, runtime.delete_before, self._are_served
        )

    def _are_served(self) -> bool:
        return serves_share_groups(self._image)

    @cached_property
    def _settings(self) -> ShareCoordinatorSettings:
        return share_coordinator_settings(self._config)

    def _partition_count_of(self, topic_id: bytes) -> int:
        topic = self._image.topics_by_id.get(topic_id)
        return 0 if topic is None else len(topic.partitions)

    # --- finding --------------------------------------------------------------------------------------------

    def partition_of(self, key: str) -> int:
        """The partition of `__share_group_state` that has a share partition, by `SharePartitionKey.text`."""
        return self.hosted.partition_of(key)

    def shard_of(self, key: SharePartitionKey) -> ShareShard:
        """The shard of a share partition. Raises KafkaError: NOT_COORDINATOR, also for a partition that can't be read;
        COORDINATOR_LOAD_IN_PROGRESS for one that isn't loaded yet."""
        return self.hosted.of(key.text)

    async def ask(self, key: SharePartitionKey, question: Callable[[ShareShard], A]) -> A | KafkaError:
        """The answer of the share partition's shard: see `ShareShard.ask`. Also returns the errors of `shard_of`."""
        try:
            shard = self.shard_of(key)
        except KafkaError as error:
            return error.as_value()
        return await shard.ask(question)

    # --- following the metadata -----------------------------------------------------------------------------

    async def follow(self, changes: TopicChanges) -> None:
        """The metadata changed, and the partitions with it: load and give up shards, and forget the state of removed
        topics. Once share groups are served again, the shards resume their periodic work."""
        await self.hosted.follow()
        were_served, self._were_served = self._were_served, self._are_served()
        if self._were_served and not were_served:
            self.hosted.tell(_served_again)
        gone = [each.topic_id for each in (*changes.removed, *changes.bygone)]
        if gone:
            pause = Pause()
            await self.hosted.tell_in_steps(lambda shard, _: self._forget(shard, gone, pause))

    @staticmethod
    async def _forget(shard: ShareShard, topic_ids: Sequence[bytes], pause: Pause) -> None:
        try:
            for cost in shard.forget_topics(topic_ids):
                if pause.is_due(cost):
                    await turn()
        except KafkaError as error:
            log.warning("the share groups' states of deleted topics stay: %s", error)


def _served_again(shard: ShareShard) -> None:
    shard.served_again()


def share_coordinator_settings(config: BrokerConfig) -> ShareCoordinatorSettings:
    """The coordinator's settings. None of them can be altered while the broker runs."""
    from coordinator.settings import ShareCoordinatorSettings  # loaded with the first shard

    return ShareCoordinatorSettings(
        updates_per_snapshot=config.get_int("share.coordinator.snapshot.update.records.per.snapshot"),
        write_timeout_ms=config.get_int("share.coordinator.write.timeout.ms"),
        prune_interval_ms=config.get_int("share.coordinator.state.topic.prune.interval.ms"),
        cold_snapshot_interval_ms=config.get_int("share.coordinator.cold.partition.snapshot.interval.ms"),
    )
