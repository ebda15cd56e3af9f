"""The tables of streams groups' states and of their members' steps, cell by cell."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.group.streams.group import StreamsMember
from coordinator.group.streams.states import (
    FILTERED_AS,
    STREAMS_GROUP_STATES,
    TASK_STEPS,
    StreamsGroupState,
    StreamsMemberState,
    TaskStep,
)
from coordinator.group.streams.steps import TaskSituation, reconcile_tasks
from coordinator.group.streams.tasks import (
    NO_TARGET_TASKS,
    MemberTasks,
    OwnedTasks,
    TargetTasks,
    TaskHolders,
    TaskSets,
)
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import Error, KafkaError
from tests.unit.coordinator.group.streams.members import (
    StreamsMembers,
    Tasks,
    subtopology,
    task_ids,
    topology,
)


def stable() -> StreamsMembers:
    groups = StreamsMembers()
    groups.enter("one")
    return groups


def reconciling() -> StreamsMembers:
    groups = stable()
    groups.enter("two", "q")
    return groups


def assigning() -> StreamsMembers:
    groups = reconciling()
    groups.beat("two", -1)
    return groups


def assigning_reconciled() -> StreamsMembers:
    groups = stable()
    groups.enter("two", "q")
    groups.settle()
    groups.beat("two", -1)
    return groups


def empty_and_assigned() -> StreamsMembers:
    groups = stable()
    groups.beat("one", -1)
    return groups


def empty() -> StreamsMembers:
    """Return an empty group as Kafka before 4.4 leaves it."""
    groups = empty_and_assigned()
    groups.group.assignment_epoch = groups.group.epoch - 1
    return groups


def of(make: Callable[[], StreamsMembers]) -> Callable[[], StreamsMembers]:
    """Return a maker of the same group, once its topology has been found invalid."""

    def made() -> StreamsMembers:
        groups = make()
        groups.group.validated_epoch = -1
        return groups

    return made


CASES = [
    (of(empty_and_assigned), (False, False, False, True)),
    (of(empty), (False, False, True, True)),
    (empty_and_assigned, (False, True, False, True)),
    (empty, (False, True, True, True)),
    (of(reconciling), (True, False, False, False)),
    (of(stable), (True, False, False, True)),
    (of(assigning), (True, False, True, False)),
    (of(assigning_reconciled), (True, False, True, True)),
    (assigning, (True, True, True, False)),
    (assigning_reconciled, (True, True, True, True)),
    (reconciling, (True, True, False, False)),
    (stable, (True, True, False, True)),
]


@pytest.mark.table("coordinator.group.streams.states.STREAMS_GROUP_STATES")
@pytest.mark.parametrize(("make", "cell"), CASES)
def test_a_streams_group_is_in_the_state_of_its_cell(
    make: Callable[[], StreamsMembers], cell: tuple[bool, bool, bool, bool]
) -> None:
    group = make().group
    topology = group.topology
    assert topology is not None
    reconciled = all(member.is_reconciled_to(group.assignment_epoch) for member in group.members.values())
    is_valid = topology.epoch == group.validated_epoch

    assert (bool(group.members), is_valid, group.epoch > group.assignment_epoch, reconciled) == cell
    assert group.state is STREAMS_GROUP_STATES[cell]


def test_every_cell_of_a_streams_group_has_its_case() -> None:
    assert {cell for _, cell in CASES} == {*STREAMS_GROUP_STATES}
    assert {*STREAMS_GROUP_STATES.values()} == {*StreamsGroupState} - {StreamsGroupState.DEAD}


def test_a_group_is_not_ready_while_a_source_is_missing() -> None:
    groups = StreamsMembers(of=topology(subtopology("0", "nowhere")))
    groups.enter("one")
    assert groups.state == "NotReady"


@pytest.mark.table("coordinator.group.streams.states.FILTERED_AS")
def test_a_state_is_found_by_its_word() -> None:
    groups = StreamsMembers(of=topology(subtopology("0", "nowhere")))
    groups.enter("one")

    def found(word: str) -> bool:
        return bool(groups.shard.list_groups([word], []))

    assert FILTERED_AS == {"NotReady": "not_ready"}
    assert found("not_ready")
    assert found(" NOT_READY ")
    assert not found("NotReady")
    groups.create("nowhere", 1)
    groups.beat("one", 2)
    assert found("stable")
    assert not found("not_ready")


# --- a member's steps ---------------------------------------------------------------------------------------


def sets(tasks: Tasks) -> TaskSets:
    found: TaskSets = JavaMap()
    for subtopology_id, partitions in tasks.items():
        found[subtopology_id] = JavaSet.of(partitions)
    return found


def held(active: Tasks, epoch: int) -> MemberTasks:
    found: JavaMap[str, JavaMap[int, int]] = JavaMap()
    for subtopology_id, partitions in active.items():
        epochs: JavaMap[int, int] = JavaMap()
        for partition in partitions:
            epochs[partition] = epoch
        found[subtopology_id] = epochs
    return MemberTasks(found, JavaMap(), JavaMap())


def owned(active: Tasks | None) -> OwnedTasks:
    return OwnedTasks(None, None, None) if active is None else OwnedTasks(task_ids(active), [], [])


STATES = StreamsMemberState
STEPS = [
    # state, epoch, reported tasks; the second part of the cell
    (STATES.STABLE, 7, None, True),
    (STATES.STABLE, 5, None, False),
    (STATES.UNREVOKED_TASKS, 5, {"0": [0]}, True),
    (STATES.UNREVOKED_TASKS, 5, {"0": [0, 1]}, False),
    (STATES.UNREVOKED_TASKS, 5, None, False),
    (STATES.UNRELEASED_TASKS, 7, None, True),
    (STATES.UNKNOWN, 5, {}, True),
    (STATES.UNKNOWN, 5, {"0": [0]}, False),
    (STATES.UNKNOWN, 5, None, False),
]


@pytest.mark.table("coordinator.group.streams.states.TASK_STEPS")
@pytest.mark.parametrize(("state", "epoch", "reported", "is_settled"), STEPS)
def test_a_member_takes_the_step_of_its_cell(
    state: StreamsMemberState, epoch: int, reported: Tasks | None, is_settled: bool
) -> None:
    """The member has 0_0, and its target is 0_0 and 0_2."""
    member = StreamsMember(
        "m",
        epoch=epoch,
        previous_epoch=4,
        process_id="p",
        state=state,
        assigned=held({"0": [0]}, 3),
        pending=held({"0": [1]}, 3),
    )
    target = TargetTasks(sets({"0": [0, 2]}), *NO_TARGET_TASKS[1:])
    situation = TaskSituation(7, target, owned(reported), TaskHolders())

    step = TASK_STEPS[state, is_settled]
    if step is TaskStep.REFUSE:
        with pytest.raises(KafkaError) as refused:
            reconcile_tasks(member, situation)
        assert refused.value.error is Error.FENCED_MEMBER_EPOCH
        return
    after = reconcile_tasks(member, situation)
    if step is TaskStep.STAY:
        assert after is member
        return
    assert (after.epoch, after.previous_epoch, after.state) == (7, epoch, STATES.STABLE)
    epochs = after.assigned.active["0"]
    assert {partition: epochs[partition] for partition in epochs} == {0: 3, 2: 7}
    assert after.pending.is_empty


@pytest.mark.parametrize(
    ("state", "reported", "expected"),
    [(STATES.STABLE, None, 5), (STATES.UNREVOKED_TASKS, {"0": [0]}, 6), (STATES.UNKNOWN, {}, 7)],
)
def test_a_step_that_has_to_give_up_is_at_the_epoch_of_its_cell(
    state: StreamsMemberState, reported: Tasks | None, expected: int
) -> None:
    """A member in UNKNOWN reports that it owns nothing, so it never has to give anything up."""
    member = StreamsMember(
        "m", epoch=5, state=state, assigned=held({"0": [0]}, 3), pending=held({"0": [1]}, 3)
    )
    situation = TaskSituation(7, NO_TARGET_TASKS, owned(reported), TaskHolders())

    after = reconcile_tasks(member, situation)

    assert after.epoch == expected
    assert (after.state is STATES.UNREVOKED_TASKS) == (state is not STATES.UNKNOWN)


@pytest.mark.parametrize("process_id", ["p", "q"])
def test_a_task_that_is_to_be_active_waits_for_the_copy_in_its_process(process_id: str) -> None:
    holders = TaskHolders()
    holders.hold(MemberTasks(JavaMap(), sets({"0": [2]}), JavaMap()), "p")
    member = StreamsMember("m", epoch=5, process_id=process_id, assigned=held({"0": [0]}, 3))
    target = TargetTasks(sets({"0": [0, 2]}), *NO_TARGET_TASKS[1:])

    after = reconcile_tasks(member, TaskSituation(7, target, owned(None), holders))

    waits = process_id == "p"
    assert (after.state is STATES.UNRELEASED_TASKS) == waits
    assert [*after.assigned.active["0"]] == ([0] if waits else [0, 2])


@pytest.mark.parametrize("process_id", ["p", "q"])
def test_a_copy_waits_for_the_task_that_is_active_in_its_process(process_id: str) -> None:
    holders = TaskHolders()
    holders.hold(held({"0": [2]}, 3), "p")
    member = StreamsMember("m", epoch=5, process_id=process_id, assigned=held({"0": [0]}, 3))
    target = TargetTasks(sets({"0": [0]}), sets({"0": [2]}), JavaMap())

    after = reconcile_tasks(member, TaskSituation(7, target, owned(None), holders))

    waits = process_id == "p"
    assert (after.state is STATES.UNRELEASED_TASKS) == waits
    assert len(after.assigned.standby) == (0 if waits else 1)


def test_every_cell_of_a_member_has_its_case() -> None:
    assert {(state, is_settled) for state, _, _, is_settled in STEPS} == {*TASK_STEPS}
