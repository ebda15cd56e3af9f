"""The workers of one run share the compiling of the tests: a pytest plugin.

If nothing is compiled yet, pytest rewrites the assertions of every test file, which takes seconds. All workers collect
all files in the same order, so each would rewrite what its neighbours are rewriting at that moment. Here each worker
starts at another place in the list. Once it comes round, it finds the others' results in `__pycache__`.

That may take a minute without any output, so a line every ten seconds shows the progress.
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
    """Return the files in this worker's order: round the list, from its own place."""
    place = len(files) * worker // workers
    return [*files[place:], *files[:place]]


def test_files(config: pytest.Config) -> list[Path]:
    """Return the test files in the folders that this run collects; none if it was told single tests."""
    folders = [config.invocation_params.dir / argument for argument in config.args]
    return sorted(path for folder in folders if folder.is_dir() for path in folder.rglob("test_*.py"))


def import_files(files: Sequence[Path], root: Path) -> None:
    """Import the files. What can't be imported is left to the collection, which reports it."""
    for file in files:
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


@pytest.hookimpl(wrapper=True, trylast=True)  # within pytest's own handling of warnings
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    shared: dict[str, object] = getattr(session.config, "workerinput", {})
    workers = int(str(shared.get("workercount", 1)))
    if workers > 1 and not sys.dont_write_bytecode:
        number = int(str(shared["workerid"]).removeprefix("gw"))
        files = beginning_at(test_files(session.config), number % workers, workers)
        import_files(files, session.config.rootpath)
    return (yield)


class Collecting:
    """The progress of a whole run's collection, in its controller."""

    def __init__(self, files: Sequence[Path], workers: int, say: Any) -> None:
        self._files = files
        self._workers = workers
        self._say = say
        self._began_s = time.monotonic()
        self._collected = 0
        self._over = threading.Event()

    def begin(self) -> None:
        """Start a thread: the controller itself waits for its workers."""
        self._say(f"{self._workers} workers collect {len(self._files)} files of tests")
        threading.Thread(target=self._go_on, daemon=True).start()

    def _go_on(self) -> None:
        while not self._over.wait(TOLD_EVERY_S):
            self.tell()

    def tell(self) -> None:
        """Print how far the workers are."""
        took_s = time.monotonic() - self._began_s
        told = f"{self._collected} of {self._workers} workers have collected their tests"
        if not sys.dont_write_bytecode:
            compiled = sum(map(is_compiled, self._files))
            told = f"{compiled} of {len(self._files)} files are compiled, {told}"
        self._say(f"{took_s:.0f} s: {told}")

    def collected(self) -> None:
        """Note that a worker is done."""
        self._collected += 1
        if self._collected >= self._workers:
            self.end()

    def end(self) -> None:
        """Stop the messages."""
        self._over.set()


def is_compiled(file: Path) -> bool:
    """Return True if pytest has rewritten the file, now or in an earlier run."""
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
    """Stop, whatever became of the workers."""
    collecting = config.stash.get(_COLLECTING, None)
    if collecting is not None:
        collecting.end()
