"""The shards of one internal topic that this broker hosts: one for each partition of it that is led here.

Shards are loaded where their partitions come to be led here, in steps. What is read quickly is there once the change of
the metadata is followed, at a start before the listeners open; the rest is read in turns of the loop, one partition
after the other, and until it is there who asks for it is told COORDINATOR_LOAD_IN_PROGRESS. A partition that makes no
sense costs its own shard and no other: the log says where and why, its files stay as they are, and who asks for it is
told what Kafka tells (`unreadable`), until it comes to be led here in a later leader epoch. Clients' requests wait for
a shard that is loaded (`broker.early_requests`).
Sources: `CoordinatorRuntime`, `TransactionStateManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from broker.coordination.hosted_shard import (
    STEP_COST,
    LoadedShard,
    PartitionRuntime,
    ReplayError,
    loading,
    reason,
)
from broker.replicas.leader import Leader
from coordinator.java.maps import partition_of_key
from protocol.errors import Error, KafkaError, stops_the_broker
from protocol.waiting import Waiting, at_once, turn
from storage.files import is_shortage

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions

log = logging.getLogger("barnabas.coordination")


AT_ONCE = 5_000
"""What is loaded before a change is followed, of all partitions that come together. The unit is a record."""

_PARTITION_COST = 5
_RETRY_S = 1.0
"""After there was too little memory, or no descriptor left."""


class Shard(LoadedShard, Protocol):
    """What hosting needs of a shard."""

    def start(self, end_offset: int) -> None:
        """Everything is replayed, this partition up to this offset, and all that came with it. Not all of that need be
        committed."""
        ...

    def unload(self) -> None:
        """The partition is led elsewhere, or gone."""
        ...


ShardT = TypeVar("ShardT", bound=Shard)


class _Hosted(Generic[ShardT]):
    """A partition that is led here since `leader_epoch`, or an earlier one; no shard while it is loaded, or where it
    can't be read."""

    __slots__ = (
        "is_loading",
        "is_new",
        "leader",
        "leader_epoch",
        "loading",
        "partition",
        "runtime",
        "shard",
        "steps",
        "to_tell",
    )

    def __init__(self, partition: Partition, leader: Leader, runtime: PartitionRuntime) -> None:
        self.partition = partition
        self.leader = leader
        self.leader_epoch = leader.leader_epoch
        self.runtime = runtime
        self.shard: ShardT | None = None
        self.is_loading = False
        self.is_new = True
        """Whether it came to be led here with the last change that was followed."""
        self.loading: ShardT | None = None
        """What is loaded, and becomes the shard."""
        self.steps: Generator[int, None, int] | None = None
        self.to_tell: list[Callable[[ShardT], object]] = []
        """What it has to learn once it is loaded."""

    def will_load(self, will: bool) -> None:
        self.is_loading = self.partition.is_being_loaded = will
        self.loading = self.steps = None


