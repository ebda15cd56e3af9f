"""Followers of one leader: their logs become the leader's, whatever they had, and whatever it answers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker.replicas.fetch_wakeups import WaitingFetches
from broker.replicas.follower import Follower
from broker.replicas.replica_fetcher import FETCH_VERSION, LIST_OFFSETS_VERSION, FollowState, ReplicaFetcher
from protocol.errors import Error, KafkaError
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
from protocol.records.records import build_batch
from protocol.wire.codec import decode, encode
from storage.log.partition_log import PartitionLog
from tests.support.manual_clock import ManualClock
from tests.support.partition_logs import open_log

TOPIC = b"T" * 16
FETCHING, PAUSED = FollowState.FETCHING, FollowState.PAUSED
OUT_OF_RANGE, FAILED = FollowState.OUT_OF_RANGE, FollowState.FAILED


def batch(text: str) -> bytearray:
    return build_batch([(0, None, text.encode(), ())])


def bytes_of(log: PartitionLog, offset: int = 0) -> bytes:
    first = max(offset, log.log_start_offset)
    return b"".join(bytes(each) for _, each in log.batches(first, upper_bound=log.log_end_offset))


def epochs_of(log: PartitionLog) -> list[tuple[int, int]]:
    """Those that have records."""
    return [(epoch, start) for epoch, start in log.leader_epochs.entries if start < log.log_end_offset]


class Leading:
    """A log that is led in an epoch, and what Kafka's leader answers of it (`Partition.fetchRecords`)."""

    def __init__(self, log: PartitionLog, epoch: int) -> None:
        self.log = log
        self.epoch = epoch
        log.assign_leader_epoch(epoch)

    def append(self, text: str) -> None:
        self.log.append(batch(text), leader_epoch=self.epoch, now_ms=0)

    def answer(self, request: FetchRequest | ListOffsetsRequest) -> FetchResponse | ListOffsetsResponse:
        """Over the wire and back."""
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
        elif asked.last_fetched_epoch >= 0 and (diverging := self._diverging(asked)) is not None:
            data.diverging_epoch = diverging
        elif not log.log_start_offset <= asked.fetch_offset <= log.log_end_offset:
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


class Following:
    """A follower's log, and the fetcher that keeps it up."""

    def __init__(self, log: PartitionLog, epoch: int = 0) -> None:
        self.log = log
        self.clock = ManualClock()
        self.fetcher = ReplicaFetcher(7, lambda: 99, self.clock)
        self.fetches = WaitingFetches()
        self.follow(epoch)

    def follow(self, epoch: int) -> None:
        """The metadata says who leads now."""
        self.fetcher.follow(TOPIC, "t", 0, Follower(self.log, self.fetches, 1, epoch))

    @property
    def state(self) -> FollowState:
        return self.fetcher.state_of(TOPIC, 0)

    def request(self) -> FetchRequest | ListOffsetsRequest:
        request = self.fetcher.request()
        assert request is not None
        return request

    def step(self, leader: Leading) -> None:
        request = self.request()
        self.fetcher.answered(request, leader.answer(request))

    def until_level(self, leader: Leading) -> None:
        for _ in range(50):
            self.step(leader)
            if self.log.log_end_offset == leader.log.log_end_offset and self.state is FETCHING:
                self.step(leader)  # which finds out whether it is the same
                if self.log.log_end_offset == leader.log.log_end_offset and self.state is FETCHING:
                    return
        raise AssertionError("it never comes level")


@pytest.fixture
def leader(tmp_path: Path) -> Leading:
    leader = Leading(open_log(tmp_path / "leader"), 0)
    for text in "abc":
        leader.append(text)
    return leader


@pytest.fixture
def following(tmp_path: Path) -> Following:
    return Following(open_log(tmp_path / "follower"))


def test_an_empty_log_becomes_the_leaders_and_its_high_watermark_follows(
    leader: Leading, following: Following
) -> None:
    request = following.request()
    assert isinstance(request, FetchRequest)
    (asked,) = request.topics[0].partitions
    assert (asked.fetch_offset, asked.last_fetched_epoch, asked.log_start_offset) == (0, -1, 0)
    assert request.replica_state is not None
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (7, 99)
    leader.log.update_high_watermark(2)
    following.until_level(leader)
    assert bytes_of(following.log) == bytes_of(leader.log)
    assert following.log.high_watermark == 2
    assert following.log.leader_epochs.entries == leader.log.leader_epochs.entries


