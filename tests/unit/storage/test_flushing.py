"""When a log is synced, and who is told about it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.errors import BrokenInvariantError, Error, KafkaError
from storage.log.log_state import Flushing
from storage.log.partition_log import PartitionLog
from storage.log.segment import Segments
from tests.support.disk import files
from tests.support.partition_logs import NOW_MS, HeldBackground, append, batch, open_log, produced


@pytest.fixture
def background() -> HeldBackground:
    return HeldBackground()


def test_nothing_is_synced_by_default(tmp_path: Path, synced: list[str]) -> None:
    log = open_log(tmp_path)
    for _ in range(100):
        assert not append(log, batch(100)).flushing
    assert synced == []
    assert log.recovery_point == 0


def test_flush_messages_syncs_once_its_number_of_records_is_unsynced(
    tmp_path: Path, synced: list[str]
) -> None:
    log = open_log(tmp_path, flush_messages=10)
    assert not append(log, batch(9)).flushing
    assert synced == []
    assert append(log, batch(2)).flushing
    assert "00000000000000000000.log" in synced
    assert log.recovery_point == 11


def test_a_flush_looks_at_no_segment_that_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path, flush_messages=1)
    for _ in range(50):
        append(log, batch())
        log.roll(NOW_MS)
    looked_at: list[int] = []
    next_base_offset = Segments.next_base_offset

    def note(segments: Segments, slot: int) -> int | None:
        looked_at.append(slot)
        return next_base_offset(segments, slot)

    monkeypatch.setattr(Segments, "next_base_offset", note)
    assert append(log, batch()).flushing
    assert log.recovery_point == 51
    assert set(looked_at) <= {49, 50}


def test_an_answer_can_wait_for_the_sync(tmp_path: Path, background: HeldBackground) -> None:
    log = open_log(tmp_path, flush_messages=1, background=background)
    result = append(log, batch(3))
    told: list[Exception | None] = []
    log.when_flushed(result.last_offset + 1, told.append)
    assert told == []
    background.run_all()
    assert told == [None]


def test_a_batch_that_a_killed_run_left_unsynced_is_acknowledged_again_once_the_disk_has_it(
    tmp_path: Path, background: HeldBackground
) -> None:
    killed = open_log(tmp_path, flush_messages=1, background=HeldBackground())
    append(killed, produced(0))
    killed.close(clean=False)
    log = open_log(tmp_path, clean=False, flush_messages=1, background=background)
    again = append(log, produced(0))
    assert (again.duplicate, again.base_offset, again.flushing) == (True, 0, True)
    told: list[Exception | None] = []
    log.when_flushed(again.last_offset + 1, told.append)
    assert told == []
    background.run_all()
    assert told == [None]
    assert not append(log, produced(0)).flushing
    log.close(clean=False)


def test_a_batch_that_is_sent_again_while_it_is_synced_waits_as_the_first_one_does(
    tmp_path: Path, background: HeldBackground
) -> None:
    log = open_log(tmp_path, flush_messages=2, background=background)
    assert not append(log, produced(0)).flushing
    assert not append(log, produced(0)).flushing  # after one record nothing is promised yet
    assert append(log, produced(1)).flushing
    assert append(log, produced(0)).flushing
    background.run_all()
    assert not append(log, produced(0)).flushing


def test_synced_offsets_are_confirmed_at_once(tmp_path: Path) -> None:
    log = open_log(tmp_path, flush_messages=1)
    append(log, batch(3))
    told: list[Exception | None] = []
    log.when_flushed(3, told.append)
    assert told == [None]


def test_appends_during_a_sync_are_served_together_by_the_next(
    tmp_path: Path, background: HeldBackground
) -> None:
    log = open_log(tmp_path, flush_messages=1, background=background)
    for _ in range(5):
        append(log, batch())
    assert len(background.waiting) == 1
    background.run_one()
    assert log.recovery_point == 1
    assert len(background.waiting) == 1
    background.run_one()
    assert log.recovery_point == 5
    assert background.waiting == []


def test_a_first_sync_covers_the_directory_and_its_texts(tmp_path: Path, synced: list[str]) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    log.flush(NOW_MS)
    assert synced == [
        "00000000000000000000.log",
        "partition.metadata",
        "leader-epoch-checkpoint",
        "orders-0",
        tmp_path.name,  # this directory has the name of the partition's directory in it
    ]
    synced.clear()
    append(log, batch())
    log.flush(NOW_MS)
    assert synced == ["00000000000000000000.log"]


def test_a_rolled_segment_is_synced_with_its_indexes_and_snapshot(tmp_path: Path, synced: list[str]) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    log.roll(NOW_MS)
    stem = "00000000000000000000"
    assert synced[:5] == [
        f"{stem}.log",
        f"{stem}.index",
        f"{stem}.timeindex",
        f"{stem}.txnindex",
        "00000000000000000001.snapshot",
    ]
    assert "00000000000000000001.log" not in synced


def test_flush_ms_counts_from_the_last_flush(tmp_path: Path) -> None:
    log = open_log(tmp_path, flush_ms=1000)
    append(log, batch())
    log.flush_if_due(NOW_MS + 999)
    assert log.recovery_point == 0
    log.flush_if_due(NOW_MS + 1000)
    assert log.recovery_point == 1
    append(log, batch())
    log.flush_if_due(NOW_MS + 1999)
    assert log.recovery_point == 1
    log.flush_if_due(NOW_MS + 2000)
    assert log.recovery_point == 2


def test_synced_records_are_not_synced_again(tmp_path: Path, synced: list[str]) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    log.flush(NOW_MS)
    synced.clear()
    log.flush(NOW_MS)
    assert synced == []
    log.close()
    assert "00000000000000000000.log" not in synced


def test_a_failed_sync_ends_the_log_and_is_reported(tmp_path: Path, background: HeldBackground) -> None:
    log = open_log(tmp_path, flush_messages=1, background=background)
    append(log, batch())
    told: list[Exception | None] = []
    log.when_flushed(1, told.append)

    def fail(operation: str, _path: str, _size: int) -> None:
        if operation == "sync":
            raise OSError(5, "Input/output error")

    files.set_fault_hook(fail)
    try:
        background.run_all()
    finally:
        files.set_fault_hook(None)
    assert log.recovery_point == 0
    assert isinstance(told[0], OSError)
    with pytest.raises(KafkaError) as refused:
        append(log, batch())
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR
    log.when_flushed(1, told.append)
    assert isinstance(told[1], OSError)
    assert len(log.read(0, 1000, upper_bound=1).records) > 0


def test_a_clean_stop_syncs_the_rest(tmp_path: Path, background: HeldBackground, synced: list[str]) -> None:
    log = open_log(tmp_path, background=background)
    append(log, batch(3))
    log.close()
    assert log.recovery_point == 3
    assert {
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000003.snapshot",
        "orders-0",
    } <= set(synced)


def test_a_stop_that_isnt_clean_syncs_and_writes_nothing(tmp_path: Path, synced: list[str]) -> None:
    log = open_log(tmp_path)
    append(log, batch(3))
    log.close(clean=False)
    assert synced == []
    assert not list((tmp_path / "orders-0").glob("*.snapshot"))


def test_a_segment_that_is_synced_already_is_not_synced_with_the_next(
    tmp_path: Path, synced: list[str]
) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        append(log, batch())
        synced.clear()
        log.roll(NOW_MS)
    stem = "00000000000000000002"
    assert synced == [
        f"{stem}.log",
        f"{stem}.index",
        f"{stem}.timeindex",
        f"{stem}.txnindex",
        "00000000000000000003.snapshot",
        "partition.metadata",
        "orders-0",
    ]
    assert log.recovery_point == 3


def test_a_clean_stop_calls_waiters_for_a_sync(tmp_path: Path, background: HeldBackground) -> None:
    log = open_log(tmp_path, background=background)
    append(log, batch())
    told: list[Exception | None] = []
    log.when_flushed(1, told.append)
    log.close()
    assert told == [None]


def test_a_waiter_that_fails_does_not_keep_others_from_being_called(
    tmp_path: Path, background: HeldBackground
) -> None:
    log = open_log(tmp_path, flush_messages=1, background=background)
    append(log, batch())
    told: list[Exception | None] = []

    def fail(_failure: Exception | None) -> None:
        raise RuntimeError("its connection is gone")

    log.when_flushed(1, fail)
    log.when_flushed(1, told.append)
    append(log, batch())
    log.when_flushed(2, told.append)
    background.run_all()
    assert told == [None, None]


@pytest.mark.parametrize(
    "end",
    [
        lambda log: log.delete("0" * 32),
        lambda log: log.close(clean=False),
        lambda log: log.give_up(OSError(5, "Input/output error")),
        lambda log: log.truncate_to(0, NOW_MS),
    ],
    ids=["deleted", "closed", "given up", "truncated"],
)
def test_waiters_for_an_impossible_sync_are_called_at_once(
    tmp_path: Path, background: HeldBackground, end: Callable[[PartitionLog], object]
) -> None:
    log = open_log(tmp_path, flush_messages=1, background=background)
    append(log, batch())
    told: list[Exception | None] = []
    log.when_flushed(1, told.append)
    end(log)
    assert [type(failure) for failure in told] == [OSError]
    background.run_all()
    assert len(told) == 1


def test_a_closed_log_keeps_no_waiters(tmp_path: Path, background: HeldBackground) -> None:
    log = open_log(tmp_path, background=background)
    append(log, batch())
    log.close(clean=False)
    told: list[Exception | None] = []
    log.when_flushed(1, told.append)
    assert isinstance(told[0], OSError)


def test_a_clean_stop_whose_sync_fails_tells_the_waiters(tmp_path: Path, background: HeldBackground) -> None:
    log = open_log(tmp_path, background=background)
    append(log, batch())
    told: list[Exception | None] = []
    log.when_flushed(1, told.append)

    def fail(operation: str, _path: str, _size: int) -> None:
        if operation == "sync":
            raise OSError(5, "Input/output error")

    files.set_fault_hook(fail)
    try:
        with pytest.raises(KafkaError):
            log.close()
    finally:
        files.set_fault_hook(None)
    assert isinstance(told[0], OSError)


def test_a_broken_invariant_in_a_waiter_is_raised_once_all_have_been_called(
    tmp_path: Path, background: HeldBackground
) -> None:
    def break_down(failure: Exception | None) -> None:
        raise BrokenInvariantError("can't be")

    log = open_log(tmp_path, flush_messages=1, background=background)
    append(log, batch())
    told: list[Exception | None] = []
    log.when_flushed(1, break_down)
    log.when_flushed(1, told.append)
    with pytest.raises(BrokenInvariantError):
        background.run_all()
    assert told == [None]
    log.when_flushed(1, told.append)
    assert told == [None, None]


def test_a_flush_that_is_wanted_at_once_comes_before_other_logs_that_want_one_later(
    tmp_path: Path, background: HeldBackground
) -> None:
    log, other = (open_log(tmp_path / name, background=background) for name in ("a", "b"))
    append(log, batch())
    log.flush(NOW_MS, at_once=True)
    append(log, batch())
    log.flush(NOW_MS, at_once=True)
    append(other, batch())
    other.flush(NOW_MS)
    assert len(background.waiting) == 3
    background.run_one()
    assert log.flushing.running
    background.run_one()
    assert (log.recovery_point, other.recovery_point) == (2, 0)
    assert not log.flushing.running
    background.run_all()
    assert (log.recovery_point, other.recovery_point) == (2, 1)


def test_a_waiter_is_inserted_without_a_copy_of_all_the_others() -> None:
    flushing = Flushing()
    told: list[int] = []
    for number in range(3):
        flushing.wait(3 - number, lambda _failure, number=number: told.append(number))  # type: ignore[misc]
        if number == 0:
            first = flushing._waiters
    assert flushing._waiters is first
    flushing.synced_to(2)
    assert told == [1, 2]
    flushing.wait(4, lambda _failure: told.append(3))
    flushing.synced_to(4)
    assert told == [1, 2, 0, 3]
