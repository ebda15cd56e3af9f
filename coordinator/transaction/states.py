"""The states of a transaction, as tables.

`ENTERED_FROM` says which moves are legal. The other tables say how each request is answered in each state,
once its transactional id, producer id and epoch have been found right: with an error, or with the state to
move to. Error.NONE means success without a move. Source: `TransactionState`, `TransactionCoordinator`.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from protocol.errors import Error


class TransactionState(IntEnum):
    """The values are the ids that the records of `__transaction_state` hold."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6  # the id is about to be forgotten; only ever a pending state
    PREPARE_EPOCH_FENCE = (
        7  # Kafka enters it before an abort that no client asked for; barnabas proposes the abort at once
    )


(
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    PREPARE_ABORT,
    COMPLETE_COMMIT,
    COMPLETE_ABORT,
    DEAD,
    PREPARE_EPOCH_FENCE,
) = TransactionState

STATE_NAMES: dict[TransactionState, str] = {
    EMPTY: "Empty",
    ONGOING: "Ongoing",
    PREPARE_COMMIT: "PrepareCommit",
    PREPARE_ABORT: "PrepareAbort",
    COMPLETE_COMMIT: "CompleteCommit",
    COMPLETE_ABORT: "CompleteAbort",
    DEAD: "Dead",
    PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
"""The names that clients see."""

ENTERED_FROM: dict[TransactionState, frozenset[TransactionState]] = {
    EMPTY: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    ONGOING: frozenset({ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: frozenset({ONGOING, PREPARE_EPOCH_FENCE, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}

NEVER_LOGGED = frozenset({DEAD, PREPARE_EPOCH_FENCE})
EXPIRES = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
TIMES_OUT = frozenset({ONGOING})
AWAITS_MARKERS = frozenset({PREPARE_COMMIT, PREPARE_ABORT})

ErrorOrState = Error | TransactionState

_BUSY = Error.CONCURRENT_TRANSACTIONS
_FENCED = Error.PRODUCER_FENCED
_ILLEGAL = Error.INVALID_TXN_STATE
_NEVER = Error.UNKNOWN_SERVER_ERROR  # these states are only ever pending

INIT_PRODUCER_ID: dict[TransactionState, ErrorOrState] = {
    EMPTY: EMPTY,
    ONGOING: PREPARE_EPOCH_FENCE,
    PREPARE_COMMIT: _BUSY,
    PREPARE_ABORT: _BUSY,
    COMPLETE_COMMIT: EMPTY,
    COMPLETE_ABORT: EMPTY,
    DEAD: _NEVER,
    PREPARE_EPOCH_FENCE: _NEVER,
}

ADD_PARTITIONS: dict[TransactionState, ErrorOrState] = {
    EMPTY: ONGOING,
    ONGOING: ONGOING,
    PREPARE_COMMIT: _BUSY,
    PREPARE_ABORT: _BUSY,
    COMPLETE_COMMIT: ONGOING,
    COMPLETE_ABORT: ONGOING,
    DEAD: _NEVER,
    PREPARE_EPOCH_FENCE: _NEVER,
}


class ProducerEpochRelation(Enum):
    """How a request's producer epoch compares with the stored one."""

    CURRENT = "the same"
    RETRY = "the one before: the end that bumped it is asked for again (transactions V2)"
    OTHER = "older or newer"


CURRENT, RETRY, OTHER = ProducerEpochRelation

TO_COMMIT, TO_ABORT = True, False

END_TXN_V1: dict[TransactionState, dict[bool, ErrorOrState]] = {
    # EndTxn v0 to v4; the epoch is the current one
    ONGOING: {TO_COMMIT: PREPARE_COMMIT, TO_ABORT: PREPARE_ABORT},
    PREPARE_COMMIT: {TO_COMMIT: _BUSY, TO_ABORT: _ILLEGAL},
    PREPARE_ABORT: {TO_COMMIT: _ILLEGAL, TO_ABORT: _BUSY},
    COMPLETE_COMMIT: {TO_COMMIT: Error.NONE, TO_ABORT: _ILLEGAL},
    COMPLETE_ABORT: {TO_COMMIT: _ILLEGAL, TO_ABORT: Error.NONE},
    EMPTY: {TO_COMMIT: _ILLEGAL, TO_ABORT: _ILLEGAL},
    DEAD: {TO_COMMIT: _NEVER, TO_ABORT: _NEVER},
    PREPARE_EPOCH_FENCE: {TO_COMMIT: _NEVER, TO_ABORT: _NEVER},
}

END_TXN_V2: dict[TransactionState, dict[bool, dict[ProducerEpochRelation, ErrorOrState]]] = {
    # EndTxn v5 (KIP-890 part 2)
    ONGOING: {
        TO_ABORT: {RETRY: _FENCED, CURRENT: PREPARE_ABORT, OTHER: _FENCED},
        TO_COMMIT: {RETRY: _FENCED, CURRENT: PREPARE_COMMIT, OTHER: _FENCED},
    },
    EMPTY: {
        TO_ABORT: {RETRY: _FENCED, CURRENT: PREPARE_ABORT, OTHER: _FENCED},
        TO_COMMIT: {RETRY: _FENCED, CURRENT: _ILLEGAL, OTHER: _FENCED},
    },
    COMPLETE_ABORT: {
        TO_ABORT: {RETRY: Error.NONE, CURRENT: PREPARE_ABORT, OTHER: _FENCED},
        TO_COMMIT: {RETRY: _ILLEGAL, CURRENT: _ILLEGAL, OTHER: _FENCED},
    },
    COMPLETE_COMMIT: {
        TO_ABORT: {RETRY: _ILLEGAL, CURRENT: PREPARE_ABORT, OTHER: _FENCED},
        TO_COMMIT: {RETRY: Error.NONE, CURRENT: _ILLEGAL, OTHER: _FENCED},
    },
    PREPARE_ABORT: {
        TO_ABORT: {RETRY: _BUSY, CURRENT: _FENCED, OTHER: _FENCED},
        TO_COMMIT: {RETRY: _ILLEGAL, CURRENT: _FENCED, OTHER: _FENCED},
    },
    PREPARE_COMMIT: {
        TO_ABORT: {RETRY: _ILLEGAL, CURRENT: _FENCED, OTHER: _FENCED},
        TO_COMMIT: {RETRY: _BUSY, CURRENT: _FENCED, OTHER: _FENCED},
    },
    DEAD: {
        TO_ABORT: {RETRY: _FENCED, CURRENT: _NEVER, OTHER: _FENCED},
        TO_COMMIT: {RETRY: _FENCED, CURRENT: _NEVER, OTHER: _FENCED},
    },
    PREPARE_EPOCH_FENCE: {
        TO_ABORT: {RETRY: _FENCED, CURRENT: _NEVER, OTHER: _FENCED},
        TO_COMMIT: {RETRY: _FENCED, CURRENT: _NEVER, OTHER: _FENCED},
    },
}
