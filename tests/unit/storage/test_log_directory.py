"""A log directory: its lock, the mark of a clean stop, its folders."""

import gc
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from storage.background import Work, run_in_turn
from storage.directory.log_directory import METADATA_TOPIC, LogDirectory
from storage.files import LockedError
from storage.log.recovery import InconsistentTopicIdError
from tests.support.disk import files
from tests.support.immediate_background import run_at_once
from tests.support.partition_logs import NOW_MS, TOPIC_ID, HeldBackground, append, batch, values
from tests.unit.storage.log_directories import MARK, UNIQUE, log_of, opened


@pytest.fixture(autouse=True)
def no_faults_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


def test_a_directory_is_made_and_locked(tmp_path: Path) -> None:
    directory = opened(tmp_path / "data")
    with pytest.raises(LockedError):
        opened(tmp_path / "data")
    directory.close()
    opened(tmp_path / "data").close()


def test_a_new_directory_was_not_stopped_cleanly(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    assert (directory.clean, directory.broker_epoch, directory.meta_properties) == (False, None, None)
    directory.close()


def test_a_clean_stop_is_known_at_the_next_start_and_only_there(tmp_path: Path) -> None:
    opened(tmp_path).close(broker_epoch=42)
    assert (tmp_path / MARK).read_text() == '{"version":0,"brokerEpoch":42}'
    directory = opened(tmp_path)
    assert (directory.clean, directory.broker_epoch) == (True, 42)
    assert not (tmp_path / MARK).exists()
    directory.close(clean=False)
    assert not opened(tmp_path).clean


def test_the_mark_is_written_last_of_all(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory), batch())
    done: list[str] = []
    files.set_fault_hook(lambda name, path, _size: done.append(f"{name} {Path(path).name}"))  # type: ignore[func-returns-value]
    directory.close()
    assert done[-5:] == [
        f"write_whole {MARK}.tmp",
        f"sync {MARK}.tmp",
        f"rename {MARK}.tmp",
        f"sync_directory {tmp_path.name}",
        "unlock .lock",
    ]


def test_the_metadata_log_ends_after_all_others(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory, METADATA_TOPIC), batch())
    append(log_of(directory, "zebra"), batch())
    snapshots: list[str] = []

    def note(name: str, path: str, _size: int) -> None:
        if name == "write_whole" and path.endswith(".snapshot"):
            snapshots.append(Path(path).parent.name)

    files.set_fault_hook(note)
    directory.close()
    assert snapshots == ["zebra-0", f"{METADATA_TOPIC}-0"]


def test_logs_come_back_after_a_clean_stop_with_their_checkpoints(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    for _ in range(3):
        append(log, batch(2))
    log.delete_records_before(3)
    directory.close()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 6\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 6\n"
    directory = opened(tmp_path)
    log = log_of(directory)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (3, 6, 6)
    assert log.high_watermark == 6
    directory.close()


def test_no_mark_is_written_where_a_log_failed(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    append(log, batch())
    files.set_fault_hook(
        lambda name, _path, _size: (_ for _ in ()).throw(OSError(5, "bad disk")) if name == "sync" else None
    )
    log.flush(NOW_MS)
    files.set_fault_hook(None)
    directory.close()
    assert not (tmp_path / MARK).exists()


def test_no_mark_is_written_where_a_log_cant_be_closed(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory, "a"), batch())
    append(log_of(directory, "b"), batch())

    def fail(name: str, path: str, _size: int) -> None:
        if name == "write_whole" and "/a-0/" in path:
            raise OSError(28, "No space left on device")

    files.set_fault_hook(fail)
    directory.close()
    files.set_fault_hook(None)
    assert not (tmp_path / MARK).exists()
    directory = opened(tmp_path)
    assert log_of(directory, "a").log_end_offset == log_of(directory, "b").log_end_offset == 1
    directory.close()


def test_no_mark_is_written_while_an_unclean_folder_was_not_looked_at(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory, "a"), batch())
    append(log_of(directory, "b"), batch())
    directory.close(clean=False)
    directory = opened(tmp_path)
    log_of(directory, "a")
    directory.close()
    assert not (tmp_path / MARK).exists()
    directory = opened(tmp_path)
    log_of(directory, "a")
    log_of(directory, "b")
    directory.close()
    assert (tmp_path / MARK).exists()


