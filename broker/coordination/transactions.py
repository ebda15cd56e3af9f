"""The transaction coordinators of this broker: a shard for each partition of `__transaction_state` that it leads.

Source: `TransactionCoordinator`, `TransactionStateManager`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.coordination.hosted_shards import HostedShards
from coordinator.settings import TransactionSettings
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.coordination.hosted_shards import PartitionRuntime
    from broker.environment.scheduler import Scheduler
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from coordinator.ports import Markers
    from coordinator.transaction.shard import TransactionShard
    from protocol.waiting import Waiting


# --- How producers are told that another one with their transactional id has taken over (KIP-588) -------------


def as_known(error: Error, api_version: int, fenced_since: int) -> Error:
    """The error of an answer: a request older than `fenced_since` doesn't know PRODUCER_FENCED, and is told
    INVALID_PRODUCER_EPOCH in its place."""
    if error is Error.PRODUCER_FENCED and api_version < fenced_since:
        return Error.INVALID_PRODUCER_EPOCH
    return error


# --------------------------------------------------------------------------------------------------------------

TRANSACTION_TOPIC = "__transaction_state"


class Transactions:
    """Finds the shard of a transactional id."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        scheduler: Scheduler,
        runtime_of: Callable[[Partition], PartitionRuntime],
        *,
        markers: Markers,
        next_producer_id: Callable[[], int],
        transaction_version: Callable[[], int],
    ) -> None:
        """`next_producer_id` may raise KafkaError; `transaction_version` is the level of the cluster's feature."""
        self.settings = transaction_settings(config)
        self._markers = markers
        self._next_producer_id = next_producer_id
        self._transaction_version = transaction_version
        self.hosted = HostedShards(
            TRANSACTION_TOPIC,
            config.get_int("transaction.state.log.num.partitions"),
            partitions,
            scheduler,
            runtime_of,
            self._new_shard,
            content="transactions",
            unreadable=Error.COORDINATOR_LOAD_IN_PROGRESS,
            reloads_in_new_epoch=True,
        )

    def _new_shard(self, runtime: PartitionRuntime, leader_epoch: int) -> TransactionShard:
        # Here, so that no start waits for it that has no transactions to load.
        from coordinator.transaction.shard import TransactionShard

        return TransactionShard(
            runtime,
            self._markers,
            self._next_producer_id,
            self.settings,
            transaction_version=self._transaction_version,
            coordinator_epoch=leader_epoch,
        )

    def partition_of(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that has a transactional id."""
        return self.hosted.partition_of(transactional_id)

    def shard_of(self, transactional_id: str) -> TransactionShard:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS for a partition that isn't read."""
        return self.hosted.of(transactional_id)

    def all_shards(self) -> list[TransactionShard]:
        """Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) where one of them isn't read."""
        return self.hosted.all()

    def follow(self) -> Waiting[None]:
        """The metadata changed, and the partitions with it: shards come and go. What was prepared in those that come
        is driven on to its end."""
        return self.hosted.follow()

    def stop_loading(self) -> None:
        """What isn't loaded yet won't be."""
        self.hosted.stop_loading()

    def unload(self) -> None:
        """The node stops: nothing is driven on any more, and who waits is told NOT_COORDINATOR."""
        self.hosted.unload()

    def check_timeout(self, timeout_ms: int) -> None:
        """Before anybody asks whose the transactional id is. Raises KafkaError (INVALID_TRANSACTION_TIMEOUT)."""
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            raise KafkaError(Error.INVALID_TRANSACTION_TIMEOUT)


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
