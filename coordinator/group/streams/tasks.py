"""The tasks of a streams application: a subtopology and a partition. Their kinds, and who reports or holds them.

Source: `TasksTuple`, `TasksTupleWithEpochs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from typing import NamedTuple, Protocol, TypeVar

from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import Error, KafkaError
from protocol.messages.group_records import CurrentTaskIds, TargetTaskIds
from protocol.messages.groups_streams import TaskIds, TaskOffset

ActiveTasks = JavaMap[str, JavaMap[int, int]]
"""Subtopology → partition → the assignment epoch at which the member got it."""

TaskSets = JavaMap[str, JavaSet[int]]
"""Subtopology → partitions."""


class MemberTasks(NamedTuple):
    """The tasks that a member has, or has to give up."""

    active: ActiveTasks
    standby: TaskSets
    warmup: TaskSets

    @property
    def is_empty(self) -> bool:
        return not (len(self.active) or len(self.standby) or len(self.warmup))

    @property
    def total(self) -> int:
        kinds: tuple[ActiveTasks | TaskSets, ...] = (self.active, self.standby, self.warmup)
        return sum([len(partitions) for kind in kinds for partitions in kind.values()])


NO_TASKS = MemberTasks(JavaMap(), JavaMap(), JavaMap())


class TargetTasks(NamedTuple):
    """The tasks in a member's target."""

    active: TaskSets
    standby: TaskSets
    warmup: TaskSets


NO_TARGET_TASKS = TargetTasks(JavaMap(), JavaMap(), JavaMap())


def has_task(tasks: ActiveTasks | TaskSets, subtopology_id: str, partition: int) -> bool:
    partitions = tasks.get(subtopology_id)
    return partitions is not None and partition in partitions


def same_tasks(target: TargetTasks, has: MemberTasks) -> bool:
    """True if a member has the tasks of its target, at whatever epochs."""
    return (
        target.standby == has.standby
        and target.warmup == has.warmup
        and len(target.active) == len(has.active)
        and all(
            subtopology_id in has.active and {*partitions} == {*has.active[subtopology_id]}
            for subtopology_id, partitions in target.active.items()
        )
    )


OffsetSums = JavaMap[str, JavaMap[int, int]]
"""Subtopology → partition → the position of the state, as one number for all of its changelogs."""


class TaskOffsets(NamedTuple):
    """A member's positions in the state of tasks, and their ends, as it reports them. Only in memory."""

    offsets: OffsetSums
    end_offsets: OffsetSums

    @property
    def total(self) -> int:
        return sum([len(sums) for kind in self for sums in kind.values()])

    def updated(
        self, offsets: Sequence[TaskOffset] | None, end_offsets: Sequence[TaskOffset] | None
    ) -> TaskOffsets:
        """The offsets after a report. Null leaves them as they were.

        Raises KafkaError (INVALID_REQUEST) for a task that is there twice.
        """
        return TaskOffsets(
            self.offsets if offsets is None else _sums(offsets),
            self.end_offsets if end_offsets is None else _sums(end_offsets),
        )


NO_OFFSETS = TaskOffsets(JavaMap(), JavaMap())


def _sums(told: Sequence[TaskOffset]) -> OffsetSums:
    found: JavaMap[str, JavaMap[int, int]] = JavaMap()
    for each in told:
        sums = found.compute_if_absent(each.subtopology_id, JavaMap())
        if each.partition in sums:
            raise KafkaError(
                Error.INVALID_REQUEST,
                f"Task offsets contain a duplicate entry for subtopology {each.subtopology_id} and partition "
                f"{each.partition}.",
            )
        sums[each.partition] = each.offset
    return found


