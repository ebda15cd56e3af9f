"""Each file operation fails once. The tests check who is told, and that nothing acknowledged is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.errors import Error, KafkaError
from storage.directory.log_directory import LogDirectory
from storage.files import LockedError
from storage.log.log_config import LogConfig
from storage.log.partition_log import PartitionLog
from tests.support.disk import files
from tests.support.immediate_background import run_at_once
from tests.support.partition_logs import NOW_MS, TOPIC_ID, append, batch, values
from tests.unit.storage.log_directories import UNIQUE

CONFIG = LogConfig(segment_bytes=10_000, retention_ms=10**12)


@pytest.fixture(autouse=True)
def no_faults_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


class Life:
    """A directory of a killed process, with every kind of work for a start, and what is done with it afterwards."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acknowledged: list[bytes] = []
        self.refused: list[str] = []
        self.directory: LogDirectory | None = None
        self.open()
        self.append()
        self.directory.close(clean=False)  # type: ignore[union-attr]
        self.directory = None
        with (path / "orders-0" / f"{0:020d}.log").open("ab") as torn:
            torn.write(b"\0" * 40)
        (path / f"gone-0.{UNIQUE}-delete").mkdir()

    @property
    def log(self) -> PartitionLog:
        assert self.directory is not None
        return self.directory.logs["orders", 0]

    def open(self) -> None:
        opened = self.directory
        if opened is None:
            opened = LogDirectory.open(str(self.path), files=files, background=run_at_once)
            self.directory = opened
        opened.folders()
        opened.open_log("orders", 0, CONFIG, now_ms=NOW_MS, topic_id=TOPIC_ID)

    def append(self) -> None:
        value = b"%d" % len(self.acknowledged)
        append(self.log, batch(values=[value], timestamp=-1))  # so that retention uses the files' times
        self.acknowledged.append(value)

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def read(self) -> None:
        assert values(self.log) == self.acknowledged

    def flush(self) -> None:
        self.log.flush(NOW_MS)
        if self.log.failure is not None:
            raise KafkaError(Error.KAFKA_STORAGE_ERROR)

    def retain(self) -> None:
        self.log.apply_retention(NOW_MS)

    def checkpoint(self) -> None:
        assert self.directory is not None
        self.directory.checkpoint_recovery_points()

    def delete(self) -> None:
        assert self.directory is not None
        doomed = self.directory.open_log("doomed", 0, CONFIG, now_ms=NOW_MS, topic_id=TOPIC_ID)
        self.directory.delete_log(doomed, UNIQUE)

    def close(self) -> None:
        directory, self.directory = self.directory, None
        assert directory is not None
        directory.close()

    def attempt(self, *steps: Callable[[], None]) -> None:
        for step in steps:
            try:
                step()
            except (KafkaError, OSError):
                self.refused.append(step.__name__)

    def live(self) -> None:
        self.attempt(self.open)
        if self.refused:
            self.attempt(self.open)
        self.attempt(self.append, self.roll, self.append, self.flush, self.read)
        self.attempt(self.retain, self.checkpoint, self.delete, self.close)


CASES = [
    pytest.param("open_existing", ["open"], marks=pytest.mark.fault("open_existing")),
    pytest.param("create", ["roll"], marks=pytest.mark.fault("create")),
    pytest.param("append", ["append"], marks=pytest.mark.fault("append")),
    pytest.param("read", ["open"], marks=pytest.mark.fault("read")),
    pytest.param("truncate", ["open"], marks=pytest.mark.fault("truncate")),
    pytest.param("size_of", ["open"], marks=pytest.mark.fault("size_of")),
    pytest.param("modified_ms", ["retain"], marks=pytest.mark.fault("modified_ms")),
    pytest.param("exists", ["open"], marks=pytest.mark.fault("exists")),
    pytest.param("sync", ["open"], marks=pytest.mark.fault("sync")),
    pytest.param("sync_directory", ["append", "flush"], marks=pytest.mark.fault("sync_directory")),
    pytest.param("read_whole", ["open"], marks=pytest.mark.fault("read_whole")),
    pytest.param("write_whole", ["open"], marks=pytest.mark.fault("write_whole")),
    pytest.param("rename", [], marks=pytest.mark.fault("rename")),
    pytest.param("remove", ["roll"], marks=pytest.mark.fault("remove")),
    pytest.param("remove_tree", [], marks=pytest.mark.fault("remove_tree")),
    pytest.param("make_directory", ["open"], marks=pytest.mark.fault("make_directory")),
    pytest.param("list_directory", ["open"], marks=pytest.mark.fault("list_directory")),
    pytest.param("list_subdirectories", ["open"], marks=pytest.mark.fault("list_subdirectories")),
    pytest.param("lock", ["open"], marks=pytest.mark.fault("lock")),
]
"""(operation, the steps that report its failure). Background work is retried instead."""


@pytest.mark.parametrize(("operation", "refused"), CASES)
def test_an_operation_that_fails_once_is_reported_and_loses_nothing(
    tmp_path: Path, operation: str, refused: list[str]
) -> None:
    life = Life(tmp_path)
    failed: list[str] = []

    def fail_once(name: str, path: str, _size: int) -> None:
        if name == operation and not failed:
            failed.append(path)
            raise OSError(errno.EIO, "Input/output error", path)

    files.set_fault_hook(fail_once)
    life.live()
    files.set_fault_hook(None)
    assert failed
    assert life.refused == refused
    life.open()
    assert values(life.log) == life.acknowledged
    life.append()
    life.close()


@pytest.mark.fault("unlock")
def test_a_lock_that_cannot_be_given_back_is_held_until_it_can(tmp_path: Path) -> None:
    life = Life(tmp_path)

    def refuse(name: str, path: str, _size: int) -> None:
        if name == "unlock":
            raise OSError(errno.EIO, "Input/output error", path)

    files.set_fault_hook(refuse)
    life.live()
    files.set_fault_hook(None)
    assert life.refused == ["close"]
    with pytest.raises(LockedError):
        life.open()
    files.unlock(str(tmp_path / ".lock"))
    life.open()
    assert values(life.log) == life.acknowledged
    life.close()
