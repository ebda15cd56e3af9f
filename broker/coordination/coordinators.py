"""The coordinators of a broker, and their connections to the leaders of partitions."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from broker.coordination.groups import OFFSETS_TOPIC, Groups
from broker.coordination.internal_topics import InternalTopics
from broker.coordination.latest_offsets import LatestOffsets
from broker.coordination.produce_verification import AddPartitionsToTxnManager, ProduceVerification
from broker.coordination.share_states import SHARE_STATE_TOPIC, ShareStates
from broker.coordination.transactions import TRANSACTION_TOPIC, Transactions, TxnMarkers
from coordinator.transaction.producer_ids import ProducerIds
from protocol.errors import stops_the_broker
from protocol.waiting import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from broker.config.broker_config import BrokerConfig
    from broker.controller.metadata_log import MetadataLog
    from broker.controller.topic_requests import TopicRequests
    from broker.coordination.hosted_shards import HostedShards, PartitionRuntime
    from broker.coordination.share_persister import SharePersister
    from broker.environment.scheduler import Clock, LoopTimers, Scheduler
    from broker.network.turns import Turns
    from broker.peers.own_cluster import Cluster
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from broker.shares.share_partition_manager import SharePartitionManager
    from coordinator.commit_waiters import Failed
    from coordinator.persister import Persister


class Coordinators:
    """All coordinators. Each is also an attribute of the node."""

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        metadata: MetadataLog,
        partitions: Partitions,
        cluster: Cluster,
        runtime_of: Callable[[Partition], PartitionRuntime],
        *,
        topics: TopicRequests,
        clock: Clock,
        scheduler: Scheduler,
        timers: LoopTimers,
        turns: Turns,
        failed: Failed,
    ) -> None:
        """`failed` gets errors of the broker."""
        image, create = metadata.image, topics.create_automatically
        self._is_silent = False
        parts = (node_id, config, image, partitions, create, clock, scheduler, turns, failed)
        self._new_shares = partial(_new_shares, timers, (*parts, cluster.dead_letters()))
        self.producer_ids = ProducerIds(cluster.allocate_producer_ids)
        self.share_states = ShareStates(config, partitions, scheduler, runtime_of, image)
        elsewhere = cluster.share_states()
        begin = partial(turns.carry_out, failed=failed)

        def create_topics(names: Sequence[str]) -> Later[None]:
            over: Later[None] = Later()

            async def create() -> None:
                try:
                    await topics.auto_create(names)
                except Exception as error:
                    if stops_the_broker(error):
                        raise
                over.reply(None)

            begin(create())
            return over

        self._persister_parts = (node_id, image, self.share_states, scheduler, create_topics, elsewhere)
        self.latest_offsets = LatestOffsets(node_id, image, partitions, cluster.latest_offsets())
        self.groups = Groups(
            config, partitions, scheduler, runtime_of, metadata, lambda: self.share_persister
        )
        self.internal_topics = InternalTopics(create, clock, begin)
        self.markers = TxnMarkers(image, partitions, self.groups, clock=clock, scheduler=scheduler)
        self.transactions = Transactions(
            config,
            partitions,
            scheduler,
            runtime_of,
            markers=cluster.markers(self.markers),
            next_producer_id=self.producer_ids.next,
            image=image,
        )
        self.add_partitions_manager = AddPartitionsToTxnManager(
            config, clock, self.transactions, cluster.coordinators(self.transactions.partition_of)
        )
        self.produce_verification = ProduceVerification(self.add_partitions_manager, config, clock, timers)

    @property
    def hosted(self) -> Mapping[str, HostedShards[Any]]:
        """The shards of each internal topic."""
        return {
            OFFSETS_TOPIC: self.groups.hosted,
            TRANSACTION_TOPIC: self.transactions.hosted,
            SHARE_STATE_TOPIC: self.share_states.hosted,
        }

    @cached_property
    def share_persister(self) -> SharePersister:
        """The way to share states. It is made when first needed, so that no start waits for it."""
        from broker.coordination.share_persister import SharePersister

        persister = SharePersister(*self._persister_parts)
        if self._is_silent:
            persister.stop()
        return persister

    @cached_property
    def shares(self) -> SharePartitionManager:
        """The share partitions that are led here. Made when first needed, as `share_persister`."""
        return self._new_shares(self.share_persister)

    async def follow_share_version(self) -> None:
        """The metadata changed: end all share sessions if share groups aren't served any more."""
        if "shares" in vars(self) and not self.groups.serves_share_groups:
            await self.shares.forget_all()

    def fall_silent(self) -> None:
        """Ask other nodes nothing any more, and load no more shards."""
        self.markers.stop()
        self._is_silent = True
        if "share_persister" in vars(self):
            self.share_persister.stop()
        for hosted in self.hosted.values():
            hosted.stop_loading()

    def unload(self) -> None:
        """The node stops: answer waiting requests with NOT_COORDINATOR."""
        self.transactions.hosted.unload()
        self.groups.unload()
        self.share_states.hosted.unload()


def _new_shares(timers: LoopTimers, parts: tuple[Any, ...], persister: Persister) -> SharePartitionManager:
    """`parts`: the arguments of `DeadLetterQueues`. Share partitions need most of them, too."""
    from broker.shares.dead_letters import DeadLetterQueues
    from broker.shares.share_partition_manager import manager_of

    _, config, image, partitions, _, clock, _, turns, failed, _ = parts
    queues = DeadLetterQueues(*parts)
    return manager_of(config, image, partitions, persister, timers, clock, turns, failed, queues)