def test_what_the_leader_has_not_is_cut_off(tmp_path: Path, leader: Leading, following: Following) -> None:
    following.until_level(leader)
    leader.append("lost")
    leader.append("lost as well")
    following.until_level(leader)
    other = Following(open_log(tmp_path / "other"))
    other.log.append(batch("a"), leader_epoch=0, now_ms=0)
    new = Leading(other.log, 1)
    new.append("kept")
    following.follow(1)
    following.until_level(new)
    assert bytes_of(following.log, 1) == bytes_of(new.log, 1)
    assert following.log.leader_epochs.entries == [(0, 0), (1, 1)]


def test_an_epoch_that_was_led_without_a_record_is_forgotten(leader: Leading, following: Following) -> None:
    following.until_level(leader)
    leader.append("unknown here")
    Leading(following.log, 1)  # it led, for a moment
    again = Leading(leader.log, 2)  # and the other one again
    again.append("more")
    following.follow(2)
    request = following.request()
    assert isinstance(request, FetchRequest)
    assert request.topics[0].partitions[0].last_fetched_epoch == 1
    following.until_level(again)
    assert following.log.leader_epochs.entries == again.log.leader_epochs.entries == [(0, 0), (2, 4)]


def test_a_log_that_ends_before_the_leaders_begins_is_begun_anew(
    leader: Leading, following: Following
) -> None:
    following.step(leader)
    for text in "defg":
        leader.append(text)
    leader.log.update_high_watermark(leader.log.log_end_offset)
    leader.log.delete_records_before(6)
    following.until_level(leader)
    assert (following.log.log_start_offset, following.log.log_end_offset) == (6, 7)
    assert bytes_of(following.log) == bytes_of(leader.log, 6)


def test_a_log_that_ends_behind_the_leaders_is_cut_off_there(tmp_path: Path, following: Following) -> None:
    for text in "abcd":
        following.log.append(batch(text), leader_epoch=0, now_ms=0)
    following.log.leader_epochs.clear()  # so that nothing but the end says it
    leader = Leading(open_log(tmp_path / "leader"), 0)
    leader.append("a")
    following.step(leader)
    assert following.state is OUT_OF_RANGE
    following.until_level(leader)
    assert following.log.log_end_offset == 1


def test_the_leaders_start_is_taken_over(leader: Leading, following: Following) -> None:
    leader.log.update_high_watermark(3)
    following.until_level(leader)
    leader.log.delete_records_before(2)
    following.step(leader)
    assert following.log.log_start_offset == 2


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Error.NOT_LEADER_OR_FOLLOWER, PAUSED),
        (Error.UNKNOWN_LEADER_EPOCH, PAUSED),
        (Error.UNKNOWN_TOPIC_OR_PARTITION, PAUSED),
        (Error.UNKNOWN_TOPIC_ID, PAUSED),
        (Error.INCONSISTENT_TOPIC_ID, PAUSED),
        (Error.KAFKA_STORAGE_ERROR, PAUSED),
        (Error.CORRUPT_MESSAGE, PAUSED),
        (Error.UNKNOWN_SERVER_ERROR, PAUSED),
        (Error.FENCED_LEADER_EPOCH, FAILED),
        (Error.OFFSET_OUT_OF_RANGE, OUT_OF_RANGE),
    ],
)
def test_what_comes_of_an_error(
    leader: Leading, following: Following, error: Error, state: FollowState
) -> None:
    request = following.request()
    answer = leader.answer(request)
    assert isinstance(answer, FetchResponse)
    answer.responses[0].partitions[0].error_code = error
    following.fetcher.answered(request, answer)
    assert following.state is state
    assert following.log.log_end_offset == 0
    if state is PAUSED:
        assert following.fetcher.request() is None
        assert following.fetcher.wait_s() == 1.0
        following.clock.advance_ms(1_000)
        assert following.fetcher.wait_s() == 0
        following.until_level(leader)
    elif state is FAILED:
        assert following.fetcher.request() is None
        assert following.fetcher.wait_s() is None
        following.follow(0)  # the same epoch, by another role
        assert following.state is FETCHING
    else:
        assert isinstance(following.request(), ListOffsetsRequest)


@pytest.mark.parametrize(
    "failure", [KafkaError(Error.NETWORK_EXCEPTION), FetchResponse(error_code=71)], ids=str
)
def test_a_fetch_that_fails_pauses_all_that_it_asked_for(
    leader: Leading, following: Following, failure: KafkaError | FetchResponse
) -> None:
    following.fetcher.answered(following.request(), failure)
    assert following.state is PAUSED
    following.clock.advance_ms(1_000)
    following.until_level(leader)