class OwnedTasks(NamedTuple):
    """The tasks that a member reports to own; null for a kind that it doesn't report."""

    active: Sequence[TaskIds] | None
    standby: Sequence[TaskIds] | None
    warmup: Sequence[TaskIds] | None

    @property
    def kinds(self) -> tuple[Sequence[TaskIds], Sequence[TaskIds], Sequence[TaskIds]] | None:
        """All kinds, or None if it doesn't report all.

        Raises KafkaError (UNKNOWN_SERVER_ERROR) for a subtopology that is twice in one kind (Kafka: an
        IllegalStateException).
        """
        if self.active is None or self.standby is None or self.warmup is None:
            return None
        for kind in (self.active, self.standby, self.warmup):
            if len({each.subtopology_id for each in kind}) < len(kind):
                raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
        return self.active, self.standby, self.warmup

    def is_within(self, tasks: MemberTasks) -> bool:
        """True if all tasks that it reports are among these. False if it doesn't report all kinds."""
        if self.active is None or self.standby is None or self.warmup is None:
            return False
        return (
            _is_within(self.active, tasks.active)
            and _is_within(self.standby, tasks.standby)
            and _is_within(self.warmup, tasks.warmup)
        )

    def lack_some_of(self, tasks: MemberTasks) -> bool:
        """True if it reports only some of these tasks. False if it doesn't report all kinds, or reports others.

        A subtopology that is named twice counts twice.
        """
        if not self.is_within(tasks):
            return False
        reported = [
            len({*each.partitions})
            for kind in (self.active, self.standby, self.warmup)
            for each in kind or ()
        ]
        return sum(reported) < tasks.total


def _is_within(owned: Sequence[TaskIds], known: ActiveTasks | TaskSets) -> bool:
    for each in owned:
        partitions = known.get(each.subtopology_id)
        if partitions is None or not all(partition in partitions for partition in each.partitions):
            return False
    return True


def own_any(
    owned: tuple[Sequence[TaskIds], Sequence[TaskIds], Sequence[TaskIds]], tasks: MemberTasks
) -> bool:
    """True if any of these tasks is reported as owned, kind by kind."""
    active, standby, warmup = owned
    return (
        _owns_any(active, tasks.active)
        or _owns_any(standby, tasks.standby)
        or _owns_any(warmup, tasks.warmup)
    )


def _owns_any(owned: Sequence[TaskIds], known: ActiveTasks | TaskSets) -> bool:
    for each in owned:
        partitions = known.get(each.subtopology_id)
        if partitions is not None and any(partition in partitions for partition in each.partitions):
            return True
    return False


# --- in messages and records --------------------------------------------------------------------------------


def by_name(name: str) -> bytes:
    """A sort key for the order of Java's strings: by UTF-16 units."""
    return name.encode("utf-16-be", "surrogatepass")


class _Walked(Protocol):
    def items(self) -> Iterable[tuple[str, Iterable[int]]]: ...


def told_tasks(tasks: _Walked) -> list[TaskIds]:
    """Tasks in the form for a member, in the order of iteration."""
    return [
        TaskIds(subtopology_id=subtopology_id, partitions=sorted(partitions))
        for subtopology_id, partitions in tasks.items()
    ]


def described_tasks(tasks: _Walked) -> list[TaskIds]:
    """Tasks in the form for descriptions: sorted."""
    return sorted(told_tasks(tasks), key=lambda each: by_name(each.subtopology_id))


def described_offsets(sums: OffsetSums) -> list[TaskOffset]:
    """Offsets in the form for descriptions: sorted."""
    return [
        TaskOffset(subtopology_id=subtopology_id, partition=partition, offset=sums[subtopology_id][partition])
        for subtopology_id in sorted(sums, key=by_name)
        for partition in sorted(sums[subtopology_id])
    ]


def target_task_ids(tasks: TaskSets) -> list[TargetTaskIds]:
    return [
        TargetTaskIds(subtopology_id=subtopology_id, partitions=sorted(tasks[subtopology_id]))
        for subtopology_id in sorted(tasks, key=by_name)
    ]


def task_sets(written: Iterable[TargetTaskIds | CurrentTaskIds]) -> TaskSets:
    """Tasks from their form in records."""
    tasks: TaskSets = JavaMap()
    for each in written:
        tasks[each.subtopology_id] = JavaSet.of(each.partitions)
    return tasks


