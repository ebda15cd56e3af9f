"""`cleaner-offset-checkpoint` says how far each partition of a directory is compacted."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from protocol.topic_partition import TopicPartition
from storage import checkpoints
from storage.directory import future_log_copying
from storage.directory.log_directory import LogDirectory
from tests.support.disk import files
from tests.support.partition_logs import NOW_MS, HeldBackground, append, batch, file
from tests.unit.storage.log_directories import UNIQUE, log_of, opened

NAME = "cleaner-offset-checkpoint"
ORDERS = ("orders", 0)


@pytest.fixture(autouse=True)
def no_faults_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


def text(path: Path) -> str:
    return (path / NAME).read_text()


def filled(path: Path, background: HeldBackground | None = None, topic: str = "orders") -> LogDirectory:
    directory = opened(path, background) if background else opened(path)
    append(log_of(directory, topic), batch(4))
    return directory


def test_compaction_is_remembered_after_a_clean_stop_and_after_a_crash(tmp_path: Path) -> None:
    for clean in (True, False):
        directory = filled(tmp_path)
        directory.cleaner_offsets.set(ORDERS, 3)
        directory.close(clean=clean)
        assert text(tmp_path) == "0\n1\norders 0 3\n"
        directory = opened(tmp_path)
        assert directory.cleaner_offsets.get(ORDERS) == 3
        directory.close()


def test_a_directory_in_which_nothing_was_compacted_has_no_checkpoint_of_it(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    assert directory.cleaner_offsets.get(ORDERS) is None
    directory.close()
    assert not (tmp_path / NAME).exists()


def test_the_checkpoint_is_written_in_the_background_and_at_the_latest_at_the_end(tmp_path: Path) -> None:
    background = HeldBackground()
    directory = filled(tmp_path, background)
    directory.cleaner_offsets.set(ORDERS, 2)
    directory.cleaner_offsets.set(ORDERS, 4)
    assert not (tmp_path / NAME).exists()
    directory.close()
    assert text(tmp_path) == "0\n1\norders 0 4\n"
    background.run_all()
    assert text(tmp_path) == "0\n1\norders 0 4\n"


def test_a_line_of_a_partition_that_is_not_here_is_dropped(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / NAME).write_text("0\n2\norders 0 3\ngone 1 7\n")
    directory = opened(tmp_path)
    directory.cleaner_offsets.set(ORDERS, 4)
    directory.close()
    assert text(tmp_path) == "0\n1\norders 0 4\n"


def test_a_nonsense_checkpoint_is_read_as_empty(tmp_path: Path) -> None:
    filled(tmp_path).close()
    (tmp_path / NAME).write_text("0\n1\norders 0\n")
    directory = opened(tmp_path)
    assert directory.cleaner_offsets.get(ORDERS) is None
    directory.close()


def test_a_deleted_partitions_line_goes(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    directory.cleaner_offsets.set(ORDERS, 3)
    directory.delete_log(directory.logs[ORDERS], UNIQUE)
    assert directory.cleaner_offsets.get(ORDERS) is None
    assert text(tmp_path) == "0\n0\n"
    directory.close()


def test_a_new_partition_of_the_name_starts_afresh_though_the_old_line_is_still_there(tmp_path: Path) -> None:
    background = HeldBackground()
    directory = filled(tmp_path, background)
    directory.cleaner_offsets.set(ORDERS, 3)
    background.run_all()
    directory.delete_log(directory.logs[ORDERS], UNIQUE)
    assert text(tmp_path) == "0\n1\norders 0 3\n"
    log_of(directory)
    assert text(tmp_path) == "0\n0\n"
    directory.close(clean=False)


def test_a_crashs_leftover_line_of_a_deleted_partition_does_not_count_for_a_new_one(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("0\n1\norders 0 3\n")
    directory = opened(tmp_path)
    log_of(directory)
    directory.close(clean=False)
    directory = opened(tmp_path)
    assert directory.cleaner_offsets.get(ORDERS) is None
    directory.close()


def test_names_of_deleted_partitions_are_not_kept_for_ever(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    written: list[str] = []
    for number in range(3):
        log = log_of(directory, f"t{number}")
        directory.cleaner_offsets.set((f"t{number}", 0), 1)
        directory.delete_log(log, UNIQUE[:-1] + str(number))
    files.set_fault_hook(lambda name, path, _size: written.append(path) if NAME in path else None)
    log_of(directory, "t0")
    assert written == []
    directory.close()


def test_a_line_goes_with_its_partition_to_another_directory(tmp_path: Path) -> None:
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b")
    log = log_of(source)
    append(log, batch(4))
    source.cleaner_offsets.set(ORDERS, 3)
    future = target.open_future(log, UNIQUE, now_ms=NOW_MS)
    future_log_copying.copy(future, log, max_bytes=1 << 20, max_batches=10, now_ms=NOW_MS)
    target.promote(future, log, source, UNIQUE)
    assert (source.cleaner_offsets.get(ORDERS), target.cleaner_offsets.get(ORDERS)) == (None, 3)
    assert text(tmp_path / "a") == "0\n0\n"
    assert text(tmp_path / "b") == "0\n1\norders 0 3\n"
    source.close()
    target.close()


def test_a_truncated_log_is_compacted_again_from_where_it_was_cut(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    directory.cleaner_offsets.set(ORDERS, 3)
    directory.cleaner_offsets.lower(ORDERS, 5)
    assert directory.cleaner_offsets.get(ORDERS) == 3
    directory.cleaner_offsets.lower(ORDERS, 2)
    assert text(tmp_path) == "0\n1\norders 0 2\n"
    directory.close()


def test_many_changes_in_a_turn_are_encoded_as_it_is_written_not_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    background = HeldBackground()
    directory = filled(tmp_path, background)
    for number in range(100):
        directory.cleaner_offsets.set((f"t{number}", 0), number)
    background.run_all()
    encoded: list[int] = []
    encode = checkpoints.encode_offsets

    def counted(offsets: Mapping[TopicPartition, int]) -> bytes:
        encoded.append(len(offsets))
        return encode(offsets)

    monkeypatch.setattr(checkpoints, "encode_offsets", counted)
    for number in range(99):
        directory.cleaner_offsets.forget((f"t{number}", 0))
    background.run_all()
    assert encoded == [99, 1]
    assert text(tmp_path) == "0\n1\nt99 0 99\n"
    directory.close()


def test_a_log_that_recovery_has_cut_is_compacted_again_from_there(tmp_path: Path) -> None:
    directory = filled(tmp_path)
    log = directory.logs[ORDERS]
    append(log, batch(4))
    directory.cleaner_offsets.set(ORDERS, 8)
    directory.close(clean=False)
    path = file(log, 0, ".log")
    path.write_bytes(path.read_bytes()[:-1])
    directory = opened(tmp_path)
    log = log_of(directory)
    assert log.log_end_offset == 4
    assert directory.cleaner_offsets.get(ORDERS) == 4
    assert text(tmp_path) == "0\n1\norders 0 4\n"
    for _ in range(3):
        append(log, batch(4))
    assert directory.cleaner_offsets.get(ORDERS) == 4
    directory.close()
