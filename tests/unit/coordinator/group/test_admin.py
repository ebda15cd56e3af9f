from __future__ import annotations

import pytest

from coordinator.group.records import GroupRecord, OffsetKey, OffsetRecord
from protocol.errors import Error
from tests.unit.coordinator.runtime import Groups


def listed(groups: Groups, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
    return [group.group_id for group in groups.shard.list_groups(states, types)]


@pytest.fixture
def groups() -> Groups:
    """ "g" is stable, "simple" has offsets alone."""
    found = Groups()
    found.stable()
    found.commit(("t", 0, 1), group="simple")
    return found


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ((), (), ["g", "simple"]),
        (("Stable",), (), ["g"]),
        ((" eMPTY ",), (), ["simple"]),
        (("Nowhere",), (), []),
        ((), ("CLASSIC",), ["g", "simple"]),
        ((), (" classic",), []),
        ((), ("consumer",), []),
        (("stable",), ("classic", "share"), ["g"]),
    ],
)
def test_groups_are_listed_by_state_and_type(
    groups: Groups, states: tuple[str, ...], types: tuple[str, ...], expected: list[str]
) -> None:
    assert listed(groups, states, types) == expected


def test_a_listed_group_has_its_type_and_state(groups: Groups) -> None:
    stable, simple = groups.shard.list_groups((), ())

    assert (stable.protocol_type, stable.group_state, stable.group_type) == ("consumer", "Stable", "classic")
    assert (simple.protocol_type, simple.group_state) == ("", "Empty")


def test_a_stable_group_is_described_with_metadata_and_assignments(groups: Groups) -> None:
    described = groups.shard.describe_group("g", api_version=6)

    (member,) = described.members
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert (member.member_metadata, member.member_assignment) == (b"r", member.member_id.encode())
    assert (member.client_id, member.client_host) == ("c", "/host")


def test_during_a_rebalance_neither_protocol_nor_metadata_is_shown(groups: Groups) -> None:
    groups.join(version=3)

    described = groups.shard.describe_group("g", api_version=6)

    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in described.members] == [b"", b""]


@pytest.mark.parametrize(("version", "error"), [(5, Error.NONE), (6, Error.GROUP_ID_NOT_FOUND)])
def test_a_group_that_is_not_there_is_dead(version: int, error: Error) -> None:
    described = Groups().shard.describe_group("none", api_version=version)

    assert (described.group_state, described.error_code) == ("Dead", error)
    assert (described.error_message is None) == (version == 5)


def test_a_group_is_deleted_after_its_offsets(groups: Groups) -> None:
    written = len(groups.runtime.log)

    assert groups.shard.delete_groups(["simple", "g", "none"]) == [
        Error.NONE,
        Error.NON_EMPTY_GROUP,
        Error.GROUP_ID_NOT_FOUND,
    ]

    assert groups.runtime.written()[written:] == [
        OffsetRecord(OffsetKey("simple", "t", 0), None),
        GroupRecord("simple", None),
    ]
    assert listed(groups) == ["g"]


def test_the_timers_of_a_deleted_group_are_forgotten() -> None:
    groups = Groups()
    pending = groups.join().join
    assert pending is not None
    groups.shard.delete_groups(["g"])

    groups.runtime.pass_ms(10**6)

    assert groups.shard.groups.classic == {}
