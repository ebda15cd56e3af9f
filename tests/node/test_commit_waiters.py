"""Each waiter for an offset to be committed is told once, in order, whatever the other waiters do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.replicas.leader import Leader
from broker.replicas.replica import WaitingFetches
from coordinator.commit_waiters import MANY_CANCELLED, CommitWaiters
from protocol.errors import BrokenInvariantError, Error, KafkaError
from protocol.records.batch import build_batch
from storage.log.log_config import LogConfig
from tests.node.replicated import without_a_controller
from tests.support.partition_logs import HeldBackground, open_log

ME, SECOND, THIRD = 1, 2, 3


def lead(leader: Leader, leader_epoch: int, replicas: list[int], isr: list[int]) -> None:
    """Lead as the metadata says next: in this epoch, with these replicas and this ISR."""
    if len(replicas) > 1:
        leader.begin_replication((bytes(16), 0), without_a_controller())
    partition_epoch = 0 if leader.replicas is None else leader.replicas.in_sync.partition_epoch + 1
    leader.lead(leader_epoch, partition_epoch, replicas, isr)


class Told:
    def __init__(self) -> None:
        self.names: list[str | tuple[str, Error]] = []
        self.failed: list[BaseException] = []

    def __call__(self, name: str):  # type: ignore[no-untyped-def]
        def then(error: KafkaError | None) -> None:
            self.names.append(name if error is None else (name, error.error))

        return then


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def leader(tmp_path: Path, told: Told) -> Iterator[Leader]:
    log = open_log(tmp_path, min_insync_replicas=2)
    leader = Leader(ME, log, WaitingFetches(), told.failed.append)
    lead(leader, 0, [ME, SECOND, THIRD], [ME, SECOND, THIRD])
    yield leader
    log.close()


def append(leader: Leader, count: int = 1) -> int:
    for _ in range(count):
        leader.log.append(build_batch([(0, None, b"x", ())]), leader_epoch=leader.leader_epoch, now_ms=0)
        leader.advance()
    return leader.log.log_end_offset


def follow(leader: Leader, second: int, third: int) -> None:
    leader.follower_fetched(SECOND, second, 0)
    leader.follower_fetched(THIRD, third, 0)


def test_a_leader_without_followers_commits_in_the_call_that_appends(tmp_path: Path, told: Told) -> None:
    log = open_log(tmp_path, min_insync_replicas=2)
    leader = Leader(ME, log, WaitingFetches(), told.failed.append)
    lead(leader, 0, [ME], [ME])
    assert leader.when_committed(append(leader), told("first")) is None
    assert told.names == ["first"]
    log.close()


def test_the_smallest_log_end_of_those_in_sync_is_committed(leader: Leader, told: Told) -> None:
    append(leader, 3)
    for offset in (1, 2, 3):
        leader.when_committed(offset, told(str(offset)))
    follow(leader, 3, 0)
    assert (leader.log.high_watermark, told.names) == (0, [])
    follow(leader, 3, 2)
    assert (leader.log.high_watermark, told.names) == (2, ["1", "2"])
    follow(leader, 3, 3)
    assert (leader.log.high_watermark, told.names) == (3, ["1", "2", "3"])
    assert len(leader._waiters) == 0


def test_replicas_out_of_sync_do_not_hold_up_the_others(leader: Leader, told: Told) -> None:
    append(leader, 2)
    leader.when_committed(2, told("both"))
    leader.follower_fetched(SECOND, 2, 0)
    assert told.names == []
    lead(leader, 0, [ME, SECOND, THIRD], [ME, SECOND])
    assert told.names == ["both"]


def test_nothing_is_committed_while_too_few_are_in_sync(leader: Leader, told: Told) -> None:
    follow(leader, 0, 0)
    lead(leader, 0, [ME, SECOND, THIRD], [ME])
    leader.when_committed(append(leader), told("too few"))
    assert leader.is_under_min_isr
    assert (leader.log.high_watermark, told.names) == (0, [])
    lead(leader, 0, [ME, SECOND, THIRD], [ME, SECOND])
    leader.follower_fetched(SECOND, 1, 0)
    assert told.names == ["too few"]


def test_followers_offsets_from_an_earlier_leader_do_not_count(leader: Leader, told: Told) -> None:
    append(leader, 2)
    follow(leader, 2, 0)
    leader.resign(KafkaError(Error.NOT_LEADER_OR_FOLLOWER))
    again = Leader(ME, leader.log, WaitingFetches(), told.failed.append)
    lead(again, 1, [ME, SECOND, THIRD], [ME, SECOND, THIRD])
    again.follower_fetched(THIRD, 2, 0)
    assert again.log.high_watermark == 0, "the second hasn't fetched in this epoch"
    again.follower_fetched(SECOND, 1, 0)
    assert again.log.high_watermark == 1


def test_followers_offsets_from_before_its_reelection_count(leader: Leader) -> None:
    """The followers fetched these records from this log, so what they said still counts, as in Kafka."""
    append(leader, 2)
    follow(leader, 2, 0)
    lead(leader, 1, [ME, SECOND, THIRD], [ME, SECOND, THIRD])
    leader.follower_fetched(THIRD, 2, 0)
    assert leader.log.high_watermark == 2


def test_waiters_are_called_in_the_order_of_offsets_whenever_they_came(leader: Leader, told: Told) -> None:
    append(leader, 3)
    for offset in (3, 1, 2, 1):
        leader.when_committed(offset, told(f"{offset}"))
    follow(leader, 3, 3)
    assert told.names == ["1", "1", "2", "3"]


def test_a_loss_of_leadership_calls_each_waiter_once(leader: Leader, told: Told) -> None:
    append(leader, 2)
    leader.when_committed(1, told("first"))
    leader.when_committed(2, told("second"))
    follow(leader, 1, 1)
    leader.resign(KafkaError(Error.NOT_LEADER_OR_FOLLOWER))
    leader.resign(KafkaError(Error.KAFKA_STORAGE_ERROR))
    assert told.names == ["first", ("second", Error.NOT_LEADER_OR_FOLLOWER)]
    leader.when_committed(1, told("late"))
    assert told.names[2:] == [("late", Error.NOT_LEADER_OR_FOLLOWER)]


def test_a_sync_that_outlives_the_leadership_commits_nothing(tmp_path: Path, told: Told) -> None:
    syncs = HeldBackground()
    log = open_log(tmp_path, flush_messages=1, background=syncs)
    leader = Leader(ME, log, WaitingFetches(), told.failed.append)
    lead(leader, 0, [ME, SECOND], [ME])
    leader.when_committed(append(leader), told("lost"))
    leader.resign(KafkaError(Error.NOT_LEADER_OR_FOLLOWER))
    syncs.run_all()
    assert (log.recovery_point, log.high_watermark) == (1, 0), "that is for the leader of now to say"
    leader.advance()
    assert log.high_watermark == 0
    assert told.names == [("lost", Error.NOT_LEADER_OR_FOLLOWER)]
    log.close()


def test_a_waiter_that_fails_harms_none_of_the_others(leader: Leader, told: Told) -> None:
    def fail(error: KafkaError | None) -> None:
        raise ValueError("of somebody else")

    append(leader, 2)
    leader.when_committed(1, fail)
    leader.when_committed(1, told("next"))
    leader.when_committed(2, told("last"))
    follow(leader, 2, 2)
    assert told.names == ["next", "last"]
    assert told.failed == []


def test_a_broken_invariant_of_one_is_reported(leader: Leader, told: Told) -> None:
    def fail(error: KafkaError | None) -> None:
        raise BrokenInvariantError("can't be")

    append(leader)
    leader.when_committed(1, fail)
    leader.when_committed(1, told("next"))
    follow(leader, 1, 1)
    assert told.names == ["next"]
    assert [type(error) for error in told.failed] == [BrokenInvariantError]


def test_a_waiter_that_appends_and_waits_again_is_called_after_earlier_ones(
    leader: Leader, told: Told
) -> None:
    def append_again(error: KafkaError | None) -> None:
        told("first")(error)
        lead(leader, 0, [ME, SECOND], [ME])  # from here on an append is committed at once
        end = append(leader)
        leader.when_committed(end, told("appended by the first"))
        assert told.names == ["first"]

    leader.log.config = LogConfig(min_insync_replicas=1)
    append(leader, 2)
    leader.when_committed(1, append_again)
    leader.when_committed(2, told("second"))
    follow(leader, 2, 2)
    assert told.names == ["first", "second", "appended by the first"]


def test_a_waiter_that_ends_the_leadership_leaves_none_uncalled(leader: Leader, told: Told) -> None:
    def resign(error: KafkaError | None) -> None:
        told("first")(error)
        leader.resign(KafkaError(Error.NOT_LEADER_OR_FOLLOWER))
        leader.when_committed(1, told("asked meanwhile"))

    append(leader, 3)
    leader.when_committed(1, resign)
    leader.when_committed(2, told("committed"))
    leader.when_committed(3, told("not committed"))
    follow(leader, 2, 2)
    assert told.names[0] == "first"
    assert "committed" in told.names
    assert ("not committed", Error.NOT_LEADER_OR_FOLLOWER) in told.names
    assert len(told.names) == 4


def test_a_cancelled_waiter_is_not_called(leader: Leader, told: Told) -> None:
    append(leader)
    waiter = leader.when_committed(1, told("cancelled"))
    leader.when_committed(1, told("stays"))
    assert waiter is not None
    leader.wait_no_more(waiter)
    leader.wait_no_more(waiter)
    assert len(leader._waiters) == 1
    follow(leader, 1, 1)
    leader.wait_no_more(waiter)
    assert told.names == ["stays"]
    assert len(leader._waiters) == 0


@pytest.mark.limit("coordinator.commit_waiters.MANY_CANCELLED")
def test_cancelled_waiters_take_no_room_for_long(told: Told) -> None:
    waiters = CommitWaiters(told.failed.append)
    for offset in range(1, 10_000):
        waiter = waiters.wait(offset, 0, told("given up"))
        assert waiter is not None
        waiters.cancel(waiter)
    assert len(waiters.heap) <= 2 * MANY_CANCELLED
    assert len(waiters) == 0


def test_committed_offsets_are_confirmed_though_leadership_is_lost_before_the_call(told: Told) -> None:
    """Nobody is told how the high watermark moves while nobody waits. The next one to wait brings its value."""
    waiters = CommitWaiters(told.failed.append)

    def others_come(error: KafkaError | None) -> None:
        waiters.wait(300, 200, told("not committed"))
        waiters.wait(150, 200, told("committed"))
        waiters.tell_lost(KafkaError(Error.NOT_LEADER_OR_FOLLOWER))

    waiters.wait(10, 0, others_come)
    waiters.tell_committed(10)
    assert told.names == ["committed", ("not committed", Error.NOT_LEADER_OR_FOLLOWER)]
