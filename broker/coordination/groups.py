"""The group coordinators of this broker: a shard for each partition of `__consumer_offsets` that it leads.

A shard is loaded in the same turn of the loop in which its partition comes to be led here, before anybody can ask for
it: nobody is ever told COORDINATOR_LOAD_IN_PROGRESS but for a partition that can't be read.
Source: `GroupCoordinatorService`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from broker.config.group_config import consumer_timeouts
from broker.coordination.cluster_topics import ClusterTopics
from broker.coordination.hosted_shard import PartitionWorld, replay
from broker.coordination.loop_timers import LoopTimers
from broker.metadata.image import GROUP_RESOURCE
from coordinator.group.settings import ConsumerTimeouts, GroupSettings
from coordinator.group.shard import Client, GroupShard
from coordinator.java_hash import partition_of_key
from protocol.errors import CodecError, Error, KafkaError
from protocol.record_batch import CorruptRecordError

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.config.broker_config import BrokerConfig
    from broker.context import RequestContext
    from broker.metadata.image import TopicImage
    from broker.metadata.metadata_log import MetadataLog
    from broker.partitions import Partition, Partitions

log = logging.getLogger("barnabas.coordination")

OFFSETS_TOPIC = "__consumer_offsets"
MINUTE_MS = 60_000


class Groups:
    """Finds the shard of a group, and lets shards come and go with the partitions."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        clock: Clock,
        new_uuid: Callable[[], bytes],
        failed: Callable[[BaseException], None],
        metadata: MetadataLog,
    ) -> None:
        self.timers = LoopTimers(clock, failed)
        self._topics = ClusterTopics(metadata)
        self._config = config
        self._partitions = partitions
        self._clock = clock
        self._new_uuid = new_uuid
        self._settings = group_settings(config)
        self._partition_count = config.get_int("offsets.topic.num.partitions")
        self._shards: dict[int, tuple[Partition, PartitionWorld, GroupShard | None]] = {}

    @property
    def serves_consumer_groups(self) -> bool:
        """Whether the protocol of KIP-848 is on, by the cluster's `group.version` and the broker's settings."""
        protocols = self._config.get_list("group.coordinator.rebalance.protocols")
        on = "consumer" in (protocol.lower() for protocol in protocols)
        return on and self._topics.image.features.get("group.version", 0) >= 1

    @property
    def consumer_assignors(self) -> tuple[str, ...]:
        return self._settings.consumer_assignors

    # --- finding --------------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that has a group. As in Kafka, partitions that are added to the topic
        count from the next start on: groups would be lost otherwise."""
        return partition_of_key(group_id, self._partition_count)

    def shard_of(self, group_id: str) -> GroupShard:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS for a partition that can't be read."""
        return self.shard_at(self.partition_of(group_id))

    def shard_at(self, index: int) -> GroupShard:
        """The shard of a partition of `__consumer_offsets`. Raises as `shard_of`."""
        found = self._shards.get(index)
        if found is None:
            raise KafkaError(Error.NOT_COORDINATOR)
        return self._loaded(found[2])

    def all_shards(self) -> list[GroupShard]:
        """Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) where one of them can't be read."""
        return [self._loaded(shard) for _, _, shard in self._shards.values()]

    @staticmethod
    def _loaded(shard: GroupShard | None) -> GroupShard:
        if shard is None:
            raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    # --- following the partitions ---------------------------------------------------------------------------

    def follow(self, removed: Sequence[TopicImage]) -> None:
        """The metadata changed: load the shards that are new here, give up those that went, and delete the offsets of
        topics that were removed."""
        topic = self._partitions.by_name.get(OFFSETS_TOPIC)
        led = {} if topic is None else topic.partitions
        if topic is not None and not self._shards:
            self._partition_count = len(led) + len(topic.offline)
        for index, (partition, world, shard) in [*self._shards.items()]:
            if led.get(index) is not partition:
                del self._shards[index]
                if shard is not None:
                    shard.unload()
                world.cancel_all()
        for index, partition in led.items():
            if index not in self._shards and partition.leader_epoch >= 0:
                self._load(index, partition)
        changed, created = self._topics.follow()
        if changed:
            for shard in self._loaded_shards():
                shard.topics_changed(changed, created=created)
        gone = [(each.name, each.topic_id) for each in removed]
        if gone:
            for shard in self._loaded_shards():
                self._forget(shard, gone)

    def _loaded_shards(self) -> list[GroupShard]:
        return [shard for _, _, shard in self._shards.values() if shard is not None]

    def _load(self, index: int, partition: Partition) -> None:
        world = PartitionWorld(partition, self._clock, self.timers, self._new_uuid)
        shard = GroupShard(world, self._settings, self._topics, self._timeouts_of)
        try:
            replay(partition.log, shard)
        except (CodecError, CorruptRecordError, KafkaError) as error:
            log.error("the groups of %s-%d can't be loaded: %s", OFFSETS_TOPIC, index, error)
            self._shards[index] = (partition, world, None)
            return
        self._shards[index] = (partition, world, shard)
        shard.start()

    @staticmethod
    def _forget(shard: GroupShard, topics: Sequence[tuple[str, bytes]]) -> None:
        try:
            shard.forget_topics(topics)
        except KafkaError as error:
            log.warning("the offsets of deleted topics stay: %s", error)

    def _timeouts_of(self, group_id: str) -> ConsumerTimeouts:
        """A group's own settings, within the broker's bounds, or the broker's."""
        overrides = self._topics.image.configs.get((GROUP_RESOURCE, group_id), {})
        values = consumer_timeouts(self._config, overrides)
        return ConsumerTimeouts(*values)

    def stop(self) -> None:
        self.timers.stop()


