"""Leader epochs, and where they began."""

from pathlib import Path

import pytest

from storage.log.leader_epochs import LeaderEpochs
from tests.support.disk import files
from tests.support.partition_logs import append, batch, open_log


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochs:
    epochs = LeaderEpochs(files, str(tmp_path))
    epochs.start_writing()
    return epochs


def on_disk(epochs: LeaderEpochs, tmp_path: Path) -> list[tuple[int, int]]:
    read_back = LeaderEpochs(files, str(tmp_path))
    read_back.load()
    assert read_back.entries == epochs.entries
    assert read_back.latest == epochs.latest
    return read_back.entries


def test_entries_are_kept_in_the_file_as_kafka_writes_them(epochs: LeaderEpochs, tmp_path: Path) -> None:
    epochs.assign(0, 0)
    epochs.assign(3, 17)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n3 17\n"
    assert on_disk(epochs, tmp_path) == [(0, 0), (3, 17)]


def test_the_same_epoch_again_changes_nothing(epochs: LeaderEpochs, tmp_path: Path) -> None:
    epochs.assign(1, 5)
    epochs.assign(1, 9)
    assert on_disk(epochs, tmp_path) == [(1, 5)]


def test_an_entry_with_the_same_start_replaces_the_older(epochs: LeaderEpochs, tmp_path: Path) -> None:
    epochs.assign(1, 5)
    epochs.assign(2, 5)
    assert on_disk(epochs, tmp_path) == [(2, 5)]


def test_an_entry_drops_those_that_contradict_it(epochs: LeaderEpochs, tmp_path: Path) -> None:
    for epoch, start in ((1, 0), (2, 10), (4, 20)):
        epochs.assign(epoch, start)
    epochs.assign(3, 15)
    assert on_disk(epochs, tmp_path) == [(1, 0), (2, 10), (3, 15)]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (4, (4, 99)),  # the current epoch ends at the log's end
        (2, (2, 20)),  # an older epoch ends where the next known one began
        (3, (2, 20)),  # an unknown epoch counts as the largest known one below it
        (5, (-1, -1)),  # above all known epochs
        (-1, (-1, -1)),
        (0, (0, 5)),  # below all known epochs
    ],
)
def test_the_end_of_an_epoch(epochs: LeaderEpochs, asked: int, answer: tuple[int, int]) -> None:
    for epoch, start in ((1, 5), (2, 10), (4, 20)):
        epochs.assign(epoch, start)
    assert epochs.end_offset_for(asked, 99) == answer


def test_without_entries_every_epoch_is_unknown(epochs: LeaderEpochs) -> None:
    assert epochs.end_offset_for(0, 99) == (-1, -1)
    assert epochs.earliest() is None


@pytest.mark.parametrize(("offset", "epoch"), [(4, -1), (5, 1), (9, 1), (10, 2), (500, 2)])
def test_the_epoch_of_an_offset(epochs: LeaderEpochs, offset: int, epoch: int) -> None:
    epochs.assign(1, 5)
    epochs.assign(2, 10)
    assert epochs.epoch_for(offset) == epoch


@pytest.mark.parametrize(
    ("end", "left"),
    [(25, [(1, 5), (2, 10), (4, 20)]), (20, [(1, 5), (2, 10)]), (11, [(1, 5), (2, 10)]), (5, [])],
)
def test_truncating_the_end_drops_epochs_that_began_there(
    epochs: LeaderEpochs, tmp_path: Path, end: int, left: list[tuple[int, int]]
) -> None:
    for epoch, start in ((1, 5), (2, 10), (4, 20)):
        epochs.assign(epoch, start)
    epochs.truncate_from_end(end)
    assert on_disk(epochs, tmp_path) == left


@pytest.mark.parametrize(
    ("start", "left"),
    [(3, [(1, 5), (2, 10)]), (7, [(1, 7), (2, 10)]), (10, [(2, 10)]), (30, [(2, 30)])],
)
def test_truncating_the_start_lets_the_epoch_there_begin_there(
    epochs: LeaderEpochs, tmp_path: Path, start: int, left: list[tuple[int, int]]
) -> None:
    epochs.assign(1, 5)
    epochs.assign(2, 10)
    epochs.truncate_from_start(start)
    assert on_disk(epochs, tmp_path) == left


def test_a_new_leader_begins_its_epoch_before_any_record(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(3), leader_epoch=2)
    log.assign_leader_epoch(5)
    assert log.leader_epochs.entries == [(2, 0), (5, 3)]
    assert log.end_offset_for_epoch(2) == (2, 3)
    assert log.end_offset_for_epoch(5) == (5, 3)


def test_an_epoch_is_written_down_with_its_first_record(epochs: LeaderEpochs, tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    epochs.assign(2, 0)
    epochs.begin(5, 3)
    assert path.read_text() == "0\n1\n2 0\n"
    assert epochs.entries == [(2, 0), (5, 3)]
    assert epochs.end_offset_for(5, 3) == (5, 3)
    epochs.assign(5, 3)
    assert path.read_text() == "0\n2\n2 0\n5 3\n"


def test_an_epoch_without_a_record_makes_way_for_the_next_one(epochs: LeaderEpochs, tmp_path: Path) -> None:
    epochs.assign(2, 0)
    epochs.begin(5, 3)
    epochs.begin(7, 3)
    assert epochs.entries == [(2, 0), (7, 3)]
    epochs.assign(7, 3)
    assert on_disk(epochs, tmp_path) == [(2, 0), (7, 3)]


def test_records_of_a_new_leader_are_of_its_epoch_after_a_crash(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(3), leader_epoch=2)
    log.assign_leader_epoch(5)
    append(log, batch(2), leader_epoch=5)
    log.close(clean=False)
    again = open_log(tmp_path, clean=False)
    assert again.leader_epochs.entries == [(2, 0), (5, 3)]
    assert again.end_offset_for_epoch(2) == (2, 3)


def test_an_epoch_without_records_is_gone_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(3), leader_epoch=2)
    log.assign_leader_epoch(5)
    log.close()
    assert open_log(tmp_path).leader_epochs.entries == [(2, 0)]


def test_epochs_that_a_log_learns_before_its_first_record_are_written_with_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.assign_leader_epoch(3)
    append(log, batch(), leader_epoch=3)
    log.close()
    assert open_log(tmp_path).leader_epochs.entries == [(3, 0)]
