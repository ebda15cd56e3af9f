"""A transaction index has no checksum. Whatever a disk does to one of its bytes, a read_committed reader gets what was
committed, and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from protocol.errors import Error, KafkaError
from protocol.records.batch import read_marker, walk_batches
from storage.indexes import AbortedTxn, TransactionIndex
from storage.log import aborted, reads
from storage.log.log_state import LogState
from storage.log.partition_log import PartitionLog
from tests.support.disk import files
from tests.support.partition_logs import append, batch, end_transaction, file, open_log, transactional

PRODUCERS = (1, 2, 3)
CONFIG = {"index_interval_bytes": 300}


def history(folder: Path, seed: int, steps: int = 60) -> set[int]:
    """Write a log with overlapping transactions in three segments, and stop it cleanly with none open. Return the
    offsets that a read_committed reader sees."""
    chance = Random(seed)
    log = open_log(folder, **CONFIG)
    seen: set[int] = set()
    sequences = dict.fromkeys(PRODUCERS, 0)
    written: dict[int, list[int]] = {}

    def end(producer_id: int, commit: bool) -> None:
        end_transaction(log, commit, producer_id=producer_id)
        offsets = written.pop(producer_id)
        if commit:
            seen.update(offsets)

    for step in range(steps):
        if step in (steps // 3, 2 * steps // 3):
            log.roll(0)
        choice = chance.random()
        if choice < 0.15:
            seen.add(append(log, batch(1)).base_offset)
        elif choice < 0.6 or not written:
            producer_id, count = chance.choice(PRODUCERS), chance.choice((1, 1, 3))
            at = append(
                log, transactional(sequences[producer_id], count, producer_id=producer_id)
            ).base_offset
            sequences[producer_id] += count
            written.setdefault(producer_id, []).extend(range(at, at + count))
        else:
            end(chance.choice([*written]), chance.random() < 0.4)
    for producer_id in [*written]:
        end(producer_id, chance.random() < 0.4)
    log.close()
    return seen


def committed(log: PartitionLog, max_bytes: int = 400) -> set[int]:
    """Return the offsets that a read_committed consumer sees. It drops aborted records up to the producer's marker."""
    seen: set[int] = set()
    dropped: set[int] = set()
    offset = 0
    while offset < log.log_end_offset:
        read = log.read(offset, max_bytes, log.log_end_offset, min_one_batch=True)
        listed = sorted(
            (each.first_offset, each.producer_id) for each in log.aborted_transactions(offset, read)
        )
        data = memoryview(read.records)
        for position, header in walk_batches(data):
            while listed and listed[0][0] <= header.last_offset:
                dropped.add(listed.pop(0)[1])
            if header.is_control:
                found = read_marker(data[position : position + header.size_bytes])
                if found is not None and not found.commit:
                    dropped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropped):
                seen.update(range(header.base_offset, header.last_offset + 1))
            offset = header.last_offset + 1
        dropped.clear()  # each fetch names its own aborted transactions
    return seen


def opened(folder: Path) -> PartitionLog:
    log = open_log(folder, **CONFIG)
    log.update_high_watermark(log.log_end_offset)
    return log


def believed(log: PartitionLog) -> Iterator[tuple[Path, bytes, bytes]]:
    """Yield files of transaction indexes, each with its content and the content with one flipped bit, if a start finds
    nothing wrong with that."""
    for slot, segment in enumerate(log.segments):
        path = Path(segment.txn_index.file.path)
        whole = path.read_bytes()
        following = log.segments.next_base_offset(slot)
        end_offset = log.log_end_offset if following is None else following
        for place in range(len(whole)):
            for bit in range(8):
                flipped = whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]
                path.write_bytes(flipped)
                if TransactionIndex(files, str(path)).is_sane(segment.base_offset, end_offset):
                    yield path, whole, flipped
        path.write_bytes(whole)


