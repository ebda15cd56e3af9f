"""Which replicas are in sync: each state, with each event that may happen in it."""

from __future__ import annotations

import pytest

from broker.replicas.in_sync_replicas import (
    REFUSALS,
    InSyncReplicas,
    IsrOutcome,
    IsrState,
    LeaderAndIsr,
    WantedIsr,
)
from protocol.errors import Error, KafkaError

COMMITTED, EXPANDING, SHRINKING = IsrState.COMMITTED, IsrState.EXPANDING, IsrState.SHRINKING
BROKER_EPOCHS = {1: 40, 2: 55, 3: -1}
LEADER_EPOCH, PARTITION_EPOCH = 3, 9


def leader_in(state: IsrState) -> tuple[InSyncReplicas, WantedIsr | None]:
    """Return leader 1 with the replicas 1 and 2 in sync, and what it has asked for: adding 3 or removing 2."""
    leader = InSyncReplicas(BROKER_EPOCHS.__getitem__)
    assert leader.follow(LEADER_EPOCH, PARTITION_EPOCH, [1, 2])
    asked = {
        COMMITTED: lambda: None,
        EXPANDING: lambda: leader.expand(3),
        SHRINKING: lambda: leader.shrink({2}),
    }
    wanted = asked[state]()
    assert leader.state is state
    return leader, wanted


def answer(**what: object) -> LeaderAndIsr:
    """Return the controller's answer if all went well."""
    return LeaderAndIsr(1, LEADER_EPOCH, [1, 7], 0, PARTITION_EPOCH + 1)._replace(**what)  # type: ignore[arg-type]


def counts(leader: InSyncReplicas) -> tuple[list[int], list[int]]:
    """Return the replicas that count for `min.insync.replicas`, and those that count for the high watermark."""
    return [*leader.isr], [*leader.maximal_isr]


@pytest.mark.parametrize(
    ("state", "isr", "maximal_isr"),
    [(COMMITTED, [1, 2], [1, 2]), (EXPANDING, [1, 2], [1, 2, 3]), (SHRINKING, [1, 2], [1, 2])],
)
def test_a_pending_request_never_makes_fewer_replicas_count(
    state: IsrState, isr: list[int], maximal_isr: list[int]
) -> None:
    leader, _ = leader_in(state)
    assert counts(leader) == (isr, maximal_isr)


def test_the_requested_isr_is_in_the_order_of_scalas_hash_set() -> None:
    leader = InSyncReplicas(lambda broker_id: -1)
    leader.follow(LEADER_EPOCH, PARTITION_EPOCH, [100, 3, 17, 1])
    wanted = leader.expand(2)
    assert wanted is not None
    assert [broker_id for broker_id, _ in wanted.isr] == [1, 17, 2, 3, 100]


def test_a_request_names_the_state_that_it_changes_and_the_run_of_each_broker() -> None:
    _, expanding = leader_in(EXPANDING)
    assert expanding == WantedIsr(LEADER_EPOCH, [(1, 40), (2, 55), (3, -1)], 0, PARTITION_EPOCH)
    _, shrinking = leader_in(SHRINKING)
    assert shrinking == WantedIsr(LEADER_EPOCH, [(1, 40)], 0, PARTITION_EPOCH)


@pytest.mark.parametrize("state", [EXPANDING, SHRINKING])
def test_a_pending_change_excludes_others(state: IsrState) -> None:
    leader, _ = leader_in(state)
    before = counts(leader)
    assert leader.expand(4) is None
    assert leader.shrink({2}) is None
    assert (leader.state, counts(leader)) == (state, before)


def test_a_member_cannot_join_and_a_nonmember_cannot_leave() -> None:
    leader, _ = leader_in(COMMITTED)
    assert leader.expand(2) is None
    assert leader.shrink({3, 4}) is None
    assert leader.state is COMMITTED


@pytest.mark.parametrize("state", [EXPANDING, SHRINKING])
@pytest.mark.parametrize("partition_epoch", [PARTITION_EPOCH, PARTITION_EPOCH + 1])
def test_the_isr_becomes_the_controllers_answer(state: IsrState, partition_epoch: int) -> None:
    """If the ISR was the same already, the partition epoch is the old one."""
    leader, asked = leader_in(state)
    assert asked is not None
    assert leader.answered(asked, answer(partition_epoch=partition_epoch)) is IsrOutcome.COMMITTED
    assert (leader.state, counts(leader)) == (COMMITTED, ([1, 7], [1, 7]))
    assert leader.partition_epoch == partition_epoch


