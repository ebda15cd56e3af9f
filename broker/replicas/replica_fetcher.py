"""How followers keep up with one leader's partitions: what is asked of it, and what its answers make of the logs.

    request = fetcher.request()
    yield from fetcher.answered(request, answer)

Of each partition the log is fetched from its end, batches are appended as they are, and what the leader hasn't is cut
off. Nothing waits here: whoever drives it asks again once there is something to ask (`wait_s`). What is throttled and
not in sync is left out as long as the quota is exceeded.
Source: `AbstractFetcherThread`, `ReplicaFetcherThread`, `RemoteLeaderEndPoint`; KIP-101, KIP-595, KIP-903.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

from broker.replicas.fetching import FetchSettings
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
    from broker.environment.scheduler import Clock
    from broker.quotas import ReplicationQuota
    from broker.replicas.in_sync_replicas import PartitionKey
    from broker.replicas.replica import Follower
    from storage.log.partition_log import PartitionLog


# --------------------------------------------------------------------------------------------------------------
# One partition that is fetched of its leader: how that stands, how it is asked for, and what its answer costs.

log = logging.getLogger("barnabas.replicas")

OF_ITS_START, OF_ITS_END = -2, -1  # as timestamps of ListOffsets

_APPEND_COST, _BYTES_PER_COST = 10, 4096
_FILES_COST, _EPOCH_COST, _CUT_COST = 100, 40, 100
"""For its first records a log's files are made, for those of another epoch one is rewritten, for a cut some."""


class FollowState(Enum):
    """Of one partition."""

    FETCHING = "it is in the next Fetch"
    OUT_OF_RANGE = "its end isn't in the leader's log: where that ends and begins is asked for"
    PAUSED = "for a while"
    SYNCING = "until the disk has it as it was cut off"
    FAILED = "until there is another leader epoch: nothing more can come of this one"


class Followed:
    """In one epoch of its leader."""

    __slots__ = ("agrees", "lag", "name", "paused_until_s", "role", "state", "wanted")

    def __init__(self, name: str, role: Follower) -> None:
        self.name = name
        self.role = role
        self.state = FollowState.FETCHING
        self.paused_until_s = 0.0
        self.lag: int | None = None
        """Behind what was committed when records came last; None: nothing has come yet."""
        self.agrees = False
        """Whether its leader has said, in this epoch, that both logs are one up to the end of this one."""
        self.wanted = OF_ITS_END
        """Which end of the leader's log is asked for, where it is out of range."""

    @property
    def log(self) -> PartitionLog:
        return self.role.log

    @property
    def is_present(self) -> bool:
        """Whether its partition has this role still, and its disk hasn't refused for good."""
        role = self.role
        return not role.is_over and role.log.failure is None

    def awaits(self, asked: FetchPartition) -> bool:
        """Whether an answer to this is for the epoch and the end that it has now. The metadata may have given the
        partition another role a moment before whoever fetches it learns of that."""
        role = self.role
        return (
            self.state is FollowState.FETCHING
            and not role.is_over
            and (role.leader_epoch, role.log.log_end_offset)
            == (asked.current_leader_epoch, asked.fetch_offset)
        )

    def goes_on_as(self, role: Follower) -> bool:
        """Whether it is of the same epoch, and the same log: then who is in sync is all that may have changed (Kafka:
        `isNewLeaderEpoch` of `ReplicaManager.applyLocalFollowersDelta`)."""
        mine = self.role
        return (mine.leader_id, mine.leader_epoch) == (
            role.leader_id,
            role.leader_epoch,
        ) and mine.log is role.log

    def asked_for(self, index: int, max_bytes: int) -> FetchPartition:
        """From where its log ends now."""
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
        """Up to where its log is the leader's, as far as leader epochs tell. `of_leader`: where the epoch ends there
        that this log ends with, or the last one before (Kafka: `AbstractFetcherThread.getOffsetTruncationState`)."""
        logged = self.log
        epoch, end_offset = logged.leader_epochs.end_offset_for(of_leader.epoch, logged.log_end_offset)
        if epoch < 0:  # nothing here is as old
            return min(of_leader.end_offset, logged.log_end_offset)
        return end_offset if epoch != of_leader.epoch else min(end_offset, of_leader.end_offset)

    def learn_agreement(self, leader_start: int) -> None:
        """Its leader has found no parting of the logs, and its own begins there. It knows its last epochs alone: one
        that begins right behind this log tells nothing of it."""
        logged = self.log
        if leader_start < logged.log_end_offset and logged.leader_epochs.last >= 0:
            self.agrees = True

    def cut_off(self, offset: int, now_ms: int) -> None:
        """Its log, where its leader's parts from it. Raises as `PartitionLog.truncate_to`."""
        logged = self.log
        before, committed = logged.log_end_offset, logged.high_watermark
        logged.truncate_to(offset, now_ms)
        if offset < before:
            tell = log.warning if offset < committed else log.info
            name = f"{self.name}-{logged.partition}"
            tell("%s is cut off at offset %d of %d, as its leader's is", name, offset, before)

    def cost_of(self, data: PartitionData) -> int:
        """Of taking over what was answered, in what it costs where there is nothing new: some µs."""
        if not data.records:
            return 1 if data.diverging_epoch is None else _CUT_COST
        cost = _APPEND_COST + len(data.records) // _BYTES_PER_COST
        logged = self.log
        if not logged.log_end_offset:
            return cost + _FILES_COST
        return cost if logged.leader_epochs.latest == self.role.leader_epoch else cost + _EPOCH_COST


