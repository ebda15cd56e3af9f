"""The assignors, compared with Kafka's: 960 assignments of groups that change, including the order of every list."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from coordinator.group.modern import assignors as uniform_mixed
from coordinator.group.modern.assignors import ASSIGNORS, GroupSpec, MemberSpec
from coordinator.java.maps import JavaMap, JavaSet

VECTORS = Path(__file__).parents[2] / "data" / "assignments.jsonl.gz"


@cache
def vectors() -> list[dict[str, Any]]:
    """Return {assignor, homogeneous, topics: {id: partitions}, members: [[id, instance, topics, target]], result}.

    The result has the order in which Kafka goes through the members.
    """
    return [json.loads(line) for line in gzip.decompress(VECTORS.read_bytes()).splitlines()]


def spec_of(vector: dict[str, Any]) -> GroupSpec:
    members: JavaMap[str, MemberSpec] = JavaMap()
    owners: dict[bytes, dict[int, str]] = {}
    for member_id, instance_id, subscribed, target in vector["members"]:
        old: JavaMap[bytes, Any] = JavaMap()
        for topic, partitions in target:
            topic_id = bytes.fromhex(topic)
            old[topic_id] = JavaSet.of(partitions)
            owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))
        topic_ids = tuple(map(bytes.fromhex, subscribed))
        members[member_id] = MemberSpec(instance_id, topic_ids, len(topic_ids), old)
    counts = {bytes.fromhex(topic): count for topic, count in vector["topics"].items()}
    return GroupSpec(members, vector["homogeneous"], owners, lambda topic_id: counts[topic_id])


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
@pytest.mark.parametrize("homogeneous", [True, False])
def test_an_assignment_is_kafkas(assignor: str, homogeneous: bool) -> None:
    count = 0
    for vector in vectors():
        if vector["assignor"] != assignor or vector["homogeneous"] != homogeneous:
            continue
        spec = spec_of(vector)
        assert spec.members.keys() == [*vector["result"]]
        found = ASSIGNORS[assignor](spec)
        for member_id, expected in vector["result"].items():
            target = found.get(member_id) or JavaMap()
            assert [[topic_id.hex(), [*partitions]] for topic_id, partitions in target.items()] == expected
        count += 1
    assert count >= 50


def test_a_balanced_group_stays_as_it_is() -> None:
    for vector in vectors()[-40:]:
        spec = spec_of(vector)
        if vector["assignor"] == "range":
            continue
        first = ASSIGNORS["uniform"](spec)
        owners: dict[bytes, dict[int, str]] = {}
        for member_id, target in first.items():
            for topic_id, partitions in target.items():
                owners.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))
        for member_id, member in spec.members.items():
            member.target = first.get(member_id) or JavaMap()
        spec.owners = owners
        again = ASSIGNORS["uniform"](spec)
        for member_id, target in first.items():
            assert {topic_id: {*target[topic_id]} for topic_id in target} == {
                topic_id: {*again[member_id][topic_id]} for topic_id in again[member_id]
            }


@pytest.mark.limit("coordinator.group.modern.assignors.MAX_SWEEPS")
def test_sweeps_end_though_each_moves_something(monkeypatch: pytest.MonkeyPatch) -> None:
    swept: list[bytes] = []

    def always_moves(_builder: object, topic_id: bytes) -> bool:
        swept.append(topic_id)
        return True

    monkeypatch.setattr(uniform_mixed._Builder, "_balance_topic", always_moves)
    vector = next(one for one in vectors() if one["assignor"] == "uniform" and not one["homogeneous"])
    spec = spec_of(vector)
    ASSIGNORS["uniform"](spec)
    shared = {
        topic_id
        for topic_id in {each for member in spec.members.values() for each in member.topic_ids}
        if sum(topic_id in {*member.topic_ids} for member in spec.members.values()) >= 2
    }
    assert len(swept) == uniform_mixed.MAX_SWEEPS * len(shared) > 0
