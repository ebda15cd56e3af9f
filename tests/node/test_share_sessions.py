"""Share sessions on a whole node: their epochs, their ends, their bounds, and what their answers list."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from broker.server import Server
from broker.shares import share_session_cache
from protocol.errors import Error
from protocol.waiting import Later
from tests.node.shares import (
    ACCEPT,
    GROUP,
    Shares,
    ack_errors,
    acquired,
    errors,
)

LOCK_MS = 30_000


@pytest.fixture
def shares(node: Server) -> Shares:
    return Shares(node)


async def test_a_session_counts_its_epochs(shares: Shares) -> None:
    client = shares.client()
    assert client.fetch(1, 0).error_code == Error.SHARE_SESSION_NOT_FOUND
    assert client.fetch(0, 0).error_code == 0
    assert client.fetch(2).error_code == Error.INVALID_SHARE_SESSION_EPOCH
    assert client.fetch(1).error_code == 0
    assert client.fetch(1).error_code == Error.INVALID_SHARE_SESSION_EPOCH
    assert client.acknowledge(2, {}).error_code == 0
    assert client.acknowledge(0, {}).error_code == Error.INVALID_SHARE_SESSION_EPOCH
    assert client.fetch(-1).error_code == 0
    assert client.fetch(-1).error_code == Error.SHARE_SESSION_NOT_FOUND
    assert client.acknowledge(-1, {}).error_code == Error.SHARE_SESSION_NOT_FOUND


@pytest.mark.limit("broker.shares.share_session_cache.MAX_SHARE_SESSION_EPOCH")
async def test_after_the_largest_epoch_comes_one(shares: Shares) -> None:
    client = shares.client()
    client.fetch(0, 0)
    session = shares.shares.sessions.get(GROUP, "m")
    session.epoch = share_session_cache.MAX_SHARE_SESSION_EPOCH
    assert client.fetch(2**31 - 1).error_code == 0
    assert client.fetch(1).error_code == 0


async def test_a_request_is_checked_first(shares: Shares) -> None:
    client = shares.client()
    assert client.fetch(0, 0, group=None).error_code == Error.INVALID_REQUEST
    for member in ("", "m" * 37):
        assert client.fetch(0, 0, member=member).error_code == Error.INVALID_REQUEST
        assert client.acknowledge(1, {}, member=member).error_code == Error.INVALID_REQUEST
    assert client.fetch(0, 0, member="m" * 36).error_code == 0
    shares.node.metadata.image.features["share.version"] = 0
    assert client.fetch(0, 0).error_code == Error.UNSUPPORTED_VERSION
    assert client.acknowledge(1, {}).error_code == Error.UNSUPPORTED_VERSION


async def test_acknowledgements_in_the_first_request(shares: Shares) -> None:
    assert shares.client().fetch(0, acks={0: [(0, 0, ACCEPT)]}).error_code == Error.INVALID_REQUEST


async def test_a_new_session_releases_nothing_of_the_old_one(shares: Shares) -> None:
    shares.produce(5)
    client = shares.client()
    assert acquired(client.fetch(0, 0)) == {0: [(0, 4, 1)]}
    assert acquired(client.fetch(0, 0)) == {0: []}
    assert ack_errors(client.fetch(1, acks={0: [(0, 4, ACCEPT)]})) == {0: 0}


async def test_the_first_answer_lists_all_partitions_and_the_next_ones_changes(shares: Shares) -> None:
    client = shares.client()
    assert acquired(client.fetch(0, 0, 1)) == {0: [], 1: []}
    assert acquired(client.fetch(1)) == {}
    shares.produce(3, index=1)
    assert acquired(client.fetch(2)) == {1: [(0, 2, 1)]}
    assert acquired(client.fetch(3, forget=(1,))) == {}
    assert acquired(client.fetch(4, 1)) == {1: []}
    assert acquired(client.fetch(5)) == {}


async def test_the_last_request_gives_back_what_the_member_holds(shares: Shares) -> None:
    shares.produce(5)
    client, other = shares.client(), shares.client()
    client.fetch(0, 0)
    response = client.fetch(-1, acks={0: [(0, 1, ACCEPT)]})
    assert (ack_errors(response), errors(response)) == ({0: 0}, {0: 0})
    assert acquired(other.fetch(0, 0, member="n")) == {0: [(2, 4, 2)]}


async def test_the_end_of_the_connection_gives_back_what_its_sessions_hold(shares: Shares) -> None:
    shares.produce(5)
    connection = SimpleNamespace(when_lost=None)
    client, other = shares.client(connection), shares.client()
    client.fetch(0, 0, member="first")
    client.fetch(0, 1)
    other.fetch(0, 0, member="n")
    connection.when_lost()
    assert acquired(other.fetch(1, member="n")) == {0: [(0, 4, 2)]}
    assert client.fetch(1, member="first").error_code == Error.SHARE_SESSION_NOT_FOUND
    assert client.fetch(1).error_code == Error.SHARE_SESSION_NOT_FOUND


async def test_a_connection_remembers_no_session_that_has_ended(shares: Shares) -> None:
    connection = SimpleNamespace(when_lost=None)
    client = shares.client(connection)
    for number in range(20):
        client.fetch(0, 0, member=f"m{number}")
        client.fetch(-1, member=f"m{number}")
    assert connection.when_lost.sessions == {}


async def test_the_end_of_a_connection_leaves_a_session_reopened_elsewhere(
    shares: Shares,
) -> None:
    connection = SimpleNamespace(when_lost=None)
    shares.client(connection).fetch(0, 0)
    again = shares.client()
    again.fetch(0, 0)
    connection.when_lost()
    assert again.fetch(1).error_code == 0


async def test_a_group_without_sessions_is_forgotten_with_the_last_connection(shares: Shares) -> None:
    shares.produce(5)
    connection = SimpleNamespace(when_lost=None)
    client = shares.client(connection)
    client.fetch(0, 0)
    client.acknowledge(1, {0: [(0, 4, ACCEPT)]})
    client.fetch(-1)
    assert len(shares.shares) == 1
    connection.when_lost()
    assert len(shares.shares) == 0
    state = shares.persisters.states[GROUP, shares.topic_id, 0]
    state.start_offset = 2
    state.offsets.clear()
    assert acquired(shares.client().fetch(0, 0)) == {0: [(2, 4, 1)]}


async def test_as_many_sessions_as_there_may_be(node: Server) -> None:
    shares = Shares(node, most_sessions=1)
    client = shares.client()
    assert client.fetch(0, 0).error_code == 0
    assert client.fetch(0, 0).error_code == 0
    later = client.fetch(0, 0, member="n")
    assert isinstance(later, Later)
    answered = asyncio.Event()
    later.when_answered(answered.set)
    await answered.wait()
    assert later.result().error_code == Error.SHARE_SESSION_LIMIT_REACHED


@pytest.mark.limit("broker.shares.share_session_cache.MOST_SHARE_SESSION_PARTITIONS")
async def test_as_many_partitions_in_sessions_as_there_may_be(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_session_cache, "MOST_SHARE_SESSION_PARTITIONS", 3)
    client = shares.client()
    assert client.fetch(0, 0, 1).error_code == 0
    assert isinstance(client.fetch(0, 0, 1, member="n"), Later)
    assert isinstance(client.fetch(1, 2, 3), Later)
    assert client.fetch(1, 2, forget=(2,)).error_code == 0
    assert client.fetch(2, 2, forget=(2,)).error_code == 0


@pytest.mark.limit("broker.shares.share_session_cache.MOST_PARTITIONS_OF_ONE")
async def test_as_many_partitions_in_one_session_as_there_may_be(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_session_cache, "MOST_PARTITIONS_OF_ONE", 2)
    client = shares.client()
    assert isinstance(client.fetch(0, 0, 1, 2), Later)
    assert client.fetch(0, 0, 1).error_code == 0
    assert isinstance(client.fetch(1, 2), Later)
    assert client.fetch(1, 1).error_code == 0
    many = {index: [(0, 0, ACCEPT)] for index in range(3)}
    few = {index: many[index] for index in range(2)}
    assert client.acknowledge(2, many).error_code == Error.INVALID_REQUEST
    assert client.acknowledge(3, few).error_code == 0  # the epoch is used up, as the client counts
    assert client.acknowledge(-1, many).error_code == Error.INVALID_REQUEST
    assert client.acknowledge(4, few).error_code == Error.SHARE_SESSION_NOT_FOUND
    assert client.fetch(0, 0).error_code == 0
    assert client.fetch(-1, acks=many).error_code == Error.INVALID_REQUEST
    assert client.fetch(1).error_code == Error.SHARE_SESSION_NOT_FOUND
