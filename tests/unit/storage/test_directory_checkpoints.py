"""The checkpoints of a log directory: recovery points, log starts, high watermarks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.directory.log_directory import METADATA_TOPIC, LogDirectory
from tests.support.disk import files
from tests.support.partition_logs import NOW_MS, HeldBackground, append, batch
from tests.unit.storage.log_directories import UNIQUE, log_of, opened


@pytest.fixture(autouse=True)
def no_faults_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


def test_a_log_start_at_a_segments_base_needs_no_checkpoint(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory), batch())
    directory.close()
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"


def test_checkpoints_are_written_in_the_background(tmp_path: Path) -> None:
    background = HeldBackground()
    directory = opened(tmp_path, background)
    log = log_of(directory)
    append(log, batch(4))
    log.delete_records_before(1)
    directory.checkpoint_high_watermarks()
    directory.checkpoint_log_starts()
    directory.checkpoint_recovery_points()
    assert not (tmp_path / "replication-offset-checkpoint").exists()
    background.run_all()
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 4\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 1\n"
    # the log start is a recovery point, too: nothing below it has to be read again
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 1\n"
    directory.close()


def test_a_checkpoint_that_is_being_written_is_followed_by_the_latest_one(tmp_path: Path) -> None:
    background = HeldBackground()
    directory = opened(tmp_path, background)
    log = log_of(directory)
    for _ in range(3):
        append(log, batch())
        directory.checkpoint_high_watermarks()
    assert len(background.waiting) == 1
    background.run_all()
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
    directory.close()


def test_a_checkpoint_that_would_say_the_same_again_is_not_written(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    append(log, batch(2))
    log.update_high_watermark(2)
    directory.checkpoint_high_watermarks()
    path = tmp_path / "replication-offset-checkpoint"
    path.unlink()
    directory.checkpoint_high_watermarks()
    assert not path.exists()
    log.update_high_watermark(log.log_end_offset)
    append(log, batch())
    log.update_high_watermark(3)
    directory.checkpoint_high_watermarks()
    assert path.read_text() == "0\n1\norders 0 3\n"
    directory.close()


def test_a_checkpoint_that_could_not_be_written_is_tried_again(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory), batch())

    def refuse(operation: str, path: str, _size: int) -> None:
        if operation == "rename":
            raise OSError(28, "no space", path)

    files.set_fault_hook(refuse)
    directory.checkpoint_high_watermarks()
    files.set_fault_hook(None)
    directory.checkpoint_high_watermarks()
    assert (tmp_path / "replication-offset-checkpoint").exists()
    directory.close()


def test_after_a_crash_the_recovery_point_says_where_to_read_from(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    append(log, batch())
    log.roll(NOW_MS)
    append(log, batch())
    directory.checkpoint_recovery_points()
    directory.close(clean=False)
    first = tmp_path / "orders-0" / "00000000000000000000.log"
    damaged = bytearray(first.read_bytes())
    damaged[-1] ^= 1
    first.write_bytes(damaged)
    directory = opened(tmp_path)
    assert log_of(directory).log_end_offset == 2
    directory.close()


def test_a_segment_rolled_after_the_last_checkpoint_is_recovered_with_its_indexes(
    tmp_path: Path,
) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    append(log, batch())
    log.flush(NOW_MS)
    assert log.recovery_point == log.log_end_offset
    directory.checkpoint_recovery_points()
    log.roll(NOW_MS)
    append(log, batch())
    directory.close(clean=False)
    # the power failed before the roll's sync, so the index on the disk may be anything
    index = tmp_path / "orders-0" / "00000000000000000000.timeindex"
    whole = index.read_bytes()
    index.write_bytes(bytes(len(whole)))
    directory = opened(tmp_path)
    log_of(directory)
    assert index.read_bytes().startswith(whole)
    directory.close()


def test_a_clean_stop_checkpoints_the_logs_end(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory), batch())
    directory.checkpoint_recovery_points()
    directory.close()
    assert "orders 0 1\n" in (tmp_path / "recovery-point-offset-checkpoint").read_text()


@pytest.mark.parametrize(("checkpointed", "opened_with"), [(0, 1), (2, 2), (4, 4), (9, 4)])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_is_opened_with_the_high_watermark_of_the_last_checkpoint_as_far_as_it_goes(
    tmp_path: Path, clean: bool, checkpointed: int, opened_with: int
) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    append(log, batch(4))
    log.delete_records_before(1)
    directory.checkpoint_log_starts()
    directory.close(clean=clean)
    (tmp_path / "replication-offset-checkpoint").write_text(f"0\n1\norders 0 {checkpointed}\n")
    directory = opened(tmp_path)
    log = log_of(directory)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1, opened_with, 4)
    directory.close()


def test_an_unopened_log_keeps_its_checkpointed_high_watermark(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory), batch(3))
    directory.close()
    directory = opened(tmp_path)
    files.set_fault_hook(refuse_to_list)
    with pytest.raises(OSError, match="refused"):
        log_of(directory)
    files.set_fault_hook(None)
    log_of(directory, "other")
    directory.checkpoint_high_watermarks()
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n2\norders 0 3\nother 0 0\n"
    assert log_of(directory).high_watermark == 3
    directory.close()


def test_a_deleted_partitions_high_watermark_does_not_pass_to_its_namesake(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory), batch(3))
    directory.close()
    directory = opened(tmp_path)
    directory.delete_log(log_of(directory), UNIQUE)
    directory.checkpoint_high_watermarks()
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n0\n"
    directory.close()


def refuse_to_list(operation: str, path: str, _size: int) -> None:
    if operation == "list_directory" and path.endswith("orders-0"):
        raise OSError(5, "refused", path)


def test_malformed_checkpoints_are_read_as_empty(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory), batch())
    directory.close(clean=False)
    for name in ("recovery-point", "replication", "log-start"):
        (tmp_path / f"{name}-offset-checkpoint").write_text("nonsense\n")
    directory = opened(tmp_path)
    assert log_of(directory).log_end_offset == 1
    directory.close()


def test_the_metadata_log_is_in_no_checkpoint_and_always_read_again(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory, METADATA_TOPIC), batch())
    append(log_of(directory, METADATA_TOPIC + "x"), batch())
    directory.close()
    for name in ("recovery-point", "replication"):
        assert "__cluster_metadata 0" not in (tmp_path / f"{name}-offset-checkpoint").read_text()
    path = tmp_path / f"{METADATA_TOPIC}-0" / "00000000000000000000.log"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    directory = opened(tmp_path)
    assert directory.clean
    assert log_of(directory, METADATA_TOPIC).log_end_offset == 0
    directory.close(clean=False)


def test_a_deleted_partitions_log_start_is_forgotten_before_its_name_is_used_again(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    old = log_of(directory)
    append(old, batch(50))
    old.delete_records_before(40)
    directory.checkpoint_log_starts()
    directory.delete_log(old, UNIQUE)
    append(log_of(directory, topic_id="B" * 22), batch(values=[b"new"]))
    directory.close(clean=False)
    directory = opened(tmp_path)
    log = log_of(directory, topic_id="B" * 22)
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)
    directory.close()


@pytest.mark.parametrize("waiting", [0, 1])
def test_a_checkpoint_being_written_doesnt_bring_a_forgotten_log_start_back(
    tmp_path: Path, waiting: int
) -> None:
    background = HeldBackground()
    directory = opened(tmp_path, background)
    old = log_of(directory)
    append(old, batch(50))
    old.delete_records_before(40)
    for _ in range(1 + waiting):
        directory.checkpoint_log_starts()
    directory.delete_log(old, UNIQUE)
    new = log_of(directory, topic_id="B" * 22)
    checkpoint = tmp_path / "log-start-offset-checkpoint"
    assert checkpoint.read_text() == "0\n0\n"
    while background.waiting:
        background.run_one()
        assert checkpoint.read_text() == "0\n0\n"
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    append(new, batch(3))
    directory.logs["orders", 0].delete_records_before(2)
    directory.checkpoint_log_starts()
    background.run_all()
    assert checkpoint.read_text() == "0\n1\norders 0 2\n"
    directory.close()


def with_log_starts(path: Path, background: HeldBackground, count: int) -> LogDirectory:
    """Return a directory of so many logs with a log start. All are checkpointed, and no work waits."""
    directory = opened(path, background)
    for index in range(count):
        log = log_of(directory, partition=index)
        append(log, batch(50))
        log.delete_records_before(40)
    directory.checkpoint_log_starts()
    background.run_all()
    return directory


def test_the_log_starts_of_logs_deleted_in_one_turn_are_forgotten_in_the_background(
    tmp_path: Path,
) -> None:
    background = HeldBackground()
    directory = with_log_starts(tmp_path, background, 20)
    done: list[str] = []
    files.set_fault_hook(
        lambda operation, path, _size: done.append(operation) if "log-start" in path else None
    )
    for index in range(20):
        directory.delete_log(directory.logs["orders", index], f"{index:032}")
    assert done == []
    background.run_all()
    # one write for the first, and one for all that came meanwhile
    assert done == ["write_whole", "sync", "rename"] * 2
    done.clear()
    for index in range(20):
        log_of(directory, partition=index, topic_id="B" * 22)
    assert done == []
    directory.close(clean=False)


def test_one_write_frees_the_names_of_all_deleted_logs(tmp_path: Path) -> None:
    background = HeldBackground()
    directory = with_log_starts(tmp_path, background, 20)
    done: list[str] = []
    files.set_fault_hook(
        lambda operation, path, _size: done.append(operation) if "log-start" in path else None
    )
    for index in range(20):
        directory.delete_log(directory.logs["orders", index], f"{index:032}")
    for index in range(20):
        log_of(directory, partition=index, topic_id="B" * 22)
    assert done == ["write_whole", "sync", "rename"]
    background.run_all()
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    directory.close(clean=False)


def test_a_name_is_free_only_once_the_disk_knows_the_checkpoint_by_its_name(tmp_path: Path) -> None:
    background = HeldBackground()
    directory = with_log_starts(tmp_path, background, 1)
    directory.delete_log(directory.logs["orders", 0], UNIQUE)
    while not (tmp_path / "log-start-offset-checkpoint").read_text().startswith("0\n0"):
        background.run_one()
    synced: list[str] = []
    files.set_fault_hook(
        lambda operation, path, _size: synced.append(path) if operation == "sync_directory" else None
    )
    log_of(directory, topic_id="B" * 22)
    assert synced == [str(tmp_path)]
    directory.close(clean=False)


def test_a_log_start_that_a_killed_run_did_not_forget_does_not_pass_to_a_new_partition(
    tmp_path: Path,
) -> None:
    background = HeldBackground()
    directory = with_log_starts(tmp_path, background, 1)
    directory.delete_log(directory.logs["orders", 0], UNIQUE)
    directory.close(clean=False)
    checkpoint = tmp_path / "log-start-offset-checkpoint"
    assert checkpoint.read_text() == "0\n1\norders 0 40\n"
    directory = opened(tmp_path, background)
    log = log_of(directory, topic_id="B" * 22)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert checkpoint.read_text() == "0\n0\n"
    append(log, batch(3))
    directory.close(clean=False)
    assert log_of(opened(tmp_path, background), topic_id="B" * 22).log_end_offset == 3


def test_a_log_start_that_couldnt_be_forgotten_is_before_its_name_is_used_again(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    old = log_of(directory)
    append(old, batch(50))
    old.delete_records_before(40)
    directory.checkpoint_log_starts()

    def fail(operation: str, path: str, _size: int) -> None:
        if operation == "write_whole" and "log-start" in path:
            raise OSError(28, "No space left on device", path)

    files.set_fault_hook(fail)
    try:
        directory.delete_log(old, UNIQUE)
        with pytest.raises(OSError, match="No space"):
            log_of(directory, topic_id="B" * 22)
    finally:
        files.set_fault_hook(None)
    append(log_of(directory, topic_id="B" * 22), batch())
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n0\n"
    directory.close()


def test_a_checkpoint_still_being_written_at_the_end_doesnt_replace_the_last_one(tmp_path: Path) -> None:
    background = HeldBackground()
    directory = opened(tmp_path, background)
    append(log_of(directory), batch(2))
    directory.checkpoint_high_watermarks()
    append(directory.logs["orders", 0], batch(2))
    directory.close()
    background.run_all()
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 4\n"


def test_a_checkpoint_still_being_written_is_not_put_in_place_once_another_may_hold_the_lock(
    tmp_path: Path,
) -> None:
    background = HeldBackground()
    directory = opened(tmp_path, background)
    append(log_of(directory), batch(2))
    directory.checkpoint_high_watermarks()
    directory.close(clean=False)
    background.run_all()
    assert not (tmp_path / "replication-offset-checkpoint").exists()


def test_the_replacement_of_a_cut_off_end_does_not_count_as_synced(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    append(log, batch(4))
    log.flush(NOW_MS)
    directory.checkpoint_recovery_points()
    path = tmp_path / "recovery-point-offset-checkpoint"
    assert path.read_text() == "0\n1\norders 0 3\n"  # one less, in case the log rolls at that offset
    log.truncate_to(0, NOW_MS)
    assert path.read_text() == "0\n1\norders 0 0\n"
    directory.close()
