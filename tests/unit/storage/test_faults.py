"""If the disk fails, the client is told, and the log stays as it was."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.errors import Error, KafkaError
from storage.files import TornWriteError
from storage.log.partition_log import PartitionLog
from tests.support.disk import files
from tests.support.partition_logs import (
    NOW_MS,
    append,
    batch,
    batches,
    end_transaction,
    names,
    open_log,
    produced,
)


@pytest.fixture(autouse=True)
def no_faults_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


def fail_at(operation: str, suffix: str = "", written: int | None = None) -> None:
    """Make an operation fail on files with this suffix. A write fails after so many bytes."""

    def hook(name: str, path: str, _size: int) -> int | None:
        if name == operation and path.endswith(suffix):
            if written is not None:
                return written
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return None

    files.set_fault_hook(hook)


def refused(log: PartitionLog, act: Callable[[], object]) -> None:
    with pytest.raises(KafkaError) as failure:
        act()
    files.set_fault_hook(None)
    assert failure.value.error is Error.KAFKA_STORAGE_ERROR


def whole(log: PartitionLog) -> dict[str, bytes]:
    return {name: (Path(log.directory) / name).read_bytes() for name in names(log)}


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Return a log that is indexed at every batch, with an open transaction of producer 7."""
    log = open_log(tmp_path, index_interval_bytes=0)
    append(log, produced(0, 2, transactional=True))
    append(log, batch(2, timestamp=NOW_MS + 1))
    return log


@pytest.mark.parametrize(
    ("operation", "suffix", "written"),
    [
        ("append", ".log", None),
        ("append", ".log", 0),
        ("append", ".log", 30),
        ("append", ".index", None),
        ("append", ".index", 3),
        ("append", ".timeindex", None),
        ("append", ".timeindex", 11),
    ],
)
def test_a_failed_append_leaves_files_and_state_as_they_were(
    log: PartitionLog, operation: str, suffix: str, written: int | None
) -> None:
    before = whole(log)
    fail_at(operation, suffix, written)
    refused(log, lambda: append(log, produced(2, 3, transactional=True, timestamp=NOW_MS + 9)))
    assert whole(log) == before
    assert (log.log_end_offset, log.last_stable_offset) == (4, 0)
    assert append(log, produced(2, 3, transactional=True, timestamp=NOW_MS + 9)).base_offset == 4
    found = log.offset_for_timestamp(NOW_MS + 2)
    assert found is not None
    assert found.offset == 4


@pytest.mark.parametrize(
    ("operation", "suffix"),
    [("append", ".txnindex"), ("create", ".txnindex"), ("append", ".log"), ("append", ".index")],
)
def test_a_failed_marker_leaves_its_transaction_open(log: PartitionLog, operation: str, suffix: str) -> None:
    before = whole(log)
    fail_at(operation, suffix)
    refused(log, lambda: end_transaction(log, False))
    assert {name: data for name, data in whole(log).items() if data} == {
        name: data for name, data in before.items() if data
    }
    assert log.last_stable_offset == 0
    end_transaction(log, False)
    assert log.last_stable_offset == 5
    result = log.read(0, 10_000, upper_bound=5)
    assert [txn.producer_id for txn in log.aborted_transactions(0, result)] == [7]


@pytest.mark.parametrize(
    ("operation", "suffix"),
    [
        ("create", ".log"),
        ("create", ".index"),
        ("create", ".timeindex"),
        ("write_whole", ".snapshot"),
        ("append", ".timeindex"),
        ("create", ".txnindex"),
    ],
)
def test_a_failed_roll_leaves_a_log_that_goes_on(tmp_path: Path, operation: str, suffix: str) -> None:
    log = open_log(tmp_path)
    append(log, produced(0, 2, transactional=True))
    append(log, batch(2, timestamp=NOW_MS + 1))
    stored = list(batches(log))
    fail_at(operation, suffix)
    refused(log, lambda: log.roll(NOW_MS))
    assert append(log, batch()).base_offset == 4
    log.roll(NOW_MS)
    assert append(log, batch()).base_offset == 5
    assert log.base_offsets == [0, 5]
    assert list(batches(log))[:2] == stored
    log.close()
    assert open_log(tmp_path).log_end_offset == 6


@pytest.mark.parametrize(
    ("operation", "suffix"),
    [
        ("make_directory", ""),
        ("write_whole", "partition.metadata.tmp"),
        ("rename", "partition.metadata.tmp"),
        ("write_whole", "leader-epoch-checkpoint.tmp"),
        ("create", ".log"),
        ("create", ".timeindex"),
        ("append", ".log"),
    ],
)
def test_a_first_append_that_fails_can_be_tried_again(tmp_path: Path, operation: str, suffix: str) -> None:
    log = open_log(tmp_path)
    fail_at(operation, suffix)
    refused(log, lambda: append(log, batch()))
    assert append(log, batch()).base_offset == 0
    log.close()
    assert open_log(tmp_path).log_end_offset == 1


def test_a_write_that_cant_be_taken_back_ends_the_log_for_good(log: PartitionLog) -> None:
    def hook(name: str, _path: str, _size: int) -> int | None:
        if name == "truncate":
            raise OSError(errno.EIO, "bad disk")
        return 5 if name == "append" else None

    files.set_fault_hook(hook)
    refused(log, lambda: append(log, batch()))
    refused(log, lambda: append(log, batch()))
    assert isinstance(log.failure, TornWriteError)
    assert len(list(batches(log))) == 2


def test_leftovers_of_a_lost_log_are_cut_at_the_next_start(tmp_path: Path, log: PartitionLog) -> None:
    def hook(name: str, _path: str, _size: int) -> int | None:
        if name == "truncate":
            raise OSError(errno.EIO, "bad disk")
        return 70 if name == "append" else None

    stored = list(batches(log))
    files.set_fault_hook(hook)
    refused(log, lambda: append(log, batch(5)))
    log.close()
    assert not list((tmp_path / "orders-0").glob("*.snapshot"))
    again = open_log(tmp_path, clean=False)
    assert list(batches(again)) == stored


def test_a_failed_read_is_reported_to_the_client(log: PartitionLog) -> None:
    fail_at("read", ".log")
    refused(log, lambda: log.read(0, 1000, upper_bound=4))
    assert log.failure is None
    assert len(log.read(0, 1000, upper_bound=4).records) > 0


def test_files_that_cant_be_deleted_are_found_at_the_next_start(tmp_path: Path) -> None:
    log = open_log(tmp_path, retention_ms=1)
    append(log, batch())
    fail_at("remove", ".deleted")
    assert log.apply_retention(NOW_MS + 1000) == 1
    files.set_fault_hook(None)
    assert [name for name in names(log) if name.endswith(".deleted")] != []
    log.close()
    assert not [name for name in names(open_log(tmp_path)) if name.endswith(".deleted")]
