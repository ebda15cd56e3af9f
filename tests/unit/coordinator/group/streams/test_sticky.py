"""The sticky assignor: what stays, which member has the least load, copies of state. Beside Kafka: tests/compare."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence

import pytest

from coordinator.group.streams.sticky import TaskMemberSpec, assign_sticky
from coordinator.group.streams.tasks import ActiveTasks, OffsetSums, TaskSets
from coordinator.group.streams.topology import ConfiguredSubtopology, InternalTopic
from coordinator.java.maps import JavaMap, JavaSet

Shown = dict[str, tuple[list[str], list[str]]]
"""Member → its active and standby tasks, such as "0_1"."""


def subtopologies(*counts: tuple[int, bool]) -> dict[str, ConfiguredSubtopology]:
    """Return subtopologies of so many tasks each, with or without state."""
    found = {}
    for index, (count, is_stateful) in enumerate(counts):
        changelogs: JavaMap[str, InternalTopic] = JavaMap()
        if is_stateful:
            changelogs["c"] = InternalTopic("c", count, 0, JavaMap())
        found[str(index)] = ConfiguredSubtopology(count, JavaSet(), JavaMap(), JavaSet(), changelogs)
    return found


def sets(tasks: Sequence[str]) -> TaskSets:
    found: TaskSets = JavaMap()
    for task in tasks:
        subtopology_id, partition = task.split("_")
        found.compute_if_absent(subtopology_id, JavaSet()).add(int(partition))
    return found


def epochs(tasks: Sequence[str]) -> ActiveTasks:
    found: ActiveTasks = JavaMap()
    for task in tasks:
        subtopology_id, partition = task.split("_")
        found.compute_if_absent(subtopology_id, JavaMap())[int(partition)] = 1
    return found


def sums(offsets: Mapping[str, int]) -> OffsetSums:
    found: OffsetSums = JavaMap()
    for task, offset in offsets.items():
        subtopology_id, partition = task.split("_")
        found.compute_if_absent(subtopology_id, JavaMap())[int(partition)] = offset
    return found


def assigned(
    members: Mapping[str, str],
    of: Mapping[str, ConfiguredSubtopology],
    before: Shown | None = None,
    standbys: int = 0,
    offsets: Mapping[str, Mapping[str, int]] | None = None,
) -> Shown:
    """Assign tasks. `members` has each member's process, `offsets` each one's offset in its tasks."""
    specs: JavaMap[str, TaskMemberSpec] = JavaMap()
    for member, process in members.items():
        active, standby = (before or {}).get(member, ([], []))
        specs[member] = TaskMemberSpec(
            process, epochs(active), sets(standby), sums((offsets or {}).get(member, {}))
        )
    targets = assign_sticky(specs, of, standbys)
    return {member: (names(target.active), names(target.standby)) for member, target in targets.items()}


def names(tasks: TaskSets) -> list[str]:
    return sorted(f"{each}_{partition}" for each, partitions in tasks.items() for partition in partitions)


def test_each_gets_as_many() -> None:
    found = assigned({"a": "p", "b": "q"}, subtopologies((4, False)))
    assert found == {"a": (["0_0", "0_2"], []), "b": (["0_1", "0_3"], [])}


def test_processes_share_by_their_members() -> None:
    found = assigned({"a": "p", "b": "p", "c": "q"}, subtopologies((6, False)))
    assert {member: len(active) for member, (active, _) in found.items()} == {"a": 2, "b": 2, "c": 2}


def test_active_tasks_stay_where_they_are() -> None:
    before: Shown = {"a": (["0_0", "0_1", "0_2", "0_3"], [])}
    found = assigned({"a": "p", "b": "q"}, subtopologies((4, False)), before)
    assert found == {"a": (["0_0", "0_1"], []), "b": (["0_2", "0_3"], [])}


def test_a_task_goes_to_a_member_with_a_copy_of_its_state() -> None:
    before: Shown = {"a": (["0_0"], ["0_1"]), "b": ([], ["0_0"])}
    found = assigned({"a": "p", "b": "q", "c": "r"}, subtopologies((3, True)), before | {"c": ([], ["0_2"])})
    assert found["c"] == (["0_2"], [])
    assert found["a"] == (["0_0"], [])
    assert found["b"] == (["0_1"], [])


def test_a_copy_is_in_another_process() -> None:
    found = assigned({"a": "p", "b": "q"}, subtopologies((2, True)), {"a": (["0_0", "0_1"], [])}, standbys=1)
    assert found == {"a": (["0_0"], ["0_1"]), "b": (["0_1"], ["0_0"])}


def test_two_members_of_one_process_have_no_copies(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = assigned({"a": "p", "b": "p"}, subtopologies((2, True)), standbys=1)
    assert [standby for _, standby in found.values()] == [[], []]
    assert "2 of 2 standby tasks are left out" in caplog.text


def test_tasks_without_state_have_no_copies() -> None:
    found = assigned({"a": "p", "b": "q"}, subtopologies((2, False), (2, True)), standbys=1)
    assert sorted(task for _, standby in found.values() for task in standby) == ["1_0", "1_1"]


def test_a_former_copy_comes_before_a_reported_offset_and_higher_offsets_before_lower_ones() -> None:
    members = {"a": "p", "b": "q", "c": "r", "d": "s"}
    of = subtopologies((1, True))
    before: Shown = {"a": (["0_0"], [])}
    assert assigned(members, of, before, standbys=1, offsets={"c": {"0_0": 5}, "d": {"0_0": 9}})["d"] == (
        [],
        ["0_0"],
    )
    before["b"] = ([], ["0_0"])
    told = {"a": {"0_0": 7}, "c": {"0_0": 5}, "d": {"0_0": 9}}
    assert assigned(members, of, before, standbys=1, offsets=told)["b"] == ([], ["0_0"])
    copies = assigned(members, of, before | {"c": ([], ["0_0"])}, standbys=1, offsets=told)
    assert copies["c"] == ([], ["0_0"])


def test_a_member_that_reports_an_offset_gets_an_unowned_task() -> None:
    told = {"b": {"0_0": 1, "0_9": 1, "7_0": 1}}
    assert assigned({"a": "p", "b": "q"}, subtopologies((2, True)), offsets=told) == {
        "a": (["0_1"], []),
        "b": (["0_0"], []),
    }


def test_a_process_that_holds_the_task_gets_no_copy() -> None:
    """The first member that had a copy belongs to the process that already has the task."""
    before: Shown = {"a": (["0_0"], []), "b": ([], ["0_0"]), "c": ([], ["0_0"])}
    members = {"a": "p", "b": "p", "c": "q", "d": "r"}
    assert assigned(members, subtopologies((1, True)), before, standbys=1)["c"] == ([], ["0_0"])


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_each_task_is_active_once_and_copied_elsewhere(seed: int) -> None:
    chance = random.Random(seed)
    of = subtopologies(*((chance.randint(1, 7), chance.random() < 0.6) for _ in range(chance.randint(1, 4))))
    before: Shown = {}
    for _ in range(5):
        standbys = chance.randint(0, 2)
        members = {f"m{index}": f"p{chance.randrange(4)}" for index in range(chance.randint(1, 6))}
        before = assigned(members, of, before, standbys)
        tasks = [f"{each}_{partition}" for each in of for partition in range(of[each].task_count)]
        assert sorted(task for active, _ in before.values() for task in active) == sorted(tasks)
        most = -(-len(tasks) // len(members))
        if standbys == 0 and len(set(members.values())) == len(members):
            assert max(len(active) for active, _ in before.values()) <= most
        for task in tasks:
            holders = [members[member] for member in members if any(task in kind for kind in before[member])]
            assert len(holders) == len(set(holders))
            wanted = 1 + (standbys if of[task[0]].is_stateful else 0)
            assert len(holders) == min(wanted, len(set(members.values())))