@pytest.mark.parametrize("error", [Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH, None])
def test_where_the_leaders_log_ends_may_not_be_told(
    leader: Leading, following: Following, error: Error | None
) -> None:
    request = following.request()
    answer = leader.answer(request)
    assert isinstance(answer, FetchResponse)
    answer.responses[0].partitions[0].error_code = Error.OFFSET_OUT_OF_RANGE
    following.fetcher.answered(request, answer)
    request = following.request()
    told: ListOffsetsResponse | KafkaError = KafkaError(Error.NETWORK_EXCEPTION)
    if error is not None:
        listed = leader.answer(request)
        assert isinstance(listed, ListOffsetsResponse)
        listed.topics[0].partitions[0].error_code = error
        told = listed
    following.fetcher.answered(request, told)
    assert following.state is (FAILED if error is Error.FENCED_LEADER_EPOCH else PAUSED)


def test_an_answer_of_an_earlier_epoch_or_end_is_passed_over(leader: Leading, following: Following) -> None:
    request = following.request()
    answer = leader.answer(request)
    following.follow(1)
    following.fetcher.answered(request, answer)
    assert following.log.log_end_offset == 0
    following.follow(0)
    following.fetcher.answered(request, answer)
    assert following.log.log_end_offset == 3
    following.fetcher.answered(request, answer)
    assert following.log.log_end_offset == 3
    following.fetcher.forget(TOPIC, 0)
    following.fetcher.answered(request, answer)
    assert len(following.fetcher) == 0
    assert following.fetcher.request() is None


@pytest.mark.parametrize("position", [20, 66, -1])
def test_bytes_that_were_changed_on_the_way_are_not_taken(
    leader: Leading, following: Following, position: int
) -> None:
    request = following.request()
    answer = leader.answer(request)
    assert isinstance(answer, FetchResponse)
    (data,) = answer.responses[0].partitions
    assert data.records is not None
    broken = bytearray(bytes(data.records))  # type: ignore[arg-type]
    broken[position] ^= 1
    data.records = bytes(broken)
    following.fetcher.answered(request, answer)
    assert following.state is PAUSED
    assert following.log.log_end_offset == {20: 0, 66: 0, -1: 2}[position]  # what came before counts
    following.clock.advance_ms(1_000)
    following.until_level(leader)
    assert bytes_of(following.log) == bytes_of(leader.log)


def test_what_comes_twice_is_taken_once(leader: Leading, following: Following) -> None:
    request = following.request()
    answer = leader.answer(request)
    assert isinstance(answer, FetchResponse)
    (data,) = answer.responses[0].partitions
    data.records = bytes(data.records) * 2  # type: ignore[arg-type]
    following.fetcher.answered(request, answer)
    assert following.state is PAUSED
    assert bytes_of(following.log) == bytes_of(leader.log)


@pytest.mark.parametrize(("epoch", "end_offset", "left"), [(9, 2, 2), (9, 50, 3), (0, 1, 1), (0, 50, 3)])
def test_where_the_leader_says_that_the_logs_part(
    leader: Leading, following: Following, epoch: int, end_offset: int, left: int
) -> None:
    following.until_level(leader)
    request = following.request()
    answer = leader.answer(request)
    assert isinstance(answer, FetchResponse)
    diverging = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    answer.responses[0].partitions[0].diverging_epoch = diverging
    following.fetcher.answered(request, answer)
    assert (following.state, following.log.log_end_offset) == (FETCHING, left)


@pytest.mark.parametrize("seed", range(60))
def test_whoever_leads_and_follows_the_logs_come_to_be_the_same(tmp_path: Path, seed: int) -> None:
    """Three replicas in turn: a leader appends, followers fetch some of it, and one of them leads next."""
    luck = random.Random(seed)
    replicas = [
        Following(open_log(tmp_path / f"{number}", segment_bytes=luck.choice([300, 10**6])))
        for number in range(3)
    ]
    committed = b""
    epoch = 0
    at = 0
    leader = Leading(replicas[at].log, epoch)
    for number in range(60):
        action = luck.random()
        follower = luck.choice([each for each in range(3) if each != at])
        if action < 0.4:
            leader.append(f"{epoch}-{number}")
        elif action < 0.8:
            replicas[follower].step(leader)
            replicas[follower].clock.advance_ms(1_000)
        else:
            if luck.random() < 0.5:  # a clean one: all of it is committed
                replicas[follower].until_level(leader)
                committed = bytes_of(leader.log)
            elif not bytes_of(replicas[follower].log).startswith(committed):
                continue  # it isn't in sync
            at, epoch = follower, epoch + 1
            leader = Leading(replicas[at].log, epoch)
            for each in range(3):
                if each != at:
                    replicas[each].follow(epoch)
        assert bytes_of(leader.log).startswith(committed)
    for each in range(3):
        if each != at:
            replicas[each].until_level(leader)
            assert bytes_of(replicas[each].log) == bytes_of(leader.log)
            assert epochs_of(replicas[each].log) == epochs_of(leader.log)
