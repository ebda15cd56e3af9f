"""A cluster that turns share groups off, and on again: nobody has a share session left then, as in Kafka."""

from __future__ import annotations

from pathlib import Path

from broker.handlers import update_features
from broker.server import Server
from protocol.errors import Error
from protocol.waiting import Later
from tests.node.admin_requests import ask
from tests.node.shares import Shares, acquired
from tests.node.test_share_states import coordinating, initialize, log_starts, write
from tests.support.whole_server import clock_of

DOWNGRADE = 2
UPGRADE = 1


def set_share_version(node: Server, level: int) -> None:
    update = {
        "feature": "share.version",
        "max_version_level": level,
        "upgrade_type": UPGRADE if level else DOWNGRADE,
    }
    asked = {"timeout_ms": 1000, "feature_updates": [update], "validate_only": False}
    answer = ask(node, update_features, 57, 2, asked)
    assert answer.error_code == Error.NONE, answer


async def test_sessions_end_and_share_partitions_go(tmp_path: Path) -> None:
    shares = await Shares.on(tmp_path)
    shares.produce(3)
    client, waiting = shares.client(), shares.client()
    assert acquired(client.fetch(0, 0))[0] == [(0, 2, 1)]
    later = waiting.fetch(0, 1, member="w", max_wait_ms=10_000)
    assert isinstance(later, Later)
    told: list[bool] = []
    later.when_answered(lambda: told.append(True))

    set_share_version(shares.node, 0)

    assert (len(shares.shares), len(shares.shares.sessions)) == (0, 0)
    assert told
    assert client.fetch(1).error_code == Error.UNSUPPORTED_VERSION
    set_share_version(shares.node, 1)
    assert client.fetch(1).error_code == Error.SHARE_SESSION_NOT_FOUND
    assert acquired(client.fetch(0, 0))[0] == [(0, 2, 1)], "that it was acquired isn't written"


async def test_the_log_of_states_is_left_alone_meanwhile(tmp_path: Path) -> None:
    node = await coordinating(
        tmp_path,
        "share.coordinator.state.topic.prune.interval.ms=1000",
        "share.coordinator.cold.partition.snapshot.interval.ms=600",
    )
    initialize(node)
    for first in range(10):
        write(node, first=first)

    def pass_time() -> None:
        for _ in range(4):
            clock_of(node).advance_ms(700)
            node.timers.fire_due()

    set_share_version(node, 0)
    pass_time()
    assert sum(log_starts(node)) == 0
    set_share_version(node, 1)
    pass_time()
    assert sum(log_starts(node)) > 0
