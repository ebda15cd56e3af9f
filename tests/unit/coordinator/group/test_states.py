"""The table of a classic group's states, cell by cell: the answer to each request in each state."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.group.classic.states import ANSWERS, ENTERED_FROM, Request, State
from coordinator.group.offsets.commit import Tombstones
from protocol.errors import Error, KafkaError
from tests.unit.coordinator.runtime import Answer, Groups

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = State


class Scene:
    """The group "g" in a state; `me` is a member of it (or was), in generation `generation`."""

    def __init__(self, state: State, protocol_type: str = "consumer") -> None:
        self.groups = groups = Groups()
        (self.me,) = groups.stable(protocol_type=protocol_type)
        self.parked: Answer | None = None
        if state is EMPTY:
            groups.leave(self.me)
        elif state is PREPARING:
            self.parked = groups.join(version=3, protocol_type=protocol_type)
        elif state is COMPLETING:
            groups.join(self.me, protocol_type=protocol_type)
        elif state is DEAD:
            groups.shard.groups.classic["g"].move_to(DEAD, 0)
        self.group = groups.shard.groups.classic["g"]
        self.generation = self.group.generation
        assert self.group.state is state


def outcome(answer: Answer, scene: Scene) -> str:
    return f"parked, {scene.group.state.value}" if answer.is_parked else answer.error.name


def join_new(scene: Scene) -> str:
    return outcome(scene.groups.join(version=3), scene)


def join_known(scene: Scene) -> str:
    return outcome(scene.groups.join(scene.me), scene)


def join_changed(scene: Scene) -> str:
    return outcome(scene.groups.join(scene.me, protocols=[("range", b"new")]), scene)


def sync(scene: Scene) -> str:
    return outcome(scene.groups.sync(scene.me, scene.generation), scene)


def heartbeat(scene: Scene) -> str:
    return scene.groups.heartbeat(scene.me, scene.generation).name


def commit_as_member(scene: Scene) -> str:
    (error,) = scene.groups.commit(("t", 0, 1), member_id=scene.me, generation=scene.generation)
    return error.name


def commit_anonymously(scene: Scene) -> str:
    (error,) = scene.groups.commit(("t", 0, 1))
    return error.name


def leave(scene: Scene) -> str:
    error, members = scene.groups.leave_answers(scene.me)
    return (error if error is not Error.NONE else Error(members[0].error_code)).name


def delete(scene: Scene) -> str:
    (error,) = scene.groups.shard.delete_groups(["g"])
    return error.name


def delete_offsets(scene: Scene) -> str:
    scene = Scene(scene.group.state, "connect")
    try:
        (error,) = scene.groups.shard.delete_offsets("g", [("t", 0)], Tombstones())
    except KafkaError as refused:
        return refused.error.name
    return error.name


UNAVAILABLE = "COORDINATOR_NOT_AVAILABLE"

# The columns are the states: Empty, PreparingRebalance, CompletingRebalance, Stable, Dead. A rebalance of a single
# member completes at once, except the first rebalance of an empty group.
CELLS: dict[Callable[[Scene], str], tuple[str, str, str, str, str]] = {
    join_new: (
        "parked, PreparingRebalance",
        "parked, PreparingRebalance",
        "parked, PreparingRebalance",
        "parked, PreparingRebalance",
        UNAVAILABLE,
    ),
    join_known: ("UNKNOWN_MEMBER_ID", "NONE", "NONE", "NONE", UNAVAILABLE),
    join_changed: ("UNKNOWN_MEMBER_ID", "NONE", "NONE", "NONE", UNAVAILABLE),
    sync: ("UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "NONE", "NONE", UNAVAILABLE),
    heartbeat: ("UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "NONE", "NONE", UNAVAILABLE),
    commit_as_member: ("UNKNOWN_MEMBER_ID", "NONE", "REBALANCE_IN_PROGRESS", "NONE", UNAVAILABLE),
    commit_anonymously: (
        "NONE",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
        UNAVAILABLE,
    ),
    leave: ("UNKNOWN_MEMBER_ID", "NONE", "NONE", "NONE", UNAVAILABLE),
    delete_offsets: (
        "NONE",
        "NON_EMPTY_GROUP",
        "NON_EMPTY_GROUP",
        "NON_EMPTY_GROUP",
        "GROUP_ID_NOT_FOUND",
    ),
    delete: ("NONE", "NON_EMPTY_GROUP", "NON_EMPTY_GROUP", "NON_EMPTY_GROUP", "GROUP_ID_NOT_FOUND"),
}


@pytest.mark.table("coordinator.group.classic.states.ANSWERS")
@pytest.mark.parametrize("state", State, ids=lambda state: state.value)
@pytest.mark.parametrize("request_", CELLS, ids=lambda request: request.__name__)
def test_a_request_is_answered_as_the_table_says(request_: Callable[[Scene], str], state: State) -> None:
    scene = Scene(state)

    assert request_(scene) == CELLS[request_][[*State].index(state)]


# The state in which a request leaves the group, unless it is refused: (request, state before) → state after.
AFTER = {
    (join_new, EMPTY): PREPARING,
    (join_new, PREPARING): PREPARING,
    (join_new, COMPLETING): PREPARING,
    (join_new, STABLE): PREPARING,
    (join_known, PREPARING): COMPLETING,
    (join_known, COMPLETING): COMPLETING,
    (join_known, STABLE): COMPLETING,  # the leader is the only member, so its rebalance completes at once
    (sync, COMPLETING): STABLE,
    (sync, STABLE): STABLE,
    (heartbeat, PREPARING): PREPARING,
    (heartbeat, COMPLETING): COMPLETING,
    (heartbeat, STABLE): STABLE,
    (commit_as_member, PREPARING): PREPARING,
    (commit_as_member, STABLE): STABLE,
    (leave, PREPARING): COMPLETING,  # only the member that waits is left
    (leave, COMPLETING): EMPTY,
    (leave, STABLE): EMPTY,
}


@pytest.mark.parametrize(
    ("request_", "before"), AFTER, ids=lambda value: getattr(value, "__name__", None) or value.value
)
def test_a_request_leaves_the_group_in_the_state_of_the_table(
    request_: Callable[[Scene], str], before: State
) -> None:
    scene = Scene(before)

    request_(scene)

    assert scene.group.state is AFTER[request_, before]


def test_the_same_protocols_while_members_sync_do_not_begin_another_generation() -> None:
    scene = Scene(COMPLETING)

    same = scene.groups.join(scene.me).join
    assert same is not None
    assert same.generation_id == scene.generation
    assert [member.member_id for member in same.members] == [scene.me]

    changed = scene.groups.join(scene.me, protocols=[("range", b"new")]).join
    assert changed is not None
    assert changed.generation_id == scene.generation + 1


def test_a_follower_of_a_stable_group_that_changed_nothing_gets_the_current_generation() -> None:
    groups = Groups()
    _, follower = groups.stable(2)

    same = groups.join(follower).join
    assert same is not None
    assert (same.generation_id, same.members, groups.state) == (2, [], "Stable")

    assert groups.join(follower, protocols=[("range", b"new")]).is_parked
    assert groups.state == "PreparingRebalance"


def test_every_cell_of_both_tables_is_filled() -> None:
    assert {*ANSWERS} == {*Request}
    for answers in ANSWERS.values():
        assert {*answers} == {*State}
    assert {*ENTERED_FROM} == {*State}


LEGAL = {
    EMPTY: {PREPARING},
    PREPARING: {EMPTY, COMPLETING, STABLE},
    COMPLETING: {PREPARING},
    STABLE: {COMPLETING},
    DEAD: {*State},
}


@pytest.mark.table("coordinator.group.classic.states.ENTERED_FROM")
@pytest.mark.parametrize("before", State, ids=lambda state: state.value)
@pytest.mark.parametrize("after", State, ids=lambda state: state.value)
def test_a_group_moves_only_where_it_may(before: State, after: State) -> None:
    group = Scene(before).group

    if before in LEGAL[after]:
        group.move_to(after, 7)
        assert (group.previous_state, group.state, group.state_timestamp_ms) == (before, after, 7)
    else:
        with pytest.raises(AssertionError):
            group.move_to(after, 7)
