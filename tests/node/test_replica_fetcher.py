"""Followers of one leader: their logs become the same as the leader's, whatever they had, and whatever it answers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from broker.replicas.replica_fetcher import FollowState
from protocol.errors import Error, KafkaError
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchRequest,
    FetchResponse,
)
from protocol.messages.offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from protocol.records.batch import build_batch
from protocol.waiting import at_once
from tests.node.followers import (
    FAILED,
    FETCHING,
    OUT_OF_RANGE,
    PAUSED,
    TOPIC,
    Following,
    Leading,
    batch,
    bytes_of,
    epochs_of,
    leader_of_three,
)
from tests.support.partition_logs import HeldBackground, open_log


@pytest.fixture
def leader(tmp_path: Path) -> Leading:
    return leader_of_three(tmp_path / "leader")


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


def test_records_that_the_leader_lacks_are_cut_off(
    tmp_path: Path, leader: Leading, following: Following
) -> None:
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
    again = Leading(leader.log, 2)  # then the other one leads again
    again.append("more")
    following.follow(2)
    request = following.request()
    assert isinstance(request, FetchRequest)
    assert request.topics[0].partitions[0].last_fetched_epoch == 1
    following.until_level(again)
    assert following.log.leader_epochs.entries == again.log.leader_epochs.entries == [(0, 0), (2, 4)]


def test_a_log_that_ends_before_the_leaders_begins_is_started_again(
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


def test_an_empty_log_begins_inside_a_batch_where_the_leaders_does(
    leader: Leading, following: Following
) -> None:
    three = [(0, None, text, ()) for text in (b"d", b"e", b"f")]
    leader.log.append(build_batch(three), leader_epoch=leader.epoch, now_ms=0)
    leader.log.update_high_watermark(leader.log.log_end_offset)
    leader.log.delete_records_before(4)
    following.until_level(leader)
    assert (following.log.log_start_offset, following.log.log_end_offset) == (4, 6)
    assert bytes_of(following.log) == bytes_of(leader.log, 4)


def test_a_log_longer_than_the_leaders_is_cut_off_at_its_end(tmp_path: Path, following: Following) -> None:
    for text in "abcd":
        following.log.append(batch(text), leader_epoch=0, now_ms=0)
    following.log.leader_epochs.clear()  # so that only the end offset tells
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
def test_the_consequences_of_each_error(
    leader: Leading, following: Following, error: Error, state: FollowState
) -> None:
    request = following.request()
    answer = leader.answer(request)
    assert isinstance(answer, FetchResponse)
    answer.responses[0].partitions[0].error_code = error
    at_once(following.fetcher.answered(request, answer))
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
        following.follow(0)  # the same epoch: who is in sync has changed
        assert following.state is FAILED
        following.follow(1)
        assert following.state is FETCHING
    else:
        assert isinstance(following.request(), ListOffsetsRequest)


@pytest.mark.parametrize(
    "failure", [KafkaError(Error.NETWORK_EXCEPTION), FetchResponse(error_code=71)], ids=str
)
def test_a_failed_fetch_pauses_all_its_partitions(
    leader: Leading, following: Following, failure: KafkaError | FetchResponse
) -> None:
    at_once(following.fetcher.answered(following.request(), failure))
    assert following.state is PAUSED
    following.clock.advance_ms(1_000)
    following.until_level(leader)


@pytest.mark.parametrize("error", [Error.NOT_LEADER_OR_FOLLOWER, Error.FENCED_LEADER_EPOCH, None])
def test_the_end_of_the_leaders_log_may_be_missing_from_the_answer(
    leader: Leading, following: Following, error: Error | None
) -> None:
    request = following.request()
    answer = leader.answer(request)
    assert isinstance(answer, FetchResponse)
    answer.responses[0].partitions[0].error_code = Error.OFFSET_OUT_OF_RANGE
    at_once(following.fetcher.answered(request, answer))
    request = following.request()
    told: ListOffsetsResponse | KafkaError = KafkaError(Error.NETWORK_EXCEPTION)
    if error is not None:
        listed = leader.answer(request)
        assert isinstance(listed, ListOffsetsResponse)
        listed.topics[0].partitions[0].error_code = error
        told = listed
    at_once(following.fetcher.answered(request, told))
    assert following.state is (FAILED if error is Error.FENCED_LEADER_EPOCH else PAUSED)


def test_an_answer_of_an_earlier_epoch_or_end_is_ignored(leader: Leading, following: Following) -> None:
    request = following.request()
    answer = leader.answer(request)
    following.follow(1)
    at_once(following.fetcher.answered(request, answer))
    assert following.log.log_end_offset == 0
    following.follow(0)
    at_once(following.fetcher.answered(request, answer))
    assert following.log.log_end_offset == 3
    at_once(following.fetcher.answered(request, answer))
    assert following.log.log_end_offset == 3
    following.fetcher.forget(TOPIC, 0)
    at_once(following.fetcher.answered(request, answer))
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
    at_once(following.fetcher.answered(request, answer))
    assert following.state is PAUSED
    assert following.log.log_end_offset == {20: 0, 66: 0, -1: 2}[position]  # whole batches before it count
    following.clock.advance_ms(1_000)
    following.until_level(leader)
    assert bytes_of(following.log) == bytes_of(leader.log)


def test_a_batch_of_a_later_epoch_waits_until_the_epoch_is_known(
    leader: Leading, following: Following
) -> None:
    request = following.request()
    Leading(leader.log, 1).append("by another leader")
    answer = leader.answer(request)
    at_once(following.fetcher.answered(request, answer))
    assert following.log.log_end_offset == 3
    following.follow(1)
    leader.epoch = 1
    following.until_level(leader)
    assert bytes_of(following.log) == bytes_of(leader.log)


def test_records_that_come_twice_are_taken_once(leader: Leading, following: Following) -> None:
    request = following.request()
    answer = leader.answer(request)
    assert isinstance(answer, FetchResponse)
    (data,) = answer.responses[0].partitions
    data.records = bytes(data.records) * 2  # type: ignore[arg-type]
    at_once(following.fetcher.answered(request, answer))
    assert following.state is PAUSED
    assert bytes_of(following.log) == bytes_of(leader.log)


@pytest.mark.parametrize(("epoch", "end_offset", "left"), [(9, 2, 2), (9, 50, 3), (0, 1, 1), (0, 50, 3)])
def test_the_leader_reports_diverging_logs(
    leader: Leading, following: Following, epoch: int, end_offset: int, left: int
) -> None:
    following.until_level(leader)
    request = following.request()
    answer = leader.answer(request)
    assert isinstance(answer, FetchResponse)
    diverging = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    answer.responses[0].partitions[0].diverging_epoch = diverging
    at_once(following.fetcher.answered(request, answer))
    assert (following.state, following.log.log_end_offset) == (FETCHING, left)


@pytest.mark.parametrize("seed", range(60))
def test_the_logs_become_the_same_whoever_leads_and_follows(tmp_path: Path, seed: int) -> None:
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
            if luck.random() < 0.5:  # a clean election: everything is committed
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


def test_records_that_a_power_loss_removed_from_the_middle_are_fetched_again(
    tmp_path: Path, leader: Leading
) -> None:
    log = open_log(tmp_path / "follower")
    following = Following(log)
    following.until_level(leader)
    log.roll(0)
    leader.append("d")
    following.until_level(leader)
    log.close(clean=False)
    closed = Path(log.directory) / f"{0:020d}.log"
    closed.write_bytes(closed.read_bytes()[: closed.stat().st_size // 3])
    found = open_log(tmp_path / "follower", clean=False)
    assert (found.hole, found.log_end_offset) == (1, 4)
    following = Following(found)
    request = following.request()
    assert isinstance(request, FetchRequest)
    assert request.topics[0].partitions[0].fetch_offset == 1
    following.until_level(leader)
    assert bytes_of(found) == bytes_of(leader.log)


def test_with_flush_messages_the_next_request_waits_for_the_disk(tmp_path: Path, leader: Leading) -> None:
    """The next request tells the leader how far the follower has the log. That must still be true after a power
    loss."""
    background = HeldBackground()
    following = Following(open_log(tmp_path / "follower", flush_messages=1, background=background))
    woken: list[int] = []
    following.fetcher.wake = lambda: woken.append(following.log.recovery_point)
    following.step(leader)
    assert (following.log.log_end_offset, following.log.recovery_point) == (3, 0)
    for _ in range(2):
        assert following.fetcher.request() is None
        assert following.fetcher.wait_s() is None
    background.run_all()
    assert woken == [3]
    request = following.request()
    assert isinstance(request, FetchRequest)
    assert request.topics[0].partitions[0].fetch_offset == 3


def test_a_log_that_ends_while_it_is_synced_holds_nothing_up(tmp_path: Path, leader: Leading) -> None:
    background = HeldBackground()
    following = Following(open_log(tmp_path / "follower", flush_messages=1, background=background))
    woken: list[bool] = []
    following.fetcher.wake = lambda: woken.append(True)
    following.step(leader)
    assert following.fetcher.request() is None
    following.log.close(clean=False)
    assert woken == [True]
    assert following.fetcher.request() is not None


def test_records_cut_off_are_fetched_again_once_the_disk_has_the_cut(tmp_path: Path, leader: Leading) -> None:
    """Else a power loss might bring some of it back, amid the records that replaced it."""
    background = HeldBackground()
    following = Following(open_log(tmp_path / "follower", background=background))
    following.until_level(leader)
    following.log.append(batch("lost"), leader_epoch=0, now_ms=0)
    new = Leading(leader.log, 1)
    new.append("kept")
    following.follow(1)
    background.run_all()
    woken: list[bool] = []
    following.fetcher.wake = lambda: woken.append(True)
    following.step(new)
    assert (following.log.log_end_offset, following.state) == (3, FollowState.SYNCING)
    for _ in range(2):
        assert following.fetcher.request() is None
        assert following.fetcher.wait_s() is None
    background.run_all()
    assert woken == [True]
    following.until_level(new)
    assert bytes_of(following.log) == bytes_of(new.log)
