"""Share sessions of many partitions are served in turns of the loop, as if nobody had come in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.network.turns import Turns
from broker.server import Server
from broker.shares import share_fetching, share_partition_manager
from broker.shares import share_fetching as delayed_share_fetch
from protocol.errors import Error
from protocol.waiting import Later
from tests.node.shares import ACCEPT, GROUP, Client, Shares, ack_errors, acquired
from tests.support.whole_server import take_turns


@pytest.fixture
def shares(node: Server, monkeypatch: pytest.MonkeyPatch) -> Shares:
    """Make two partitions with a batch of three records each. Two count as many partitions, and one doesn't."""
    for module, name in (
        (delayed_share_fetch, "MOST_ACQUIRED_IN_PASSING"),
        (share_partition_manager, "MOST_ASKED_IN_PASSING"),
        (share_fetching, "MOST_ACQUIRED_IN_PASSING"),
    ):
        monkeypatch.setattr(module, name, 1)
    monkeypatch.setattr(share_fetching, "PER_TURN", 1)
    shares = Shares(node)
    for index in range(2):
        shares.produce(3, index=index)
    return shares


def turn(shares: Shares) -> None:
    shares.node.turns._take_turn()


def done(shares: Shares, answer: Any) -> Any:
    """Take all turns, and return the answer."""
    take_turns(shares.node)
    return answer.result() if isinstance(answer, Later) else answer


def writes(shares: Shares) -> list[int]:
    """Return how often each partition's state was written."""
    return [len(shares.persisters.states[GROUP, shares.topic_id, index].writes) for index in range(2)]


def opened(shares: Shares, connection: Any = None, member: str = "m") -> Client:
    """Return a client whose session has acquired all records of both partitions."""
    client = shares.client(connection)
    answer = done(shares, client.fetch(0, 0, 1, member=member))
    assert acquired(answer).keys() == {0, 1}
    return client


def with_two_sessions(shares: Shares) -> Any:
    """Return a connection of two members, m0 and m1, each of which has acquired one partition's records."""
    connection = SimpleNamespace(when_lost=None)
    client = shares.client(connection)
    for index in range(2):
        assert acquired(client.fetch(0, index, member=f"m{index}")).keys() == {index}
    return connection


BOTH = {0: [(0, 2, ACCEPT)], 1: [(0, 2, ACCEPT)]}


@pytest.mark.limit("broker.shares.share_partition_manager.MOST_ASKED_IN_PASSING")
async def test_many_partitions_are_acknowledged_in_turns(shares: Shares) -> None:
    client = opened(shares)
    answer = client.acknowledge(1, BOTH)
    assert isinstance(answer, Later)
    assert writes(shares) == [1, 0]
    turn(shares)
    assert writes(shares) == [1, 1]
    turn(shares)
    assert ack_codes(answer.result()) == [0, 0]


async def test_a_turn_that_has_been_long_enough_takes_no_further_step(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_partition_manager, "MOST_ASKED_IN_PASSING", 100)
    client = opened(shares)
    monkeypatch.setattr(Turns, "is_over", property(lambda turns: True))
    answer = client.acknowledge(1, BOTH)
    for asked in ([0, 0], [1, 0], [1, 1]):
        assert writes(shares) == asked
        turn(shares)
    assert ack_codes(answer.result()) == [0, 0]


def ack_codes(response: Any) -> list[int]:
    return [answer.error_code for topic in response.responses for answer in topic.partitions]


