"""Keeping followers up with the partitions of one leader: requests to it, and applying its answers to the
logs.

    request = fetcher.request()
    await fetcher.answered(request, answer)

Each partition is fetched from its log end. Batches are appended unchanged, and whatever the leader doesn't
have is cut off. Nothing waits here: the caller asks again once there is something to ask (`wait_s`). While
the quota is exceeded, throttled replicas that aren't in sync are left out.

Source: `AbstractFetcherThread`, `ReplicaFetcherThread`, `RemoteLeaderEndPoint`; KIP-101, KIP-595, KIP-903.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from protocol.errors import Error, KafkaError, stops_the_broker
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.records.batch import CorruptRecordError
from protocol.waiting import Pause, turn
from storage.log.partition_log import append_as_follower, sync_cut

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.environment.scheduler import Clock
    from broker.quotas import ReplicationQuota
    from broker.replicas.in_sync_replicas import PartitionKey
    from broker.replicas.replica import Follower
    from storage.log.partition_log import PartitionLog


# --------------------------------------------------------------------------------------------------------------
# One partition fetched from its leader: its state, its requests, and the cost of its answers.

log = logging.getLogger("barnabas.replicas")

# --- The settings of followers' fetches ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Kafka's `replica.fetch.*`, and `replica.socket.timeout.ms`."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    response_max_bytes: int = 10 * 1024 * 1024
    max_bytes: int = 1024 * 1024
    backoff_ms: int = 1_000
    timeout_ms: int = 30_000

    @classmethod
    def of(cls, config: BrokerConfig) -> FetchSettings:
        """The settings at the start. They can't be altered at run time."""
        return cls(
            wait_max_ms=config.get_int("replica.fetch.wait.max.ms"),
            min_bytes=config.get_int("replica.fetch.min.bytes"),
            response_max_bytes=config.get_int("replica.fetch.response.max.bytes"),
            max_bytes=config.get_int("replica.fetch.max.bytes"),
            backoff_ms=config.get_int("replica.fetch.backoff.ms"),
            timeout_ms=config.get_int("replica.socket.timeout.ms"),
        )


OF_ITS_START, OF_ITS_END = -2, -1  # timestamps of ListOffsets

_APPEND_COST, _BYTES_PER_COST = 10, 4096
_FILES_COST, _EPOCH_COST, _CUT_COST = 100, 40, 100
"""The first records create a log's files. Records of a new epoch rewrite one file, and a cut rewrites
several."""


class FollowState(Enum):
    """The state of one partition."""

    FETCHING = "it is in the next Fetch"
    OUT_OF_RANGE = "its end isn't in the leader's log: the next request asks where that ends or begins"
    PAUSED = "it waits for a while"
    SYNCING = "it waits until the disk has the cut"
    FAILED = "it waits for another leader epoch"


