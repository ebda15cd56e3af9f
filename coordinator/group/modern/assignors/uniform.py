"""The `uniform` assignor where all members subscribe to the same (Kafka: `UniformHomogeneousAssignmentBuilder`).

Everybody gets the same number of partitions, give or take one, whatever topics they are of, and keeps as many as
possible of those that it has.
"""

from __future__ import annotations

from coordinator.group.modern.assignors.spec import (
    Assignments,
    AssignorError,
    GroupSpec,
    copy_of,
    partitions_of,
)
from coordinator.group.modern.assignors.uniform_mixed import assign_mixed
from coordinator.group.modern.targets import Target
from coordinator.java.maps import JavaSet


def assign_uniform(spec: GroupSpec) -> Assignments:
    """Raises AssignorError."""
    if not len(spec.members):
        return {}
    return _assign_same(spec) if spec.homogeneous else assign_mixed(spec)


def _assign_same(spec: GroupSpec) -> Assignments:
    member = next(iter(spec.members.values()))
    subscribed = JavaSet.of(member.topic_ids, member.subscription_size)
    if not len(subscribed):
        return {}
    total = 0
    unassigned: list[tuple[bytes, int]] = []
    for topic_id in subscribed:
        count = spec.partition_count(topic_id)
        total += count
        owners = spec.owners.get(topic_id, {})
        unassigned += [(topic_id, index) for index in range(count) if index not in owners]
    assignments: Assignments = {}
    unfilled = _keep_quotas(spec, subscribed, total, assignments, unassigned)
    taken = 0
    for member_id, quota in unfilled:
        target = assignments[member_id]
        if target is spec.members[member_id].target:
            target = assignments[member_id] = copy_of(target)
        for topic_id, partition in unassigned[taken : taken + quota]:
            target.compute_if_absent(topic_id, JavaSet())
            partitions_of(target, topic_id).add(partition)
        taken += quota
    if taken < len(unassigned):
        raise AssignorError("Partitions were left unassigned")
    return assignments


def _keep_quotas(
    spec: GroupSpec,
    subscribed: JavaSet[bytes],
    total: int,
    assignments: Assignments,
    unassigned: list[tuple[bytes, int]],
) -> list[tuple[str, int]]:
    """Let everybody keep what its quota allows, the rest goes to `unassigned`; who lacks how many partitions."""
    members = len(spec.members)
    quota_of_all, one_more = divmod(total, members)
    unfilled: list[tuple[str, int]] = []
    for index, (member_id, member) in enumerate(spec.members.items()):
        has_one_more = one_more > 0
        target, quota = _kept(member.target, subscribed, quota_of_all + has_one_more, unassigned)
        if quota > 0 and has_one_more and members - index > one_more:
            # Somebody behind may hold one more already: it is left to them.
            quota -= 1
            has_one_more = False
        if quota > 0:
            unfilled.append((member_id, quota))
        if has_one_more:
            one_more -= 1
        assignments[member_id] = target
    return unfilled


def _kept(
    old: Target, subscribed: JavaSet[bytes], quota: int, unassigned: list[tuple[bytes, int]]
) -> tuple[Target, int]:
    """What a member keeps of its target, and what is left of its quota."""
    new: Target | None = None
    for topic_id, partitions in old.items():
        if topic_id not in subscribed:
            new = copy_of(old) if new is None else new
            new.pop(topic_id)
        elif len(partitions) <= quota:
            quota -= len(partitions)
        else:
            for partition in partitions:
                if quota > 0:
                    quota -= 1
                    continue
                new = copy_of(old) if new is None else new
                kept = partitions_of(new, topic_id)
                kept.discard(partition)
                if not len(kept):
                    new.pop(topic_id)
                unassigned.append((topic_id, partition))
    return old if new is None else new, quota
