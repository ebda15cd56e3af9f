"""The states of a connection: what keeps it from serving the next request, and how each event changes that.

Three things can hold a connection up, each on its own: the answer to its last request is still to come, its client is
above a quota, or its client doesn't read its answers (Kafka: `KafkaChannel.ChannelMuteState`). It serves if none of
them does. The connection itself also stops after its turn, and while it waits for memory.
`broker.network.connection` reports the events, and does what the table says.
"""

from __future__ import annotations

from enum import IntEnum


class ConnectionState(IntEnum):
    """The things that a connection waits for."""

    SERVING = 0
    ANSWERING = 1
    THROTTLED = 2
    ANSWERING_THROTTLED = 3
    UNREAD = 4
    ANSWERING_UNREAD = 5
    THROTTLED_UNREAD = 6
    ANSWERING_THROTTLED_UNREAD = 7
    GONE = 8  # the client or the broker has hung up


class Event(IntEnum):
    """The events of a connection. Arriving bytes aren't among them: they are served only in SERVING."""

    ANSWER_PENDING = 0  # the last request is answered later
    ANSWERED = 1
    THROTTLED = 2
    THROTTLE_OVER = 3
    CLIENT_IS_SLOW = 4  # the client has left more unread than the transport should hold
    CLIENT_HAS_READ = 5
    LOST = 6


class Action(IntEnum):
    """What the connection has to do after an event."""

    NOTHING = 0
    SERVE = 1  # serve requests that have come meanwhile
    IMPOSSIBLE = 2  # the broker has a bug


_S, _E = ConnectionState, Event
_NOTHING, _SERVE, _IMPOSSIBLE = Action.NOTHING, Action.SERVE, Action.IMPOSSIBLE

