"""The states of share groups, and the member epochs that a heartbeat may have (KIP-932), as tables.

Source: `ShareGroup`, `GroupMetadataManager.throwIfShareGroupMemberEpochIsInvalid`.
"""

from __future__ import annotations

from enum import Enum


class ShareGroupState(Enum):
    """The values are Kafka's names, as clients see them. (Its Unknown is a client's.)"""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


SHARE_GROUP_STATES: dict[bool, ShareGroupState] = {
    # has members
    False: ShareGroupState.EMPTY,
    True: ShareGroupState.STABLE,
}

STABLE_MEMBER = 0
"""The state in a member's record. There is no other one: a member of a share group never has to give up
anything first."""

JOIN_EPOCH = 0
LEAVE_EPOCH = -1


class ShareEpochRelation(Enum):
    """How the epoch of a heartbeat compares with the member's."""

    JOINS = "it is 0"
    CURRENT = "it is the same"
    PREVIOUS = "it is the one before"
    OLDER = "it is smaller otherwise"
    NEWER = "it is greater"


ACCEPTED_EPOCHS: dict[ShareEpochRelation, bool] = {
    ShareEpochRelation.JOINS: True,
    ShareEpochRelation.CURRENT: True,
    ShareEpochRelation.PREVIOUS: True,  # the answer with the new one may have been lost
    ShareEpochRelation.OLDER: False,
    ShareEpochRelation.NEWER: False,
}