@pytest.mark.parametrize("fails", [0, 1])
async def test_a_partition_that_goes_wrong_neither_ends_the_broker_nor_keeps_the_others_from_being_asked(
    shares: Shares, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    client = opened(shares)
    stopped: list[BaseException] = []
    monkeypatch.setattr(shares.node, "stop_on_failure", stopped.append)
    led = shares.shares.find(GROUP, (shares.topic_id, fails))
    assert led is not None

    def fail(*asked: object) -> None:
        raise MemoryError

    monkeypatch.setattr(led.share, "acknowledge", fail)
    monkeypatch.setattr(led.share, "release", fail)
    codes = [Error.NONE, Error.NONE]
    codes[fails] = Error.UNKNOWN_SERVER_ERROR
    assert ack_codes(done(shares, client.acknowledge(1, BOTH))) == codes
    assert done(shares, client.fetch(-1)).error_code == 0
    take_turns(shares.node)
    assert not stopped
    assert not shares.shares.lines.has_any(GROUP)


async def test_acknowledgements_before_a_connection_s_end_count(shares: Shares) -> None:
    connection = SimpleNamespace(when_lost=None)
    client = opened(shares, connection)
    answer = client.acknowledge(1, BOTH)
    answer.abandon()
    connection.when_lost()
    assert writes(shares) == [1, 0]  # nothing is given back before that
    take_turns(shares.node)
    assert [*shares.persisters.states[GROUP, shares.topic_id, 1].offsets.values()] == [(1, 2)] * 3
    assert len(shares.shares) == 0
    assert not shares.shares.lines.has_any(GROUP)


async def test_a_group_is_forgotten_once_all_its_records_are_given_back(shares: Shares) -> None:
    connection = SimpleNamespace(when_lost=None)
    opened(shares, connection)
    connection.when_lost()
    assert (writes(shares), len(shares.shares)) == ([1, 0], 2)
    turn(shares)
    assert (writes(shares), len(shares.shares)) == ([1, 1], 0)
    again = done(shares, shares.client().fetch(0, 0, 1))
    assert acquired(again) == {0: [(0, 2, 2)], 1: [(0, 2, 2)]}


async def test_a_group_joined_meanwhile_stays(shares: Shares) -> None:
    connection = SimpleNamespace(when_lost=None)
    opened(shares, connection)
    connection.when_lost()
    one, other = shares.client(), shares.client()
    assert acquired(one.fetch(0, 0, member="n")) == {0: [(0, 2, 2)]}  # the first one is given back
    assert acquired(other.fetch(0, 1, member="o")) == {1: []}  # the second isn't yet
    take_turns(shares.node)
    assert len(shares.shares) == 2
    assert acquired(other.fetch(1, member="o")) == {1: [(0, 2, 2)]}


async def test_a_new_session_of_the_member_takes_nothing_that_the_old_one_gives_back(shares: Shares) -> None:
    connection = SimpleNamespace(when_lost=None)
    opened(shares, connection)
    connection.when_lost()
    shares.produce(1, index=1)
    again = shares.client()
    answer = again.fetch(0, 1)
    assert isinstance(answer, Later)  # even with only one partition
    assert acquired(done(shares, answer)) == {1: [(0, 2, 2), (3, 3, 1)]}
    take_turns(shares.node)
    assert not shares.shares._given_back_of  # even though the group was never forgotten
    assert ack_errors(done(shares, again.fetch(1, acks={1: [(0, 3, ACCEPT)]}))) == {1: 0}


async def test_each_of_a_connections_many_sessions_gives_back_in_its_own_turn(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = with_two_sessions(shares)
    shares.produce(1, index=1)
    with monkeypatch.context() as patched:
        patched.setattr(Turns, "is_over", property(lambda turns: True))
        connection.when_lost()
        again = shares.client().fetch(0, 1, member="m1")  # a new session, whose member has yet to give back
        assert writes(shares) == [0, 0]
        turn(shares)
        assert writes(shares) == [1, 0]
    assert acquired(done(shares, again)) == {1: [(0, 2, 2), (3, 3, 1)]}
    assert not shares.shares.lines.has_any(GROUP)
    assert not shares.shares.lines._left
    assert len(shares.shares) == 2


async def test_a_connections_leftovers_take_one_of_the_waiting_turns(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = with_two_sessions(shares)
    monkeypatch.setattr(Turns, "is_over", property(lambda turns: True))
    connection.when_lost()
    assert len(shares.node.turns._waiting) == 1


async def test_a_newcomer_gets_the_rest_while_a_group_is_forgotten(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(shares)
    assert done(shares, shares.client().fetch(-1)).error_code == 0
    monkeypatch.setattr(Turns, "is_over", property(lambda turns: len(shares.shares) < 2))
    rest = shares.shares.find(GROUP, (shares.topic_id, 1))
    shares.shares.forget([GROUP])
    assert len(shares.shares) == 1
    assert acquired(done(shares, shares.client().fetch(0, 0, 1))).keys() == {0, 1}
    assert shares.shares.find(GROUP, (shares.topic_id, 1)) is rest


async def test_giving_back_while_a_group_is_forgotten_finds_the_members_records(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(shares)
    shares.shares.sessions.remove((GROUP, "m"))
    monkeypatch.setattr(Turns, "is_over", property(lambda turns: True))
    shares.shares.forget([GROUP])  # waits for its turn
    shares.shares.release(GROUP, "m", [(shares.topic_id, index) for index in range(2)])
    turn(shares)
    assert len(shares.shares) == 2


async def test_the_unused_are_dropped_by_one_at_a_time(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(shares)
    shares.shares.sessions.remove((GROUP, "m"))
    monkeypatch.setattr("broker.shares.share_partition_manager.MANY_SHARE_PARTITIONS", 0)
    monkeypatch.setattr(Turns, "is_over", property(lambda turns: True))
    for group in "xyz":
        shares.shares.get(group, (shares.topic_id, 0))
    assert len(shares.node.turns._waiting) == 1
    monkeypatch.undo()
    take_turns(shares.node)
    assert not shares.shares._is_dropping_unused


async def test_the_last_acknowledgement_gives_back_before_it_is_answered(shares: Shares) -> None:
    client = opened(shares)
    assert ack_codes(client.acknowledge(-1, {0: [(0, 0, ACCEPT)]})) == [0]
    assert acquired(shares.client().fetch(0, 0, member="n")) == {0: [(1, 2, 2)]}


async def test_acknowledgements_that_come_with_a_fetch_come_before_it(shares: Shares) -> None:
    client = opened(shares)
    release = {0: [(0, 2, 2)], 1: [(0, 2, 2)]}
    answer = done(shares, client.fetch(1, acks=release))
    assert ack_errors(answer) == {0: 0, 1: 0}
    assert acquired(answer) == {0: [(0, 2, 2)], 1: [(0, 2, 2)]}


async def test_the_last_request_gives_everything_back_in_turns(shares: Shares) -> None:
    client = opened(shares)
    assert done(shares, client.fetch(-1)).error_code == 0
    assert writes(shares) == [1, 1]
    assert acquired(shares.client().fetch(0, 1, member="n")) == {1: [(0, 2, 2)]}


# --- fetching -----------------------------------------------------------------------------------------------


@pytest.mark.limit("broker.shares.share_fetching.MOST_ACQUIRED_IN_PASSING")
async def test_many_partitions_are_read_in_turns(shares: Shares) -> None:
    acquiring: list[int] = []
    answer = shares.client().fetch(0, 0, 1)
    held = [shares.shares.find(GROUP, (shares.topic_id, index)) for index in range(2)]
    while not acquiring or acquiring[-1] < 2:
        turn(shares)
        acquiring.append(sum(len(led.share.records) for led in held if led is not None))
    assert acquiring[-2:] == [1, 2]
    assert acquired(done(shares, answer)) == {0: [(0, 2, 1)], 1: [(0, 2, 1)]}


async def test_a_fetch_refused_because_of_pending_turns_is_woken_after_them(shares: Shares) -> None:
    long = shares.client().fetch(0, 0, 1, min_bytes=1 << 20, max_wait_ms=1_000)
    first = shares.shares.find(GROUP, (shares.topic_id, 0))
    assert first is not None
    while first.share._fetching is None:
        turn(shares)
    short = shares.client().fetch(0, 0, member="n", max_wait_ms=1_000)
    assert short.answer() is short
    take_turns(shares.node)  # it isn't enough for the first fetch, which releases it
    assert acquired(short.result()) == {0: [(0, 2, 1)]}
    shares.pass_ms(0)
    long.abandon()


async def test_a_client_that_hangs_up_during_its_turns_lets_go(shares: Shares) -> None:
    gone = shares.client().fetch(0, 0, 1, member="gone")
    first = shares.shares.find(GROUP, (shares.topic_id, 0))
    assert first is not None
    while first.share._fetching is None:
        turn(shares)
    gone.abandon()
    assert first.share._fetching is None
    assert not shares.shares.looking
    assert acquired(done(shares, shares.client().fetch(0, 0, 1))) == {0: [(0, 2, 1)], 1: [(0, 2, 1)]}


async def test_records_that_arrive_during_a_fetchs_search_make_it_search_once_more(shares: Shares) -> None:
    opened(shares, member="first")
    answer = shares.client().fetch(0, 0, 1, max_wait_ms=60_000)
    take_turns(shares.node)
    assert answer.answer() is answer
    shares.produce(1)
    turn(shares)
    turn(shares)
    shares.produce(2, index=1)
    assert acquired(done(shares, answer)) == {0: [(3, 3, 1)], 1: [(3, 4, 1)]}


async def test_fetches_that_want_the_same_look_one_after_the_other_and_come_to_an_end(shares: Shares) -> None:
    opened(shares, member="first")
    members = [
        shares.client().fetch(0, 0, 1, member=f"m{at}", min_bytes=1 << 20, max_wait_ms=60_000)
        for at in range(3)
    ]
    take_turns(shares.node)
    shares.produce(1)
    take_turns(shares.node)  # there isn't enough for any fetch, so none wakes the others
    assert not shares.shares.looking
    for answer in members:
        assert answer.answer() is answer
        answer.abandon()
    assert acquired(done(shares, shares.client().fetch(0, 0, 1, member="n"))) == {0: [(3, 3, 1)], 1: []}
