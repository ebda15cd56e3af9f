"""What is visible before a restart is visible after it, by a few seeds; by as many as one likes with `make
restarts`."""

from __future__ import annotations

import os
from typing import Any

import pytest

from broker.controller.image import ClusterImage
from broker.coordination import hosted_shards
from tests.simulation.restarts import picture
from tests.simulation.restarts.simulated import play

SEEDS = range(1, int(os.environ.get("RESTARTED_SEEDS", "6")) + 1)
FORGETTING = 19
"""A seed in which an offset without a topic id is committed of a topic that had been deleted before."""


@pytest.mark.parametrize("seed", SEEDS)
def test_all_that_is_visible_before_a_restart_is_visible_after_it(seed: int) -> None:
    history = play(seed)
    assert history.anomalies == []
    assert history.counts["things compared"] > 0


def test_a_start_that_takes_history_for_now_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take_changes = ClusterImage.take_changes

    def with_history(self: ClusterImage) -> Any:
        changes = take_changes(self)
        return changes._replace(removed=[*changes.removed, *changes.bygone], bygone=[])

    monkeypatch.setattr(ClusterImage, "take_changes", with_history)
    monkeypatch.setattr(hosted_shards._Hosted, "is_new", property(lambda _: False, lambda *_: None))
    assert any("offsets of group" in each for each in play(FORGETTING).anomalies)


def test_pictures_differ_in_what_is_another_and_in_what_only_one_has() -> None:
    before = {"a": {"x": 1, "y": [1, 2]}, "b": 1, "d": 4}
    after = {"a": {"x": 1, "y": [1, 3]}, "c": 1, "d": 4}
    found = picture.differences(before, after)
    assert found == ["a:  y 1: 2 then 3", "b: : 1 then None", "c: : None then 1"]
