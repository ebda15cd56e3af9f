"""The assignor "sticky", the only one of streams groups: tasks stay where they were, or where a copy of their
state is.

Source: `StickyTaskAssignor`, `ProcessState`. Among equals, the order of Java's maps and queues decides who
gets a task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from coordinator.group.streams.tasks import (
    NO_TARGET_TASKS,
    ActiveTasks,
    OffsetSums,
    TargetTasks,
    TaskSets,
    by_name,
    has_task,
)
from coordinator.group.streams.topology import ConfiguredSubtopology
from coordinator.java.maps import JavaMap, JavaPriorityQueue, JavaSet

log = logging.getLogger("barnabas.groups")

Task = tuple[str, int]
"""Subtopology and partition."""


class TaskMemberSpec(NamedTuple):
    """A member: its process, its assigned tasks, and its reported positions in the state of tasks."""

    process_id: str
    active: ActiveTasks
    standby: TaskSets
    offsets: OffsetSums


class _Holder(NamedTuple):
    process: _Process
    member_id: str


class _Candidate(NamedTuple):
    """A candidate for a copy. One that already had the copy comes first, then those with the most of the state."""

    holder: _Holder
    had_copy: bool
    offset: int


class _Process:
    """The tasks of one process, by its members. `load` is the number of tasks per member."""

    def __init__(self) -> None:
        self.counts: JavaMap[str, int] = JavaMap()
        self.tasks: set[Task] = set()
        self.active: dict[str, list[Task]] = {}
        self.standby: dict[str, list[Task]] = {}
        self.load = 0.0
        self._task_count = 0
        self._by_count: JavaPriorityQueue[tuple[str, int]] | None = None

    def add_member(self, member_id: str) -> None:
        self.counts[member_id] = 0

    def add(self, member_id: str, task: Task, *, is_active: bool) -> int:
        """Give the member a task. Returns the number of its tasks."""
        self._by_count = None
        return self._add(member_id, task, is_active=is_active)

    def _add(self, member_id: str, task: Task, *, is_active: bool) -> int:
        self._task_count += 1
        self.tasks.add(task)
        (self.active if is_active else self.standby).setdefault(member_id, []).append(task)
        count = self.counts[member_id] + 1
        self.counts[member_id] = count
        self.load = self._task_count / len(self.counts)
        return count

    def add_to_least_loaded(self, task: Task, *, is_active: bool) -> int:
        """Give the task to the member with the fewest. Returns the number of its tasks."""
        if len(self.counts) == 1:
            return self._add(next(iter(self.counts)), task, is_active=is_active)
        queue = self._by_count
        if queue is None:
            queue = self._by_count = JavaPriorityQueue(lambda entry: entry[1])
            for entry in self.counts.items():
                queue.add(entry)
        least = queue.poll()
        assert least is not None
        count = self._add(least[0], task, is_active=is_active)
        queue.add((least[0], count))
        return count


class _Quota:
    """The number of tasks that a member may have. A full member is taken out with its tasks, and the rest is
    shared anew."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.of_each = self._shared()

    def _shared(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0

    def has(self, count: int) -> None:
        """Note that a member has reached this number of tasks."""
        if count == self.of_each:
            self._members -= 1
            self._tasks -= count
            self.of_each = self._shared()


def assign_sticky(
    members: JavaMap[str, TaskMemberSpec], subtopologies: Mapping[str, ConfiguredSubtopology], standbys: int
) -> dict[str, TargetTasks]:
    """The target of each member, by its id. Each task with state gets `standbys` copies."""
    assignment = _Assignment(members, subtopologies, standbys)
    assignment.assign_active()
    if standbys:
        assignment.assign_standby()
    return {member_id: assignment.target_of(member_id) for member_id in members}


class _Assignment:
    def __init__(
        self,
        members: JavaMap[str, TaskMemberSpec],
        subtopologies: Mapping[str, ConfiguredSubtopology],
        standbys: int,
    ) -> None:
        self._standbys = standbys
        self._active = _tasks(subtopologies, lambda each: True)
        self._stateful = _tasks(subtopologies, lambda each: each.is_stateful)
        all_tasks = len(self._active) + standbys * len(self._stateful)
        self._active_quota = _Quota(len(self._active), len(members))
        self._quota = _Quota(all_tasks, len(members))
        self._processes: JavaMap[str, _Process] = JavaMap(len(members))
        self._members: dict[str, _Process] = {}
        self._was_active: dict[Task, _Holder] = {}
        candidates: dict[Task, list[_Candidate]] = {}
        for member_id, spec in members.items():
            process = self._processes.compute_if_absent(spec.process_id, _Process())
            process.add_member(member_id)
            self._members[member_id] = process
            holder = _Holder(process, member_id)
            for task in _each(spec.active):
                self._was_active[task] = holder
            for task, candidate in _candidates(spec, holder):
                candidates.setdefault(task, []).append(candidate)
        self._were_standby = {
            task: [each.holder for each in sorted(found, key=lambda each: (not each.had_copy, -each.offset))]
            for task, found in candidates.items()
        }

    # --- active tasks ---------------------------------------------------------------------------------------

    def assign_active(self) -> None:
        left = sorted(self._active, key=_by_partition)
        left = [task for task in left if not self._stays(task, self._was_active.get(task))]
        left = [task for task in left if not self._stays(task, self._least_loaded(task, None))]
        queue = self._queue()
        for task in sorted(left, key=_by_subtopology):
            process = queue.poll()
            assert process is not None
            self._active_came_to(process.add_to_least_loaded(task, is_active=True))
            queue.add(process)

    def _stays(self, task: Task, holder: _Holder | None) -> bool:
        """Keep the task where it was, or where its copy is, if there is room. Returns True if it stays."""
        if holder is None or holder.process.counts[holder.member_id] >= self._active_quota.of_each:
            return False
        self._active_came_to(holder.process.add(holder.member_id, task, is_active=True))
        return True

    def _active_came_to(self, count: int) -> None:
        self._active_quota.has(count)
        self._quota.has(count)

    # --- copies of their state ------------------------------------------------------------------------------

    def assign_standby(self) -> None:
        kept: list[tuple[Task, int]] = []
        for task in sorted(self._stateful, key=_by_partition, reverse=True):
            for given in range(self._standbys):
                if self._copies_to(task, self._was_active.get(task)):
                    continue
                if self._copies_to(task, self._least_loaded(task, task)):
                    continue
                kept.append((task, self._standbys - given))
                break
        queue = self._queue()
        left_out = 0
        for task, count in sorted(kept, key=lambda each: _by_subtopology(each[0]), reverse=True):
            for given in range(count):
                if not self._copies_to_least_loaded(queue, task):
                    left_out += count - given
                    break
        if left_out:
            said = "%d of %d standby tasks are left out: there are too few processes"
            log.warning(said, left_out, self._standbys * len(self._stateful))

    def _copies_to(self, task: Task, holder: _Holder | None) -> bool:
        """Put a copy where the task was, if there is room, and the process doesn't hold it already. Returns
        True if it does."""
        if holder is None or task in holder.process.tasks:
            return False
        if holder.process.counts[holder.member_id] >= self._quota.of_each:
            return False
        self._quota.has(holder.process.add(holder.member_id, task, is_active=False))
        return True

    def _copies_to_least_loaded(self, queue: JavaPriorityQueue[_Process], task: Task) -> bool:
        """Put a copy on the least loaded process that doesn't hold the task. Those before it are put back,
        the last one first."""
        passed: list[_Process] = []
        found = False
        while (process := queue.poll()) is not None:
            passed.append(process)
            if task not in process.tasks:
                self._quota.has(process.add_to_least_loaded(task, is_active=False))
                found = True
                break
        for process in reversed(passed):
            queue.add(process)
        return found

    # --- both -----------------------------------------------------------------------------------------------

    def _least_loaded(self, task: Task, copied: Task | None) -> _Holder | None:
        """Choose among the holders of a copy or of some state: the first one, unless for a later one both its
        process and itself have less. With `copied`, its process must not hold that task."""
        chosen: _Holder | None = None
        process_load, count = 0.0, 0
        for holder in self._were_standby.get(task, ()):
            process = holder.process
            if copied is not None and copied in process.tasks:
                continue
            own = process.counts[holder.member_id]
            if chosen is None or (process.load < process_load and own < count):
                chosen, process_load, count = holder, process.load, own
        return chosen

    def _queue(self) -> JavaPriorityQueue[_Process]:
        queue: JavaPriorityQueue[_Process] = JavaPriorityQueue(lambda process: process.load)
        for process in self._processes.values():
            queue.add(process)
        return queue

    def target_of(self, member_id: str) -> TargetTasks:
        process = self._members[member_id]
        active, standby = process.active.get(member_id, ()), process.standby.get(member_id, ())
        return TargetTasks(_sets(active), _sets(standby), NO_TARGET_TASKS.warmup)


def _tasks(
    subtopologies: Mapping[str, ConfiguredSubtopology], counts: Callable[[ConfiguredSubtopology], bool]
) -> list[Task]:
    return [
        (subtopology_id, partition)
        for subtopology_id, subtopology in subtopologies.items()
        if counts(subtopology)
        for partition in range(subtopology.task_count)
    ]


def _candidates(spec: TaskMemberSpec, holder: _Holder) -> Iterable[tuple[Task, _Candidate]]:
    """A member that reports offsets of a task may have a copy of it, even if the task wasn't its own."""
    for task in _each(spec.standby):
        sums = spec.offsets.get(task[0])
        offset = 0 if sums is None else sums.get(task[1]) or 0
        yield task, _Candidate(holder, had_copy=True, offset=offset)
    for subtopology_id, sums in spec.offsets.items():
        for partition, offset in sums.items():
            if not has_task(spec.standby, subtopology_id, partition):
                yield (subtopology_id, partition), _Candidate(holder, had_copy=False, offset=offset)


def _each(tasks: ActiveTasks | TaskSets) -> Iterable[Task]:
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield subtopology_id, partition


def _by_partition(task: Task) -> tuple[int, bytes]:
    return task[1], by_name(task[0])


def _by_subtopology(task: Task) -> tuple[bytes, int]:
    return by_name(task[0]), task[1]


def _sets(tasks: Sequence[Task]) -> TaskSets:
    """The order of subtopologies is visible to members. It depends on the set of tasks that Kafka uses here."""
    each: JavaSet[Task] = JavaSet()
    each.update(tasks)
    found: TaskSets = JavaMap()
    for subtopology_id, partition in each:
        found.compute_if_absent(subtopology_id, JavaSet()).add(partition)
    return _copied(found)


def _copied(tasks: TaskSets) -> TaskSets:
    """Copy as Kafka's `TargetAssignmentBuilder` does: entry by entry, into a table that grows with them."""
    copied: TaskSets = JavaMap()
    for subtopology_id, partitions in tasks.items():
        copied[subtopology_id] = partitions
    return copied