@pytest.mark.parametrize("seed", [3, 5])
def test_no_flipped_bit_shows_aborted_records_or_hides_committed_ones(tmp_path: Path, seed: int) -> None:
    expected = history(tmp_path, seed)
    log = opened(tmp_path)
    assert committed(log) == expected
    log.close()
    tried = [*believed(log)]
    assert len(tried) > 100
    for path, whole, flipped in tried:
        path.write_bytes(flipped)
        again = opened(tmp_path)
        assert committed(again) == expected, f"{path.name}: {flipped.hex()} for {whole.hex()}"
        again.close()
        path.write_bytes(whole)


def test_an_index_that_contradicts_the_batches_is_rebuilt_once_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = history(tmp_path, 0)
    log = opened(tmp_path)
    path, whole = Path(log.segments[1].txn_index.file.path), b""
    log.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:9] + bytes([whole[9] ^ 4]) + whole[10:])  # now the entry names another producer
    log = opened(tmp_path)
    assert committed(log) == expected
    assert committed(log) == expected
    log.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"{path} contradicts the batches: rebuilding it"
    ]
    assert path.read_bytes() == whole


def damaged(folder: Path) -> PartitionLog:
    """Open a log whose index has one flipped bit. The last batch but one is an abort."""
    log = open_log(folder)
    for sequence in range(10):
        append(log, transactional(sequence))
        end_transaction(log, sequence % 2 == 1)
    append(log, transactional(10))
    end_transaction(log, False)
    append(log, batch(1))
    log.close()
    path = file(log, 0, ".txnindex")
    whole = path.read_bytes()
    path.write_bytes(whole[:9] + bytes([whole[9] ^ 4]) + whole[10:])
    log = open_log(folder)
    log.update_high_watermark(log.log_end_offset)
    return log


def first_offsets(log: PartitionLog) -> list[int] | None:
    """Return the first offsets of aborted transactions, or None while they aren't known."""
    read = log.read(0, 1 << 20, log.log_end_offset, min_one_batch=True)
    try:
        return [each.first_offset for each in log.aborted_transactions(0, read)]
    except aborted.IndexInTheMakingError:
        return None


@pytest.mark.limit("storage.log.aborted.MOST_REMADE_AT_ONCE")
def test_an_index_is_rebuilt_bit_by_bit_and_reads_get_nothing_before_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aborted, "MOST_REMADE_AT_ONCE", 5)
    log = damaged(tmp_path)
    told = [first_offsets(log) for _ in range(6)]
    assert told == [None] * 4 + [[0, 4, 8, 12, 16, 20]] * 2
    assert [txn.producer_id for txn in log.segments[0].txn_index.records] == [7] * 6
    log.close()


@pytest.mark.parametrize("at", range(1, 5))
def test_an_index_being_rebuilt_includes_records_appended_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(aborted, "MOST_REMADE_AT_ONCE", 5)
    log = damaged(tmp_path)
    for _ in range(at):
        assert first_offsets(log) is None
    append(log, transactional(11))
    end_transaction(log, False)
    for _ in range(6):
        told = first_offsets(log)
    assert told == [0, 4, 8, 12, 16, 20, 23]
    log.close()


def test_an_index_being_rebuilt_forgets_records_cut_off_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aborted, "MOST_REMADE_AT_ONCE", 22)
    log = damaged(tmp_path)
    assert first_offsets(log) is None
    log.truncate_to(21, now_ms=0)  # this cuts the log before the marker
    append(log, batch(1))
    log.update_high_watermark(log.log_end_offset)
    for _ in range(6):
        told = first_offsets(log)
    assert told == [0, 4, 8, 12, 16]
    log.close()


def test_an_index_of_unreadable_batches_is_believed_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    history(tmp_path, 0)
    log = opened(tmp_path)

    def unreadable(*_: object) -> None:
        raise KafkaError(Error.CORRUPT_MESSAGE, "by its header")

    monkeypatch.setattr(aborted._Proof, "is_true", unreadable)
    read = log.read(0, 1 << 20, log.log_end_offset, min_one_batch=True)
    before = log.aborted_transactions(0, read)
    assert before
    assert log.aborted_transactions(0, read) == before
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(set(told)) == 2, "a line for each index"
    assert all("can't be checked against the batches" in line for line in told)
    log.close()


