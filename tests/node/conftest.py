"""Whole nodes in this process: when a test has ended, its nodes are stopped and checked.

No other process is started: see `tests/unit`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

import tests.support.all_imported  # noqa: F401
from broker.server import Server
from tests.support.no_processes import refuse_processes
from tests.support.nodes import end_all, forget_all
from tests.support.whole_server import started

__all__ = ["refuse_processes"]


@pytest_asyncio.fixture(autouse=True)
async def _nodes() -> AsyncIterator[None]:
    forget_all()
    yield
    await end_all()


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> Server:
    """Start a node with default settings. Its clock stands still until a test moves it."""
    return await started(tmp_path)
