"""A short round of `checker/share_round.py`; `make checker ARGS=--shares` runs longer ones."""

from __future__ import annotations

from pathlib import Path

from tests.clients.checker.share_round import SHARE_SETTINGS, Plan, ShareRound
from tests.clients.checker.workload import OneBroker
from tests.clients.transactions import running_server


def test_share_consumers_see_no_anomaly_though_they_and_the_broker_are_killed(tmp_path: Path) -> None:
    with running_server(tmp_path / "server", **SHARE_SETTINGS) as server:
        played = ShareRound(OneBroker(server), Plan(seed=1, kills=2, between_s=(0.8, 1.5)))

        assert played.run() == []

    assert played.done > 0
