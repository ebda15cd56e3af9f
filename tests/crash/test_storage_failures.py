"""A disk that fails once, at any operation: nothing acknowledged is lost by it, then or at the next start.

The kill sweep's twin: here the process lives on after the failure, and appends.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from protocol.errors import Error, KafkaError
from storage.directory.log_directory import LogDirectory
from storage.log.log_config import LogConfig
from storage.log.partition_log import PartitionLog
from tests.support.disk import files
from tests.support.immediate_background import run_at_once
from tests.support.killing import WRITES, let_go
from tests.support.partition_logs import NOW_MS, TOPIC_ID, append, batch, produced, values

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100, retention_ms=10**12)
OTHER_TOPIC_ID = "B" * 22
UNIQUE = "0123456789abcdef" * 2


@pytest.fixture(autouse=True)
def page_cache_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _descriptor: None)


@dataclass
class FailingOnce:
    """Counts operations; number `at` fails, at a torn write in the middle of it."""

    at: int | None
    torn: bool = False
    count: int = 0
    name: str = ""

    def __call__(self, operation: str, path: str, size: int) -> int | None:
        self.count += 1
        if self.count != self.at:
            return None
        self.name = f"{operation} {Path(path).name}"
        if self.torn and operation in WRITES and size > 1:
            return size // 2
        raise OSError(errno.ENOSPC, "No space left on device", path)


@dataclass
class Account:
    """What the clients of a partition were told."""

    stored: list[tuple[int, bytes]] = field(default_factory=list)
    """(offset, value) of each record that was acknowledged."""
    start: int = 0

    @property
    def end(self) -> int:
        return self.stored[-1][0] + 1 if self.stored else 0


class Broker:
    """Work in which each step may fail, and of which the next step is tried all the same."""

    def __init__(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)
        self.path = path
        self.account = Account()
        self.sequence = 0
        self.directory, self.log = start(path)

    def work(self) -> None:
        for _round in range(3):
            self.attempt(lambda: self.append(2, leader_epoch=0))
        self.attempt(lambda: self.append(1, 450, leader_epoch=0))
        self.append_small()
        self.attempt(lambda: self.log.assign_leader_epoch(1))
        self.attempt(lambda: self.append(1, 420, leader_epoch=1))
        self.append_small()
        self.attempt(lambda: self.append(1, 20, leader_epoch=3))
        self.attempt(lambda: self.log.roll(NOW_MS))
        self.append_small()
        self.attempt(self.delete_records)
        self.attempt(lambda: self.log.apply_retention(NOW_MS))
        self.append_small()
        self.attempt(lambda: self.log.flush(NOW_MS))
        self.attempt(self.directory.checkpoint_log_starts)
        self.attempt(self.directory.checkpoint_recovery_points)
        self.attempt(self.retain_nothing)
        self.append_small()
        self.append_small()

    def attempt(self, step: Callable[[], object]) -> None:
        try:
            step()
        except KafkaError as failure:
            if failure.error is not Error.KAFKA_STORAGE_ERROR:
                raise
        # the records below the log start are nobody's any more
        self.account.start = self.log.log_start_offset

    def append(self, count: int, value_bytes: int = 20, *, leader_epoch: int = 3) -> None:
        value = b"%d-%s" % (self.sequence, b"x" * value_bytes)
        data = produced(self.sequence, count, values=[value] * count)
        result = append(self.log, data, leader_epoch=leader_epoch)
        assert not result.duplicate
        assert result.base_offset == self.account.end
        self.sequence += count
        self.account.stored += [(result.base_offset + at, value) for at in range(count)]

    def append_small(self) -> None:
        self.attempt(lambda: self.append(1, 5))

    def delete_records(self) -> None:
        self.log.delete_records_before(self.log.high_watermark - 2)

    def retain_nothing(self) -> None:
        self.log.config = LogConfig(segment_bytes=600, index_interval_bytes=100, retention_ms=1)
        try:
            self.log.apply_retention(NOW_MS + 1000)
        finally:
            self.log.config = CONFIG


def start(path: Path, topic_id: str = TOPIC_ID) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory.open(str(path), files=files, background=run_at_once)
    log = directory.open_log("orders", 0, CONFIG, now_ms=NOW_MS, topic_id=topic_id)
    log.update_high_watermark(log.log_end_offset)
    return directory, log


def with_failure(at: int | None, work: Callable[[], object], *, torn: bool = False) -> FailingOnce:
    hook = FailingOnce(at, torn)
    files.set_fault_hook(hook)
    try:
        work()
    finally:
        files.set_fault_hook(None)
    return hook


def check(log: PartitionLog, account: Account) -> None:
    expected = [value for offset, value in account.stored if offset >= log.log_start_offset]
    found = values(log)
    assert found[len(found) - len(expected) :] == expected
    assert log.log_end_offset == account.end
    assert log.log_start_offset <= account.start


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("clean", [True, False])
def test_a_log_whose_disk_fails_once_keeps_its_acknowledged_records(
    tmp_path: Path, clean: bool, torn: bool
) -> None:
    path = tmp_path / "data"
    count = with_failure(None, Broker(path).work).count
    let_go()
    assert count > 100
    for at in range(1, count + 1):
        broker = Broker(path)
        failed = with_failure(at, broker.work, torn=torn)
        try:
            check(broker.log, broker.account)
            epochs, lost = broker.log.leader_epochs.entries, broker.log.failure
            log_start_offset = broker.log.log_start_offset
            broker.directory.close(clean=clean)
            broker.directory, broker.log = start(path)
            check(broker.log, broker.account)
            if clean and lost is None:
                assert broker.log.log_start_offset == log_start_offset
                assert broker.log.leader_epochs.entries == epochs
            if lost is None:
                again = produced(broker.sequence)
                assert append(broker.log, again, leader_epoch=4).base_offset == broker.account.end
            broker.directory.close(clean=False)
        except BaseException as failure:
            failure.add_note(f"operation {at} failed: {failed.name}")
            raise
        finally:
            let_go()


@pytest.mark.parametrize("clean", [True, False])
def test_a_name_used_again_after_a_deletion_that_failed_in_part_has_no_old_records(
    tmp_path: Path, clean: bool
) -> None:
    path = tmp_path / "data"

    def filled() -> LogDirectory:
        shutil.rmtree(path, ignore_errors=True)
        directory, log = start(path)
        for _ in range(8):
            append(log, batch(5))
        log.delete_records_before(30)
        directory.checkpoint_log_starts()
        return directory

    def delete(directory: LogDirectory) -> None:
        """And make it anew."""
        for _try in range(2):
            try:
                if ("orders", 0) in directory.logs:
                    directory.delete_log(directory.logs["orders", 0], UNIQUE)
                log = directory.open_log("orders", 0, CONFIG, now_ms=NOW_MS, topic_id=OTHER_TOPIC_ID)
                append(log, batch(values=[b"new"]))
            except (KafkaError, OSError):
                continue
            return
        raise AssertionError("failed twice")

    whole = filled()
    count = with_failure(None, lambda: delete(whole)).count
    whole.close(clean=False)
    for at in range(1, count + 1):
        directory = filled()
        failed = with_failure(at, partial(delete, directory))
        try:
            directory.close(clean=clean)
            directory, log = start(path, OTHER_TOPIC_ID)
            assert (values(log), log.log_start_offset) == ([b"new"], 0)
            directory.close(clean=False)
        except BaseException as failure:
            failure.add_note(f"operation {at} failed: {failed.name}")
            raise
        finally:
            let_go()
