"""Calls that fail, once or each time."""

from __future__ import annotations

from typing import Any

import pytest


def fail(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, at: int = 1, error: Exception | None = None
) -> None:
    """Make a call fail with MemoryError or another error: call number `at`, or with 0 each."""
    calls = 0
    as_ever = getattr(owner, name)

    def failing(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if at in (0, calls):
            raise error or MemoryError
        return as_ever(*args, **options)

    monkeypatch.setattr(owner, name, failing)
