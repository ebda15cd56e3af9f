"""A start that finds an unfinished swap. A power loss leaves each name that wasn't synced as it was or as it was to be,
independently of the others."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from protocol.records.batch import build_batch
from storage.cleaning.cleaner import clean
from storage.cleaning.plan import CleanedSegment
from storage.files import SEGMENT_SUFFIXES
from storage.log.partition_log import PartitionLog
from tests.support.cleaning import plan_of
from tests.support.disk import files
from tests.support.killing import Killed
from tests.support.partition_logs import NOW_MS, append, end_transaction, file, ints, names
from tests.unit.storage.cleaning.compacted_logs import closed, compacted_log, offsets, stored

SUBSETS = [
    tuple(suffix for suffix, chosen in zip(SEGMENT_SUFFIXES, choice, strict=True) if chosen)
    for choice in product((False, True), repeat=4)
]
COMPACTED = [b"1", b"10", b"30", b"40", b"50"]
INDEXED: dict[str, Any] = {"index_interval_bytes": 1}


def put_at(log: PartitionLog, *records: tuple[str, int], **options: Any) -> None:
    rows = [(NOW_MS + after_ms, key.encode(), str(after_ms).encode(), ()) for key, after_ms in records]
    append(log, build_batch(rows, **options))


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Return a log with two closed segments that become one. Cleaning drops the newest record of a batch, so times and
    positions both change."""
    log = compacted_log(tmp_path, **INDEXED)
    put_at(log, ("a", 1), ("x", 9))
    put_at(log, ("b", 10), ("x", 19))
    put_at(log, ("a", 20), ("x", 29), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, commit=False)
    closed(log)
    put_at(log, ("c", 30), ("x", 39))
    put_at(log, ("d", 40), ("x", 49))
    closed(log)
    put_at(log, ("x", 50))
    return closed(log)


def swapped(log: PartitionLog, *, bound: int | None = None) -> CleanedSegment:
    plan = plan_of(log, keep_txn_index=True, first_uncleanable=bound)
    [cleaned] = [step for step in clean(files, plan) if isinstance(step, CleanedSegment)]
    assert len(cleaned.replaced) == (3 if bound is None else 1)
    return cleaned


def check(log: PartitionLog) -> None:
    """Check that the files beside each `.log` belong to it."""
    assert not [name for name in names(log) if name.endswith((".swap", ".cleaned"))]
    found = offsets(log)
    assert found == sorted(set(found))
    for segment in log.segments:
        base = segment.base_offset
        lasts = {position: header.last_offset for position, header in segment.batches()}
        times = {header.last_offset: header.max_timestamp for _position, header in segment.batches()}
        for offset, position in ints(file(log, base, ".index").read_bytes(), (4, 4)):
            assert lasts[position] == base + offset
        entries = ints(file(log, base, ".timeindex").read_bytes(), (8, 4))
        assert [times[base + offset] for _at, offset in entries] == [at for at, _offset in entries]
        if times and max(times.values()) >= NOW_MS:
            assert entries[-1][0] == max(times.values())


def reopened(log: PartitionLog, policy: str, *, clean: bool = False) -> PartitionLog:
    path = Path(log.directory).parent
    end = log.log_end_offset  # everything counts as synced, so a start believes whatever it doesn't doubt
    return compacted_log(path, clean=clean, recovery_point=end, cleanup_policy=frozenset({policy}), **INDEXED)


def values(log: PartitionLog) -> list[bytes | None]:
    """Return the values of all data records."""
    return [record.value for header, records in stored(log) if not header.is_control for record in records]


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("rest", ["cleaned", "lost"])
@pytest.mark.parametrize("subset", SUBSETS)
def test_the_old_files_still_exist(
    log: PartitionLog, subset: tuple[str, ...], rest: str, alone: bool, policy: str
) -> None:
    """With `alone`, the segment that is swapped in replaces a single one."""
    swapped(log, bound=log.base_offsets[1] if alone else None)
    before = values(log)
    log.close(clean=False)
    for suffix in SEGMENT_SUFFIXES:
        path = file(log, 0, suffix + ".cleaned")
        if suffix in subset:
            path.rename(file(log, 0, suffix + ".swap"))
        elif rest == "lost":
            path.unlink()
    again = reopened(log, policy)
    check(again)
    after = [b"1", b"10", b"19", *before[-5:]] if alone else COMPACTED
    is_finished = ".log" in subset and (rest == "lost" or len(subset) == len(SEGMENT_SUFFIXES))
    assert values(again) == (after if is_finished else before)
    again.close()
    check(reopened(log, policy, clean=True))


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("others", ["there", "going", "gone"])
@pytest.mark.parametrize("beside", ["new", "old", "nothing"])
@pytest.mark.parametrize("subset", SUBSETS)
def test_where_names_have_changed(
    log: PartitionLog, subset: tuple[str, ...], beside: str, others: str, policy: str
) -> None:
    """`subset` are still swaps. The old file at the base may be beside them. The others have their names, or all but
    the `.log` are lost."""
    cleaned = swapped(log)
    log.close(clean=False)
    for base in cleaned.replaced[1:]:
        for suffix in SEGMENT_SUFFIXES:
            path = file(log, base, suffix)
            if others == "going" and path.exists():
                path.rename(f"{path}.deleted")
            elif others == "gone":
                path.unlink(missing_ok=True)
    for suffix in SEGMENT_SUFFIXES:
        path, new = file(log, 0, suffix), file(log, 0, suffix + ".cleaned")
        if suffix in subset:
            if beside != "old" or suffix == ".log":
                path.rename(f"{path}.deleted")
            new.rename(f"{path}.swap")
        elif suffix == ".log" or beside == "new":
            new.replace(path)
        else:
            path.unlink(missing_ok=True)
            new.unlink()
    again = reopened(log, policy)
    check(again)
    assert values(again) == COMPACTED
    again.close()
    check(reopened(log, policy, clean=True))


def test_a_swap_whose_old_segment_is_renamed_stays_whatever_lies_below(log: PartitionLog) -> None:
    swapped(log)
    log.close(clean=False)
    for suffix in SEGMENT_SUFFIXES:
        path = file(log, 0, suffix)
        if path.exists():
            path.rename(f"{path}.deleted")
        file(log, 0, suffix + ".cleaned").rename(f"{path}.swap")
    # this file is from an earlier pass that couldn't remove it
    file(log, 0, ".index.cleaned").write_bytes(b"")
    again = reopened(log, "compact")
    check(again)
    assert values(again) == COMPACTED


@pytest.mark.parametrize("kill_at", range(8))
def test_a_split_that_is_undone_stays_so_where_the_start_is_killed(log: PartitionLog, kill_at: int) -> None:
    swapped(log)
    before = values(log)
    log.close(clean=False)
    for suffix in (".log", ".timeindex", ".txnindex"):
        file(log, 0, suffix + ".cleaned").rename(file(log, 0, suffix + ".swap"))
    left = [kill_at]

    def kill(operation: str, path: str, size: int) -> None:
        if operation == "remove":
            left[0] -= 1
            if left[0] < 0:
                raise Killed

    files.set_fault_hook(kill)
    try:
        reopened(log, "compact").close(clean=False)
    except Killed:
        pass
    finally:
        files.set_fault_hook(None)
    again = reopened(log, "compact")
    check(again)
    assert values(again) == before