TRANSITIONS: dict[ConnectionState, dict[Event, tuple[ConnectionState, Action]]] = {
    _S.SERVING: {
        _E.ANSWER_PENDING: (_S.ANSWERING, _NOTHING),
        _E.ANSWERED: (_S.SERVING, _IMPOSSIBLE),
        _E.THROTTLED: (_S.THROTTLED, _NOTHING),
        _E.THROTTLE_OVER: (_S.SERVING, _IMPOSSIBLE),
        _E.CLIENT_IS_SLOW: (_S.UNREAD, _NOTHING),
        _E.CLIENT_HAS_READ: (_S.SERVING, _NOTHING),
        _E.LOST: (_S.GONE, _NOTHING),
    },
    _S.ANSWERING: {
        _E.ANSWER_PENDING: (_S.ANSWERING, _IMPOSSIBLE),
        _E.ANSWERED: (_S.SERVING, _SERVE),
        _E.THROTTLED: (_S.ANSWERING_THROTTLED, _NOTHING),
        _E.THROTTLE_OVER: (_S.ANSWERING, _IMPOSSIBLE),
        _E.CLIENT_IS_SLOW: (_S.ANSWERING_UNREAD, _NOTHING),
        _E.CLIENT_HAS_READ: (_S.ANSWERING, _NOTHING),
        _E.LOST: (_S.GONE, _NOTHING),
    },
    _S.THROTTLED: {
        _E.ANSWER_PENDING: (_S.THROTTLED, _IMPOSSIBLE),
        _E.ANSWERED: (_S.THROTTLED, _IMPOSSIBLE),
        _E.THROTTLED: (_S.THROTTLED, _NOTHING),  # the later throttle time counts
        _E.THROTTLE_OVER: (_S.SERVING, _SERVE),
        _E.CLIENT_IS_SLOW: (_S.THROTTLED_UNREAD, _NOTHING),
        _E.CLIENT_HAS_READ: (_S.THROTTLED, _NOTHING),
        _E.LOST: (_S.GONE, _NOTHING),
    },
    _S.ANSWERING_THROTTLED: {
        _E.ANSWER_PENDING: (_S.ANSWERING_THROTTLED, _IMPOSSIBLE),
        _E.ANSWERED: (_S.THROTTLED, _NOTHING),
        _E.THROTTLED: (_S.ANSWERING_THROTTLED, _NOTHING),
        _E.THROTTLE_OVER: (_S.ANSWERING, _NOTHING),
        _E.CLIENT_IS_SLOW: (_S.ANSWERING_THROTTLED_UNREAD, _NOTHING),
        _E.CLIENT_HAS_READ: (_S.ANSWERING_THROTTLED, _NOTHING),
        _E.LOST: (_S.GONE, _NOTHING),
    },
    _S.UNREAD: {
        _E.ANSWER_PENDING: (_S.UNREAD, _IMPOSSIBLE),
        _E.ANSWERED: (_S.UNREAD, _IMPOSSIBLE),
        _E.THROTTLED: (_S.THROTTLED_UNREAD, _NOTHING),
        _E.THROTTLE_OVER: (_S.UNREAD, _IMPOSSIBLE),
        _E.CLIENT_IS_SLOW: (_S.UNREAD, _NOTHING),
        _E.CLIENT_HAS_READ: (_S.SERVING, _SERVE),
        _E.LOST: (_S.GONE, _NOTHING),
    },
    _S.ANSWERING_UNREAD: {
        _E.ANSWER_PENDING: (_S.ANSWERING_UNREAD, _IMPOSSIBLE),
        _E.ANSWERED: (_S.UNREAD, _NOTHING),
        _E.THROTTLED: (_S.ANSWERING_THROTTLED_UNREAD, _NOTHING),
        _E.THROTTLE_OVER: (_S.ANSWERING_UNREAD, _IMPOSSIBLE),
        _E.CLIENT_IS_SLOW: (_S.ANSWERING_UNREAD, _NOTHING),
        _E.CLIENT_HAS_READ: (_S.ANSWERING, _NOTHING),
        _E.LOST: (_S.GONE, _NOTHING),
    },
    _S.THROTTLED_UNREAD: {
        _E.ANSWER_PENDING: (_S.THROTTLED_UNREAD, _IMPOSSIBLE),
        _E.ANSWERED: (_S.THROTTLED_UNREAD, _IMPOSSIBLE),
        _E.THROTTLED: (_S.THROTTLED_UNREAD, _NOTHING),
        _E.THROTTLE_OVER: (_S.UNREAD, _NOTHING),
        _E.CLIENT_IS_SLOW: (_S.THROTTLED_UNREAD, _NOTHING),
        _E.CLIENT_HAS_READ: (_S.THROTTLED, _NOTHING),
        _E.LOST: (_S.GONE, _NOTHING),
    },
    _S.ANSWERING_THROTTLED_UNREAD: {
        _E.ANSWER_PENDING: (_S.ANSWERING_THROTTLED_UNREAD, _IMPOSSIBLE),
        _E.ANSWERED: (_S.THROTTLED_UNREAD, _NOTHING),
        _E.THROTTLED: (_S.ANSWERING_THROTTLED_UNREAD, _NOTHING),
        _E.THROTTLE_OVER: (_S.ANSWERING_UNREAD, _NOTHING),
        _E.CLIENT_IS_SLOW: (_S.ANSWERING_THROTTLED_UNREAD, _NOTHING),
        _E.CLIENT_HAS_READ: (_S.ANSWERING_THROTTLED, _NOTHING),
        _E.LOST: (_S.GONE, _NOTHING),
    },
    _S.GONE: {
        _E.ANSWER_PENDING: (_S.GONE, _IMPOSSIBLE),
        _E.ANSWERED: (_S.GONE, _NOTHING),  # it was on its way
        _E.THROTTLED: (_S.GONE, _NOTHING),
        _E.THROTTLE_OVER: (_S.GONE, _IMPOSSIBLE),  # its timer is cancelled
        _E.CLIENT_IS_SLOW: (_S.GONE, _NOTHING),
        _E.CLIENT_HAS_READ: (_S.GONE, _NOTHING),
        _E.LOST: (_S.GONE, _IMPOSSIBLE),
    },
}
