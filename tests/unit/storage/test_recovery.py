"""A start after an unclean stop reads everything from the recovery point on again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from storage.log import segment_recovery
from storage.log.partition_log import AppendOrigin, PartitionLog
from tests.support.disk import files
from tests.support.partition_logs import (
    NOW_MS,
    HeldBackground,
    append,
    batch,
    batches,
    end_transaction,
    file,
    names,
    open_log,
    produced,
    values,
)


def killed(directory: Path, segments: int = 1, per_segment: int = 10) -> PartitionLog:
    """Return a log of some segments, as a killed process leaves it."""
    log = open_log(directory, background=HeldBackground())
    for at in range(segments * per_segment):
        if at and at % per_segment == 0:
            log.roll(NOW_MS)
        append(log, batch(values=[b"%d" % at], timestamp=NOW_MS + at), leader_epoch=1 + at // 7)
    return log


def reopened(directory: Path, recovery_point: int = 0, **options: object) -> PartitionLog:
    return open_log(directory, clean=False, recovery_point=recovery_point, **options)  # type: ignore[arg-type]


def test_all_appended_batches_are_there_again(tmp_path: Path) -> None:
    log = killed(tmp_path, segments=3)
    again = reopened(tmp_path)
    assert (again.log_start_offset, again.log_end_offset, again.base_offsets) == (0, 30, [0, 10, 20])
    assert list(batches(again)) == list(batches(log))
    assert again.leader_epochs.entries == log.leader_epochs.entries


def test_side_files_that_are_as_they_ought_to_be_arent_written_again(tmp_path: Path) -> None:
    killed(tmp_path, segments=2)
    reopened(tmp_path, index_interval_bytes=100)  # this process is killed, too, and has written nothing
    written: list[str] = []

    def note(operation: str, path: str, _size: int) -> None:
        if operation in ("append", "create", "truncate", "write_whole", "rename", "remove"):
            written.append(f"{operation} {Path(path).name}")

    files.set_fault_hook(note)
    try:
        again = reopened(tmp_path, index_interval_bytes=100)
    finally:
        files.set_fault_hook(None)
    assert again.log_end_offset == 20
    assert again.segments[0].offset_index.count > 0
    assert written == []


def test_appending_goes_on_where_the_log_ended(tmp_path: Path) -> None:
    killed(tmp_path)
    log = reopened(tmp_path)
    assert append(log, batch()).base_offset == 10


def test_the_recovery_point_stays_until_something_is_synced(tmp_path: Path) -> None:
    killed(tmp_path)
    assert reopened(tmp_path, recovery_point=4).recovery_point == 4
    assert reopened(tmp_path, recovery_point=99).recovery_point == 10


@pytest.mark.parametrize("left_over", [1, 11, 16, 60, 61, 70])
def test_a_torn_tail_is_cut(tmp_path: Path, left_over: int) -> None:
    log = killed(tmp_path)
    path = file(log, 0, ".log")
    whole = path.read_bytes()
    path.write_bytes(whole + batch(base_offset=10)[:left_over])
    log = reopened(tmp_path)
    assert log.log_end_offset == 10
    assert path.read_bytes() == whole


def flip_a_value(data: bytearray) -> None:
    data[-1] ^= 1


def zero_the_length(data: bytearray) -> None:
    data[8:12] = bytes(4)


def claim_a_huge_length(data: bytearray) -> None:
    data[8:12] = b"\x7f\xff\xff\xff"


def go_back_in_offsets(data: bytearray) -> None:
    data[0:8] = bytes(8)


def jump_out_of_the_segment(data: bytearray) -> None:
    data[0:8] = (2**40).to_bytes(8, "big")


def turn_into_an_unknown_format(data: bytearray) -> None:
    data[16] = 9


def look_like_an_old_format(data: bytearray) -> None:
    data[16] = 1


@pytest.mark.parametrize(
    "damage",
    [
        flip_a_value,
        zero_the_length,
        claim_a_huge_length,
        go_back_in_offsets,
        jump_out_of_the_segment,
        turn_into_an_unknown_format,
        look_like_an_old_format,
    ],
)
def test_the_log_ends_before_the_first_batch_that_doesnt_hold(
    tmp_path: Path, damage: Callable[[bytearray], None]
) -> None:
    log = killed(tmp_path)
    path = file(log, 0, ".log")
    stored = list(batches(log))
    bad = bytearray(stored[6])
    damage(bad)
    path.write_bytes(b"".join([*stored[:6], bad, *stored[7:]]))
    log = reopened(tmp_path)
    assert log.log_end_offset == 6
    assert list(batches(log)) == stored[:6]
    assert path.stat().st_size == sum(map(len, stored[:6]))


def test_segments_after_a_cut_are_dropped(tmp_path: Path) -> None:
    log = killed(tmp_path, segments=3)
    path = file(log, 10, ".log")
    path.write_bytes(path.read_bytes()[:-3])
    background = HeldBackground()
    log = reopened(tmp_path, background=background)
    assert (log.base_offsets, log.log_end_offset) == ([0, 10], 19)
    assert "00000000000000000020.log.deleted" in names(log)
    background.run_all()
    assert not [name for name in names(log) if name.startswith("00000000000000000020.")]
    assert append(log, batch()).base_offset == 19


def test_damage_below_the_recovery_point_is_not_looked_for(tmp_path: Path) -> None:
    log = killed(tmp_path, segments=2)
    path = file(log, 0, ".log")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert reopened(tmp_path, recovery_point=10).log_end_offset == 20


def test_the_segment_that_holds_the_recovery_point_is_read_from_its_first_byte(tmp_path: Path) -> None:
    log = killed(tmp_path, segments=2)
    path = file(log, 10, ".log")
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    assert reopened(tmp_path, recovery_point=15).log_end_offset == 10


def test_the_indexes_are_rebuilt_as_appending_made_them(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=200, background=HeldBackground())
    for at in range(40):
        append(log, batch(timestamp=NOW_MS + at))
    log.roll(NOW_MS)
    suffixes = (".index", ".timeindex")
    made = {suffix: file(log, 0, suffix).read_bytes() for suffix in suffixes}
    for suffix in suffixes:
        file(log, 0, suffix).write_bytes(b"nonsense" * 100)
    log = reopened(tmp_path, index_interval_bytes=200)
    assert {suffix: file(log, 0, suffix).read_bytes() for suffix in suffixes} == made
    assert log.offset_for_timestamp(NOW_MS + 17) is not None


def test_indexes_that_kafka_had_laid_out_in_full_length_are_trimmed(tmp_path: Path) -> None:
    log = killed(tmp_path)
    for suffix in (".index", ".timeindex"):
        path = file(log, 0, suffix)
        path.write_bytes(path.read_bytes() + bytes(4096))
    log = reopened(tmp_path)
    assert file(log, 0, ".index").stat().st_size == 0
    assert file(log, 0, ".timeindex").stat().st_size == 12


def test_producers_and_open_transactions_are_rebuilt(tmp_path: Path) -> None:
    log = open_log(tmp_path, background=HeldBackground())
    append(log, produced(0, 3, producer_id=1))
    append(log, produced(0, producer_id=2, transactional=True))
    end_transaction(log, False, producer_id=2)
    log.roll(NOW_MS)
    append(log, produced(3, producer_id=1))
    append(log, produced(1, producer_id=2, transactional=True))
    (tmp_path / "orders-0" / "00000000000000000005.snapshot").unlink()
    index = file(log, 0, ".txnindex").read_bytes()
    file(log, 0, ".txnindex").write_bytes(b"")
    log = reopened(tmp_path)
    log.update_high_watermark(log.log_end_offset)
    assert file(log, 0, ".txnindex").read_bytes() == index
    assert log.last_stable_offset == 6
    assert append(log, produced(3, producer_id=1)).base_offset == 5
    assert append(log, produced(4, producer_id=1)).base_offset == 7


def test_a_snapshot_spares_reading_earlier_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, produced(0, 3))
    log.roll(NOW_MS)
    append(log, produced(3))
    file(log, 0, ".log").write_bytes(b"")
    log = reopened(tmp_path, recovery_point=3)
    assert append(log, produced(3)).duplicate


def test_a_corrupt_snapshot_is_dropped_and_the_one_before_it_used(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(3):
        append(log, produced(sequence))
        log.roll(NOW_MS)
    path = file(log, 3, ".snapshot")
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    log = reopened(tmp_path, recovery_point=3)
    assert append(log, produced(2)).duplicate
    assert log.snapshots.offsets == [1, 2, 3]


def test_leader_epochs_are_learned_from_the_batches(tmp_path: Path) -> None:
    log = killed(tmp_path)
    epochs = log.leader_epochs.entries
    (tmp_path / "orders-0" / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    assert epochs == [(1, 0), (2, 7)]
    assert reopened(tmp_path).leader_epochs.entries == epochs


@pytest.mark.parametrize("text", ["", "0\n2\n1 0\n2 1", "0\n2\n1 0\n"])
def test_leader_epochs_that_the_power_cut_short_are_rebuilt_from_all_batches(
    tmp_path: Path, text: str
) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        append(log, batch(1), leader_epoch=1)
        log.roll(NOW_MS)
    for _ in range(9):
        append(log, batch(1), leader_epoch=1)
    append(log, batch(1), leader_epoch=2)
    epochs = log.leader_epochs.entries
    assert epochs == [(1, 0), (2, 12)]
    log.close(clean=False)
    (tmp_path / "orders-0" / "leader-epoch-checkpoint").write_text(text)
    # only because of this are the segments below the recovery point read again
    again = open_log(tmp_path, clean=False, recovery_point=5)
    assert again.leader_epochs.entries == epochs


def test_epochs_past_the_end_are_dropped(tmp_path: Path) -> None:
    log = killed(tmp_path)
    path = file(log, 0, ".log")
    path.write_bytes(b"".join(list(batches(log))[:5]))
    assert reopened(tmp_path).leader_epochs.entries == [(1, 0)]


def test_a_batch_larger_than_the_window_of_reading_is_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_recovery, "_WINDOW_BYTES", 100)
    log = open_log(tmp_path, background=HeldBackground())
    append(log, batch(value_bytes=10))
    append(log, batch(value_bytes=1000))
    append(log, batch(value_bytes=20))
    stored = list(batches(log))
    log = reopened(tmp_path)
    assert list(batches(log)) == stored


def test_a_log_of_kafkas_old_formats_is_refused_and_not_cut(tmp_path: Path) -> None:
    import zlib

    log = killed(tmp_path)
    path = file(log, 0, ".log")
    body = b"\1\0" + NOW_MS.to_bytes(8, "big") + b"\xff\xff\xff\xff" + b"\0\0\0\3old"
    entry = (
        bytes(7) + b"\x0a" + (len(body) + 4).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body
    )
    path.write_bytes(path.read_bytes() + entry)
    size = path.stat().st_size
    with pytest.raises(segment_recovery.UnsupportedFormatError):
        reopened(tmp_path)
    assert path.stat().st_size == size


# ---- the log start


def test_the_log_start_is_the_checkpoints(tmp_path: Path) -> None:
    killed(tmp_path)
    log = reopened(tmp_path, log_start_offset=4)
    assert (log.log_start_offset, log.high_watermark) == (4, 4)
    assert log.leader_epochs.entries == [(1, 4), (2, 7)]


def test_the_log_start_is_at_least_the_first_segments_base(tmp_path: Path) -> None:
    log = killed(tmp_path, segments=2)
    for name in names(log):
        if name.startswith("00000000000000000000."):
            (tmp_path / "orders-0" / name).unlink()
    assert reopened(tmp_path).log_start_offset == 10


def test_a_log_that_ends_before_its_start_starts_again_there(tmp_path: Path) -> None:
    killed(tmp_path)
    log = reopened(tmp_path, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset, log.base_offsets) == (50, 50, [50])
    assert append(log, batch()).base_offset == 50
    assert values(log) == [b"v" * 10]


def test_an_open_transaction_without_data_below_the_recovery_point_is_known(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, produced(0, transactional=True))
    log.roll(NOW_MS)
    append(log, batch(), origin=AppendOrigin.COORDINATOR)
    log = reopened(tmp_path, recovery_point=1)
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 0


def test_producers_of_deleted_segments_are_known_from_the_snapshot_at_the_first_one_left(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    append(log, produced(0))
    append(log, batch())
    log.roll(NOW_MS)
    append(log, batch())
    log.log_start_offset = 2
    log.apply_retention(NOW_MS)
    assert log.base_offsets == [2]

    again = reopened(tmp_path, log_start_offset=0)  # the checkpoint hasn't been written yet
    assert append(again, produced(0)).duplicate
    told = reopened(tmp_path, log_start_offset=2)
    assert not append(told, produced(0)).duplicate
