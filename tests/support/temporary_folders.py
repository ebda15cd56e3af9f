"""Where and how long tests have temporary folders: a pytest plugin.

A node syncs its files at every stop, and there are thousands of nodes. On a disk the tests would mostly wait for it,
and fail if it stalls. So the folders are in memory if the machine has enough. What a test finds in its folder doesn't
depend on where it is.
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
"""Linux has a file system in memory there. On other systems nothing has that name."""

NEEDED_BYTES = 4 << 30
"""Several times what a whole run holds at once: less than half a GiB, most of it Apache Kafka's."""

_NAME_LENGTH = 30  # pytest's own limit, which keeps paths short

_folder = pytest.StashKey[Path]()
_failed = pytest.StashKey[bool]()

_numbers = count()


def room_bytes(folder: str) -> int:
    """Return how many bytes may still be written there, or 0 if unknown."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize if os.access(folder, os.W_OK | os.X_OK) else 0


def keep_in_memory(folder: str = MEMORY, needed_bytes: int = NEEDED_BYTES) -> None:
    """Let `tempfile` make this process's files in memory; pytest follows `tempfile`. TMPDIR and pytest's own option
    take precedence."""
    if "TMPDIR" not in os.environ and room_bytes(folder) >= needed_bytes:
        tempfile.tempdir = folder


def make_folder(base: Path, test_name: str) -> Path:
    """Make a folder with a name that no other test of this process ever has, without looking at existing folders. A
    path shows which node it belongs to, and some are named after their test is over."""
    path = base / f"{re.sub(r'[^A-Za-z0-9_]', '_', test_name)[:_NAME_LENGTH]}{next(_numbers)}"
    path.mkdir(mode=0o700)
    return path


def pytest_configure() -> None:
    keep_in_memory()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the test's own, which is removed after it unless it failed.

    It replaces pytest's, which is removed while nodes of fixtures that don't name it still run there.
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
