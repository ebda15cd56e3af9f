"""The states of streams groups and of their members (KIP-1071), as tables.

`STREAMS_GROUP_STATES` gives a group's state, `TASK_STEPS` the next step of a member in each situation.
Source: `StreamsGroup`, `CurrentAssignmentBuilder`.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class StreamsGroupState(Enum):
    """The values are Kafka's names, as clients see them."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


STREAMS_GROUP_STATES: dict[tuple[bool, bool, bool, bool], StreamsGroupState] = {
    # has members, its topology was found valid, group epoch > assignment epoch, all members are reconciled
    (False, False, False, True): StreamsGroupState.EMPTY,
    (False, False, True, True): StreamsGroupState.EMPTY,
    (False, True, False, True): StreamsGroupState.EMPTY,
    (False, True, True, True): StreamsGroupState.EMPTY,
    (True, False, False, False): StreamsGroupState.NOT_READY,
    (True, False, False, True): StreamsGroupState.NOT_READY,
    (True, False, True, False): StreamsGroupState.NOT_READY,
    (True, False, True, True): StreamsGroupState.NOT_READY,
    (True, True, True, False): StreamsGroupState.ASSIGNING,
    (True, True, True, True): StreamsGroupState.ASSIGNING,
    (True, True, False, False): StreamsGroupState.RECONCILING,
    (True, True, False, True): StreamsGroupState.STABLE,
}

FILTERED_AS = {StreamsGroupState.NOT_READY.value: "not_ready"}
"""The word for a state in ListGroups' filter, if it isn't its name in lower case."""


class StreamsMemberState(IntEnum):
    """The values are those of the records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127


class TaskStep(Enum):
    """What reconciliation does with a member."""

    STAY = "nothing changes"
    NEXT = "go on towards the target assignment"
    NEXT_EPOCH = "go on towards the target assignment, at the member's epoch plus one"
    ADOPT = "go on towards the target assignment, at the target's epoch"
    REFUSE = "the member has to give up everything and join again"


TASK_STEPS: dict[tuple[StreamsMemberState, bool], TaskStep] = {
    # STABLE: whether it is at the target's epoch
    (StreamsMemberState.STABLE, True): TaskStep.STAY,
    (StreamsMemberState.STABLE, False): TaskStep.NEXT,
    # UNREVOKED_TASKS: whether it reports that it owns none of them any more
    (StreamsMemberState.UNREVOKED_TASKS, True): TaskStep.NEXT_EPOCH,
    (StreamsMemberState.UNREVOKED_TASKS, False): TaskStep.STAY,
    # UNRELEASED_TASKS: others may have given up some meanwhile, whatever it reports
    (StreamsMemberState.UNRELEASED_TASKS, True): TaskStep.NEXT,
    # A state of a later version of Kafka: whether the member reports that it owns nothing
    (StreamsMemberState.UNKNOWN, True): TaskStep.ADOPT,
    (StreamsMemberState.UNKNOWN, False): TaskStep.REFUSE,
}


class StatusCode(IntEnum):
    """The statuses of the application in a heartbeat's answer (Kafka: `StreamsGroupHeartbeatResponse.Status`)."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6  # from version 1 on