def test_a_state_of_recovery_that_was_answered_is_asked_for_next() -> None:
    leader, asked = leader_in(EXPANDING)
    assert asked is not None
    leader.answered(asked, answer(isr=[1], leader_recovery_state=1))
    wanted = leader.expand(2)
    assert wanted is not None
    assert (wanted.leader_recovery_state, wanted.partition_epoch) == (1, PARTITION_EPOCH + 1)
    leader.follow(LEADER_EPOCH, PARTITION_EPOCH + 2, [1])
    again = leader.expand(2)
    assert again is not None
    assert again.leader_recovery_state == 0


@pytest.mark.parametrize("state", [EXPANDING, SHRINKING])
@pytest.mark.parametrize(
    "odd", [{"leader_epoch": LEADER_EPOCH + 1}, {"partition_epoch": PARTITION_EPOCH - 1}]
)
def test_an_answer_about_another_time_changes_nothing_and_the_log_will_tell(
    state: IsrState, odd: dict[str, int]
) -> None:
    leader, asked = leader_in(state)
    assert asked is not None
    before = counts(leader)
    assert leader.answered(asked, answer(**odd)) is IsrOutcome.UNKNOWN
    assert (leader.state, counts(leader)) == (state, before)


@pytest.mark.parametrize("state", [EXPANDING, SHRINKING])
@pytest.mark.parametrize("error", [error for error in Error if error is not Error.NONE])
def test_every_refusal(state: IsrState, error: Error) -> None:
    leader, asked = leader_in(state)
    assert asked is not None
    before = counts(leader)
    outcome = leader.answered(asked, KafkaError(error))
    assert outcome is REFUSALS.get(error, IsrOutcome.AGAIN)
    if outcome is IsrOutcome.REVERTED:
        assert (leader.state, counts(leader)) == (COMMITTED, ([1, 2], [1, 2]))
    else:
        assert (leader.state, counts(leader)) == (state, before)
    again = leader.answered(asked, answer())
    assert again is (IsrOutcome.STALE if outcome is IsrOutcome.REVERTED else IsrOutcome.COMMITTED)


def test_refusals_that_are_more_than_a_reason_to_retry() -> None:
    assert {error.name: outcome.name for error, outcome in REFUSALS.items()} == {
        "OPERATION_NOT_ATTEMPTED": "REVERTED",
        "INELIGIBLE_REPLICA": "REVERTED",
        "UNKNOWN_TOPIC_OR_PARTITION": "UNKNOWN",
        "UNKNOWN_TOPIC_ID": "UNKNOWN",
        "FENCED_LEADER_EPOCH": "UNKNOWN",
        "INVALID_UPDATE_VERSION": "UNKNOWN",
        "INVALID_REQUEST": "UNKNOWN",
        "NEW_LEADER_ELECTED": "UNKNOWN",
    }


@pytest.mark.parametrize("state", IsrState)
@pytest.mark.parametrize("partition_epoch", [PARTITION_EPOCH, PARTITION_EPOCH + 1])
def test_the_log_overrides_a_pending_request(state: IsrState, partition_epoch: int) -> None:
    leader, asked = leader_in(state)
    assert leader.follow(LEADER_EPOCH + 1, partition_epoch, [1, 3])
    assert (leader.state, counts(leader)) == (COMMITTED, ([1, 3], [1, 3]))
    assert (leader.leader_epoch, leader.partition_epoch) == (LEADER_EPOCH + 1, partition_epoch)
    if asked is not None:
        assert leader.answered(asked, answer()) is IsrOutcome.STALE
        assert counts(leader) == ([1, 3], [1, 3])


@pytest.mark.parametrize("state", IsrState)
def test_the_log_may_lag_behind_an_answer(state: IsrState) -> None:
    leader, _ = leader_in(state)
    before = counts(leader)
    assert not leader.follow(LEADER_EPOCH, PARTITION_EPOCH - 1, [1])
    assert (leader.state, counts(leader), leader.partition_epoch) == (state, before, PARTITION_EPOCH)
