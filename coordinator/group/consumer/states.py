"""The states of consumer groups and of their members (KIP-848), as tables.

`GROUP_STATES` gives a group's state, `RECONCILE` the next step of a member in each situation, `ACCEPTED` the
member epochs that a heartbeat may have. Source: `ConsumerGroup`, `CurrentAssignmentBuilder`,
`GroupMetadataManager`.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class GroupState(Enum):
    """The values are Kafka's names, as clients see them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


GROUP_STATES: dict[tuple[bool, bool, bool], GroupState] = {
    # has members, group epoch > assignment epoch, all members are reconciled
    (False, False, True): GroupState.EMPTY,
    (False, True, True): GroupState.EMPTY,
    (True, True, False): GroupState.ASSIGNING,
    (True, True, True): GroupState.ASSIGNING,
    (True, False, False): GroupState.RECONCILING,
    (True, False, True): GroupState.STABLE,
}


class MemberState(IntEnum):
    """The values are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class Step(Enum):
    """What reconciliation does with a member."""

    STAY = "nothing changes"
    NEXT = "go on towards the target assignment"
    TRIM = "give up partitions that are no longer subscribed to, and stay at this epoch"
    REFUSE = "the member has to give up everything and join again"


RECONCILE: dict[tuple[MemberState, bool, bool], Step] = {
    # STABLE: whether it is at the target's epoch; whether its subscription has changed
    (MemberState.STABLE, True, False): Step.STAY,
    (MemberState.STABLE, True, True): Step.TRIM,
    (MemberState.STABLE, False, False): Step.NEXT,
    (MemberState.STABLE, False, True): Step.NEXT,
    # UNREVOKED_PARTITIONS: whether it reports that it owns none of them any more
    (MemberState.UNREVOKED_PARTITIONS, True, False): Step.NEXT,
    (MemberState.UNREVOKED_PARTITIONS, True, True): Step.NEXT,
    (MemberState.UNREVOKED_PARTITIONS, False, False): Step.STAY,
    (MemberState.UNREVOKED_PARTITIONS, False, True): Step.TRIM,
    # UNRELEASED_PARTITIONS: others may have given up some meanwhile
    (MemberState.UNRELEASED_PARTITIONS, True, False): Step.NEXT,
    (MemberState.UNRELEASED_PARTITIONS, True, True): Step.NEXT,
    (MemberState.UNRELEASED_PARTITIONS, False, False): Step.NEXT,
    (MemberState.UNRELEASED_PARTITIONS, False, True): Step.NEXT,
    # A state of a later version of Kafka: whether the member reports that it owns nothing
    (MemberState.UNKNOWN, True, False): Step.NEXT,
    (MemberState.UNKNOWN, True, True): Step.NEXT,
    (MemberState.UNKNOWN, False, False): Step.REFUSE,
    (MemberState.UNKNOWN, False, True): Step.REFUSE,
}


class MemberEpochRelation(Enum):
    """How the epoch of a heartbeat compares with the member's."""

    JOINS = "it is 0"
    CURRENT = "it is the same"
    PREVIOUS = "it is the one before, and what the member reports to own is part of what it is assigned"
    OLDER = "it is smaller otherwise"
    NEWER = "it is greater"


ACCEPTED: dict[MemberEpochRelation, bool] = {
    MemberEpochRelation.JOINS: True,
    MemberEpochRelation.CURRENT: True,
    MemberEpochRelation.PREVIOUS: True,  # the answer with the new one may have been lost
    MemberEpochRelation.OLDER: False,
    MemberEpochRelation.NEWER: False,
}

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
