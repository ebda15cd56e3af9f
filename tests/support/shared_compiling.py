"""Workers of one run compile the tests together, each a part of them: a plugin of pytest's.

Where nothing is compiled yet, pytest rewrites the assertions of every test file, for seconds. All workers collect all
files, in one order, so that each would rewrite what its neighbours are rewriting at that moment. Here each begins at
another place of the list and finds, once round, what the others left in `__pycache__`.

Meanwhile nothing would be said, for a minute where nothing is compiled: how far they are is a line every ten seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Generator, Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytest

TOLD_EVERY_S = 10.0


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


class Collecting:
    """Of a whole run, as its controller tells of it."""

    def __init__(self, files: Sequence[Path], workers: int, say: Any) -> None:
        self._files = files
        self._workers = workers
        self._say = say
        self._began_s = time.monotonic()
        self._collected = 0
        self._over = threading.Event()

    def begin(self) -> None:
        """In a thread of its own: the controller waits for its workers."""
        self._say(f"{self._workers} workers collect {len(self._files)} files of tests")
        threading.Thread(target=self._go_on, daemon=True).start()

    def _go_on(self) -> None:
        while not self._over.wait(TOLD_EVERY_S):
            self.tell()

    def tell(self) -> None:
        """How far they are."""
        took_s = time.monotonic() - self._began_s
        told = f"{self._collected} of {self._workers} workers have collected their tests"
        if not sys.dont_write_bytecode:
            compiled = sum(map(is_compiled, self._files))
            told = f"{compiled} of {len(self._files)} files are compiled, {told}"
        self._say(f"{took_s:.0f} s: {told}")

    def collected(self) -> None:
        """A worker is done."""
        self._collected += 1
        if self._collected >= self._workers:
            self.end()

    def end(self) -> None:
        """Nothing is told any more."""
        self._over.set()


def is_compiled(file: Path) -> bool:
    """Whether pytest has rewritten it, now or in an earlier run."""
    stem = Path(cache_from_source(str(file))).stem
    return any(file.parent.joinpath("__pycache__").glob(f"{stem}-pytest-*.pyc"))


_COLLECTING = pytest.StashKey[Collecting]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[object]) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    files = test_files(config)
    if reporter is not None and files:
        config.stash[_COLLECTING] = Collecting(files, len(specs), reporter.write_line)
        config.stash[_COLLECTING].begin()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any) -> None:
    collecting = node.config.stash.get(_COLLECTING, None)
    if collecting is not None:
        collecting.collected()


@pytest.hookimpl
def pytest_unconfigure(config: pytest.Config) -> None:
    """Whatever became of the workers."""
    collecting = config.stash.get(_COLLECTING, None)
    if collecting is not None:
        collecting.end()
