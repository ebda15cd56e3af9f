"""Workers of one run compile the tests together, each a part of them: a plugin of pytest's.

Where nothing is compiled yet, pytest rewrites the assertions of every test file, for seconds. All workers collect all
files, in one order, so that each would rewrite what its neighbours are rewriting at that moment. Here each begins at
another place of the list and finds, once round, what the others left in `__pycache__`.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest


def beginning_at(files: Sequence[Path], worker: int, workers: int) -> list[Path]:
    """The files as the worker of that number takes them, round from a place that is its own."""
    place = len(files) * worker // workers
    return [*files[place:], *files[:place]]


def test_files(config: pytest.Config) -> list[Path]:
    """Those in the folders that this run was told to collect; none where it was told single tests."""
    folders = [config.invocation_params.dir / argument for argument in config.args]
    return sorted(path for folder in folders if folder.is_dir() for path in folder.rglob("test_*.py"))


def import_files(files: Sequence[Path], root: Path) -> None:
    """What can't be imported is left to the collection, which tells of it."""
    for file in files:
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


@pytest.hookimpl(wrapper=True, trylast=True)  # amid pytest's own care for warnings
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    shared: dict[str, object] = getattr(session.config, "workerinput", {})
    workers = int(str(shared.get("workercount", 1)))
    if workers > 1 and not sys.dont_write_bytecode:
        number = int(str(shared["workerid"]).removeprefix("gw"))
        files = beginning_at(test_files(session.config), number % workers, workers)
        import_files(files, session.config.rootpath)
    return (yield)
