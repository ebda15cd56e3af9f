"""Changes of one partition, except its leader: the cases of Kafka's PartitionChangeBuilderTest."""

from __future__ import annotations

from typing import Any

import pytest

from broker.controller.image import (
    LOST,
    MIGRATING,
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERED,
    UNASSIGNED,
    PartitionImage,
)
from broker.controller.partition_changes import Election, Wish, is_no_change, reverted, towards
from tests.unit.controller.one_partition import (
    BAR,
    BAZ,
    EVERY,
    FOO,
    IV_3_5,
    IV_3_6,
    IV_3_7_DIRECTORIES,
    LATEST,
    WITH_DIRECTORIES,
    WITH_ELR,
    WITHOUT,
    change,
    everybody,
    home,
    nobody,
    partition,
    record,
)

ONLINE, UNCLEAN, PREFERRED = Election.ONLINE, Election.UNCLEAN, Election.PREFERRED

# --- nothing to do --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"leader": 1},
        {"leader": NO_LEADER},
        {"isr": [1, 2, 3]},
        {"isr": []},
        {"replicas": [1]},
        {"removing_replicas": [1]},
        {"adding_replicas": [4]},
        {"eligible_leader_replicas": [5]},
        {"last_known_elr": [6]},
        {"leader_recovery_state": RECOVERED},
        {"directories": [home(1)]},
    ],
)
def test_a_record_with_any_field_changes_something(fields: dict[str, Any]) -> None:
    assert not is_no_change(record(**fields))


def test_a_record_without_any_field_changes_nothing() -> None:
    assert is_no_change(record())


@EVERY
@pytest.mark.parametrize(("of", "election"), [(FOO, ONLINE), (FOO, UNCLEAN), (BAR, ONLINE), (BAR, UNCLEAN)])
def test_a_partition_in_its_right_state_needs_no_record(
    of: PartitionImage, election: Election, where: dict[str, Any]
) -> None:
    assert change(of, Wish(election=election), **where) is None


@EVERY
def test_a_preferred_replica_that_is_not_in_sync_takes_nothing_from_the_leader(where: dict[str, Any]) -> None:
    assert change(BAZ, Wish(election=PREFERRED), everybody, **where) is None


def test_a_wish_that_already_holds_needs_no_record() -> None:
    wish = Wish(
        isr=[2, 1, 3],
        replicas=[2, 1, 3],
        adding=[],
        removing=[],
        directories={2: home(2)},
        leader_recovery_state=RECOVERED,
    )
    assert change(FOO, wish) is None


# --- leader epochs --------------------------------------------------------------------------------------------

LEVELS = pytest.mark.parametrize("level", [8, IV_3_5, IV_3_6, IV_3_7_DIRECTORIES, LATEST])


@pytest.mark.parametrize("level", [IV_3_6, IV_3_7_DIRECTORIES, LATEST])
def test_a_smaller_isr_is_no_new_leader_epoch(level: int) -> None:
    assert change(FOO, Wish(isr=[2, 1]), level=level) == record(isr=[2, 1])


@pytest.mark.parametrize("level", [8, IV_3_5])
def test_a_smaller_isr_was_a_new_leader_epoch_before_3_6(level: int) -> None:
    assert change(FOO, Wish(isr=[2, 1]), elr=False, level=level) == record(isr=[2, 1], leader=1)


@LEVELS
def test_a_larger_or_reordered_isr_is_no_new_leader_epoch(level: int) -> None:
    before = partition([2, 1, 3, 4], [2, 1, 3], 1)
    assert change(before, Wish(isr=[2, 1, 3, 4]), elr=False, level=level) == record(isr=[2, 1, 3, 4])
    assert change(before, Wish(isr=[1, 3, 2]), elr=False, level=level) == record(isr=[1, 3, 2])


@LEVELS
def test_a_removed_replica_is_a_new_leader_epoch(level: int) -> None:
    found = change(FOO, Wish(replicas=[2, 1, 4]), elr=False, level=level)
    assert found is not None
    assert (found.leader, found.isr) == (1, None)


@LEVELS
def test_an_added_replica_is_no_new_leader_epoch(level: int) -> None:
    found = change(FOO, Wish(replicas=[2, 1, 3, 4], adding=[4]), elr=False, level=level)
    assert found is not None
    assert found.leader == NO_LEADER_CHANGE


@pytest.mark.parametrize("level", [8, IV_3_5, IV_3_6, IV_3_7_DIRECTORIES])
def test_an_isr_that_cannot_become_empty_is_no_new_leader_epoch_for_its_size(level: int) -> None:
    """KAFKA-16624: the ISR stays as it was."""
    alone = partition([2], [2], 2)
    assert change(alone, Wish(isr=[]), nobody, elr=False, level=level) == record(leader=NO_LEADER)


