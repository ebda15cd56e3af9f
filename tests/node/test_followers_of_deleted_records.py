"""A follower that comes back after its leader has deleted records as old as the follower's last ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.replicas.replica import Follower
from protocol.records.batch import build_batch
from tests.node.followers import FETCHING, Following, Leading, bytes_of, leader_of_three
from tests.support.partition_logs import open_log


def delete_before(leader: Leading, offset: int) -> None:
    leader.log.update_high_watermark(leader.log.log_end_offset)
    leader.log.delete_records_before(offset)


@pytest.mark.parametrize("deleted", [4, 5, 6])
def test_a_leader_without_old_epochs_leaves_nothing_below_its_start(tmp_path: Path, deleted: int) -> None:
    """The records below may never have been committed, and a crash that forgets where the log began would bring them
    back."""
    leader = leader_of_three(tmp_path / "leader")
    following = Following(open_log(tmp_path / "follower"))
    following.until_level(leader)
    alone = Leading(following.log, 0)
    for text in "de":
        alone.append(text)
    leader = Leading(leader.log, 1)
    for text in "xyz":
        leader.append(text)
    delete_before(leader, deleted)

    following.follow(1)
    following.until_level(leader)
    assert following.state is FETCHING
    following.log.close()
    assert bytes_of(open_log(tmp_path / "follower")) == bytes_of(leader.log)


def test_a_leaders_log_start_is_recorded_as_its_follower_learns_it(tmp_path: Path) -> None:
    """Else deleted records would come back when all brokers are killed and another one comes to lead."""
    leader = leader_of_three(tmp_path / "leader")
    following = Following(open_log(tmp_path / "follower"))
    following.until_level(leader)
    log = following.log
    log.update_high_watermark(log.log_end_offset)
    told: list[int] = []
    role = Follower(log, following.fetches, 1, 0, lambda: told.append(log.log_start_offset))
    role.learn_log_start(2)
    role.learn_log_start(2)
    assert told == [2]


def test_records_below_the_start_stay_if_the_logs_diverge_above_it(tmp_path: Path) -> None:
    """The records below the start are the same in both logs then, and go with their segment."""
    leader = leader_of_three(tmp_path / "leader")
    following = Following(open_log(tmp_path / "follower"))
    following.until_level(leader)
    Leading(following.log, 0).append("d")
    delete_before(leader, 1)
    leader = Leading(leader.log, 1)
    leader.append("x")

    following.follow(1)
    following.until_level(leader)
    assert (following.log.log_start_offset, following.log.segments.base_offsets) == (1, [0])
    assert bytes_of(following.log) == bytes_of(leader.log)


def test_a_level_follower_keeps_its_records_when_the_leader_deletes_all(tmp_path: Path) -> None:
    """Its records are of the same epoch, so they are the leader's too."""
    leader = leader_of_three(tmp_path / "leader")
    following = Following(open_log(tmp_path / "follower"))
    following.until_level(leader)
    delete_before(leader, 3)
    leader.append("d")

    following.until_level(leader)
    assert (following.log.log_start_offset, following.log.segments.base_offsets) == (3, [0])


def produce_by(leader: Leading, producer_id: int) -> None:
    records = build_batch([(0, None, b"x", ())], producer_id=producer_id, producer_epoch=4, base_sequence=40)
    leader.log.append(records, leader_epoch=leader.epoch, now_ms=0)


def test_a_follower_keeps_its_producers_if_all_its_records_are_committed(tmp_path: Path) -> None:
    """Else it would append a retry again when it is the next leader."""
    leader = leader_of_three(tmp_path / "leader")
    following = Following(open_log(tmp_path / "follower"))
    produce_by(leader, 7)
    leader.log.update_high_watermark(4)
    following.until_level(leader)
    assert following.log.high_watermark == 4

    leader = Leading(leader.log, 1)
    delete_before(leader, 4)
    leader.append("x")
    following.follow(1)
    following.until_level(leader)
    assert following.log.log_start_offset == 4
    assert following.log.producers.producers[7].last_sequence == 40


def test_a_follower_keeps_its_producers_if_the_leader_confirmed_equal_logs(
    tmp_path: Path,
) -> None:
    """A follower learns the high watermark one answer later."""
    leader = leader_of_three(tmp_path / "leader")
    following = Following(open_log(tmp_path / "follower"))
    produce_by(leader, 7)
    following.until_level(leader)
    assert following.log.high_watermark == 0

    leader = Leading(leader.log, 1)
    following.follow(1)
    following.step(leader)  # it has nothing more, and doesn't know yet that all is committed
    delete_before(leader, 4)
    leader.append("x")
    following.until_level(leader)
    assert following.log.log_start_offset == 4
    assert following.log.producers.producers[7].last_sequence == 40


def test_a_log_that_begins_after_its_leaders_end_is_cut_off_there(tmp_path: Path) -> None:
    """Else it would lack records of the new leader when it leads later."""
    leader = leader_of_three(tmp_path / "leader")
    log = open_log(tmp_path / "follower")
    alone = Leading(log, 0)
    for text in "abcdefghij":
        alone.append(text)
    delete_before(alone, 8)
    leader = Leading(leader.log, 1)  # an unclean election
    following = Following(log, 1)
    for _ in range(4):
        following.step(leader)
    assert (following.state, log.log_start_offset, log.log_end_offset) == (FETCHING, 3, 3)
    leader.append("x")
    following.until_level(leader)
    assert bytes_of(log) == bytes_of(leader.log, 3)


def test_a_log_that_diverges_from_its_leaders_below_its_start_is_cut_off_there(tmp_path: Path) -> None:
    leader = leader_of_three(tmp_path / "leader")
    following = Following(open_log(tmp_path / "follower"))
    following.until_level(leader)
    alone = Leading(following.log, 1)
    for text in "defgh":
        alone.append(text)
    delete_before(alone, 7)
    leader = Leading(leader.log, 2)
    for text in "stuvwxyz":
        leader.append(text)
    following.follow(2)
    following.until_level(leader)
    assert following.log.log_start_offset == 3
    assert bytes_of(following.log) == bytes_of(leader.log, 3)
