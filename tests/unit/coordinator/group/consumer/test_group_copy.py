"""A copy of a consumer group has everything that the group has, and changes independently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from coordinator.group.consumer.group import ConsumerGroup, ConsumerMember, ResolvedRegex
from coordinator.group.modern.group import Subscribers
from coordinator.java.maps import JavaMap, JavaSet, TimelineTable

T = b"t" * 16
NAME = "group_id"


def a_value_of_each() -> dict[str, Any]:
    """Return a value for each slot. A new group has none of these values."""
    members: TimelineTable[ConsumerMember] = TimelineTable()
    members["m"] = ConsumerMember("m")
    assignors: TimelineTable[int] = TimelineTable()
    assignors["uniform"] = 1
    target: JavaMap[bytes, JavaSet[int]] = JavaMap()
    target[T] = JavaSet.of([0])
    return {
        "assignment_epoch": 3,
        "assignment_timestamp_ms": 4,
        "awaited_joins": {"m"},
        "changes": 5,
        "classic_protocols": Counter({"range": 1}),
        "epoch": 6,
        "has_partition_metadata": True,
        "homogeneous": False,
        "inverted_targets": {T: {0: "m"}},
        "members": members,
        "metadata_hash": 7,
        "partition_epochs": {T: {0: 6}},
        "counted": (1, 2),
        "refresh_deadline_ms": 8,
        "refresh_epoch": 9,
        "regexes": Counter({"t.*": 1}),
        "resolved": {"t.*": ResolvedRegex(JavaSet.of(["t"]), 1, 2)},
        "server_assignors": assignors,
        "static_members": {"i": "m"},
        "targets": {"m": target},
        "topics": {"t": Subscribers(1, 1)},
    }


def slots() -> set[str]:
    return {slot for each in ConsumerGroup.__mro__ for slot in getattr(each, "__slots__", ())}


def shown(value: Any) -> Any:
    return value.items() if isinstance(value, TimelineTable) else value


def changeable(value: Any) -> Iterator[int]:
    """Return the ids of the parts that a group changes in place. It never changes members and targets."""
    if isinstance(value, TimelineTable):
        yield id(value)
        yield from changeable(value._entries)
        yield from changeable(value._slots)
    elif isinstance(value, (dict, list, set)):
        yield id(value)
        for part in value.values() if isinstance(value, dict) else value:
            yield from changeable(part)


def test_a_copy_has_all_of_the_group_and_shares_nothing_that_changes() -> None:
    values = a_value_of_each()
    assert {*values} == slots() - {NAME}
    new, group = ConsumerGroup("g"), ConsumerGroup("g")
    for slot, value in values.items():
        assert shown(getattr(new, slot)) != shown(value), f"{slot} is as in a new group"
        setattr(group, slot, value)
    made = group.copy()
    for slot in slots():
        ours, theirs = getattr(group, slot), getattr(made, slot)
        assert shown(theirs) == shown(ours), slot
        assert type(theirs) is type(ours), slot
        assert {*changeable(theirs)}.isdisjoint(changeable(ours)), slot
