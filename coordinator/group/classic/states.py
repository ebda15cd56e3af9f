"""The states of a classic group, as tables.

`ENTERED_FROM` says which moves are legal. `ANSWERS` says how each request is answered in each state, once its
group, member and generation have been found right: with an error, or with an effect. Source:
`ClassicGroupState`, `GroupMetadataManager`.
"""

from __future__ import annotations

from enum import Enum

from protocol.errors import Error


class State(Enum):
    """The values are Kafka's names, as clients see them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = State

ENTERED_FROM: dict[State, frozenset[State]] = {
    EMPTY: frozenset({PREPARING}),
    PREPARING: frozenset({EMPTY, COMPLETING, STABLE}),
    COMPLETING: frozenset({PREPARING}),
    STABLE: frozenset({COMPLETING}),
    DEAD: frozenset({EMPTY, PREPARING, COMPLETING, STABLE, DEAD}),
}


class Request(Enum):
    """The kinds of requests to a group."""

    JOIN_NEW = "JoinGroup without a member id"
    JOIN_KNOWN = "JoinGroup of a member"
    SYNC = "SyncGroup of a member"
    HEARTBEAT = "Heartbeat of a member"
    OFFSET_COMMIT = "OffsetCommit of a member"
    OFFSET_COMMIT_ANONYMOUS = "OffsetCommit with neither member id nor generation"
    LEAVE = "LeaveGroup of a member"
    OFFSET_DELETE = "OffsetDelete, where the group's type isn't consumer"
    DELETE = "DeleteGroups"


class Effect(Enum):
    """The effect of a request that isn't refused."""

    ACCEPT = "it is done, and the state stays"
    REBALANCE = "a rebalance starts"
    PARK = "the answer waits for the rebalance at hand"
    UNLESS_SAME = "the current generation, at once; changed protocols start a rebalance"
    UNLESS_SAME_FOLLOWER = (
        "a follower with the same protocols gets the current generation; else a rebalance starts"
    )
    PARK_FOR_LEADER = "the answer waits for the leader's assignments"
    COMPLETE_JOIN = "the join may be complete without this member"


ANSWERS: dict[Request, dict[State, Error | Effect]] = {
    Request.JOIN_NEW: {
        EMPTY: Effect.REBALANCE,
        PREPARING: Effect.PARK,
        COMPLETING: Effect.REBALANCE,
        STABLE: Effect.REBALANCE,
        DEAD: Error.COORDINATOR_NOT_AVAILABLE,
    },
    Request.JOIN_KNOWN: {
        EMPTY: Error.UNKNOWN_MEMBER_ID,
        PREPARING: Effect.PARK,
        COMPLETING: Effect.UNLESS_SAME,
        STABLE: Effect.UNLESS_SAME_FOLLOWER,
        DEAD: Error.COORDINATOR_NOT_AVAILABLE,
    },
    Request.SYNC: {
        EMPTY: Error.UNKNOWN_MEMBER_ID,
        PREPARING: Error.REBALANCE_IN_PROGRESS,
        COMPLETING: Effect.PARK_FOR_LEADER,
        STABLE: Effect.ACCEPT,
        DEAD: Error.COORDINATOR_NOT_AVAILABLE,
    },
    Request.HEARTBEAT: {
        EMPTY: Error.UNKNOWN_MEMBER_ID,
        PREPARING: Error.REBALANCE_IN_PROGRESS,
        COMPLETING: Effect.ACCEPT,
        STABLE: Effect.ACCEPT,
        DEAD: Error.COORDINATOR_NOT_AVAILABLE,
    },
    Request.OFFSET_COMMIT: {
        EMPTY: Error.UNKNOWN_MEMBER_ID,
        PREPARING: Effect.ACCEPT,
        COMPLETING: Error.REBALANCE_IN_PROGRESS,
        STABLE: Effect.ACCEPT,
        DEAD: Error.COORDINATOR_NOT_AVAILABLE,
    },
    Request.OFFSET_COMMIT_ANONYMOUS: {
        EMPTY: Effect.ACCEPT,
        PREPARING: Error.UNKNOWN_MEMBER_ID,
        COMPLETING: Error.UNKNOWN_MEMBER_ID,
        STABLE: Error.UNKNOWN_MEMBER_ID,
        DEAD: Error.COORDINATOR_NOT_AVAILABLE,
    },
    Request.LEAVE: {
        EMPTY: Error.UNKNOWN_MEMBER_ID,
        PREPARING: Effect.COMPLETE_JOIN,
        COMPLETING: Effect.REBALANCE,
        STABLE: Effect.REBALANCE,
        DEAD: Error.COORDINATOR_NOT_AVAILABLE,
    },
    Request.OFFSET_DELETE: {
        EMPTY: Effect.ACCEPT,
        PREPARING: Error.NON_EMPTY_GROUP,
        COMPLETING: Error.NON_EMPTY_GROUP,
        STABLE: Error.NON_EMPTY_GROUP,
        DEAD: Error.GROUP_ID_NOT_FOUND,
    },
    Request.DELETE: {
        EMPTY: Effect.ACCEPT,
        PREPARING: Error.NON_EMPTY_GROUP,
        COMPLETING: Error.NON_EMPTY_GROUP,
        STABLE: Error.NON_EMPTY_GROUP,
        DEAD: Error.GROUP_ID_NOT_FOUND,
    },
}


def answer_of(request: Request, state: State) -> Error | Effect:
    return ANSWERS[request][state]
