"""The tables of share groups, cell by cell."""

from __future__ import annotations

import pytest

from coordinator.group.share.group import ShareMember
from coordinator.group.share.states import (
    ACCEPTED_EPOCHS,
    SHARE_GROUP_STATES,
    ShareEpochRelation,
    ShareGroupState,
)
from protocol.errors import Error
from tests.unit.coordinator.group.share.sharers import Sharers


@pytest.mark.table("coordinator.group.share.states.SHARE_GROUP_STATES")
def test_a_share_group_is_empty_or_stable() -> None:
    assert SHARE_GROUP_STATES.keys() == {False, True}
    sharers = Sharers()
    sharers.enter("m")
    assert sharers.group.state is SHARE_GROUP_STATES[True] is ShareGroupState.STABLE
    sharers.beat("m", -1)
    assert sharers.group.state is SHARE_GROUP_STATES[False] is ShareGroupState.EMPTY


@pytest.mark.parametrize(
    ("epoch", "relation"),
    [
        (0, ShareEpochRelation.JOINS),
        (5, ShareEpochRelation.CURRENT),
        (3, ShareEpochRelation.PREVIOUS),
        (4, ShareEpochRelation.OLDER),
        (2, ShareEpochRelation.OLDER),
        (6, ShareEpochRelation.NEWER),
    ],
)
def test_the_relation_of_a_heartbeats_epoch_to_the_members(epoch: int, relation: ShareEpochRelation) -> None:
    assert ShareMember("m", epoch=5, previous_epoch=3).relation_of(epoch) is relation


FENCED = {ShareEpochRelation.OLDER, ShareEpochRelation.NEWER}


@pytest.mark.table("coordinator.group.share.states.ACCEPTED_EPOCHS")
@pytest.mark.parametrize("relation", ShareEpochRelation)
def test_each_relation_is_taken_or_fenced(relation: ShareEpochRelation) -> None:
    assert ACCEPTED_EPOCHS[relation] == (relation not in FENCED)
    sharers = Sharers()
    sharers.enter("m")
    sharers.settle("m")
    member = sharers.group.members["m"]
    assert (member.previous_epoch, member.epoch) == (2, 3)
    epoch = {
        ShareEpochRelation.JOINS: 0,
        ShareEpochRelation.CURRENT: 3,
        ShareEpochRelation.PREVIOUS: 2,
        ShareEpochRelation.OLDER: 1,
        ShareEpochRelation.NEWER: 4,
    }[relation]
    expected = Error.NONE if ACCEPTED_EPOCHS[relation] else Error.FENCED_MEMBER_EPOCH
    assert sharers.refused("m", epoch, "t") is expected
