"""What keeps a connection from serving the next request, and what each event changes of it.

Up to three things hold a connection up, each of them by itself: the answer to its last request is still to come, its
client is above a quota, or its client doesn't read what was answered (Kafka: `KafkaChannel.ChannelMuteState`). It
serves where none does, and where it has neither had its turn nor waits for memory, which are the connection's own.
`broker.network.connection` tells the events, and does what the table says.
"""

from __future__ import annotations

from enum import IntEnum


class ConnectionState(IntEnum):
    """What a connection waits for."""

    SERVING = 0
    ANSWERING = 1
    THROTTLED = 2
    ANSWERING_THROTTLED = 3
    UNREAD = 4
    ANSWERING_UNREAD = 5
    THROTTLED_UNREAD = 6
    ANSWERING_THROTTLED_UNREAD = 7
    GONE = 8  # the client has hung up, or we have


class Event(IntEnum):
    """What happens to a connection, other than that bytes come: those are served in SERVING alone."""

    ANSWER_PENDING = 0  # the request that was served is answered later
    ANSWERED = 1
    THROTTLED = 2
    THROTTLE_OVER = 3
    CLIENT_IS_SLOW = 4  # more is unread than the transport holds
    CLIENT_HAS_READ = 5
    LOST = 6


class Action(IntEnum):
    """What follows."""

    NOTHING = 0
    SERVE = 1  # what has come meanwhile
    IMPOSSIBLE = 2  # a fault of ours


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
        _E.THROTTLED: (_S.THROTTLED, _NOTHING),  # for as long as the later one says
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
