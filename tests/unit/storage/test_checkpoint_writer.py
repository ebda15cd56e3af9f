"""What a directory's checkpoints contain if the disk or the memory fails while one is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage import checkpoints
from storage.directory.directory_checkpoints import REST_MS, CheckpointWriter, OffsetCheckpoints
from tests.support.disk import files
from tests.support.failing_calls import fail
from tests.support.partition_logs import HeldBackground, append, batch
from tests.unit.storage.log_directories import UNIQUE, log_of, opened

NAME = "checkpoint"
ORDERS = ("orders", 0)


@pytest.fixture(autouse=True)
def no_faults_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


def refuse_directory_syncs(operation: str, path: str, _size: int) -> None:
    if operation == "sync_directory":
        raise OSError(5, "EIO", path)


def writer_of(
    path: Path, background: HeldBackground, reported: list[OSError] | None = None
) -> CheckpointWriter:
    return CheckpointWriter(str(path), files, background, [].append if reported is None else reported.append)


def written(path: Path, background: HeldBackground, data: bytes) -> CheckpointWriter:
    writer = writer_of(path, background)
    writer.write(NAME, lambda: data)
    background.run_all()
    assert writer.has_written(NAME, data)
    return writer


def test_a_replaced_file_counts_though_the_directory_could_not_be_synced(tmp_path: Path) -> None:
    background = HeldBackground()
    writer = written(tmp_path, background, b"1")
    files.set_fault_hook(refuse_directory_syncs)
    writer.write(NAME, lambda: b"2")
    background.run_all()
    files.set_fault_hook(None)
    assert (tmp_path / NAME).read_bytes() == b"2"
    assert not writer.has_written(NAME, b"1")
    assert not writer.has_written(NAME, b"2")
    writer.write(NAME, lambda: b"1")
    background.run_all()
    assert (tmp_path / NAME).read_bytes() == b"1"
    assert writer.has_written(NAME, b"1")


def test_frequent_requests_are_written_at_once_and_then_once_in_a_while(tmp_path: Path) -> None:
    background = HeldBackground()
    writer = writer_of(tmp_path, background)
    encoded: list[bytes] = []

    def ask(number: int) -> None:
        def encode() -> bytes:
            encoded.append(b"%d" % number)
            return encoded[-1]

        writer.write_soon(NAME, encode)

    def run_all_but_the_rest() -> None:
        rest = next(each for each in background.waiting if each[3] == REST_MS)
        background.waiting.remove(rest)
        background.run_all()
        background.waiting.append(rest)

    for number in range(5):
        ask(number)
    run_all_but_the_rest()
    assert (tmp_path / NAME).read_bytes() == b"0"
    for number in range(5, 9):
        ask(number)
    assert background.delays_ms == [REST_MS]
    background.run_one()  # the rest is over
    run_all_but_the_rest()
    assert (tmp_path / NAME).read_bytes() == b"8"
    assert encoded == [b"0", b"8"]
    background.run_all()
    ask(9)  # nobody has asked for a write for a while
    run_all_but_the_rest()
    assert (tmp_path / NAME).read_bytes() == b"9"
    ask(10)
    writer.stop()
    background.run_all()
    assert encoded == [b"0", b"8", b"9"]


def test_a_write_delayed_by_lack_of_memory_happens_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    background = HeldBackground()
    writer = writer_of(tmp_path, background)
    with monkeypatch.context() as patch:
        fail(patch, HeldBackground, "__call__")
        with pytest.raises(MemoryError):
            writer.write_soon(NAME, lambda: b"1")
    writer.write_soon(NAME, lambda: b"2")
    background.run_all()
    assert (tmp_path / NAME).read_bytes() == b"2"


def test_a_directory_that_can_not_be_synced_is_reported(tmp_path: Path) -> None:
    background = HeldBackground()
    reported: list[OSError] = []
    writer = writer_of(tmp_path, background, reported)
    files.set_fault_hook(refuse_directory_syncs)
    writer.write(NAME, lambda: b"1")
    background.run_all()
    assert [failure.errno for failure in reported] == [5]


def test_an_immediate_write_counts_though_the_directory_could_not_be_synced(tmp_path: Path) -> None:
    background = HeldBackground()
    writer = written(tmp_path, background, b"1")
    files.set_fault_hook(refuse_directory_syncs)
    with pytest.raises(OSError, match="EIO"):
        writer.write_now(NAME, b"2")
    assert (tmp_path / NAME).read_bytes() == b"2"
    assert not writer.has_written(NAME, b"1")


def test_syncing_an_already_replaced_file_does_not_confirm_it(tmp_path: Path) -> None:
    background = HeldBackground()
    writer = writer_of(tmp_path, background)
    writer.write(NAME, lambda: b"1")
    background.run_one()
    files.set_fault_hook(refuse_directory_syncs)
    with pytest.raises(OSError, match="EIO"):
        writer.write_now(NAME, b"2")
    files.set_fault_hook(None)
    background.run_all()
    assert (tmp_path / NAME).read_bytes() == b"2"
    assert not writer.has_written(NAME, b"1")


@pytest.mark.parametrize(
    ("owner", "name"), [(HeldBackground, "__call__"), (CheckpointWriter, "_put_in_place")]
)
def test_a_file_whose_writing_lacked_memory_is_written_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    background = HeldBackground()
    writer = writer_of(tmp_path, background)
    writer.write(NAME, lambda: b"1")
    with monkeypatch.context() as patch:
        fail(patch, owner, name)
        with pytest.raises(MemoryError):
            background.run_one()
    assert not writer.has_written(NAME, b"1")
    writer.write(NAME, lambda: b"2")
    background.run_all()
    assert (tmp_path / NAME).read_bytes() == b"2"
    assert writer.has_written(NAME, b"2")


def test_a_waiting_file_that_cannot_be_encoded_keeps_waiting(tmp_path: Path) -> None:
    background = HeldBackground()
    writer = writer_of(tmp_path, background)
    memory = [False]

    def newest() -> bytes:
        if not memory[0]:
            raise MemoryError
        return b"2"

    writer.write(NAME, lambda: b"1")
    writer.write(NAME, newest)
    background.run_one()
    with pytest.raises(MemoryError):
        background.run_one()
    assert not writer.has_written(NAME, b"1")
    memory[0] = True
    writer.write(NAME, newest)
    background.run_all()
    assert (tmp_path / NAME).read_bytes() == b"2"
    assert writer.has_written(NAME, b"2")


def test_a_write_that_could_not_begin_does_not_follow_a_newer_one(tmp_path: Path) -> None:
    background = HeldBackground()
    writer = written(tmp_path, background, b"1")
    with pytest.MonkeyPatch.context() as patch:
        fail(patch, HeldBackground, "__call__")
        with pytest.raises(MemoryError):
            writer.write(NAME, lambda: b"2")
    assert not writer.has_written(NAME, b"1")
    writer.write(NAME, lambda: b"3")
    background.run_all()
    assert (tmp_path / NAME).read_bytes() == b"3"


def test_a_compacted_offset_is_forgotten_though_the_directory_could_not_be_synced(tmp_path: Path) -> None:
    background = HeldBackground()
    directory = opened(tmp_path, background)
    cleaner_offsets = directory.cleaner_offsets
    cleaner_offsets.set(("others", 0), 5)
    background.run_all()
    files.set_fault_hook(refuse_directory_syncs)
    cleaner_offsets.set(ORDERS, 100)
    background.run_all()
    files.set_fault_hook(None)
    cleaner_offsets.forget(ORDERS)
    cleaner_offsets.name_is_free(ORDERS)
    assert (tmp_path / checkpoints.CLEANER_OFFSET_FILE).read_text() == "0\n1\nothers 0 5\n"
    directory.close(clean=False)


# a deletion first encodes the log starts, then what the cleaner has compacted
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_deleted_partition_is_forgotten_though_its_file_lacked_memory_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    background = HeldBackground()
    directory = opened(tmp_path, background)
    log = log_of(directory)
    append(log, batch(50))
    log.delete_records_before(40)
    directory.checkpoint_log_starts()
    directory.cleaner_offsets.set(ORDERS, 45)
    background.run_all()
    with monkeypatch.context() as patch:
        fail(patch, checkpoints, "encode_offsets", at=at)
        with pytest.raises(MemoryError):
            directory.delete_log(log, UNIQUE)
    assert directory.cleaner_offsets.get(ORDERS) is None
    directory.name_is_free(ORDERS)
    assert (tmp_path / checkpoints.LOG_START_FILE).read_text() == "0\n0\n"
    assert (tmp_path / checkpoints.CLEANER_OFFSET_FILE).read_text() == "0\n0\n"
    directory.close(clean=False)


@pytest.mark.parametrize("what", ["log starts", "cleaner"])
def test_a_deleted_partition_is_forgotten_though_its_file_lacked_memory_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    background = HeldBackground()
    directory = opened(tmp_path, background)
    log = log_of(directory)
    append(log, batch(50))
    log.delete_records_before(40)
    directory.checkpoint_log_starts()
    directory.cleaner_offsets.set(ORDERS, 45)
    background.run_all()
    directory.logs.pop(ORDERS)
    part = directory.offsets if what == "log starts" else directory.cleaner_offsets
    with monkeypatch.context() as patch:
        # not even the request to write is kept
        fail(patch, CheckpointWriter, "write")
        with pytest.raises(MemoryError):
            part.forget(ORDERS)
    part.name_is_free(ORDERS)
    name = (
        checkpoints.LOG_START_FILE if isinstance(part, OffsetCheckpoints) else checkpoints.CLEANER_OFFSET_FILE
    )
    assert (tmp_path / name).read_text() == "0\n0\n"
    directory.close(clean=False)
