"""The assignor of share groups, compared with Kafka's: 200 assignments of groups that change, every list in its
order."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from coordinator.group.modern.assignors import AssignorError, GroupSpec, MemberSpec
from coordinator.group.share.simple_assignor import assign_simply
from coordinator.java.maps import JavaMap, JavaSet

VECTORS = Path(__file__).parents[2] / "data" / "simple_assignments.jsonl.gz"
TOPIC = b"t" * 16


@cache
def vectors() -> list[dict[str, Any]]:
    """Return {homogeneous, topics: {id: [partitions, assignable]}, members: [[id, topics, target]], result}."""
    return [json.loads(line) for line in gzip.decompress(VECTORS.read_bytes()).splitlines()]


@pytest.mark.parametrize("homogeneous", [True, False])
def test_an_assignment_is_kafkas(homogeneous: bool) -> None:
    count = 0
    for vector in vectors():
        if vector["homogeneous"] != homogeneous:
            continue
        members: JavaMap[str, MemberSpec] = JavaMap()
        for member_id, subscribed, target in vector["members"]:
            old: JavaMap[bytes, Any] = JavaMap()
            for topic, partitions in target:
                old[bytes.fromhex(topic)] = JavaSet.of(partitions)
            topic_ids = tuple(map(bytes.fromhex, subscribed))
            members[member_id] = MemberSpec(None, topic_ids, len(topic_ids), old)
        counts = {bytes.fromhex(topic): each for topic, (each, _) in vector["topics"].items()}
        assignable = {bytes.fromhex(topic): each for topic, (_, each) in vector["topics"].items()}
        found = assign_simply(GroupSpec(members, homogeneous, {}, counts.__getitem__), assignable)
        assert members.keys() == [*vector["result"]]
        for member_id, expected in vector["result"].items():
            assigned = found.get(member_id) or JavaMap()
            assert [[topic_id.hex(), [*each]] for topic_id, each in assigned.items()] == expected
        count += 1
    assert count >= 50


def spec_of(*targets: list[int], homogeneous: bool = True, partitions: int = 2) -> GroupSpec:
    members: JavaMap[str, MemberSpec] = JavaMap()
    for number, each in enumerate(targets):
        old: JavaMap[bytes, Any] = JavaMap()
        old[TOPIC] = JavaSet.of(each)
        members[f"m{number}"] = MemberSpec(None, (TOPIC,), 1, old)
    return GroupSpec(members, homogeneous, {}, lambda topic_id: partitions)


@pytest.mark.parametrize("homogeneous", [True, False])
def test_partitions_that_fit_no_member_stay_unassigned(homogeneous: bool) -> None:
    """This happens when members hold partitions that are no longer assignable. Kafka fails then."""
    found = assign_simply(spec_of([0], [1], homogeneous=homogeneous, partitions=4), {TOPIC: {2, 3}})
    held = [partition for target in found.values() for partition in target[TOPIC]]
    assert sorted(held) in ([0, 1], [0, 3], [1, 2], [2, 3])


def test_a_topic_that_isnt_there_makes_an_assignment_impossible() -> None:
    with pytest.raises(AssignorError):
        assign_simply(spec_of([], partitions=-1), {TOPIC: {0}})
