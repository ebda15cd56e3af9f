"""Requests for share groups' offsets with long lists: others are served in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.network.turns import Turns
from tests.node.test_share_groups import offsets, sharing


async def test_topics_that_are_not_there_are_gone_over_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await sharing(tmp_path)
    turns: list[object] = []
    go_on = Turns._go_on

    def counted(self: Turns, *one: object) -> None:
        turns.append(one)
        go_on(self, *one)  # type: ignore[arg-type]

    monkeypatch.setattr(Turns, "is_over", property(lambda turns: True))
    monkeypatch.setattr(Turns, "_go_on", counted)
    assert len(offsets(node, **{f"nowhere{number}": [0] for number in range(9)})) == 9
    assert len(turns) >= 9