@pytest.mark.parametrize("where", [{"elr": False, "level": IV_3_5}, WITHOUT, WITH_ELR])
def test_another_leader_is_a_new_epoch_with_the_wanted_isr(where: dict[str, Any]) -> None:
    assert change(FOO, Wish(isr=[2, 3]), **where) == record(isr=[2, 3], leader=2)


# --- reassignments and directories ----------------------------------------------------------------------------


def with_directories(where: dict[str, Any], *directories: bytes) -> dict[str, Any]:
    return {"directories": [*directories]} if where["level"] >= IV_3_7_DIRECTORIES else {}


@EVERY
def test_another_order_of_the_replicas_is_made_at_once(where: dict[str, Any]) -> None:
    assert change(FOO, Wish(replicas=[3, 2, 1]), **where) == record(
        replicas=[3, 2, 1], **with_directories(where, home(3), home(2), home(1))
    )


@EVERY
def test_a_reassignment_is_completed_once_all_added_replicas_are_in_sync(where: dict[str, Any]) -> None:
    assert change(BAR, Wish(isr=[1, 2, 3, 4]), **where) == record(
        replicas=[2, 3, 4],
        isr=[2, 3, 4],
        leader=2,
        removing_replicas=[],
        adding_replicas=[],
        **with_directories(where, home(2), home(3), home(4)),
    )


@EVERY
def test_a_reassignment_is_taken_back(where: dict[str, Any]) -> None:
    before = reverted(BAR)
    wish = Wish(isr=before.isr, replicas=before.replicas, adding=[], removing=[])
    assert change(BAR, wish, **where) == record(
        replicas=[1, 2, 3],
        leader=1,
        removing_replicas=[],
        adding_replicas=[],
        **with_directories(where, home(1), home(2), home(3)),
    )


@EVERY
def test_fewer_replicas_that_are_in_sync_are_made_at_once(where: dict[str, Any]) -> None:
    way = towards([1, 2], FOO.replicas)
    assert change(FOO, Wish(replicas=way.replicas, removing=way.removing), **where) == record(
        replicas=[1, 2], isr=[2, 1], leader=1, **with_directories(where, home(1), home(2))
    )


@EVERY
def test_an_added_replica_has_the_usual_directory(where: dict[str, Any]) -> None:
    way = towards([1, 2, 3, 4], FOO.replicas)
    assert change(FOO, Wish(replicas=way.replicas, adding=way.adding), **where) == record(
        replicas=[1, 2, 3, 4],
        adding_replicas=[4],
        **with_directories(where, home(1), home(2), home(3), UNASSIGNED),
    )


def test_a_removed_leader_leads_no_more_though_nobody_can_replace_it() -> None:
    on_the_way = partition([2, 3, 0, 1], [0, 1], 0, removing_replicas=[0, 1], adding_replicas=[2, 3])
    assert change(on_the_way, Wish(isr=[0, 1, 2, 3]), nobody, **WITHOUT) == record(
        replicas=[2, 3], isr=[2, 3], removing_replicas=[], adding_replicas=[], leader=NO_LEADER
    )


def test_an_empty_list_of_replicas_is_never_recorded() -> None:
    assert change(FOO, Wish(replicas=[])) == record(leader=1)


def test_directories_follow_their_replicas() -> None:
    elsewhere = b"some other place"
    wish = Wish(replicas=[3, 1, 5, 4], directories={5: elsewhere})
    assert change(FOO, wish, everybody, **WITH_DIRECTORIES) == record(
        leader=1, replicas=[3, 1, 5, 4], directories=[home(3), home(1), elsewhere, UNASSIGNED]
    )


def test_replicas_are_moved_to_other_directories() -> None:
    elsewhere = b"some other place"
    assert change(FOO, Wish(directories={3: elsewhere, 1: LOST}), everybody) == record(
        directories=[home(2), LOST, elsewhere]
    )
    assert change(FOO, Wish(directories={3: elsewhere}), everybody, **WITHOUT) is None


def test_directories_that_no_record_names_are_older_than_directory_ids() -> None:
    """A cluster may have begun with a metadata.version without directories."""
    old = partition([2, 1], [2, 1], 2, directories=[])
    assert change(old, Wish(replicas=[1, 2])) == record(replicas=[1, 2])
    found = change(old, Wish(replicas=[2, 1, 3], adding=[3]))
    assert found is not None
    assert found.directories == [MIGRATING, MIGRATING, UNASSIGNED]
