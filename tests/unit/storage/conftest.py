from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disk import files


@pytest.fixture
def synced() -> Iterator[list[str]]:
    """Collect the names of files and directories in the order in which they are synced."""
    names: list[str] = []

    def hook(operation: str, path: str, _size: int) -> None:
        if operation in ("sync", "sync_directory"):
            names.append(Path(path).name)

    files.set_fault_hook(hook)
    yield names
    files.set_fault_hook(None)
