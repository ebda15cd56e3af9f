"""The transaction coordinators of this broker: a shard for each partition of `__transaction_state` that it leads.

A shard is loaded in the same turn of the loop in which its partition comes to be led here, at a start before the
listeners open: nobody is ever told COORDINATOR_LOAD_IN_PROGRESS but for a partition that can't be read. Loading ends
with what was prepared being driven on to its end. Source: `TransactionCoordinator`, `TransactionStateManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from broker.coordination.hosted_shard import PartitionWorld, replay
from broker.coordination.loop_timers import LoopTimers
from coordinator.java_hash import partition_of_key
from coordinator.transaction.settings import TransactionSettings
from coordinator.transaction.shard import TransactionShard
from protocol.errors import CodecError, Error, KafkaError
from protocol.record_batch import CorruptRecordError

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.config.broker_config import BrokerConfig
    from broker.partitions import Partition, Partitions
    from coordinator.ports import Markers

log = logging.getLogger("barnabas.coordination")

TRANSACTION_TOPIC = "__transaction_state"


class _Hosted(NamedTuple):
    """A partition that is led here in `coordinator_epoch`, its leader epoch; no shard where it can't be read."""

    partition: Partition
    coordinator_epoch: int
    world: PartitionWorld
    shard: TransactionShard | None


class Transactions:
    """Finds the shard of a transactional id, and lets shards come and go with the partitions."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        clock: Clock,
        new_uuid: Callable[[], bytes],
        failed: Callable[[BaseException], None],
        *,
        markers: Markers,
        next_producer_id: Callable[[], int],
        transaction_version: Callable[[], int],
    ) -> None:
        """`next_producer_id` may raise KafkaError; `transaction_version` is the level of the cluster's feature."""
        self.timers = LoopTimers(clock, failed)
        self.settings = transaction_settings(config)
        self._partitions = partitions
        self._clock = clock
        self._new_uuid = new_uuid
        self._markers = markers
        self._next_producer_id = next_producer_id
        self._transaction_version = transaction_version
        self._partition_count = config.get_int("transaction.state.log.num.partitions")
        self._hosted: dict[int, _Hosted] = {}

    # --- finding --------------------------------------------------------------------------------------------

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that has a transactional id. As in Kafka, partitions that are added
        to the topic count from the next start on."""
        return partition_of_key(transactional_id, self._partition_count)

    def shard_of(self, transactional_id: str) -> TransactionShard:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS for a partition that can't be read."""
        found = self._hosted.get(self.partition_of(transactional_id))
        if found is None:
            raise KafkaError(Error.NOT_COORDINATOR)
        return _loaded(found)

    def all_shards(self) -> list[TransactionShard]:
        """Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) where one of them can't be read."""
        return [_loaded(hosted) for hosted in self._hosted.values()]

    def check_timeout(self, timeout_ms: int) -> None:
        """Before anybody asks whose the transactional id is. Raises KafkaError (INVALID_TRANSACTION_TIMEOUT)."""
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            raise KafkaError(Error.INVALID_TRANSACTION_TIMEOUT)

    # --- following the partitions ---------------------------------------------------------------------------

    def follow(self) -> None:
        """The metadata changed: load the shards that are new here, give up those that went."""
        topic = self._partitions.by_name.get(TRANSACTION_TOPIC)
        led = {} if topic is None else topic.partitions
        if topic is not None and not self._hosted:
            self._partition_count = len(led) + len(topic.offline)
        for index, hosted in [*self._hosted.items()]:
            partition = led.get(index)
            if partition is not hosted.partition or partition.leader_epoch != hosted.coordinator_epoch:
                del self._hosted[index]
                if hosted.shard is not None:
                    hosted.shard.unload()
                hosted.world.cancel_all()
        loaded = [
            self._load(index, partition)
            for index, partition in led.items()
            if index not in self._hosted and partition.leader_epoch >= 0
        ]
        for hosted in loaded:
            if hosted.shard is not None:
                hosted.shard.start()

    def _load(self, index: int, partition: Partition) -> _Hosted:
        world = PartitionWorld(partition, self._clock, self.timers, self._new_uuid)
        coordinator_epoch = partition.leader_epoch
        shard = TransactionShard(
            world,
            self._markers,
            self._next_producer_id,
            self.settings,
            self._transaction_version,
            coordinator_epoch,
        )
        hosted = _Hosted(partition, coordinator_epoch, world, shard)
        try:
            replay(partition.log, shard)
        except (CodecError, CorruptRecordError, KafkaError) as error:
            log.error("the transactions of %s-%d can't be loaded: %s", TRANSACTION_TOPIC, index, error)
            hosted = hosted._replace(shard=None)
        self._hosted[index] = hosted
        return hosted

    def stop(self) -> None:
        self.timers.stop()


def _loaded(hosted: _Hosted) -> TransactionShard:
    if hosted.shard is None:
        raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS)
    return hosted.shard


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    """The coordinator's settings; none of them can be altered while the broker runs."""
    return TransactionSettings(
        max_timeout_ms=config.get_int("transaction.max.timeout.ms"),
        two_phase_commit_enable=config.get_boolean("transaction.two.phase.commit.enable"),
        abort_timed_out_interval_ms=config.get_int(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms"
        ),
        remove_expired_interval_ms=config.get_int(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
        transactional_id_expiration_ms=config.get_int("transactional.id.expiration.ms"),
    )
