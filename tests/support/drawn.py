"""Tests that not every run plays. `@pytest.mark.one_run_in(3)` is for long tests of which a third says as much about a
change as all. The run's seed draws them. All are played with `DRAW=all`, and when `-k` or `--lf` picks tests."""

from __future__ import annotations

import os
import random

import pytest

EVERY_ONE = os.environ.get("DRAW", "") == "all"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "one_run_in(number): a run plays one in `number` of the tests with that number"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if EVERY_ONE or config.getoption("keyword") or config.getoption("lf", False):
        return
    marked: dict[int, dict[str, pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("one_run_in")
        if mark is not None:
            marked.setdefault(mark.args[0], {})[item.nodeid] = item
    chance = random.Random(str(config.getoption("randomly_seed", 0)))
    left_out: set[pytest.Item] = set()
    for number, of_number in sorted(marked.items()):
        drawn = chance.sample(sorted(of_number), -(-len(of_number) // number))
        left_out |= {item for node_id, item in of_number.items() if node_id not in drawn}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
