"""Where tests have their temporary folders, and until when: a plugin of pytest's.

A node syncs its files at every stop, and there are thousands of nodes: on a disk the tests would mostly wait for it,
and fail where it stalls. So the folders are in memory, where a machine has room for them. What a test finds in its
folder doesn't depend on which of the two it is.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Generator
from itertools import count
from pathlib import Path

import pytest

MEMORY = "/dev/shm"
"""Linux has a file system in memory there; elsewhere there is nothing of that name."""

NEEDED_BYTES = 4 << 30
"""Several times what the whole run has at once: less than half a GiB, most of it Apache Kafka's."""

_NAME_LENGTH = 30  # pytest's own, so that paths stay short

_folder = pytest.StashKey[Path]()
_failed = pytest.StashKey[bool]()

_numbers = count()


def room_bytes(folder: str) -> int:
    """What may still be written there; 0 where that can't be known."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize if os.access(folder, os.W_OK | os.X_OK) else 0


def keep_in_memory(folder: str = MEMORY, needed_bytes: int = NEEDED_BYTES) -> None:
    """Of this process, all that `tempfile` makes; pytest makes its own where `tempfile` says. Who names another place,
    with TMPDIR or to pytest, is heeded."""
    if "TMPDIR" not in os.environ and room_bytes(folder) >= needed_bytes:
        tempfile.tempdir = folder


def make_folder(base: Path, test_name: str) -> Path:
    """A folder whose name no other test of this process ever has, found without a look at what else is there: a path
    says which node it is, and some are named after their test is over."""
    path = base / f"{re.sub(r'[^A-Za-z0-9_]', '_', test_name)[:_NAME_LENGTH]}{next(_numbers)}"
    path.mkdir(mode=0o700)
    return path


def pytest_configure() -> None:
    keep_in_memory()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the test's own, which goes with it unless it failed.

    In place of pytest's, which goes while fixtures that don't name it still have nodes running there.
    """
    path = make_folder(tmp_path_factory.getbasetemp(), request.node.name)
    request.node.stash[_folder] = path
    return path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_failed] = True
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    yield
    path = item.stash.get(_folder, None)
    if path is not None and not item.stash.get(_failed, False):
        shutil.rmtree(path, ignore_errors=True)
