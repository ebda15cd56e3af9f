"""Nothing of share consumers is left in a reference cycle, however they and their share partitions end."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace

from broker.server import Server
from protocol.errors import Error
from protocol.waiting import Later
from tests.node.shares import ACCEPT, GROUP, RELEASE, Shares, acquired, errors, told
from tests.support.cycles import nothing_in_a_cycle

LOCK_MS = 30_000


async def test_nothing_is_left_of_fetches_and_acknowledgements(node: Server) -> None:
    shares = Shares(node)
    client, other = shares.client(), shares.client()
    client.fetch(0, 0)
    with nothing_in_a_cycle() as look:
        shares.produce(5, 5)
        assert acquired(client.fetch(1)) == {0: [(0, 9, 1)]}
        look()
        assert errors(client.acknowledge(2, {0: [(0, 3, ACCEPT), (4, 4, RELEASE)]})) == {0: 0}
        assert errors(client.acknowledge(3, {0: [(0, 30, ACCEPT)]})) == {0: Error.INVALID_REQUEST}
        look()
        later = other.fetch(0, 0, member="n", max_wait_ms=60_000, min_bytes=10_000)
        shares.pass_ms(LOCK_MS)
        assert isinstance(later, Later)
        look()
        later.abandon()
        del later
        look()
        later = other.fetch(0, 0, member="n", max_wait_ms=1, min_bytes=10_000)
        answered = asyncio.Event()
        later.when_answered(answered.set)
        await answered.wait()
        assert acquired(told(shares, later)) == {0: [(4, 9, 2)]}
        del later, answered


async def test_nothing_is_left_of_share_partitions_and_sessions_that_end(node: Server) -> None:
    shares = Shares(node)
    shares.produce(5)
    with nothing_in_a_cycle() as look:
        connection, other = SimpleNamespace(when_lost=None), SimpleNamespace(when_lost=None)
        client = shares.client(connection)
        client.fetch(0, 0)
        client.fetch(0, 0)
        later = shares.client(other).fetch(0, 0, member="n", max_wait_ms=60_000)
        state = shares.persisters.states[GROUP, shares.topic_id, 0]
        state.state_epoch += 1
        assert errors(client.acknowledge(1, {0: [(0, 4, ACCEPT)]})) == {0: Error.NOT_LEADER_OR_FOLLOWER}
        assert acquired(told(shares, later)) == {}
        del later
        look()
        assert acquired(client.fetch(2)) == {0: [(0, 4, 1)]}
        client.fetch(-1)
        connection.when_lost()
        other.when_lost()
        assert len(shares.shares) == 0
        del connection, other, client
        look()
        state.error = Error.NOT_COORDINATOR
        client = shares.client()
        assert errors(client.fetch(0, 0)) == {0: Error.COORDINATOR_NOT_AVAILABLE}
        look()
    gc.collect()
