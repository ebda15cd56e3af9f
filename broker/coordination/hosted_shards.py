"""The shards of one internal topic that this broker hosts: one for each partition of it that is led here.

A shard is loaded in the same turn of the loop in which its partition comes to be led here, at a start before the
listeners open: nobody ever has to wait for that. A partition that makes no sense costs its own shard and no other: the
log says where and why, its files stay as they are, and who asks for it is told what Kafka tells (`unreadable`), until
it comes to be led here in a later leader epoch.
Sources: `CoordinatorRuntime`, `TransactionStateManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from broker.coordination.hosted_shard import PartitionRuntime, ReplayedShard, ReplayError, reason, replay
from broker.replicas.leader import Leader
from coordinator.java.hashes import partition_of_key
from protocol.broken_invariant import stops_the_broker
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions

log = logging.getLogger("barnabas.coordination")


class Shard(ReplayedShard, Protocol):
    """What hosting needs of a shard."""

    def start(self, end_offset: int) -> None:
        """Everything is replayed, this partition up to this offset, and all that came with it. Not all of that need be
        committed."""
        ...

    def unload(self) -> None:
        """The partition is led elsewhere, or gone."""
        ...


ShardT = TypeVar("ShardT", bound=Shard)


class _Hosted(NamedTuple, Generic[ShardT]):
    """A partition that is led here since `leader_epoch`, or an earlier one; no shard where it can't be read."""

    leader: Leader
    leader_epoch: int
    runtime: PartitionRuntime
    shard: ShardT | None


class HostedShards(Generic[ShardT]):
    """Finds the shard of a key, and lets shards come and go with the partitions."""

    def __init__(
        self,
        topic: str,
        partition_count: int,
        partitions: Partitions,
        runtime_of: Callable[[Partition], PartitionRuntime],
        make: Callable[[PartitionRuntime, int], ShardT],
        *,
        content: str,
        unreadable: Error,
        reloads_in_new_epoch: bool,
    ) -> None:
        """`partition_count` of the topic once it is made; `make(runtime, leader_epoch)` is an empty shard; `content` is
        what a log calls that which is in it.

        `unreadable` is what is said of a partition that can't be read: NOT_COORDINATOR of groups, whose
        `CoordinatorRuntime` has failed then; COORDINATOR_LOAD_IN_PROGRESS of transactions, where Kafka's loading never
        ends.

        `reloads_in_new_epoch`: whether a partition that goes on to be led here, in a later leader epoch, is loaded
        anew. Kafka's `TransactionCoordinator.onElection` does so; `CoordinatorRuntime` keeps a shard that is active and
        tries again where it couldn't be loaded.
        """
        self._topic = topic
        self._partition_count = partition_count
        self._partitions = partitions
        self._runtime_of = runtime_of
        self._make = make
        self._content = content
        self._unreadable = unreadable
        self._reloads_in_new_epoch = reloads_in_new_epoch
        self._hosted: dict[int, _Hosted[ShardT]] = {}

    # --- finding --------------------------------------------------------------------------------------------

    def partition_of(self, key: str) -> int:
        """The partition of the topic that has a key. As in Kafka, partitions that are added to the topic count from
        the next start on: what the others have would be lost otherwise."""
        return partition_of_key(key, self._partition_count)

    def of(self, key: str) -> ShardT:
        """Raises KafkaError: NOT_COORDINATOR, `unreadable` for a partition that can't be read."""
        # written out, since it is asked with each request of a group or a transaction
        found = self._hosted.get(partition_of_key(key, self._partition_count))
        if found is None:
            raise KafkaError(Error.NOT_COORDINATOR)
        shard = found.shard
        if shard is None:
            raise KafkaError(self._unreadable)
        return shard

    def at(self, index: int) -> ShardT:
        """The shard of a partition. Raises as `of`."""
        found = self._hosted.get(index)
        if found is None:
            raise KafkaError(Error.NOT_COORDINATOR)
        return self._loaded(found)

    def all(self) -> list[ShardT]:
        """Raises KafkaError (`unreadable`) where one of them can't be read."""
        return [self._loaded(hosted) for hosted in self._hosted.values()]

    def readable(self) -> list[ShardT]:
        """Those that could be loaded."""
        return [hosted.shard for hosted in self._hosted.values() if hosted.shard is not None]

    # --- following the partitions ---------------------------------------------------------------------------

    def follow(self) -> None:
        """The metadata changed: load the shards that are new here, give up those that went."""
        topic = self._partitions.by_name.get(self._topic)
        here = {} if topic is None else topic.partitions
        led = {
            index: (partition, role)
            for index, partition in here.items()
            if isinstance(role := partition.role, Leader)
        }
        if topic is not None and not self._hosted:
            self._partition_count = len(here) + len(topic.offline) + len(topic.elsewhere)
        for index, hosted in [*self._hosted.items()]:
            if index not in led or not self._goes_on(hosted, led[index][1]):
                self._give_up(index)
        loaded = [
            index
            for index, (partition, leader) in led.items()
            if index not in self._hosted and self._load(index, partition, leader)
        ]
        for index in loaded:
            self._start(index, self._hosted[index])

    def unload(self) -> None:
        """The node stops: all shards are given up."""
        for index in [*self._hosted]:
            self._give_up(index)

    def _goes_on(self, hosted: _Hosted[ShardT], leader: Leader) -> bool:
        if leader is not hosted.leader:
            return False  # led elsewhere in between: what others wrote meanwhile has to be read
        is_kept = hosted.shard is not None and not self._reloads_in_new_epoch
        return is_kept or leader.leader_epoch == hosted.leader_epoch

    def _give_up(self, index: int) -> None:
        hosted = self._hosted.pop(index)
        try:
            if hosted.shard is not None:
                hosted.shard.unload()
        finally:
            hosted.runtime.cancel_all()

    def _load(self, index: int, partition: Partition, leader: Leader) -> bool:
        """Whether all of the partition could be read."""
        runtime = self._runtime_of(partition)
        made = self._make(runtime, leader.leader_epoch)
        shard: ShardT | None = made
        try:
            replay(leader.log, made)
        except ReplayError as error:
            self._tell(index, error)
            shard = None
        self._hosted[index] = _Hosted(leader, leader.leader_epoch, runtime, shard)
        return shard is not None

    def _start(self, index: int, hosted: _Hosted[ShardT]) -> None:
        """A shard that can't begin with what was read is none, either."""
        assert hosted.shard is not None
        try:
            hosted.shard.start(hosted.leader.log.log_end_offset)
        except MemoryError:
            raise
        except Exception as error:
            if stops_the_broker(error):
                raise
            self._tell(index, error)
            self._give_up(index)
            self._hosted[index] = hosted._replace(shard=None)

    def _tell(self, index: int, error: Exception) -> None:
        log.error("the %s of %s-%d can't be loaded: %s", self._content, self._topic, index, reason(error))

    def _loaded(self, hosted: _Hosted[ShardT]) -> ShardT:
        if hosted.shard is None:
            raise KafkaError(self._unreadable)
        return hosted.shard
