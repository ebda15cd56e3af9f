"""A rule for folders of tests that are run at each save: none of them starts a process."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="module")  # one of each test would take a tenth of what a small one does
def refuse_processes() -> Iterator[None]:
    """For a conftest to import: what needs a process stands in `tests/process`."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a test that starts a process belongs to tests/process")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subprocess, "Popen", refuse)
        yield