# --------------------------------------------------------------------------------------------------------------
# All of one leader.

FETCH_VERSION = 18
LIST_OFFSETS_VERSION = 11
"""At metadata.version 30: fetchers ask for no versions."""


class ReplicaFetcher:
    """Of one leader. One request is under way at a time."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        clock: Clock,
        quota: ReplicationQuota,
        settings: FetchSettings | None = None,
    ) -> None:
        """`broker_epoch` of the present registration: by it the leader knows who may join the ISR. `quota` is that of
        all fetchers of this node."""
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._quota = quota
        self._settings = settings or FetchSettings()
        self._followed: dict[PartitionKey, Followed] = {}
        self._is_syncing = False
        self.wake: Callable[[], None] = lambda: None
        """Told when there is something to ask again that waited for this node's disk."""

    @property
    def backoff_s(self) -> float:
        """Until what failed is tried again."""
        return self._settings.backoff_ms / 1000

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, topic_id: bytes, name: str, partition: int, role: Follower) -> None:
        """In this epoch of its leader. What was known of it in another one is forgotten."""
        key = topic_id, partition
        before = self._followed.get(key)
        if before is not None and before.goes_on_as(role):
            before.role = role
        else:
            self._followed[key] = followed = Followed(name, role)
            self._go_on_once_synced(followed)

    def forget(self, topic_id: bytes, partition: int) -> None:
        """It is followed no more. An answer about it that is on its way is passed over."""
        self._followed.pop((topic_id, partition), None)

    def state_of(self, topic_id: bytes, partition: int) -> FollowState:
        """KeyError where it isn't followed."""
        return self._followed[topic_id, partition].state

    # --- asking ---------------------------------------------------------------------------------------------

    def _present(self) -> list[tuple[PartitionKey, Followed]]:
        """Those that have their role still, and a log that is appended to. Of others nothing is asked: it says what is
        here, and the leader would take them for in sync, though the disk hasn't what was to be synced."""
        return [item for item in self._followed.items() if item[1].is_present]

    def wait_s(self) -> float | None:
        """How long until there is something to ask; None: not before another partition is followed."""
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
        """The next one; None where there is nothing to ask now. What this node's disk refuses isn't raised: it costs
        its partition alone."""
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
        """Where the quota is exceeded. Who has all that is committed goes on, or would leave the ISR (Kafka:
        `RemoteLeaderEndPoint.shouldFollowerThrottle`)."""
        return followed.lag != 0 and self._quota.is_throttled(followed.name, index)

    def _waits_for_sync(self, present: list[tuple[PartitionKey, Followed]]) -> bool:
        """Where `flush.messages` is reached the next request, which says what is here, waits for the disk. (Kafka's
        append does.)"""
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
        """What a power loss took out of the middle the leader has, and all that lies behind."""
        logged, hole = followed.log, followed.log.hole
        if hole is not None and followed.state is FollowState.FETCHING:
            log.warning("%s-%d is fetched again from offset %d", followed.name, logged.partition, hole)
            with self._at_its_own_cost(followed):
                logged.truncate_to(hole, self._clock.now_ms())
                self._go_on_once_synced(followed)

    def _go_on_once_synced(self, followed: Followed) -> None:
        """It is fetched; where its end was cut off, once the disk has the cut: else a power loss might bring some of it
        back, amid what came in its place. (Kafka relies on the file system for that.)"""
        has_returned = False  # before, whoever called asks next

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
        """Takes over what it says, as far as it is followed by then. What this node's disk refuses isn't raised, and
        costs its partition alone. Raises BrokenInvariantError."""
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
        """What fails of one partition is in no other's way. What this node's disk or memory refuses is tried again,
        unless the log is lost; what nobody foresaw isn't (Kafka: `AbstractFetcherThread.markPartitionFailed`). A broken
        invariant is raised."""
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
            log.exception("%s-%d can't be followed", followed.name, followed.log.partition)
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
        """Of the epoch and the end that it has now."""
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
        """Whoever follows the metadata learns of the next epoch, and begins anew."""
        followed.state = FollowState.FAILED
        epoch = followed.role.leader_epoch
        log.info("%s-%d isn't fetched in epoch %d: %s", followed.name, followed.log.partition, epoch, why)

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
            log.warning("%s: what was fetched from offset %d makes no sense: %s", name, end_offset, error)
            self._pause(followed)
        else:
            self._count(followed, len(records), data.high_watermark)
        followed.role.learn_high_watermark(data.high_watermark)
        followed.role.learn_log_start(data.log_start_offset)

    def _count(self, followed: Followed, size: int, committed: int) -> None:
        """What was appended. The bytes of replicas in sync count as well."""
        logged, quota = followed.log, self._quota
        if size or followed.lag is None:
            followed.lag = max(0, committed - logged.log_end_offset)
        if quota.throttled and quota.is_throttled(followed.name, logged.partition):
            quota.record(size)

    def _truncate(self, followed: Followed, of_leader: EpochEndOffset) -> None:
        """To where this log and the leader's part."""
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
        """The leader's log ends before this one, and this one's end goes; or begins behind it, and all of it goes."""
        logged, now_ms = followed.log, self._clock.now_ms()
        if followed.wanted == OF_ITS_END and offset >= logged.log_end_offset:
            followed.wanted = OF_ITS_START
            return
        if followed.wanted == OF_ITS_END:
            followed.cut_off(offset, now_ms)
        elif offset > logged.log_end_offset:
            logged.truncate_fully_and_start_at(offset, now_ms)
        self._go_on_once_synced(followed)