class HostedShards(Generic[ShardT]):
    """Finds the shard of a key, and lets shards come and go with the partitions."""

    def __init__(
        self,
        topic: str,
        partition_count: int,
        partitions: Partitions,
        scheduler: Scheduler,
        runtime_of: Callable[[Partition], PartitionRuntime],
        make: Callable[[PartitionRuntime, int], ShardT],
        *,
        content: str,
        unreadable: Error,
        reloads_in_new_epoch: bool,
    ) -> None:
        """`partition_count` of the topic once it is made; `make(runtime, leader_epoch)` is an empty shard; `content` is
        how log lines call what is in it.

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
        self._scheduler = scheduler
        self._runtime_of = runtime_of
        self._make = make
        self._content = content
        self._unreadable = unreadable
        self._reloads_in_new_epoch = reloads_in_new_epoch
        self._hosted: dict[int, _Hosted[ShardT]] = {}
        self._to_load: dict[int, _Hosted[ShardT]] = {}
        self._turn: Scheduled | None = None
        self.on_loaded: Callable[[int], None] = lambda index: None
        """Called with the partition of each that has been loaded, or can't be."""

    # --- finding --------------------------------------------------------------------------------------------

    def partition_of(self, key: str) -> int:
        """The partition of the topic that has a key. As in Kafka, partitions that are added to the topic count from
        the next start on: what the others have would be lost otherwise."""
        return partition_of_key(key, self._partition_count)

    def of(self, key: str) -> ShardT:
        """Raises KafkaError: NOT_COORDINATOR; COORDINATOR_LOAD_IN_PROGRESS for a partition that isn't read yet,
        `unreadable` for one that can't be."""
        # written out, since it is asked with each request of a group or a transaction
        found = self._hosted.get(partition_of_key(key, self._partition_count))
        if found is None:
            raise KafkaError(Error.NOT_COORDINATOR)
        shard = found.shard
        return self._loaded(found) if shard is None else shard

    def at(self, index: int) -> ShardT:
        """The shard of a partition. Raises as `of`."""
        found = self._hosted.get(index)
        if found is None:
            raise KafkaError(Error.NOT_COORDINATOR)
        return self._loaded(found)

    @property
    def is_loading(self) -> bool:
        """Whether one of them isn't read yet."""
        return bool(self._to_load)

    def loading_partition_of(self, key: str) -> int | None:
        """The partition of a key whose shard isn't read yet; −1 where it is, None where it isn't led here."""
        index = partition_of_key(key, self._partition_count)
        found = self._hosted.get(index)
        if found is None:
            return None
        return index if found.is_loading else -1

    def all(self) -> list[ShardT]:
        """Raises KafkaError: COORDINATOR_LOAD_IN_PROGRESS where one of them isn't read yet, `unreadable` where one
        can't be."""
        return [self._loaded(hosted) for hosted in self._hosted.values()]

    def readable(self) -> list[ShardT]:
        """But for those that can't be read. Raises KafkaError (COORDINATOR_LOAD_IN_PROGRESS) where one of them isn't
        read yet."""
        return [
            self._loaded(hosted)
            for hosted in self._hosted.values()
            if hosted.shard is not None or hosted.is_loading
        ]

    def tell(self, what: Callable[[ShardT], object]) -> None:
        """All shards, those that aren't loaded yet once they are; the ones that can't be read learn nothing."""
        for hosted in self._hosted.values():
            if hosted.shard is not None:
                what(hosted.shard)
            elif hosted.is_loading:
                hosted.to_tell.append(what)

    async def tell_in_steps(self, what: Callable[[ShardT, bool], Waiting[None]]) -> None:
        """As `tell`, for what may be long; a shard that isn't loaded yet is told at once when it is.

        With it goes whether the shard has come with the change that is followed, as all have at a start: what it has
        read may have been written by others after that."""
        for hosted in [*self._hosted.values()]:
            if hosted.shard is not None:
                await what(hosted.shard, hosted.is_new)
            elif hosted.is_loading:
                is_new = hosted.is_new
                hosted.to_tell.append(lambda shard, is_new=is_new: at_once(what(shard, is_new)))  # type: ignore[misc]

    # --- following the partitions ---------------------------------------------------------------------------

    async def follow(self) -> None:
        """The metadata changed: give up the shards that went, load those that are new here."""
        topic = self._partitions.by_name.get(self._topic)
        here = {} if topic is None else topic.partitions
        led = {
            index: (partition, role)
            for index, partition in here.items()
            if isinstance(role := partition.role, Leader)
        }
        if topic is not None and not self._hosted:
            self._partition_count = len(here) + len(topic.offline) + len(topic.to_open) + len(topic.elsewhere)
        for index, hosted in [*self._hosted.items()]:
            hosted.is_new = False
            if index not in led or not self._goes_on(hosted, led[index][1]):
                self._give_up(index)
        new = [index for index in led if index not in self._hosted]
        for index in new:
            self._begin(index, *led[index])
        if new:
            await self._load(AT_ONCE)

    def stop_loading(self) -> None:
        """What isn't loaded yet won't be."""
        self._to_load.clear()
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None

    def unload(self) -> None:
        """The node stops: all shards are given up."""
        self.stop_loading()
        for index in [*self._hosted]:
            self._give_up(index)

    def _goes_on(self, hosted: _Hosted[ShardT], leader: Leader) -> bool:
        if leader is not hosted.leader:
            return False  # led elsewhere in between: what others wrote meanwhile has to be read
        is_loaded_or_loading = hosted.shard is not None or hosted.is_loading
        is_kept = is_loaded_or_loading and not self._reloads_in_new_epoch
        return is_kept or leader.leader_epoch == hosted.leader_epoch

    def _give_up(self, index: int) -> None:
        hosted = self._hosted.pop(index)
        self._to_load.pop(index, None)
        hosted.will_load(False)
        self._end(hosted)

    @staticmethod
    def _end(hosted: _Hosted[ShardT]) -> None:
        shard, hosted.shard = hosted.shard, None
        try:
            if shard is not None:
                shard.unload()
        finally:
            hosted.runtime.cancel_all()

    def _begin(self, index: int, partition: Partition, leader: Leader) -> None:
        hosted: _Hosted[ShardT] = _Hosted(partition, leader, self._runtime_of(partition))
        hosted.will_load(True)
        self._hosted[index] = self._to_load[index] = hosted

    async def _load(self, cost: int) -> None:
        """About so much in steps of this call, and the rest in turns."""
        is_short = False
        while self._to_load:
            spent = self._load_step()
            if spent is None:
                is_short = True
                break
            cost -= spent
            if cost <= 0:
                break
            if self._to_load:
                await turn()
        if self._to_load and self._turn is None:
            scheduler = self._scheduler
            self._turn = (
                scheduler.call_later(_RETRY_S, self._take_turn)
                if is_short
                else scheduler.call_soon(self._take_turn)
            )

    def _load_step(self) -> int | None:
        """About `STEP_COST`; what has come to its end starts, once all that is read in the same step is there. Returns
        what it did cost; None where there was too little memory, or no descriptor left."""
        loaded: list[tuple[int, _Hosted[ShardT]]] = []
        over: list[int] = []
        is_enough, spent = True, 0
        while spent < STEP_COST and self._to_load:
            index, hosted = next(iter(self._to_load.items()))
            try:
                if hosted.steps is None:
                    hosted.loading = self._make(hosted.runtime, hosted.leader_epoch)
                    hosted.steps = loading(hosted.leader, hosted.loading)
                spent += next(hosted.steps)
                continue
            except StopIteration as end:
                spent += _PARTITION_COST + end.value
                hosted.shard = hosted.loading
                loaded.append((index, hosted))
            except ReplayError as error:
                self._complain(index, error)
            except (MemoryError, OSError) as error:
                if not is_shortage(error):
                    raise
                self._load_again(index, hosted, error)
                is_enough = False
                break
            del self._to_load[index]
            hosted.will_load(False)
            over.append(index)
        for index, hosted in loaded:
            try:
                self._start(index, hosted)
            except (MemoryError, OSError) as error:
                if not is_shortage(error):
                    raise
                self._load_again(index, hosted, error)
                self._end(hosted)
                is_enough = False
        for index in over:
            self.on_loaded(index)
        return spent if is_enough else None

    def _take_turn(self) -> None:
        self._turn = None
        at_once(self._load(STEP_COST))

    def _load_again(self, index: int, hosted: _Hosted[ShardT], failure: MemoryError | OSError) -> None:
        lacks = (
            "there is too little memory" if isinstance(failure, MemoryError) else "too many files are open"
        )
        log.error("the %s of %s-%d are loaded later: %s", *self._names(index), lacks)
        self._to_load[index] = hosted
        hosted.will_load(True)

    def _start(self, index: int, hosted: _Hosted[ShardT]) -> None:
        """A shard that can't begin with what was read is none, either."""
        shard = self._loaded(hosted)
        try:
            shard.start(hosted.leader.log.log_end_offset)
        except Exception as error:
            if is_shortage(error) or stops_the_broker(error):
                raise
            self._complain(index, error)
            self._end(hosted)
            return
        while hosted.to_tell:  # with too little memory for one, it is told once the shard is loaded anew
            hosted.to_tell[0](shard)
            del hosted.to_tell[0]

    def _complain(self, index: int, error: Exception) -> None:
        log.error("the %s of %s-%d can't be loaded: %s", *self._names(index), reason(error))

    def _names(self, index: int) -> tuple[str, str, int]:
        return self._content, self._topic, index

    def _loaded(self, hosted: _Hosted[ShardT]) -> ShardT:
        if hosted.shard is not None:
            return hosted.shard
        raise KafkaError(Error.COORDINATOR_LOAD_IN_PROGRESS if hosted.is_loading else self._unreadable)
