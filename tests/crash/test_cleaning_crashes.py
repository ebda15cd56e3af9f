"""A cleaner that is killed at any operation on its files leaves a log in which nothing is missing.

`CRASH_POINTS=all` tries every operation, otherwise a few are drawn.
"""

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.cleaning.plan import CleaningPlan
from storage.files import Files
from tests.simulation.history import History
from tests.simulation.virtual_disk import VirtualDisk
from tests.simulation.virtual_files import MachineDied, VirtualFiles
from tests.support.cleaning import clean_log
from tests.support.compacted_history import CompactedHistory
from tests.support.disk import files
from tests.support.killing import WRITES, Killer, run
from tests.support.partition_logs import NOW_MS

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


def _opened(history: CompactedHistory, path: Path, *, clean: bool, disk: Files = files) -> CompactedHistory:
    """The history, going on in another directory."""
    again = CompactedHistory.__new__(CompactedHistory)
    again.__dict__.update(history.__dict__)
    again.directory = path
    again.log = again.opened(clean=clean, recovery_point=history.log.log_end_offset, disk=disk)
    return again


def _copied(history: CompactedHistory, path: Path) -> CompactedHistory:
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(history.directory, path)
    return _opened(history, path, clean=False)


def _killed(history: CompactedHistory, path: Path, at: int, torn: bool) -> Killer:
    copied = _copied(history, path)
    plan = _whole_plan(copied)
    return run(lambda: clean_log(copied.log, plan), at=at, torn=torn)


def _check_and_clean_again(
    history: CompactedHistory, path: Path, *, clean_stop: bool, disk: Files = files
) -> None:
    again = _opened(history, path, clean=clean_stop, disk=disk)
    names = disk.list_directory(again.log.directory)
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


def test_a_power_loss_at_any_operation_loses_nothing(history: CompactedHistory) -> None:
    path = Path("/logs")
    operations = _cleaned_on(_machine(history), history, path).operations
    for at in range(1, operations) if WANTED == "all" else random.Random(4).sample(range(1, operations), 40):
        disk = _machine(history)
        with contextlib.suppress(MachineDied):
            _cleaned_on(disk, history, path, die_at=at)
        disk.lose_power(random.Random(at))
        try:
            _check_and_clean_again(history, path, clean_stop=False, disk=_files_of(disk))
        except BaseException as failure:
            failure.add_note(f"power lost before operation {at}")
            raise


def _machine(history: CompactedHistory) -> VirtualDisk:
    """A disk that has the log for sure."""
    disk = VirtualDisk()
    directory = "/logs/" + os.path.basename(history.log.directory)
    made = _files_of(disk)
    made.make_directory("/logs")
    made.make_directory(directory)
    for source in Path(history.log.directory).iterdir():
        made.write_whole(f"{directory}/{source.name}", source.read_bytes())
    disk.keep_all()
    return disk


def _files_of(disk: VirtualDisk) -> VirtualFiles:
    return VirtualFiles(disk, History(lambda: 0.0), lambda: NOW_MS)


def _cleaned_on(
    disk: VirtualDisk, history: CompactedHistory, path: Path, *, die_at: int = -1
) -> VirtualFiles:
    doomed = _files_of(disk)
    doomed.die_at = die_at
    again = _opened(history, path, clean=False, disk=doomed)
    clean_log(again.log, _whole_plan(again))
    return doomed
