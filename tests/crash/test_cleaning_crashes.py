"""A cleaner that is killed at any operation on its files leaves a log in which nothing is missing.

`CRASH_POINTS=all` tries every operation, otherwise a few are drawn.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.cleaning.plan import CleaningPlan
from tests.support.cleaning import clean_log
from tests.support.compacted_history import CompactedHistory
from tests.support.killing import WRITES, Killer, run

WANTED = os.environ.get("CRASH_POINTS", "25")
SEEDS = (4, 5)


@pytest.fixture(autouse=True)
def page_cache_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _descriptor: None)


@pytest.fixture(params=SEEDS)
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CompactedHistory]:
    """Some passes have been over it, and much was written since."""
    history = CompactedHistory(tmp_path / "before", random.Random(request.param))
    while history.log.log_end_offset < 400 or not _worth_it(history):
        history.step()
    yield history
    history.log.close(clean=False)


def _worth_it(history: CompactedHistory) -> bool:
    """Whether the next pass has something to merge, in more than one group."""
    chance = history.chance
    plan = _whole_plan(history)
    history.chance = chance
    sizes = [segment.log_bytes for segment in plan.segments]
    return (
        plan.first_dirty_offset + 50 < plan.first_uncleanable_offset and len(sizes) > 7 and min(sizes) < 200
    )


def _whole_plan(history: CompactedHistory) -> CleaningPlan:
    history.chance = random.Random(3)
    return history.plan()


def _opened(history: CompactedHistory, path: Path, *, clean: bool) -> CompactedHistory:
    """The history, going on in another directory."""
    again = CompactedHistory.__new__(CompactedHistory)
    again.__dict__.update(history.__dict__)
    again.directory = path
    again.log = again.opened(clean=clean, recovery_point=history.log.log_end_offset)
    return again


def _copied(history: CompactedHistory, path: Path) -> CompactedHistory:
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(history.directory, path)
    return _opened(history, path, clean=False)


def _killed(history: CompactedHistory, path: Path, at: int, torn: bool) -> Killer:
    copied = _copied(history, path)
    plan = _whole_plan(copied)
    return run(lambda: clean_log(copied.log, plan), at=at, torn=torn)


def _check_and_clean_again(history: CompactedHistory, path: Path, *, clean_stop: bool) -> None:
    again = _opened(history, path, clean=clean_stop)
    names = [name.name for name in Path(again.log.directory).iterdir()]
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert again.log.log_end_offset == history.log.log_end_offset
    assert again.log.leader_epochs.entries == history.log.leader_epochs.entries
    plan = _whole_plan(again)
    # some segments may be cleaned, though the checkpoint doesn't say so
    again.first_dirty = plan.first_uncleanable_offset
    again.check()
    again.first_dirty = clean_log(again.log, plan).first_dirty_offset
    again.check()
    again.check_nothing_superseded_is_left()
    again.log.close(clean=False)


def _deaths(work: Callable[[], object], torn: bool) -> list[int]:
    operations = run(work).operations
    every = [at for at, name in enumerate(operations, 1) if not torn or name in WRITES]
    if WANTED == "all":
        return every
    return sorted(random.Random(1).sample(every, min(len(every), int(WANTED))))


@pytest.mark.parametrize("torn", [False, True])
def test_a_cleaner_killed_at_any_operation_loses_nothing(
    history: CompactedHistory, tmp_path: Path, torn: bool
) -> None:
    path = tmp_path / "data"
    copied = _copied(history, path)
    plan = _whole_plan(copied)
    for at in _deaths(lambda: clean_log(copied.log, plan), torn):
        killer = _killed(history, path, at, torn)
        try:
            _check_and_clean_again(history, path, clean_stop=at % 2 == 0)
        except BaseException as failure:
            failure.add_note(f"killed at operation {at}: {killer.name}")
            raise


def test_a_start_that_is_killed_while_it_finishes_a_swap_loses_nothing(
    history: CompactedHistory, tmp_path: Path
) -> None:
    path = tmp_path / "data"
    copied = _copied(history, path)
    plan = _whole_plan(copied)
    operations = run(lambda: clean_log(copied.log, plan)).operations
    renames = [at for at, name in enumerate(operations, 1) if name == "rename"]
    chance = random.Random(2)
    for at in renames if WANTED == "all" else chance.sample(renames, 10):
        first = _killed(history, path, at, False)
        again = chance.randint(1, 40)
        second = run(lambda: _opened(history, path, clean=True), at=again)
        try:
            _check_and_clean_again(history, path, clean_stop=True)
        except BaseException as failure:
            failure.add_note(f"killed at {at}: {first.name}; then at {again}: {second.name}")
            raise
