"""The reasons that hold a connection up: every cell of their table, and a real connection's way through them."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from broker.network.connection import Connection
from broker.network.connection_states import TRANSITIONS, Action, ConnectionState, Event
from protocol.errors import BrokenInvariantError
from tests.node.test_connection import Client, frame

ANSWERING, THROTTLED, UNREAD = "answering", "throttled", "unread"

HOLDS = {
    frozenset(): ConnectionState.SERVING,
    frozenset({ANSWERING}): ConnectionState.ANSWERING,
    frozenset({THROTTLED}): ConnectionState.THROTTLED,
    frozenset({ANSWERING, THROTTLED}): ConnectionState.ANSWERING_THROTTLED,
    frozenset({UNREAD}): ConnectionState.UNREAD,
    frozenset({ANSWERING, UNREAD}): ConnectionState.ANSWERING_UNREAD,
    frozenset({THROTTLED, UNREAD}): ConnectionState.THROTTLED_UNREAD,
    frozenset({ANSWERING, THROTTLED, UNREAD}): ConnectionState.ANSWERING_THROTTLED_UNREAD,
}
BEGINS = {Event.ANSWER_PENDING: ANSWERING, Event.THROTTLED: THROTTLED, Event.CLIENT_IS_SLOW: UNREAD}
ENDS = {Event.ANSWERED: ANSWERING, Event.THROTTLE_OVER: THROTTLED, Event.CLIENT_HAS_READ: UNREAD}
HELD = [(holds, state, event) for (holds, state), event in itertools.product(HOLDS.items(), Event)]


def test_the_table_has_a_cell_for_each_state_and_event() -> None:
    assert set(TRANSITIONS) == set(ConnectionState)
    assert all(set(row) == set(Event) for row in TRANSITIONS.values())


@pytest.mark.table("broker.network.connection_states.TRANSITIONS")
@pytest.mark.parametrize(("holds", "state", "event"), HELD)
def test_each_reason_to_wait_comes_and_goes_independently(
    holds: frozenset[str], state: ConnectionState, event: Event
) -> None:
    """Requests that arrived meanwhile are served when the last reason goes."""
    after, action = TRANSITIONS[state][event]
    if event is Event.LOST:
        assert (after, action) == (ConnectionState.GONE, Action.NOTHING)
        return
    if event is Event.ANSWER_PENDING:
        possible = not holds  # else the request wasn't served
    elif event in (Event.ANSWERED, Event.THROTTLE_OVER):
        possible = ENDS[event] in holds
    else:
        possible = True  # a quota and a transport may say the same twice
    if not possible:
        assert (after, action) == (state, Action.IMPOSSIBLE)
        return
    left = holds | {BEGINS[event]} if event in BEGINS else holds - {ENDS[event]}
    assert after is HOLDS[left]
    assert (action is Action.SERVE) is (bool(holds) and not left)


@pytest.mark.table("broker.network.connection_states.TRANSITIONS")
@pytest.mark.parametrize("event", Event)
def test_a_lost_connection_stays_lost(event: Event) -> None:
    after, action = TRANSITIONS[ConnectionState.GONE][event]
    assert after is ConnectionState.GONE
    assert (action is Action.IMPOSSIBLE) is (event in (Event.ANSWER_PENDING, Event.THROTTLE_OVER, Event.LOST))


class Driven:
    """A connection with one more request behind the one that brought it to its state."""

    def __init__(self) -> None:
        self.client = Client().connect()
        self.connection: Connection = self.client.connection

    @property
    def state(self) -> ConnectionState:
        return self.connection._state

    def bring_to(self, holds: frozenset[str]) -> None:
        if ANSWERING in holds:
            self.client.send(frame(b"wait"))
        if THROTTLED in holds:
            self.connection.mute(1_000_000)
        if UNREAD in holds:
            self.connection.pause_writing()

    async def happens(self, event: Event) -> None:
        if event is Event.ANSWER_PENDING:
            self.client.send(frame(b"wait"))
        elif event is Event.ANSWERED:
            self.client.dispatcher.waiting[0].set_result([b"answer"])
            await asyncio.sleep(0)
        elif event is Event.THROTTLED:
            self.connection.mute(1_000_000)
        elif event is Event.THROTTLE_OVER:
            assert self.connection._throttle is not None
            self.connection._throttle.cancel()
            self.connection._unmute()
        elif event is Event.CLIENT_IS_SLOW:
            self.connection.pause_writing()
        elif event is Event.CLIENT_HAS_READ:
            self.connection.resume_writing()
        else:
            self.connection.connection_lost(None)


@pytest.mark.parametrize(("holds", "state", "event"), HELD)
async def test_a_connection_follows_the_table_and_serves_only_when_the_table_says_so(
    holds: frozenset[str], state: ConnectionState, event: Event
) -> None:
    driven = Driven()
    driven.bring_to(holds)
    assert driven.state is state
    after, action = TRANSITIONS[state][event]
    if action is Action.IMPOSSIBLE:
        with pytest.raises(BrokenInvariantError):
            driven.connection._happens(event)
    else:
        if event is not Event.ANSWER_PENDING and holds:
            driven.client.send(frame(b"behind"))
            assert b"behind" not in driven.client.dispatcher.served
        await driven.happens(event)
        assert driven.state is after
        assert (b"behind" in driven.client.dispatcher.served) is (action is Action.SERVE)
        if event is Event.ANSWERED:
            assert driven.client.transport.written.startswith(b"answer")
    if driven.state is not ConnectionState.GONE:
        driven.connection.connection_lost(None)  # ends its timer


async def test_an_answer_to_a_client_that_has_gone_is_dropped() -> None:
    driven = Driven()
    driven.bring_to(frozenset({ANSWERING}))
    driven.client.dispatcher.waiting[0].set_result([b"answer"])
    driven.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert driven.state is ConnectionState.GONE
    assert driven.client.transport.written == b""


async def test_a_large_late_answer_is_written_before_the_next_request_is_served() -> None:
    client = Client().connect()
    client.transport.protocol = client.connection
    client.transport.unread_limit = 1_000_000
    client.send(frame(b"wait") + frame(b"next"))
    client.dispatcher.waiting[0].set_result([bytes(1_100_000)])
    await asyncio.sleep(0)
    assert client.dispatcher.served == [b"wait"]


async def test_a_large_late_answer_counts_together_with_the_answers_gathered_after_it() -> None:
    client = Client().connect()
    client.transport.protocol = client.connection
    client.transport.unread_limit = 1_000_000
    client.send(frame(b"wait") + frame(bytes(40_000)) * 2)
    client.dispatcher.waiting[0].set_result([bytes(1_020_000)])
    await asyncio.sleep(0)
    assert len(client.dispatcher.served) == 2


async def test_a_connection_muted_twice_stays_muted_until_the_later_time() -> None:
    driven = Driven()
    driven.connection.mute(1_000_000)
    first = driven.connection._throttle
    driven.connection.mute(2_000_000)
    assert first is not None
    assert first.cancelled()
    driven.connection.connection_lost(None)