class Followed:
    """A partition in one epoch of its leader."""

    __slots__ = ("agrees", "lag", "name", "paused_until_s", "role", "state", "wanted")

    def __init__(self, name: str, role: Follower) -> None:
        self.name = name
        self.role = role
        self.state = FollowState.FETCHING
        self.paused_until_s = 0.0
        self.lag: int | None = None
        """How far it was behind the high watermark when records last came. None if nothing has come yet."""
        self.agrees = False
        """True if the leader has shown, in this epoch, that both logs agree up to the end of this one."""
        self.wanted = OF_ITS_END
        """If it is out of range, which end of the leader's log to ask for."""

    @property
    def log(self) -> PartitionLog:
        return self.role.log

    @property
    def is_present(self) -> bool:
        """True if the partition still has this role, and its disk hasn't failed for good."""
        role = self.role
        return not role.is_over and role.log.failure is None

    def awaits(self, asked: FetchPartition) -> bool:
        """True if an answer to this request fits the current epoch and log end. The metadata may have given
        the partition another role a moment before the fetcher learns of that."""
        role = self.role
        return (
            self.state is FollowState.FETCHING
            and not role.is_over
            and (role.leader_epoch, role.log.log_end_offset)
            == (asked.current_leader_epoch, asked.fetch_offset)
        )

    def goes_on_as(self, role: Follower) -> bool:
        """True if the role has the same epoch and the same log. Then at most the ISR has changed (Kafka:
        `isNewLeaderEpoch` of `ReplicaManager.applyLocalFollowersDelta`)."""
        mine = self.role
        return (mine.leader_id, mine.leader_epoch) == (
            role.leader_id,
            role.leader_epoch,
        ) and mine.log is role.log

    def asked_for(self, index: int, max_bytes: int) -> FetchPartition:
        """Return the request for this partition, from its current log end."""
        logged = self.log
        return FetchPartition(
            partition=index,
            current_leader_epoch=self.role.leader_epoch,
            fetch_offset=logged.log_end_offset,
            last_fetched_epoch=logged.leader_epochs.last,
            log_start_offset=logged.log_start_offset,
            partition_max_bytes=max_bytes,
        )

    def parting_offset(self, of_leader: EpochEndOffset) -> int:
        """Return up to where the log agrees with the leader's, by their leader epochs. `of_leader` is the
        end, in the leader's log, of this log's last epoch or the one before (Kafka:
        `AbstractFetcherThread.getOffsetTruncationState`)."""
        logged = self.log
        epoch, end_offset = logged.leader_epochs.end_offset_for(of_leader.epoch, logged.log_end_offset)
        if epoch < 0:  # nothing here is that old
            return min(of_leader.end_offset, logged.log_end_offset)
        return end_offset if epoch != of_leader.epoch else min(end_offset, of_leader.end_offset)

    def learn_agreement(self, leader_start: int) -> None:
        """Learn from an answer without divergence that the logs agree. `leader_start` is where the leader's
        log begins. The leader only knows the epochs in its log: if it begins right behind this log, it says
        nothing about this one."""
        logged = self.log
        if leader_start < logged.log_end_offset and logged.leader_epochs.last >= 0:
            self.agrees = True

    def cut_off(self, offset: int, now_ms: int) -> None:
        """Cut off the log where it diverges from the leader's. Raises as `PartitionLog.truncate_to`."""
        logged = self.log
        before, committed = logged.log_end_offset, logged.high_watermark
        logged.truncate_to(offset, now_ms)
        if offset < before:
            tell = log.warning if offset < committed else log.info
            name = f"{self.name}-{logged.partition}"
            tell(
                "truncated %s to offset %d of %d, where it diverges from its leader's log",
                name,
                offset,
                before,
            )

    def cost_of(self, data: PartitionData) -> int:
        """Return the cost of applying an answer. The unit is an answer without news: some µs."""
        if not data.records:
            return 1 if data.diverging_epoch is None else _CUT_COST
        cost = _APPEND_COST + len(data.records) // _BYTES_PER_COST
        logged = self.log
        if not logged.log_end_offset:
            return cost + _FILES_COST
        return cost if logged.leader_epochs.latest == self.role.leader_epoch else cost + _EPOCH_COST


# --------------------------------------------------------------------------------------------------------------
# All partitions of one leader.

FETCH_VERSION = 18
LIST_OFFSETS_VERSION = 11
"""At metadata.version 30: fetchers don't negotiate versions."""


