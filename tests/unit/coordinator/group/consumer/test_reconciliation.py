"""The table of reconciliation, cell by cell, and the result of each of its steps."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from coordinator.group.consumer.group import Assigned, ConsumerMember, Owned
from coordinator.group.consumer.states import RECONCILE, MemberState, Step
from coordinator.group.consumer.steps import Situation, reconcile
from coordinator.group.modern.group import Target
from coordinator.java.maps import JavaMap, JavaSet
from protocol.errors import Error, KafkaError

T, U = b"t" * 16, b"u" * 16
STABLE, UNREVOKED, UNRELEASED, UNKNOWN = MemberState


def assigned(epoch: int = 3, **topics: Collection[int]) -> Assigned:
    found: Assigned = JavaMap()
    for name, partitions in topics.items():
        found[name.encode() * 16] = JavaMap()
        for partition in partitions:
            found[name.encode() * 16][partition] = epoch
    return found


def target(**topics: Collection[int]) -> Target:
    found: Target = JavaMap()
    for name, partitions in topics.items():
        found[name.encode() * 16] = JavaSet.of(partitions)
    return found


def step(
    member: ConsumerMember,
    wanted: Target,
    *,
    epoch: int = 4,
    subscribed: Collection[bytes] = (T, U),
    changed: bool = False,
    owned: Owned = None,
    held: Collection[tuple[bytes, int]] = (),
) -> ConsumerMember:
    situation = Situation(
        epoch,
        wanted,
        subscribed=subscribed,
        subscription_changed=changed,
        owned=owned,
        partition_epochs={
            topic_id: {partition: 3 for held_topic, partition in held if held_topic == topic_id}
            for topic_id, _ in held
        },
    )
    return reconcile(member, situation)


def member(state: MemberState = STABLE, epoch: int = 3, **more: Assigned) -> ConsumerMember:
    return ConsumerMember("m", epoch=epoch, previous_epoch=2, state=state, **more)  # type: ignore[arg-type]


def partitions(found: Assigned) -> dict[str, list[int]]:
    return {topic_id[:1].decode(): sorted(found[topic_id]) for topic_id in found}


def test_the_table_has_every_cell() -> None:
    assert {*RECONCILE} == {
        (state, settled, changed)
        for state in MemberState
        for settled in (False, True)
        for changed in (False, True)
    }


OF_STATE = {
    # What the member has, and what it reports to own if it is settled, and if it isn't
    STABLE: ({"assigned": assigned(t=(0, 1))}, None, None),
    UNREVOKED: ({"assigned": assigned(t=(0,)), "pending": assigned(t=(1,))}, [(T, [0])], [(T, [0, 1])]),
    UNRELEASED: ({"assigned": assigned(t=(0, 1))}, None, None),
    UNKNOWN: ({"assigned": assigned(t=(0, 1))}, [], [(T, [0, 1])]),
}


@pytest.mark.table("coordinator.group.consumer.states.RECONCILE")
@pytest.mark.parametrize(("cell", "expected"), RECONCILE.items(), ids=str)
def test_each_cell_does_as_the_table_says(cell: tuple[MemberState, bool, bool], expected: Step) -> None:
    state, settled, changed = cell
    has, owned_settled, owned_else = OF_STATE[state]
    before = member(state, **has)
    epoch = 3 if state is STABLE and settled else 4
    owned: Owned = owned_settled if settled else owned_else

    def act() -> ConsumerMember:
        # Its target is another topic now. If its subscription changed, it subscribes only to that topic.
        return step(
            before,
            target(u=(5,)),
            epoch=epoch,
            changed=changed,
            owned=owned,
            subscribed=(U,) if changed else (T, U),
        )

    if expected is Step.REFUSE:
        with pytest.raises(KafkaError) as refused:
            act()
        assert refused.value.error is Error.FENCED_MEMBER_EPOCH
        return
    after = act()
    if expected is Step.STAY:
        assert after is before
    elif expected is Step.TRIM:
        assert after.epoch == before.epoch
        assert partitions(after.assigned) == {}
        assert partitions(after.pending) == {"t": [0, 1]}
        assert after.state is UNREVOKED
    else:
        assert after != before
        gone = owned is not None and not any(0 in indexes for _, indexes in owned)
        assert partitions(after.assigned) == ({"u": [5]} if gone else {})
        assert after.state is (STABLE if gone else UNREVOKED)


def test_partitions_to_give_up_come_before_new_ones() -> None:
    after = step(member(assigned=assigned(t=(0, 1, 2))), target(t=(0,), u=(1,)))

    assert (after.state, after.epoch, after.previous_epoch) == (UNREVOKED, 3, 3)
    assert (partitions(after.assigned), partitions(after.pending)) == ({"t": [0]}, {"t": [1, 2]})


def test_partitions_that_a_member_no_longer_owns_need_not_be_revoked() -> None:
    after = step(member(assigned=assigned(t=(0, 1))), target(t=(0,), u=(1,)), owned=[(T, [0])])

    assert (after.state, after.epoch) == (STABLE, 4)
    assert partitions(after.assigned) == {"t": [0], "u": [1]}


def test_new_partitions_have_the_targets_epoch_and_old_ones_keep_theirs() -> None:
    after = step(member(assigned=assigned(2, t=(0,))), target(t=(0, 1)))

    assert dict(after.assigned[T].items()) == {0: 2, 1: 4}


def test_partitions_of_others_are_waited_for() -> None:
    after = step(member(assigned=assigned(t=(0,))), target(t=(0, 1, 2)), held=[(T, 2)])

    assert (after.state, after.epoch) == (UNRELEASED, 4)
    assert partitions(after.assigned) == {"t": [0, 1]}


def test_the_epoch_advances_though_others_hold_the_whole_target() -> None:
    after = step(member(), target(t=(1,)), held=[(T, 1)])

    assert (after.state, after.epoch, partitions(after.assigned)) == (UNRELEASED, 4, {})


def test_partitions_that_a_member_gives_up_are_free_for_it_again() -> None:
    """KAFKA-19449."""
    before = member(UNREVOKED, assigned=assigned(t=(0,)), pending=assigned(t=(1,)))

    after = step(before, target(t=(0, 1)), owned=[(T, [0])], held=[(T, 1)])

    assert (after.state, partitions(after.assigned)) == (STABLE, {"t": [0, 1]})


def test_a_target_of_a_topic_that_is_not_subscribed_to_is_nothing() -> None:
    """KAFKA-19431."""
    after = step(member(assigned=assigned(t=(0,), u=(0,))), target(t=(0,), u=(0,)), subscribed=(T,))

    assert after.state is UNREVOKED
    assert (partitions(after.assigned), partitions(after.pending)) == ({"t": [0]}, {"u": [0]})


def test_a_trim_of_unowned_partitions_drops_them() -> None:
    after = step(
        member(epoch=4, assigned=assigned(t=(0,), u=(0,))),
        target(),
        changed=True,
        subscribed=(T,),
        owned=[(T, [0])],
    )

    assert (after.state, after.epoch) == (STABLE, 4)
    assert (partitions(after.assigned), partitions(after.pending)) == ({"t": [0]}, {})


def test_a_trim_that_changes_nothing_returns_the_same_member() -> None:
    before = member(epoch=4, assigned=assigned(t=(0,)))

    assert step(before, target(), changed=True, subscribed=(T,)) is before