def group_settings(config: BrokerConfig) -> GroupSettings:
    """The coordinator's settings; none of them can be altered while the broker runs."""
    return GroupSettings(
        min_session_timeout_ms=config.get_int("group.min.session.timeout.ms"),
        max_session_timeout_ms=config.get_int("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=config.get_int("group.initial.rebalance.delay.ms"),
        max_size=config.get_int("group.max.size"),
        offset_metadata_max_length=config.get_int("offset.metadata.max.bytes"),
        offsets_retention_ms=config.get_int("offsets.retention.minutes") * MINUTE_MS,
        offsets_retention_check_interval_ms=config.get_int("offsets.retention.check.interval.ms"),
        consumer_max_size=config.get_int("group.consumer.max.size"),
        consumer_assignors=config.get_list("group.consumer.assignors"),
        consumer_regex_refresh_interval_ms=config.get_int("group.consumer.regex.refresh.interval.ms"),
        migration_policy=(config.get_string("group.consumer.migration.policy") or "").lower(),
    )


def client_of(context: RequestContext) -> Client:
    """Who sent a request, as a coordinator knows it."""
    return Client(context.client_id or "", f"/{context.connection.peer_host}", context.api_version)


class Parked:
    """An answer that may have to wait: `reply` is given to the coordinator, `answer` to the dispatcher.

    Where the reply came at once, the answer is the response itself, and no future was made.
    """

    __slots__ = ("_finish", "_future", "_response")

    def __init__(self, finish: Callable[[Any], Any]) -> None:
        """`finish` brings the response into the form of the request's version."""
        self._finish = finish
        self._response: Any = None
        self._future: asyncio.Future[Any] | None = None

    def reply(self, response: Any) -> None:
        response = self._finish(response)
        if self._future is None:
            self._response = response
        elif not self._future.done():  # it is cancelled when its client has hung up
            self._future.set_result(response)

    def answer(self) -> Any:
        if self._response is not None:
            return self._response
        self._future = asyncio.get_running_loop().create_future()
        return self._future
