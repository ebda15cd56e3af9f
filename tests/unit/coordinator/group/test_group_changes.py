"""Changes of a classic group, for those who decide by what they saw a while ago."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.group.classic.group import (
    ClassicGroup,
    ClassicMember,
    Identity,
    MemberTimeouts,
    adopt_record,
    group_record,
)
from coordinator.group.classic.states import PREPARING
from protocol.messages.groups import JoinGroupResponse
from protocol.waiting import Later

TIMEOUTS = MemberTimeouts(10_000, 60_000)
PROTOCOLS = [("range", b"r")]


def member(member_id: str) -> ClassicMember:
    instance_id = "i" if member_id == "static" else None
    return ClassicMember(Identity(member_id, instance_id, "c", "/host"), TIMEOUTS, "consumer", PROTOCOLS)


def group_of_two() -> ClassicGroup:
    group = ClassicGroup("g", 0)
    group.protocol = "range"
    for member_id in ("m", "static"):
        group.add(member(member_id))
    return group


def assigned(group: ClassicGroup) -> None:
    value = group_record(group, dict.fromkeys(group.members, b"a")).value
    assert value is not None
    adopt_record(group, value, 0)


CHANGES: dict[str, Callable[[ClassicGroup], object]] = {
    "its state": lambda group: group.move_to(PREPARING, 0),
    "a new member": lambda group: group.add(member("another")),
    "a member's protocols": lambda group: group.update(group.members["m"], [("range", b"s")], TIMEOUTS, None),
    "a member's timeouts": lambda group: group.update(
        group.members["m"], PROTOCOLS, MemberTimeouts(1, 2), None
    ),
    "a member that goes": lambda group: group.remove("m"),
    "a member's id": lambda group: group.replace_static("i", "new"),
    "what is assigned": assigned,
}


@pytest.mark.parametrize("what", CHANGES)
def test_each_of_these_counts_as_a_change(what: str) -> None:
    group = group_of_two()
    before = group.changes
    CHANGES[what](group)
    assert group.changes > before


def test_a_new_generation_counts_as_a_change() -> None:
    group = group_of_two()
    group.move_to(PREPARING, 0)
    before = group.changes
    group.next_generation(0)
    assert group.changes > before


def test_waiting_members_and_pending_ids_do_not_count() -> None:
    group = group_of_two()
    before = group.changes
    group.update(group.members["m"], [*PROTOCOLS], TIMEOUTS, Later())
    group.answer_join(group.members["m"], JoinGroupResponse(member_id="m"))
    group.pending_joins["pending"] = None
    group.remove("pending")
    assert group.changes == before
