"""The states of a record that a share group has in flight, and of a share partition, as tables.

`ENTERED_FROM` says which moves of a record are legal, except that a record out of reach is archived from any
state (`InFlightState.archive`). `ACKNOWLEDGED_AS` gives the state after an acknowledgement, and
`ON_INITIALIZE` the reaction of a share partition to a fetch. Source: `RecordState`, `SharePartition`
(KIP-932, KIP-1191). Kafka's table has all moves from ARCHIVING on, but only the one to ARCHIVED is ever made.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from protocol.errors import Error


class RecordState(IntEnum):
    """The values are those of the records in `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3  # on its way to the group's dead letter queue (KIP-1191), if it has one
    ARCHIVED = 4


AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState

RECORD_STATES = frozenset(RecordState)
"""The states that a record may have in durable state."""

ENTERED_FROM: dict[RecordState, frozenset[RecordState]] = {
    AVAILABLE: frozenset({ACQUIRED}),
    ACQUIRED: frozenset({AVAILABLE}),
    ACKNOWLEDGED: frozenset({ACQUIRED}),
    ARCHIVING: frozenset({ACQUIRED}),
    ARCHIVED: frozenset({ACQUIRED, ARCHIVING}),
}

TERMINAL = frozenset({ACKNOWLEDGED, ARCHIVED})
"""Final states of a record. The start of the share partition may move over it."""


class AcknowledgeType(IntEnum):
    """The types in requests. GAP is an offset without a record, which the client can't see otherwise."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4  # from version 2 on (KIP-1222)


ACKNOWLEDGED_AS: dict[int, RecordState] = {
    AcknowledgeType.GAP: ARCHIVED,
    AcknowledgeType.ACCEPT: ACKNOWLEDGED,
    AcknowledgeType.RELEASE: AVAILABLE,
    AcknowledgeType.REJECT: ARCHIVED,
}
"""RENEW isn't here: it changes no state, and only restarts the lock."""


class AcquireMode(IntEnum):
    """How a fetch counts records (KIP-1206)."""

    BATCH_OPTIMIZED = 0  # whole record batches; the limit of records is a soft one
    RECORD_LIMIT = 1  # never more than the limit


class PartitionState(Enum):
    """The state of a share partition."""

    EMPTY = "nothing has been read yet"
    INITIALIZING = "its durable state is being read"
    ACTIVE = "records are handed out"
    FAILED = "its durable state couldn't be read: whoever needs it creates a new one"
    FENCED = "dropped: it no longer hands out or writes anything"


ON_INITIALIZE: dict[PartitionState, Error | PartitionState] = {
    # the next state, or the immediate answer; clients never see LEADER_NOT_AVAILABLE: the fetch waits
    PartitionState.EMPTY: PartitionState.INITIALIZING,
    PartitionState.INITIALIZING: Error.LEADER_NOT_AVAILABLE,
    PartitionState.ACTIVE: Error.NONE,
    PartitionState.FAILED: Error.UNKNOWN_SERVER_ERROR,
    PartitionState.FENCED: Error.LEADER_NOT_AVAILABLE,
}
