"""A rule for folders of tests that run at each save: no test starts a process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="module")  # one per test would take a tenth of a small test's time
def refuse_processes() -> Iterator[None]:
    """For a conftest to import. Tests that need a process belong in `tests/process`."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a test that starts a process belongs to tests/process")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subprocess, "Popen", refuse)
        yield