def test_folders_are_listed_with_their_topic_ids(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory, "a-b", 12), batch())
    append(log_of(directory, "a", 0, topic_id=None), batch())
    directory.close()
    (tmp_path / "lost+found").mkdir()
    (tmp_path / ("gone-0." + UNIQUE + "-delete")).mkdir()
    (tmp_path / ("stray-0." + UNIQUE + "-stray")).mkdir()
    directory = opened(tmp_path)
    assert [(f.topic, f.partition, f.topic_id) for f in directory.folders()] == [
        ("a", 0, None),
        ("a-b", 12, TOPIC_ID),
    ]
    directory.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_reads_a_partitions_folder_once(tmp_path: Path, clean: bool) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    append(log, batch())
    directory.close(clean=clean)
    asked: Counter[tuple[str, str]] = Counter()

    def note(operation: str, path: str, _size: int) -> None:
        asked[operation, Path(path).name] += 1

    files.set_fault_hook(note)
    directory = opened(tmp_path)
    assert len(directory.folders()) == 1
    log_of(directory)
    files.set_fault_hook(None)
    assert asked["list_subdirectories", tmp_path.name] == 1
    for operation, name in (
        ("list_directory", "orders-0"),
        ("read_whole", "partition.metadata"),
        ("read_whole", "leader-epoch-checkpoint"),
        ("read", "00000000000000000000.log"),
    ):
        assert asked[operation, name] == 1, name
    directory.close()


