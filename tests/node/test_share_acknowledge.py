"""Acknowledgements on a whole node, and share partitions that go away."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.server import Server
from broker.shares import share_partition_manager
from broker.shares.share_partition_manager import SharePartitionManager
from protocol.errors import Error
from protocol.waiting import Later
from tests.node.shares import (
    ACCEPT,
    GROUP,
    REJECT,
    RENEW,
    Shares,
    ack_errors,
    acquired,
    errors,
)
from tests.support.whole_server import clock_of, take_turns

LOCK_MS = 30_000


@pytest.fixture
def shares(node: Server) -> Shares:
    return Shares(node)


async def test_acknowledgements_are_checked_before_they_are_looked_up(shares: Shares) -> None:
    shares.produce(10)
    client = shares.client()
    client.fetch(0, 0)
    for epoch, acks in enumerate(
        (
            [(3, 2, ACCEPT)],
            [(3, 4, ACCEPT), (2, 2, ACCEPT)],
            [(0, 0, 5)],
            [(0, 0, -1)],
            [(0, 0, RENEW)],
        ),
        1,
    ):
        assert errors(client.acknowledge(epoch, {0: acks})) == {0: Error.INVALID_REQUEST}
    assert errors(client.acknowledge(6, {0: [(0, 3, ACCEPT), (3, 4, ACCEPT)]})) == {
        0: Error.INVALID_RECORD_STATE
    }
    assert errors(client.acknowledge(7, {1: [(0, 0, ACCEPT)]})) == {1: Error.UNKNOWN_TOPIC_OR_PARTITION}
    assert errors(client.acknowledge(8, {0: [], 1: []})) == {}
    assert errors(client.acknowledge(9, {0: [(0, 0, ACCEPT)], 1: []})) == {0: 0, 1: 0}


async def test_an_acknowledgement_waits_for_its_write(shares: Shares) -> None:
    shares.produce(3)
    client = shares.client()
    client.fetch(0, 0)
    state = shares.persisters.states[GROUP, shares.topic_id, 0]
    state.holds = True
    later = client.acknowledge(1, {0: [(0, 2, ACCEPT)]})
    assert isinstance(later, Later)
    fetched = client.fetch(2, acks={0: [(0, 0, REJECT)]})
    assert ack_errors(fetched) == {0: Error.INVALID_RECORD_STATE}
    state.go_on()
    take_turns(shares.node)
    assert errors(later.result()) == {0: 0}


async def test_renewal(shares: Shares) -> None:
    shares.produce(3)
    client = shares.client()
    client.fetch(0, 0)
    assert client.fetch(1, acks={0: [(0, 2, RENEW)]}, is_renew_ack=True).error_code == Error.INVALID_REQUEST
    shares.pass_ms(LOCK_MS - 1)
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0}
    response = client.fetch(1, acks={0: [(0, 2, RENEW)]}, is_renew_ack=True, **nothing)
    assert ack_errors(response) == {0: 0}
    shares.pass_ms(LOCK_MS - 1)
    assert errors(client.acknowledge(2, {0: [(0, 0, RENEW)]}, renews=True)) == {0: 0}
    shares.pass_ms(1)
    assert acquired(shares.client().fetch(0, 0, member="n")) == {0: [(1, 2, 2)]}


async def test_types_of_version_1(shares: Shares) -> None:
    shares.produce(3)
    client = shares.client()
    client.fetch(0, 0, version=1)
    assert errors(client.acknowledge(1, {0: [(0, 0, RENEW)]}, version=1)) == {0: Error.INVALID_REQUEST}
    assert errors(client.acknowledge(2, {0: [(0, 0, REJECT)]}, version=1)) == {0: 0}


async def test_a_fenced_share_partition_reads_its_state_again(shares: Shares) -> None:
    shares.produce(3, 3)
    client = shares.client()
    client.fetch(0, 0)
    state = shares.persisters.states[GROUP, shares.topic_id, 0]
    state.state_epoch, state.start_offset = 2, 3
    response = client.acknowledge(1, {0: [(0, 5, ACCEPT)]})
    assert errors(response) == {0: Error.NOT_LEADER_OR_FOLLOWER}
    leader = response.responses[0].partitions[0].current_leader
    assert (leader.leader_id, [each.node_id for each in response.node_endpoints]) == (1, [1])
    assert acquired(client.fetch(2)) == {0: [(3, 5, 1)]}


async def test_a_leader_that_resigns_hands_out_nothing_any_more(shares: Shares) -> None:
    shares.produce(3)
    client = shares.client()
    client.fetch(0, 0)
    partition = shares.node.partitions.get("t", 0)
    partition.give_up(Error.NOT_LEADER_OR_FOLLOWER)
    assert len(shares.shares) == 0
    shares.pass_ms(LOCK_MS)
    assert shares.persisters.states[GROUP, shares.topic_id, 0].writes == []
    assert errors(client.fetch(1)) == {0: Error.NOT_LEADER_OR_FOLLOWER}


@pytest.mark.limit("broker.shares.share_partition_manager.MANY_SHARE_PARTITIONS")
async def test_many_share_partitions_of_groups_without_sessions_go(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_partition_manager, "MANY_SHARE_PARTITIONS", 3)
    client = shares.client()
    for number in range(8):
        group = f"g{number}"
        shares.persisters.initialize(group, shares.topic_id, 0)
        client.fetch(0, 0, group=group)
        if number % 2:
            client.fetch(-1, group=group)
    assert len(shares.shares) == 5
    kept: SharePartitionManager = shares.shares
    assert kept.find("g0", (shares.topic_id, 0)) is not None


async def test_settings_are_the_groups_within_the_bounds_of_the_broker(tmp_path: Path) -> None:
    shares = await Shares.on(tmp_path, "group.share.record.lock.duration.ms=20000")
    client = shares.client()
    assert client.fetch(0, 0).acquisition_lock_timeout_ms == 20_000
    shares.overrides["share.record.lock.duration.ms"] = "1000"
    assert client.fetch(1).acquisition_lock_timeout_ms == 15_000
    assert client.acknowledge(2, {}).acquisition_lock_timeout_ms == 15_000
    shares.produce(1)
    client.fetch(3)
    clock_of(shares.node).advance_ms(15_000)
    shares.node.timers.fire_due()
    assert acquired(client.fetch(4)) == {0: [(0, 0, 2)]}
