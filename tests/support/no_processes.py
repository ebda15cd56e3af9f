"""A rule for folders of tests that are run at each save: none of them starts a process."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def refuse_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a conftest to import: what needs a process stands in `tests/process`."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a test that starts a process belongs to tests/process")

    monkeypatch.setattr(subprocess, "Popen", refuse)
