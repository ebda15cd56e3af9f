"""Too little memory keeps work for the disk from beginning, or its end from being reported. Both are made up for."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from protocol.errors import KafkaError
from storage.background import Lane, Then, Work
from storage.checkpoints import LEADER_EPOCH_FILE
from storage.directory.directory_checkpoints import CheckpointWriter
from storage.files import OUT_OF_DESCRIPTORS
from storage.log import syncing
from storage.log.log_state import Flushing
from tests.support.disk import files
from tests.support.failing_calls import fail
from tests.support.partition_logs import HeldBackground, append, batch, open_log


class Refusing(HeldBackground):
    refuses = False

    def __call__(self, work: Work, then: Then, /, *, lane: Lane, delay_ms: int = 0) -> None:
        if self.refuses:
            raise MemoryError
        super().__call__(work, then, lane=lane, delay_ms=delay_ms)


def test_a_flush_that_could_not_begin_begins_later(tmp_path: Path) -> None:
    background = Refusing()
    log = open_log(tmp_path, flush_messages=1, background=background)
    background.refuses = True
    append(log, batch())
    background.refuses = False
    told: list[Exception | None] = []
    log.when_flushed(1, told.append)
    log.go_on_flushing()
    background.run_all()
    assert told == [None]
    assert not log.flushing.running


def test_a_flush_that_could_not_begin_syncs_the_epochs_when_it_does(tmp_path: Path) -> None:
    background = Refusing()
    log = open_log(tmp_path, flush_messages=1, background=background)
    synced: list[str] = []
    background.refuses = True
    append(log, batch(), leader_epoch=7)
    background.refuses = False
    files.set_fault_hook(lambda name, path, _size: synced.append(Path(path).name) if name == "sync" else None)
    try:
        log.go_on_flushing()
        background.run_all()
        assert LEADER_EPOCH_FILE in synced
        synced.clear()
        append(log, batch(), leader_epoch=7)
        background.run_all()
        assert synced
        assert LEADER_EPOCH_FILE not in synced
    finally:
        files.set_fault_hook(None)


def test_a_flush_queued_after_one_that_could_not_begin_begins_later(tmp_path: Path) -> None:
    background = Refusing()
    log = open_log(tmp_path, flush_messages=1, background=background)
    append(log, batch())
    append(log, batch())
    background.refuses = True
    with pytest.raises(MemoryError):
        background.run_one()
    background.refuses = False
    assert log.recovery_point == 1
    log.go_on_flushing()
    background.run_all()
    assert log.recovery_point == 2


@pytest.mark.parametrize(("owner", "name"), [(syncing, "_trusted_up_to"), (Flushing, "tell_synced")])
def test_a_flush_whose_end_could_not_be_reported_reports_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    background = HeldBackground()
    log = open_log(tmp_path, flush_messages=1, background=background)
    append(log, batch())
    told: list[Exception | None] = []
    log.when_flushed(1, told.append)
    with monkeypatch.context() as patch:
        fail(patch, owner, name)
        with pytest.raises(MemoryError):
            background.run_one()
    assert told == []
    log.go_on_flushing()
    background.run_all()
    assert told == [None]


@pytest.mark.parametrize("number", sorted(OUT_OF_DESCRIPTORS))
@pytest.mark.parametrize("what", ["sync", "sync_directory"])
def test_a_flush_that_lacked_a_descriptor_is_repeated_and_the_log_is_unharmed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, number: int, what: str
) -> None:
    background = HeldBackground()
    log = open_log(tmp_path, flush_messages=1, background=background)
    append(log, batch(), leader_epoch=7)
    told: list[Exception | None] = []
    log.when_flushed(1, told.append)
    synced: list[str] = []

    def refuse(name: str, path: str, _size: int) -> None:
        if name == what:
            raise OSError(number, "too many", path)

    files.set_fault_hook(refuse)
    try:
        background.run_all()
        log.go_on_flushing()
        background.run_all()
        assert told == []
        assert log.failure is None
        assert log.recovery_point == 0
        assert log.awaits_flush
        assert caplog.text.count("too many") == 1
        append(log, batch(), leader_epoch=7)
        background.run_all()
        files.set_fault_hook(
            lambda name, path, _size: synced.append(Path(path).name) if name == "sync" else None
        )
        log.go_on_flushing()
        background.run_all()
    finally:
        files.set_fault_hook(None)
    assert told == [None]
    assert log.recovery_point == 2
    assert LEADER_EPOCH_FILE in synced


def lacking_descriptors(name: str, path: str, _size: int) -> None:
    if name == "sync":
        raise OSError(errno.EMFILE, "too many", path)


def test_each_lack_of_descriptors_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    background = HeldBackground()
    log = open_log(tmp_path, flush_messages=1, background=background)
    for lacks in range(1, 3):
        files.set_fault_hook(lacking_descriptors)
        try:
            append(log, batch())
            background.run_all()
            log.go_on_flushing()
            background.run_all()
        finally:
            files.set_fault_hook(None)
        assert caplog.text.count("too many") == lacks
        log.go_on_flushing()
        background.run_all()
        assert log.recovery_point == lacks


def test_a_sync_that_is_waited_for_and_has_no_descriptor_is_no_failure_of_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(), leader_epoch=7)
    files.set_fault_hook(lacking_descriptors)
    try:
        with pytest.raises(KafkaError, match="too many"):
            log.sync()
    finally:
        files.set_fault_hook(None)
    assert log.failure is None
    synced: list[str] = []
    files.set_fault_hook(lambda name, path, _size: synced.append(Path(path).name) if name == "sync" else None)
    try:
        log.sync()
    finally:
        files.set_fault_hook(None)
    assert log.recovery_point == 1
    assert LEADER_EPOCH_FILE in synced


def test_nothing_goes_on_where_nothing_was_kept_from_it(tmp_path: Path) -> None:
    background = HeldBackground()
    log = open_log(tmp_path, flush_messages=2, background=background)
    append(log, batch())
    log.go_on_flushing()
    assert not background.waiting
    append(log, batch())
    log.go_on_flushing()
    assert len(background.waiting) == 1


def test_a_checkpoint_that_could_not_wait_for_the_disk_is_written_the_next_time(tmp_path: Path) -> None:
    background = Refusing()
    writer = CheckpointWriter(str(tmp_path), files, background, lambda error: None)
    background.refuses = True
    with pytest.raises(MemoryError):
        writer.write("checkpoint", lambda: b"1")
    background.refuses = False
    writer.write("checkpoint", lambda: b"1")
    background.run_all()
    assert (tmp_path / "checkpoint").read_bytes() == b"1"
