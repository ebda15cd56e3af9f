"""Chooses the tests that a run plays."""

from __future__ import annotations

import pytest

LONG = (
    "test_live_migration.py",
    "test_handover.py",
    "test_levels.py",
    "test_metadata_shell.py",
    "test_secured_nodes.py",
    "test_security_handover.py",
    "test_advertised_versions.py",
    "test_replayed_removals_handover.py",
    "test_compaction_handover.py",
    "test_joined_under_load.py",
    "test_groups_handover.py",
)
"""Modules whose tests take half a minute each; a run plays a third of them, `DRAW=all` all."""


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.name in LONG and item.get_closest_marker("one_run_in") is None:
        item.add_marker(pytest.mark.one_run_in(3))