def current_task_ids(tasks: TaskSets) -> list[CurrentTaskIds]:
    return [
        CurrentTaskIds(subtopology_id=subtopology_id, partitions=sorted(tasks[subtopology_id]))
        for subtopology_id in sorted(tasks, key=by_name)
    ]


def active_task_ids(tasks: ActiveTasks) -> list[CurrentTaskIds]:
    """Active tasks in the form for records, sorted, with the epochs since which they are the member's."""
    written = []
    for subtopology_id in sorted(tasks, key=by_name):
        epochs = tasks[subtopology_id]
        partitions = sorted(epochs)
        written.append(
            CurrentTaskIds(
                subtopology_id=subtopology_id,
                partitions=partitions,
                assignment_epochs=[epochs[partition] for partition in partitions],
            )
        )
    return written


def active_tasks(written: Iterable[CurrentTaskIds], member_epoch: int) -> ActiveTasks:
    """Active tasks from their form in records. Without epochs, use the member's own."""
    tasks: ActiveTasks = JavaMap()
    for each in written:
        since = each.assignment_epochs
        if since is None or len(since) != len(each.partitions):
            since = [member_epoch] * len(each.partitions)
        epochs: JavaMap[int, int] = JavaMap()
        for partition, epoch in zip(each.partitions, since, strict=True):
            epochs[partition] = epoch
        tasks[each.subtopology_id] = epochs
    return tasks


# --- who holds which ----------------------------------------------------------------------------------------

K = TypeVar("K")
V = TypeVar("V", bound=Sized)


class TaskHolders:
    """The processes that hold tasks, assigned or to be given up. An active task has at most one."""

    __slots__ = ("active", "standby", "warmup")

    def __init__(self) -> None:
        self.active: dict[str, dict[int, str]] = {}
        self.standby: dict[str, dict[int, set[str]]] = {}
        self.warmup: dict[str, dict[int, set[str]]] = {}

    def copy(self) -> TaskHolders:
        made = TaskHolders()
        made.active = {each: dict(holders) for each, holders in self.active.items()}
        for kind, copied in ((self.standby, made.standby), (self.warmup, made.warmup)):
            for subtopology_id, processes in kind.items():
                copied[subtopology_id] = {partition: set(processes[partition]) for partition in processes}
        return made

    def active_process(self, subtopology_id: str, partition: int) -> str | None:
        return self.active.get(subtopology_id, {}).get(partition)

    def has_standby(self, process_id: str, subtopology_id: str, partition: int) -> bool:
        """True if the process holds the task as a standby."""
        return process_id in self.standby.get(subtopology_id, {}).get(partition, ())

    def has_warmup(self, process_id: str, subtopology_id: str, partition: int) -> bool:
        return process_id in self.warmup.get(subtopology_id, {}).get(partition, ())

    def hold(self, tasks: MemberTasks, process_id: str) -> None:
        for subtopology_id, epochs in tasks.active.items():
            self.active.setdefault(subtopology_id, {}).update(dict.fromkeys(epochs, process_id))
        for kind, held in ((tasks.standby, self.standby), (tasks.warmup, self.warmup)):
            for subtopology_id, partitions in kind.items():
                processes = held.setdefault(subtopology_id, {})
                for partition in partitions:
                    processes.setdefault(partition, set()).add(process_id)

    def release(self, tasks: MemberTasks, process_id: str) -> None:
        """Release a member's tasks, except those that another process now holds."""
        for subtopology_id, epochs in tasks.active.items():
            holders = self.active.get(subtopology_id, {})
            for partition in epochs:
                if holders.get(partition) == process_id:
                    del holders[partition]
            _drop_empty(self.active, subtopology_id)
        for kind, held in ((tasks.standby, self.standby), (tasks.warmup, self.warmup)):
            for subtopology_id, partitions in kind.items():
                processes = held.get(subtopology_id, {})
                for partition in partitions:
                    processes.get(partition, set()).discard(process_id)
                    _drop_empty(processes, partition)
                _drop_empty(held, subtopology_id)


def _drop_empty(held: dict[K, V], key: K) -> None:
    if key in held and not held[key]:
        del held[key]