def test_appended_or_proven_entries_are_not_read_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = history(tmp_path, 0)
    proven: list[object] = []
    is_true = aborted._Proof.is_true

    def noted(proof: aborted._Proof, txn: AbortedTxn) -> bool:
        proven.append(txn)
        return is_true(proof, txn)

    monkeypatch.setattr(aborted._Proof, "is_true", noted)
    log = opened(tmp_path)
    records = sum(segment.txn_index.count for segment in log.segments)
    assert committed(log) == expected
    assert len(proven) == len(set(map(str, proven))) == records
    append(log, transactional(0, producer_id=9))
    end_transaction(log, False, producer_id=9)
    assert committed(log) == expected
    assert len(proven) == records
    log.close()


@pytest.mark.parametrize("offset", [10, 40])
def test_a_reader_of_proven_entries_does_not_wait_for_the_proof_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """For example, readers at the log's end don't wait: older entries may never be read again."""
    log = open_log(tmp_path)
    for sequence in range(20):
        append(log, transactional(sequence))
        end_transaction(log, False)
    append(log, batch(1))
    log.close()
    log = opened(tmp_path)
    asked: list[int] = []
    prove = reads.prove

    def noted(log_state: LogState, slot: int, fetch_offset: int, upper_bound: int) -> None:
        asked.append(fetch_offset)
        prove(log_state, slot, fetch_offset, upper_bound)

    monkeypatch.setattr(reads, "prove", noted)
    for _ in range(3):
        read = log.read(offset, 1, offset + 2, min_one_batch=True)
        log.aborted_transactions(offset, read, offset + 2)
    assert asked == [offset]
    assert log.segments[0].txn_index.unproven(0, 100, 100)
    log.close()


@pytest.mark.limit("storage.log.aborted.MOST_PROVEN_AT_ONCE")
def test_one_read_proves_a_few_entries_and_returns_less_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aborted, "MOST_PROVEN_AT_ONCE", 3)
    monkeypatch.setattr(reads, "MOST_PROVEN_AT_ONCE", 3)
    log = open_log(tmp_path)
    for sequence in range(20):
        append(log, transactional(sequence))
        end_transaction(log, False)
    log.close()
    log = opened(tmp_path)
    assert log.bound_by_aborted(0, 10) == 6  # this is behind the third marker
    bound = log.bound_by_aborted(10, 10)
    assert bound == 16
    read = log.read(10, 1 << 20, bound, min_one_batch=True)
    assert [each.first_offset for each in log.aborted_transactions(10, read, bound)] == [10, 12, 14]
    index = log.segments[0].txn_index
    assert [number for number, _ in index.unproven(0, 100, 100)] == [0, 1, 2, 3, *range(8, 20)]
    assert log.bound_by_aborted(10, 2) == 14
    index.believe(range(4, 16))
    assert (log.bound_by_aborted(10, 10), log.bound_by_aborted(12, 11)) == (30, 18)
    index.believe()
    assert log.bound_by_aborted(0, 10) == 20
    log.close()


@pytest.mark.parametrize("first_offset", [0, 1, 3, 7])
def test_a_transaction_older_than_the_log_does_not_discredit_its_entry(
    tmp_path: Path, first_offset: int
) -> None:
    log = open_log(tmp_path)
    append(log, batch(2))
    append(log, transactional(0, 1))
    append(log, batch(5))
    end_transaction(log, False)
    log.close()
    path = file(log, 0, ".txnindex")
    path.write_bytes(struct.pack(">hqqqq", 0, 7, first_offset, 8, 9))
    log = open_log(tmp_path, log_start_offset=5)
    log.update_high_watermark(9)
    read = log.read(5, 1 << 20, 9, min_one_batch=True)
    # offset 7 exists, but isn't the producer's; all other offsets are as good as the right one
    expected = [first_offset if first_offset < 5 else 2]
    assert [each.first_offset for each in log.aborted_transactions(5, read)] == expected
    log.close()