def test_unopened_logs_are_listed_as_folders(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    for partition in range(3):
        append(log_of(directory, partition=partition), batch())
    directory.close()
    directory = opened(tmp_path)
    log_of(directory, partition=1)
    assert [folder.partition for folder in directory.folders()] == [0, 2]
    directory.set_aside(directory.folders()[0], UNIQUE)
    assert [folder.partition for folder in directory.folders()] == [2]
    directory.close(clean=False)


def test_at_the_end_everything_is_written_before_anything_is_synced(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    for partition in range(3):
        append(log_of(directory, partition=partition), batch())
    synced: list[bool] = []

    def all_at_once(works: Sequence[Work]) -> list[Exception | None]:
        synced.append(all((tmp_path / f"orders-{n}" / f"{1:020d}.snapshot").exists() for n in range(3)))
        return run_in_turn(works)

    directory.close(run_all=all_at_once)
    assert synced == [True, True]  # the metadata log comes second
    assert (tmp_path / MARK).exists()


def test_no_mark_is_written_where_one_of_many_cant_be_synced(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    for partition in range(3):
        append(log_of(directory, partition=partition), batch())

    def refuse(operation: str, path: str, _size: int) -> None:
        if operation == "sync" and "orders-1/" in path:
            raise OSError(5, "the disk is gone", path)

    files.set_fault_hook(refuse)
    directory.close()
    assert not (tmp_path / MARK).exists()
    assert (tmp_path / "recovery-point-offset-checkpoint").exists() is False
    files.set_fault_hook(None)
    assert opened(tmp_path).clean is False


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_cant_be_closed_keeps_none_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    gc.collect()  # close what other tests have left open
    directory, before = opened(tmp_path), files.open_files_count()
    logs = [log_of(directory, partition=partition) for partition in range(3)]
    for log in logs:
        append(log, batch())
    close, refused = os.close, iter([OSError(5, "closed")])

    def fail(descriptor: int) -> None:
        is_of_it = os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(tmp_path))
        close(descriptor)
        for failure in refused if is_of_it else ():
            raise failure

    monkeypatch.setattr(os, "close", fail)
    assert directory.close(clean=clean) is not clean
    assert all(log.closed for log in logs)
    assert files.open_files_count() == before
    assert not (tmp_path / MARK).exists()
    opened(tmp_path).close()  # the directory isn't locked any more


def test_the_names_of_many_new_logs_are_synced_together(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    for partition in range(3):
        append(log_of(directory, partition=partition), batch())
    synced: Counter[str] = Counter()

    def note(operation: str, path: str, _size: int) -> None:
        if operation == "sync_directory":
            synced[path] += 1

    def noted(works: Sequence[Work]) -> list[Exception | None]:
        files.set_fault_hook(note)
        failures = run_in_turn(works)
        files.set_fault_hook(None)
        return failures

    directory.close(run_all=noted)
    assert synced == {f"{tmp_path}": 1, **{f"{tmp_path}/orders-{n}": 1 for n in range(3)}}


def test_no_mark_is_written_where_the_names_of_new_logs_cant_be_synced(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = log_of(directory)
    append(log, batch())
    told: list[Exception | None] = []
    log.when_flushed(1, told.append)

    def refuse(operation: str, path: str, _size: int) -> None:
        if operation == "sync_directory" and path == str(tmp_path):
            raise OSError(5, "the disk is gone", path)

    files.set_fault_hook(refuse)
    assert not directory.close()
    assert not (tmp_path / MARK).exists()
    assert len(told) == 1
    assert told[0] is not None


def test_folders_of_deleted_topics_go_at_the_next_start(tmp_path: Path) -> None:
    doomed = tmp_path / ("gone-0." + UNIQUE + "-delete")
    doomed.mkdir()
    (doomed / "00000000000000000000.log").write_bytes(b"x")
    directory = opened(tmp_path)
    assert not doomed.exists()
    directory.close()


def test_a_deleted_partitions_name_can_be_used_again_at_once(tmp_path: Path) -> None:
    background = HeldBackground()
    directory = opened(tmp_path, background)
    old = log_of(directory)
    append(old, batch(values=[b"old"]))
    directory.delete_log(old, UNIQUE)
    new = log_of(directory, topic_id="B" * 22)
    append(new, batch(values=[b"new"]))
    background.run_all()
    assert values(new) == [b"new"]
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["orders-0"]
    directory.close()


def test_reading_a_directory_changes_nothing_before_it_is_used(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory), batch())
    directory.delete_log(directory.logs["orders", 0], UNIQUE)
    (tmp_path / f"orders-1.{UNIQUE}-delete").mkdir()
    directory.close()
    before = sorted(path.name for path in tmp_path.iterdir())
    LogDirectory.read(str(tmp_path), files=files, background=run_at_once).close(clean=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    opened(tmp_path).close(clean=False)
    assert set(before) - {path.name for path in tmp_path.iterdir()} == {MARK, f"orders-1.{UNIQUE}-delete"}


def test_a_folder_of_an_earlier_topic_is_refused_and_can_be_set_aside(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    append(log_of(directory), batch())
    directory.close()
    directory = opened(tmp_path)
    with pytest.raises(InconsistentTopicIdError):
        log_of(directory, topic_id="B" * 22)
    (folder,) = directory.folders()
    stray = directory.set_aside(folder, UNIQUE)
    assert Path(stray).name == f"orders-0.{UNIQUE}-stray"
    assert log_of(directory, topic_id="B" * 22).log_end_offset == 0
    directory.close()


def test_meta_properties_are_written_as_kafka_reads_them(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    directory.write_meta_properties(
        cluster_id="4L6g3nShT-eMCtK--X86sw", node_id=1, directory_id="bHqe5RBLgqa5wkxO6iXQHg"
    )
    directory.close()
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert set(lines[1:]) == {
        "version=1",
        "node.id=1",
        "cluster.id=4L6g3nShT-eMCtK--X86sw",
        "directory.id=bHqe5RBLgqa5wkxO6iXQHg",
    }
    directory = opened(tmp_path)
    assert directory.meta_properties == {
        "version": "1",
        "node.id": "1",
        "cluster.id": "4L6g3nShT-eMCtK--X86sw",
        "directory.id": "bHqe5RBLgqa5wkxO6iXQHg",
    }
    directory.close()