class ReplicaFetcher:
    """Fetches from one leader. One request is in flight at a time."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        clock: Clock,
        quota: ReplicationQuota,
        settings: FetchSettings | None = None,
    ) -> None:
        """`broker_epoch` is that of the current registration: the leader decides by it who may join the ISR.
        `quota` is that of all fetchers of this node."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._quota = quota
        self._settings = settings or FetchSettings()
        self._followed: dict[PartitionKey, Followed] = {}
        self._is_syncing = False
        self.wake: Callable[[], None] = lambda: None
        """Called when a request that waited for this node's disk can be made."""

    @property
    def backoff_s(self) -> float:
        """How long to wait before retrying what failed."""
        return self._settings.backoff_ms / 1000

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, topic_id: bytes, name: str, partition: int, role: Follower) -> None:
        """Follow a partition in this epoch of its leader. Forgets what was known from another epoch."""
        key = topic_id, partition
        before = self._followed.get(key)
        if before is not None and before.goes_on_as(role):
            before.role = role
        else:
            self._followed[key] = followed = Followed(name, role)
            self._go_on_once_synced(followed)

    def forget(self, topic_id: bytes, partition: int) -> None:
        """Stop following a partition. An answer in flight about it has no effect."""
        self._followed.pop((topic_id, partition), None)

    def state_of(self, topic_id: bytes, partition: int) -> FollowState:
        """The state of a partition. Raises KeyError if it isn't followed."""
        return self._followed[topic_id, partition].state

    # --- requests -------------------------------------------------------------------------------------------

    def _present(self) -> list[tuple[PartitionKey, Followed]]:
        """The partitions that still have their role and a log that can be appended to. For the others nothing
        is requested: a request reports this log's end, so the leader would count it as in sync although the
        disk has failed."""
        return [item for item in self._followed.items() if item[1].is_present]

    def wait_s(self) -> float | None:
        """How long until there is something to request. None: not before another partition is followed."""
        if self._is_syncing:
            return None
        now_s = self._clock.monotonic_s()
        throttles = self._throttles_now()
        waits = []
        for (_, index), each in self._present():
            if each.state is FollowState.PAUSED:
                waits.append(max(0.0, each.paused_until_s - now_s))
            elif each.state is FollowState.FETCHING and throttles and self._is_throttled(each, index):
                waits.append(self.backoff_s)
            elif each.state not in (FollowState.FAILED, FollowState.SYNCING):
                waits.append(0.0)
        return min(waits, default=None)

    def request(self) -> FetchRequest | ListOffsetsRequest | None:
        """Return the next request, or None if there is nothing to request now. If this node's disk refuses
        something, that affects only its partition and raises nothing."""
        now_s, present = self._clock.monotonic_s(), self._present()
        for _, each in present:
            if each.state is FollowState.PAUSED and each.paused_until_s <= now_s:
                self._go_on_once_synced(each)
        if self._waits_for_sync(present):
            return None
        lost = {key: each for key, each in present if each.state is FollowState.OUT_OF_RANGE}
        if lost:
            return self._ends_of(lost)
        topics: dict[bytes, FetchTopic] = {}
        throttles = self._throttles_now()
        for (topic_id, index), each in present:
            self._begin_at_hole(each)
            if each.state is FollowState.FETCHING and not (throttles and self._is_throttled(each, index)):
                topic = topics.setdefault(topic_id, FetchTopic(topic_id=topic_id))
                topic.partitions.append(each.asked_for(index, self._settings.max_bytes))
        return self._fetch([*topics.values()]) if topics else None

    def _throttles_now(self) -> bool:
        quota = self._quota
        return bool(quota.throttled) and quota.is_exceeded()

    def _is_throttled(self, followed: Followed, index: int) -> bool:
        """True if the quota, when exceeded, throttles this partition. One that has everything committed goes
        on, or else it would leave the ISR (Kafka: `RemoteLeaderEndPoint.shouldFollowerThrottle`)."""
        return followed.lag != 0 and self._quota.is_throttled(followed.name, index)

    def _waits_for_sync(self, present: list[tuple[PartitionKey, Followed]]) -> bool:
        """True if the next request has to wait for the disk, because `flush.messages` is reached: a request
        reports what is here. (In Kafka, the append waits.)"""
        if self._is_syncing:
            return True
        for _, each in present:
            logged = each.log
            if (
                each.state is FollowState.FETCHING
                and logged.flush_is_due
                and logged.flush_wanted
                and logged.failure is None
                and not logged.closed
            ):
                self._is_syncing = True
                try:
                    logged.when_flushed(logged.log_end_offset, self._synced)
                except MemoryError:
                    self._is_syncing = False
                    self._pause(each)
                else:
                    return True
        return False

    def _synced(self, failure: Exception | None) -> None:
        self._is_syncing = False
        self.wake()

    def _begin_at_hole(self, followed: Followed) -> None:
        """Fetch again from where a power loss left a hole in the log. The leader has that part and everything
        behind it."""
        logged, hole = followed.log, followed.log.hole
        if hole is not None and followed.state is FollowState.FETCHING:
            log.warning("fetching %s-%d again from offset %d", followed.name, logged.partition, hole)
            with self._at_its_own_cost(followed):
                logged.truncate_to(hole, self._clock.now_ms())
                self._go_on_once_synced(followed)

    def _go_on_once_synced(self, followed: Followed) -> None:
        """Fetch the partition. If its end was cut off, wait until the disk has the cut. Otherwise a power
        loss might bring some of it back, amid what replaced it. (Kafka relies on the file system for
        that.)"""
        has_returned = False  # before that, the caller makes the next request

        def synced(failure: Exception | None) -> None:
            if followed.state is FollowState.SYNCING:
                followed.state = FollowState.FETCHING
                if has_returned:
                    self.wake()

        followed.state = FollowState.SYNCING
        if not sync_cut(followed.log, synced):
            followed.state = FollowState.FETCHING
        has_returned = True

    def _fetch(self, topics: list[FetchTopic]) -> FetchRequest:
        settings = self._settings
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=settings.wait_max_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            session_epoch=-1,
            topics=topics,
        )

    def _ends_of(self, lost: dict[PartitionKey, Followed]) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for (_, index), each in lost.items():
            topic = topics.setdefault(each.name, ListOffsetsTopic(name=each.name))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=index,
                    current_leader_epoch=each.role.leader_epoch,
                    timestamp=each.wanted,
                )
            )
        return ListOffsetsRequest(replica_id=self._broker_id, topics=[*topics.values()])

    # --- answers --------------------------------------------------------------------------------------------

    async def answered(
        self,
        request: FetchRequest | ListOffsetsRequest,
        answer: FetchResponse | ListOffsetsResponse | KafkaError,
    ) -> None:
        """Apply an answer to the partitions that are still followed. If this node's disk refuses something,
        that affects only its partition and raises nothing. Raises BrokenInvariantError."""
        if isinstance(request, FetchRequest):
            if isinstance(answer, FetchResponse) and not answer.error_code:
                await self._fetched(request, answer)
            else:
                asked = [
                    (topic.topic_id, each.partition) for topic in request.topics for each in topic.partitions
                ]
                self._pause_all(asked)
        elif isinstance(answer, ListOffsetsResponse):
            self._listed(answer)
        else:
            self._pause_all(
                [key for key, each in self._followed.items() if each.state is FollowState.OUT_OF_RANGE]
            )

    def _pause_all(self, keys: list[PartitionKey]) -> None:
        for key in keys:
            each = self._followed.get(key)
            if each is not None:
                self._pause(each)

    def _pause(self, followed: Followed) -> None:
        followed.state = FollowState.PAUSED
        followed.paused_until_s = self._clock.monotonic_s() + self.backoff_s

    @contextmanager
    def _at_its_own_cost(self, followed: Followed) -> Iterator[None]:
        """Keep a partition's failure from affecting others. If this node's disk or memory refuses something,
        it is tried again, unless the log is lost. Unexpected errors aren't retried (Kafka:
        `AbstractFetcherThread.markPartitionFailed`). Raises broken invariants."""
        try:
            yield
        except (KafkaError, OSError, CorruptRecordError, MemoryError) as error:
            logged = followed.log
            if logged.failure is None and not logged.closed:
                self._pause(followed)
            else:
                self._fail(followed, str(error))
        except Exception as error:
            if stops_the_broker(error):
                raise
            log.exception("can't follow %s-%d", followed.name, followed.log.partition)
            self._fail(followed, repr(error))

    async def _fetched(self, request: FetchRequest, answer: FetchResponse) -> None:
        pause = Pause()
        asked = {
            (topic.topic_id, each.partition): each for topic in request.topics for each in topic.partitions
        }
        for topic in answer.responses:
            for data in topic.partitions:
                key = topic.topic_id, data.partition_index
                each = self._followed.get(key)
                if each is not None and pause.is_due(each.cost_of(data)):
                    await turn()
                each, wanted = self._followed.get(key), asked.get(key)
                if each is not None and wanted is not None and each.awaits(wanted):
                    with self._at_its_own_cost(each):
                        self._take(each, data)

    def _take(self, followed: Followed, data: PartitionData) -> None:
        """Apply an answer to a partition. It fits the current epoch and log end."""
        error = data.error_code
        if error == Error.NONE:
            diverging = data.diverging_epoch
            if diverging is not None and diverging.epoch >= 0:
                self._truncate(followed, diverging)
            else:
                self._append(followed, data)
        elif error == Error.OFFSET_OUT_OF_RANGE:
            followed.state, followed.wanted = FollowState.OUT_OF_RANGE, OF_ITS_END
        elif error == Error.FENCED_LEADER_EPOCH:
            self._fail(followed, "the leader knows a later epoch")
        else:
            self._pause(followed)

    def _fail(self, followed: Followed, why: str) -> None:
        """Stop fetching in this epoch. The next epoch, which the metadata brings, starts afresh."""
        followed.state = FollowState.FAILED
        epoch = followed.role.leader_epoch
        log.info("not fetching %s-%d in epoch %d: %s", followed.name, followed.log.partition, epoch, why)

    def _append(self, followed: Followed, data: PartitionData) -> None:
        logged = followed.log
        records = data.records or b""
        assert isinstance(records, memoryview | bytes)
        followed.learn_agreement(data.log_start_offset)
        try:
            append_as_follower(
                logged,
                records,
                leader_epoch=followed.role.leader_epoch,
                now_ms=self._clock.now_ms(),
                has_gaps=True,
                leader_start=0 if followed.agrees else data.log_start_offset,
            )
        except CorruptRecordError as error:
            name, end_offset = f"{followed.name}-{logged.partition}", logged.log_end_offset
            log.warning("%s: the records fetched from offset %d are corrupt: %s", name, end_offset, error)
            self._pause(followed)
        else:
            self._count(followed, len(records), data.high_watermark)
        followed.role.learn_high_watermark(data.high_watermark)
        followed.role.learn_log_start(data.log_start_offset)

    def _count(self, followed: Followed, size: int, committed: int) -> None:
        """Count what was appended. Bytes of replicas in sync count, too."""
        logged, quota = followed.log, self._quota
        if size or followed.lag is None:
            followed.lag = max(0, committed - logged.log_end_offset)
        if quota.throttled and quota.is_throttled(followed.name, logged.partition):
            quota.record(size)

    def _truncate(self, followed: Followed, of_leader: EpochEndOffset) -> None:
        """Truncate to where this log and the leader's diverge."""
        followed.cut_off(followed.parting_offset(of_leader), self._clock.now_ms())
        self._go_on_once_synced(followed)

    # --- out of range ---------------------------------------------------------------------------------------

    def _listed(self, answer: ListOffsetsResponse) -> None:
        by_name = {(each.name, index): each for (_, index), each in self._followed.items()}
        for topic in answer.topics:
            for found in topic.partitions:
                followed = by_name.get((topic.name, found.partition_index))
                if (
                    followed is None
                    or followed.role.is_over
                    or followed.state is not FollowState.OUT_OF_RANGE
                ):
                    continue
                if found.error_code == Error.FENCED_LEADER_EPOCH:
                    self._fail(followed, "the leader knows a later epoch")
                elif found.error_code or found.offset < 0:
                    self._pause(followed)
                else:
                    with self._at_its_own_cost(followed):
                        self._take_end(followed, found.offset)

    def _take_end(self, followed: Followed, offset: int) -> None:
        """Handle an out-of-range log. If the leader's log ends before this one, cut off the end. If it begins
        behind this one, begin anew there."""
        logged, now_ms = followed.log, self._clock.now_ms()
        if followed.wanted == OF_ITS_END and offset >= logged.log_end_offset:
            followed.wanted = OF_ITS_START
            return
        if followed.wanted == OF_ITS_END:
            followed.cut_off(offset, now_ms)
        elif offset > logged.log_end_offset:
            logged.truncate_fully_and_start_at(offset, now_ms)
        self._go_on_once_synced(followed)
