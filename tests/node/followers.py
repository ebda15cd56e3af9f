"""A log with a leader, and its follower. The leader answers as Kafka's does, over the wire and back."""

from __future__ import annotations

from pathlib import Path

from broker.replicas.replica import Follower, WaitingFetches
from broker.replicas.replica_fetcher import FETCH_VERSION, LIST_OFFSETS_VERSION, FollowState, ReplicaFetcher
from protocol.errors import Error
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.records.batch import build_batch
from protocol.waiting import at_once
from protocol.wire.codec import decode, encode
from storage.log.partition_log import PartitionLog
from tests.support.manual_clock import ManualClock
from tests.support.partition_logs import open_log
from tests.support.replication_quota import AdjustableQuota

TOPIC = b"T" * 16
FETCHING, PAUSED = FollowState.FETCHING, FollowState.PAUSED
OUT_OF_RANGE, FAILED = FollowState.OUT_OF_RANGE, FollowState.FAILED


def batch(text: str) -> bytearray:
    return build_batch([(0, None, text.encode(), ())])


def bytes_of(log: PartitionLog, offset: int = 0) -> bytes:
    first = max(offset, log.log_start_offset)
    return b"".join(bytes(each) for _, each in log.batches(first, upper_bound=log.log_end_offset))


def epochs_of(log: PartitionLog) -> list[tuple[int, int]]:
    """Return the leader epochs that have records."""
    return [(epoch, start) for epoch, start in log.leader_epochs.entries if start < log.log_end_offset]


class Leading:
    """A log that is led in an epoch. It answers as Kafka's leader does (`Partition.fetchRecords`)."""

    def __init__(self, log: PartitionLog, epoch: int) -> None:
        self.log = log
        self.epoch = epoch
        log.assign_leader_epoch(epoch)

    def append(self, text: str) -> None:
        self.log.append(batch(text), leader_epoch=self.epoch, now_ms=0)

    def answer(self, request: FetchRequest | ListOffsetsRequest) -> FetchResponse | ListOffsetsResponse:
        """Answer the request. Both are encoded and decoded, as over the wire."""
        if isinstance(request, FetchRequest):
            asked = decode(FetchRequest, FETCH_VERSION, encode(request, FETCH_VERSION))
            return decode(FetchResponse, FETCH_VERSION, encode(self._fetch(asked), FETCH_VERSION))
        version = LIST_OFFSETS_VERSION
        wanted = decode(ListOffsetsRequest, version, encode(request, version))
        (partition,) = wanted.topics[0].partitions
        ends = {-1: self.log.log_end_offset, -2: self.log.log_start_offset}
        found = ListOffsetsPartitionResponse(partition_index=0, offset=ends[partition.timestamp])
        answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])
        return decode(ListOffsetsResponse, version, encode(answer, version))

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        (asked,) = request.topics[0].partitions
        log = self.log
        data = PartitionData(
            high_watermark=log.high_watermark, log_start_offset=log.log_start_offset, records=b""
        )
        if asked.current_leader_epoch != self.epoch:
            is_old = asked.current_leader_epoch < self.epoch
            data.error_code = Error.FENCED_LEADER_EPOCH if is_old else Error.UNKNOWN_LEADER_EPOCH
        elif asked.fetch_offset < log.log_start_offset:
            data.error_code = Error.OFFSET_OUT_OF_RANGE
        elif asked.last_fetched_epoch >= 0 and (diverging := self._diverging(asked)) is not None:
            data.diverging_epoch = diverging
        elif asked.fetch_offset > log.log_end_offset:
            data.error_code = Error.OFFSET_OUT_OF_RANGE
        else:
            limit = asked.partition_max_bytes
            data.records = log.read(asked.fetch_offset, limit, log.log_end_offset, min_one_batch=True).records
        topic = FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=[data])
        return FetchResponse(responses=[topic])

    def _diverging(self, asked: object) -> EpochEndOffset | None:
        epoch, end = self.log.leader_epochs.end_offset_for(asked.last_fetched_epoch, self.log.log_end_offset)  # type: ignore[attr-defined]
        if epoch >= 0 and (epoch < asked.last_fetched_epoch or end < asked.fetch_offset):  # type: ignore[attr-defined]
            return EpochEndOffset(epoch=epoch, end_offset=end)
        return None


def leader_of_three(folder: Path) -> Leading:
    """Return a leader with three records of its epoch 0."""
    leader = Leading(open_log(folder), 0)
    for text in "abc":
        leader.append(text)
    return leader


class Following:
    """A follower's log, and the fetcher that keeps it up to date."""

    def __init__(self, log: PartitionLog, epoch: int = 0) -> None:
        self.log = log
        self.clock = ManualClock()
        self.quota = AdjustableQuota(self.clock)
        self.fetcher = ReplicaFetcher(7, lambda: 99, self.clock, self.quota)
        self.fetches = WaitingFetches()
        self.follow(epoch)

    def follow(self, epoch: int) -> None:
        """Follow the leader in this epoch, as the metadata would say."""
        self.role = Follower(self.log, self.fetches, 1, epoch)
        self.fetcher.follow(TOPIC, "t", 0, self.role)

    @property
    def state(self) -> FollowState:
        return self.fetcher.state_of(TOPIC, 0)

    def request(self) -> FetchRequest | ListOffsetsRequest:
        request = self.fetcher.request()
        assert request is not None
        return request

    def step(self, leader: Leading) -> None:
        request = self.request()
        at_once(self.fetcher.answered(request, leader.answer(request)))

    def until_level(self, leader: Leading) -> None:
        for _ in range(50):
            self.step(leader)
            if self.log.log_end_offset == leader.log.log_end_offset and self.state is FETCHING:
                self.step(leader)  # this finds out whether the logs are the same
                if self.log.log_end_offset == leader.log.log_end_offset and self.state is FETCHING:
                    return
        raise AssertionError("it never comes level")
