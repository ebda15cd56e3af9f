"""What tests of this folder may not do: start a process. Those that must stand in `tests/process`."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a test that starts a process belongs to tests/process")

    monkeypatch.setattr(subprocess, "Popen", refuse)
