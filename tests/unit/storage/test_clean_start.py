"""A start after a clean stop trusts side files, unless they are missing or contradict the log."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.log.partition_log import PartitionLog
from tests.support.disk import files
from tests.support.partition_logs import (
    NOW_MS,
    append,
    batch,
    batches,
    end_transaction,
    file,
    names,
    open_log,
    produced,
)


def stopped(directory: Path) -> PartitionLog:
    """Return a cleanly stopped log: two segments with aborted, committed and open transactions."""
    log = open_log(directory, index_interval_bytes=100)
    for _round in range(2):
        for producer_id in (1, 2):
            producer = log.producers.producers.get(producer_id)
            sequence = producer.last_sequence + 1 if producer else 0
            append(
                log, produced(sequence, 2, producer_id=producer_id, transactional=True, timestamp=NOW_MS + 5)
            )
        end_transaction(log, False, producer_id=1)
        end_transaction(log, True, producer_id=2)
        append(log, batch(3, timestamp=NOW_MS + 9))
        if not _round:
            log.roll(NOW_MS)
    append(log, produced(0, 2, producer_id=3, transactional=True, timestamp=NOW_MS + 20))
    append(log, batch(2, timestamp=NOW_MS + 30))
    log.close()
    return log


def reopened(directory: Path) -> PartitionLog:
    log = open_log(directory, index_interval_bytes=100)
    log.update_high_watermark(log.log_end_offset)
    return log


def picture(log: PartitionLog) -> dict[str, object]:
    """Return everything that a client could ask for."""
    fetched = log.read(0, 1 << 20, upper_bound=log.high_watermark, min_one_batch=True)
    return {
        "end": log.log_end_offset,
        "stable": log.last_stable_offset,
        "batches": list(batches(log)),
        "aborted": log.aborted_transactions(0, fetched),
        "by time": [log.offset_for_timestamp(NOW_MS + at) for at in range(40)],
        "max time": log.offset_of_max_timestamp(),
        "sequences": {p.producer_id: p.last_sequence for p in log.producers.producers.values()},
        "epochs": log.leader_epochs.entries,
    }


@pytest.fixture
def written() -> Iterator[list[str]]:
    """Collect the operations that change a file, in order."""
    changes: list[str] = []

    def note(operation: str, path: str, _size: int) -> None:
        if operation in ("append", "create", "truncate", "write_whole", "rename", "remove"):
            changes.append(f"{operation} {Path(path).name}")

    files.set_fault_hook(note)
    yield changes
    files.set_fault_hook(None)


def test_a_clean_stop_leaves_a_snapshot_at_the_log_end_and_ended_time_indexes(tmp_path: Path) -> None:
    log = stopped(tmp_path)
    assert names(log) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000000.txnindex",
        "00000000000000000009.index",
        "00000000000000000009.log",
        "00000000000000000009.snapshot",
        "00000000000000000009.timeindex",
        "00000000000000000009.txnindex",
        "00000000000000000022.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert int.from_bytes(file(log, 9, ".timeindex").read_bytes()[-12:-4], "big") == NOW_MS + 30


def test_a_clean_start_changes_no_file(tmp_path: Path, written: list[str]) -> None:
    stopped(tmp_path)
    written.clear()
    reopened(tmp_path)
    assert written == []


def test_a_clean_stop_and_start_without_an_append_change_no_file(tmp_path: Path, written: list[str]) -> None:
    stopped(tmp_path)
    written.clear()
    reopened(tmp_path).close()
    assert written == []


def test_everything_is_synced_by_a_clean_stop(tmp_path: Path) -> None:
    log = stopped(tmp_path)
    assert log.recovery_point == log.log_end_offset == 22
    assert reopened(tmp_path).recovery_point == 22


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
@pytest.mark.parametrize("base_offset", [0, 9])
def test_a_lost_index_is_noticed_and_rebuilt(tmp_path: Path, base_offset: int, suffix: str) -> None:
    log = stopped(tmp_path)
    before = picture(reopened(tmp_path))
    path = file(log, base_offset, suffix)
    content = path.read_bytes()
    path.unlink()
    assert picture(reopened(tmp_path)) == before
    assert path.read_bytes() == content


@pytest.mark.parametrize("offsets", [(22,), (9,), (9, 22)])
def test_a_lost_snapshot_is_noticed_and_rebuilt(tmp_path: Path, offsets: tuple[int, ...]) -> None:
    log = stopped(tmp_path)
    before = picture(reopened(tmp_path))
    for offset in offsets:
        file(log, offset, ".snapshot").unlink()
    again = reopened(tmp_path)
    assert picture(again) == before
    assert 22 in again.snapshots.offsets


def test_all_side_files_lost_at_once_are_rebuilt(tmp_path: Path) -> None:
    log = stopped(tmp_path)
    before = picture(reopened(tmp_path))
    for name in names(log):
        if not name.endswith(".log"):
            (Path(log.directory) / name).unlink()
    assert picture(reopened(tmp_path)) == before


def half(data: bytes) -> bytes:
    return data[: len(data) // 2 - 1]


def nothing(_data: bytes) -> bytes:
    return b""


def beyond(data: bytes) -> bytes:
    return data[:-4] + b"\x7f\xff\xff\xff"


def below_the_base(data: bytes) -> bytes:
    """Return the index with a last offset entry that lies below the base."""
    return data[:-8] + b"\xff\xff\xff\xff" + data[-4:]


def at_an_offset_below_the_base(data: bytes) -> bytes:
    """Return the index with a last time entry whose offset lies below the base."""
    return data[:-4] + b"\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        (".index", beyond),
        (".index", below_the_base),
        (".timeindex", at_an_offset_below_the_base),
        (".timeindex", nothing),
        (".timeindex", beyond),
        (".txnindex", half),
        (".snapshot", half),
        (".snapshot", nothing),
    ],
)
def test_a_side_file_that_contradicts_the_log_is_rebuilt(
    tmp_path: Path, suffix: str, damage: Callable[[bytes], bytes]
) -> None:
    log = stopped(tmp_path)
    before = picture(reopened(tmp_path))
    path = file(log, 9, suffix)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert picture(reopened(tmp_path)) == before
    if damage in (below_the_base, at_an_offset_below_the_base):
        assert path.read_bytes() == whole


def test_a_torn_tail_is_cut_even_though_the_stop_was_clean(tmp_path: Path) -> None:
    log = stopped(tmp_path)
    before = picture(reopened(tmp_path))
    path = file(log, 9, ".log")
    path.write_bytes(path.read_bytes() + b"half a batch")
    assert picture(reopened(tmp_path)) == before


@pytest.mark.parametrize("text", [None, "", "0\n7\n0 0\n", "nonsense"])
def test_lost_leader_epochs_are_rebuilt(tmp_path: Path, text: str | None) -> None:
    log = stopped(tmp_path)
    path = Path(log.directory) / "leader-epoch-checkpoint"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    assert reopened(tmp_path).leader_epochs.entries == [(0, 0)]
    assert path.read_text() == "0\n1\n0 0\n"


def test_kafkas_segment_without_a_transaction_index_is_read_once_and_then_known(
    tmp_path: Path, written: list[str]
) -> None:
    log = open_log(tmp_path)
    append(log, produced(0, transactional=True))
    end_transaction(log, True)
    log.close()
    # Kafka creates no empty ones
    file(log, 0, ".txnindex").unlink()
    written.clear()
    reopened(tmp_path)
    assert written == ["create 00000000000000000000.txnindex"]
    written.clear()
    reopened(tmp_path)
    assert written == []


def test_a_partition_that_never_knew_transactions_needs_no_transaction_index(
    tmp_path: Path, written: list[str]
) -> None:
    log = open_log(tmp_path)
    append(log, produced(0))
    log.close()
    written.clear()
    reopened(tmp_path)
    assert written == []
    assert not file(log, 0, ".txnindex").exists()


def test_a_stray_snapshot_goes_unless_it_is_the_clean_stops(tmp_path: Path) -> None:
    log = stopped(tmp_path)
    for offset in (3, 12):
        file(log, offset, ".snapshot").write_bytes(b"x")
    assert reopened(tmp_path).snapshots.offsets == [9, 22]
    assert not file(log, 12, ".snapshot").exists()


def test_a_tail_that_is_no_batch_at_all_is_cut(tmp_path: Path) -> None:
    log = stopped(tmp_path)
    before = picture(reopened(tmp_path))
    path = file(log, 9, ".log")
    path.write_bytes(path.read_bytes() + bytes(500))
    assert picture(reopened(tmp_path)) == before


def test_nonsense_inside_a_segment_whose_transaction_index_is_lost_is_cut(tmp_path: Path) -> None:
    log = stopped(tmp_path)
    stored = list(batches(reopened(tmp_path)))
    file(log, 9, ".txnindex").unlink()
    path = file(log, 9, ".log")
    data = bytearray(path.read_bytes())
    # this is the magic byte of the segment's first batch from offset 14 on
    at = sum(len(batch) for batch in stored if 9 <= int.from_bytes(batch[:8], "big") < 14)
    data[at + 16] = 7
    path.write_bytes(data)
    assert reopened(tmp_path).log_end_offset == int.from_bytes(data[at : at + 8], "big")
