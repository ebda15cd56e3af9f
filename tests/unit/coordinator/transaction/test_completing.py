"""From Prepare* to Complete*: how the coordinator reacts to each answer to a marker."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import pytest

from coordinator.transaction.producer_ids import TransactionalProducer
from coordinator.transaction.shard import MAX_RETRY_BACKOFF_MS
from coordinator.transaction.state_manager import ProducerIdAndEpoch
from protocol.errors import Error
from tests.unit.coordinator.transaction.coordinator import T0, T1, Coordinator, answered


def ended(*, commit: bool = True, version: int = 2, level: int = 2, held: bool = True) -> Coordinator:
    """Return a transaction in t-0 and t-1 that has just ended. Its markers are held."""
    it = Coordinator(level=level)
    me = it.begun(T0, T1, version=version)
    it.markers.is_held = held
    assert isinstance(it.end(*me, commit=commit, version=version), ProducerIdAndEpoch)
    return it


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize(("version", "epoch"), [(0, 0), (2, 1)])
def test_with_nothing_in_the_way_it_is_complete_before_the_answer(
    commit: bool, version: int, epoch: int
) -> None:
    it = ended(commit=commit, version=version, held=False)
    word = "Commit" if commit else "Abort"
    assert it.told(2) == [f"Prepare{word} 7/{epoch}", f"Complete{word} 7/{epoch}"]
    assert it.marked() == [f"{word.lower()} 7/{epoch} TV{version}: t-0 t-1"]
    assert it.state == f"Complete{word}"
    assert it.completions == {}


def test_a_transaction_completes_though_its_client_cannot_be_answered() -> None:
    it = Coordinator()
    me = it.begun(T0)

    def reply(answer: object) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        answered(
            it.shard.end_txn(TransactionalProducer("x", *me), commit=True, client_transaction_version=2),
            reply,
        )
    assert it.state == "CompleteCommit"


def test_the_marker_carries_the_epoch_of_the_coordinator() -> None:
    it = ended()
    assert it.markers.writes[0].marker.coordinator_epoch == 3


def test_a_transaction_is_complete_once_the_last_partition_has_answered() -> None:
    it = ended()
    write = it.markers.writes[0]
    write.answer(Error.NONE, T1)
    assert it.state == "PrepareCommit→CompleteCommit"
    assert [*it.shard.describe("x").partitions] == [T0]
    write.answer(Error.NONE, T0)
    assert it.state == "CompleteCommit"
    assert it.told(2) == ["PrepareCommit 7/1", "CompleteCommit 7/1"]


def test_answers_that_come_twice_or_too_late_change_nothing() -> None:
    it = ended()
    write = it.markers.writes[0]
    write.answer(Error.NONE, T1)
    write.answer(Error.NONE, T1)
    write.answer(Error.NOT_LEADER_OR_FOLLOWER, T1)
    write.answer()
    write.answer()
    write.answer(Error.INVALID_PRODUCER_EPOCH)
    assert it.told(2) == ["PrepareCommit 7/1", "CompleteCommit 7/1"]
    it.add(7, 1, T0)
    write.answer()
    assert (it.state, [*it.x.partitions]) == ("Ongoing", [T0]), "nor do they touch the next transaction"
    it.runtime.pass_ms(50_000)
    assert len(it.markers.writes) == 1


@pytest.mark.parametrize(
    "error", [Error.NONE, Error.UNSUPPORTED_FOR_MESSAGE_FORMAT, Error.UNSUPPORTED_VERSION, None]
)
def test_a_partition_with_its_marker_or_without_need_of_one_is_done(error: Error | None) -> None:
    it = ended()
    it.markers.writes[0].answer(error, T0)
    assert [*it.x.partitions] == [T1]
    it.markers.writes[0].answer(error, T1)
    assert it.state == "CompleteCommit"


@pytest.mark.parametrize(
    "error",
    [
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.REQUEST_TIMED_OUT,
        Error.KAFKA_STORAGE_ERROR,
    ],
)
def test_after_passing_errors_only_their_partitions_are_asked_again(error: Error) -> None:
    it = ended()
    it.markers.writes[0].done({T0: Error.NONE, T1: error})
    assert it.state == "PrepareCommit→CompleteCommit"
    assert len(it.markers.writes) == 1
    it.runtime.pass_ms(20)
    assert it.marked()[1:] == ["commit 7/1 TV2: t-1"]
    it.markers.writes[1].answer(error)
    it.runtime.pass_ms(39)
    assert len(it.markers.writes) == 2, "the pause doubles"
    it.runtime.pass_ms(1)
    it.markers.writes[2].answer()
    assert it.state == "CompleteCommit"


def test_partial_answers_do_not_delay_the_next_try() -> None:
    it = ended()
    write = it.markers.writes[0]
    write.answer(Error.NOT_LEADER_OR_FOLLOWER, T0)
    it.runtime.pass_ms(15)
    write.answer(Error.NOT_LEADER_OR_FOLLOWER, T1)
    it.runtime.pass_ms(5)
    assert it.marked()[1:] == ["commit 7/1 TV2: t-0 t-1"]


def test_a_partition_that_answers_well_after_all_is_not_asked_again() -> None:
    it = ended()
    write = it.markers.writes[0]
    write.answer(Error.REQUEST_TIMED_OUT)
    write.answer(Error.NONE, T0)
    it.runtime.pass_ms(20)
    assert it.marked()[1:] == ["commit 7/1 TV2: t-1"]


def test_the_pause_never_grows_beyond_a_second() -> None:
    it = ended(held=False)
    it.markers.errors = {T0: Error.NOT_LEADER_OR_FOLLOWER}
    it.add(7, 1, T0)
    it.end(7, 1, commit=True)
    it.runtime.pass_ms(60_000)
    before = len(it.markers.writes)
    it.runtime.pass_ms(10_000)
    assert len(it.markers.writes) - before == 10
    it.markers.errors = {}
    it.runtime.pass_ms(1_000)
    assert it.state == "CompleteCommit"


@pytest.mark.parametrize("error", [Error.INVALID_PRODUCER_EPOCH, Error.TRANSACTION_COORDINATOR_FENCED])
def test_after_a_takeover_no_more_markers_are_sent_and_the_transaction_stays_prepared(error: Error) -> None:
    it = ended()
    it.markers.writes[0].done({T0: error, T1: Error.NOT_LEADER_OR_FOLLOWER})
    it.runtime.pass_ms(100_000)
    assert len(it.markers.writes) == 1
    assert it.state == "PrepareCommit→CompleteCommit"
    assert it.end(7, 0, commit=True) is Error.CONCURRENT_TRANSACTIONS
    assert it.restarted().state == "CompleteCommit", "the next coordinator asks anew"


@pytest.mark.parametrize(
    "error",
    [Error.CORRUPT_MESSAGE, Error.MESSAGE_TOO_LARGE, Error.UNKNOWN_SERVER_ERROR, Error.INVALID_TXN_STATE],
)
def test_an_error_that_must_not_happen_is_shouted_about_and_given_up(
    error: Error, caplog: pytest.LogCaptureFixture
) -> None:
    it = ended()
    it.markers.writes[0].done({T0: error, T1: Error.NONE})
    it.runtime.pass_ms(100_000)
    assert it.state == "PrepareCommit→CompleteCommit"
    assert [*it.x.partitions] == [T0]
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    assert error.name in caplog.text


@pytest.mark.parametrize("error", [Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR])
def test_a_completion_that_cannot_be_logged_now_is_logged_later(error: Error) -> None:
    it = ended()
    it.runtime.failing = error
    it.markers.writes[0].answer()
    assert it.state == "PrepareCommit→CompleteCommit"
    assert it.add(7, 1) is Error.CONCURRENT_TRANSACTIONS
    it.runtime.pass_ms(20)
    it.markers.writes[0].answer()
    it.runtime.failing = None
    it.runtime.pass_ms(39)
    assert it.state == "PrepareCommit→CompleteCommit"
    it.runtime.pass_ms(1)
    assert it.state == "CompleteCommit"
    assert it.told(2) == ["PrepareCommit 7/1", "CompleteCommit 7/1"]
    assert it.completions == {}


@pytest.mark.limit("coordinator.transaction.shard.MAX_RETRY_BACKOFF_MS")
def test_a_completion_is_tried_again_every_second_at_least() -> None:
    it = ended()
    it.runtime.failing = Error.NOT_COORDINATOR
    it.markers.writes[0].answer()
    waits_ms = []
    schedule = it.runtime.schedule

    def noted(key: Hashable, delay_ms: int, callback: Callable[[], None]) -> None:
        if key == ("markers", it.x.transactional_id):
            waits_ms.append(delay_ms)
        schedule(key, delay_ms, callback)

    it.runtime.schedule = noted  # type: ignore[method-assign]
    it.runtime.pass_ms(10_000)
    assert len(waits_ms) > 10
    assert max(waits_ms) == MAX_RETRY_BACKOFF_MS


def test_a_completion_that_fails_for_good_is_not_pending_any_more(caplog: pytest.LogCaptureFixture) -> None:
    it = ended()
    it.runtime.failing = Error.UNKNOWN_SERVER_ERROR
    it.markers.writes[0].answer()
    assert it.state == "PrepareCommit"
    assert "can't be logged" in caplog.text
    it.runtime.failing = None
    it.runtime.pass_ms(100_000)
    assert it.state == "PrepareCommit"
    assert it.restarted().state == "CompleteCommit"


def test_the_client_that_committed_hears_of_success_though_the_completion_cannot_be_logged() -> None:
    it = Coordinator()
    it.begun()
    append = it.runtime.append
    it.runtime.append = lambda records, **rest: (  # type: ignore[method-assign]
        append(records, **rest), setattr(it.runtime, "failing", Error.COORDINATOR_NOT_AVAILABLE))[0]  # fmt: skip
    assert it.end(7, 0, commit=True) == (7, 1)
    assert it.state == "PrepareCommit→CompleteCommit"


def test_an_end_that_cannot_be_prepared_changes_nothing_and_sends_nothing() -> None:
    it = Coordinator()
    it.begun()
    it.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    assert it.end(7, 0, commit=True) is Error.COORDINATOR_NOT_AVAILABLE
    assert (it.state, it.x.producer_epoch, it.markers.writes) == ("Ongoing", 0, [])
    it.runtime.failing = None
    assert it.end(7, 0, commit=True) == (7, 1)


def test_a_shard_that_was_given_up_writes_nothing_more() -> None:
    it = ended()
    it.markers.writes[0].answer(Error.NOT_LEADER_OR_FOLLOWER, T0)
    it.shard.unload()
    it.markers.writes[0].answer()
    it.runtime.pass_ms(10_000_000)
    assert it.told(2) == ["PrepareCommit 7/1"]
    assert len(it.markers.writes) == 1
    assert len(it.runtime.timers) == 0


def test_lowering_the_level_to_0_meanwhile_does_not_prevent_completion() -> None:
    it = ended()
    it.level = 0
    it.markers.writes[0].answer()
    assert it.state == "CompleteCommit"
    assert it.init() == (7, 2)


def test_completions_of_many_ids_do_not_disturb_each_other() -> None:
    it = Coordinator()
    it.markers.is_held = True
    for name in "abc":
        me = it.init(name=name)
        assert isinstance(me, ProducerIdAndEpoch)
        it.add(*me, T0, T1, name=name)
        it.end(*me, commit=name != "b", name=name)
    for write in reversed(it.markers.writes):
        write.answer(Error.NOT_LEADER_OR_FOLLOWER)
    it.runtime.pass_ms(20)
    assert len(it.markers.writes) == 6
    for write in it.markers.writes[3:]:
        write.answer()
    assert [it.shard.transactions[each].state.name for each in "abc"] == [
        "COMPLETE_COMMIT",
        "COMPLETE_ABORT",
        "COMPLETE_COMMIT",
    ]
