"""The states of a record that a share group has in flight, and of a share partition, as tables.

`ENTERED_FROM` says which moves of a record are legal, but for what is out of reach, which is archived from anywhere
(`InFlightState.archive`); `ACKNOWLEDGED_AS` what an acknowledgement makes of it, and `ON_INITIALIZE` what a share
partition does when a fetch wants it. Source: `RecordState`, `SharePartition` (KIP-932, KIP-1191). Kafka's table has all
moves from ARCHIVING on; none but that to ARCHIVED is ever made.
"""

from __future__ import annotations

from enum import Enum, IntEnum

from protocol.errors import Error


class RecordState(IntEnum):
    """The values are those of the records in `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3  # on its way to the group's dead letter queue (KIP-1191), where it has one
    ARCHIVED = 4


AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState

RECORD_STATES = frozenset(RecordState)
"""What durable state may say of a record."""

ENTERED_FROM: dict[RecordState, frozenset[RecordState]] = {
    AVAILABLE: frozenset({ACQUIRED}),
    ACQUIRED: frozenset({AVAILABLE}),
    ACKNOWLEDGED: frozenset({ACQUIRED}),
    ARCHIVING: frozenset({ACQUIRED}),
    ARCHIVED: frozenset({ACQUIRED, ARCHIVING}),
}

TERMINAL = frozenset({ACKNOWLEDGED, ARCHIVED})
"""From here a record goes nowhere: the start of the share partition may move over it."""


class AcknowledgeType(IntEnum):
    """As requests say it; GAP is an offset that has no record, which the client can't see otherwise."""

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
"""RENEW isn't here: it moves nothing, the lock begins anew."""


class AcquireMode(IntEnum):
    """How a fetch counts (KIP-1206)."""

    BATCH_OPTIMIZED = 0  # whole record batches, the limit of records being a soft one
    RECORD_LIMIT = 1  # never more than the limit


class PartitionState(Enum):
    """Of a share partition as a whole."""

    EMPTY = "nothing is read yet"
    INITIALIZING = "its durable state is being read"
    ACTIVE = "records are handed out"
    FAILED = "its durable state couldn't be read: whoever wants it makes another one"
    FENCED = "dropped: it hands out nothing and writes nothing any more"


ON_INITIALIZE: dict[PartitionState, Error | PartitionState] = {
    # the state to go to, or what is answered at once; LEADER_NOT_AVAILABLE is no client's: the fetch waits
    PartitionState.EMPTY: PartitionState.INITIALIZING,
    PartitionState.INITIALIZING: Error.LEADER_NOT_AVAILABLE,
    PartitionState.ACTIVE: Error.NONE,
    PartitionState.FAILED: Error.UNKNOWN_SERVER_ERROR,
    PartitionState.FENCED: Error.LEADER_NOT_AVAILABLE,
}
