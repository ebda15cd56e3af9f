"""What happens with time: transactions time out, and transactional ids expire."""

from __future__ import annotations

import pytest

from coordinator.transaction import expiry
from coordinator.transaction.expiry import TOMBSTONES_BYTES
from coordinator.transaction.state_manager import ProducerIdAndEpoch
from coordinator.transaction.states import ONGOING
from protocol.errors import Error
from tests.support.cycles import nothing_in_a_cycle
from tests.unit.coordinator.transaction.coordinator import T0, TIMEOUT_MS, Coordinator, names

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


def test_a_transaction_is_aborted_at_the_first_look_after_its_timeout() -> None:
    it = Coordinator()
    it.begun()
    it.runtime.pass_ms(TIMEOUT_MS)
    assert it.state == "Ongoing", "exactly at its timeout it isn't over"
    it.runtime.pass_ms(9_999)
    assert it.state == "Ongoing"
    it.runtime.pass_ms(1)
    assert it.told(2) == ["PrepareAbort 7/1", "CompleteAbort 7/1"]


def test_the_timeout_counts_from_the_first_partition() -> None:
    it = Coordinator()
    it.init()
    it.runtime.pass_ms(5 * TIMEOUT_MS)
    assert it.state == "Empty"
    it.add(7, 0)
    it.runtime.pass_ms(TIMEOUT_MS)
    assert it.state == "Ongoing"


def test_the_interval_of_checks_is_a_setting() -> None:
    it = Coordinator()
    it.configure(abort_timed_out_interval_ms=100)
    it.begun(timeout_ms=250)
    it.runtime.pass_ms(299)
    assert it.state == "Ongoing"
    it.runtime.pass_ms(1)
    assert it.state == "CompleteAbort"


def test_a_client_of_v1_is_fenced_by_the_timeout() -> None:
    it = Coordinator()
    it.begun(version=0)
    it.runtime.pass_ms(TIMEOUT_MS + 10_000)
    assert it.end(7, 0, commit=True, version=0) is Error.PRODUCER_FENCED
    assert it.add(7, 0, version=0) is Error.PRODUCER_FENCED
    assert it.verify(7, 0) == [Error.PRODUCER_FENCED]
    assert it.init(7, 0) == (7, 1)


def test_a_client_of_v2_may_abort_but_not_commit_a_timed_out_transaction() -> None:
    it = Coordinator()
    it.begun()
    it.runtime.pass_ms(TIMEOUT_MS + 10_000)
    assert it.end(7, 0, commit=True) is Error.INVALID_TXN_STATE
    assert it.end(7, 0, commit=False) == (7, 1)
    assert it.init(7, 0) == (7, 1)


@pytest.mark.parametrize("state", ["Empty", "CompleteCommit"])
def test_a_transaction_that_is_not_open_does_not_time_out(state: str) -> None:
    it = Coordinator()
    it.init()
    if state == "CompleteCommit":
        it.add(7, 0)
        it.end(7, 0, commit=True)
    it.runtime.pass_ms(10 * TIMEOUT_MS)
    assert it.state == state


def test_a_prepared_one_does_not_time_out() -> None:
    it = Coordinator()
    it.begun()
    it.markers.is_held = True
    it.end(7, 0, commit=True)
    it.runtime.pass_ms(10 * TIMEOUT_MS)
    assert it.state == "PrepareCommit→CompleteCommit"
    it.markers.writes[0].answer()
    assert it.state == "CompleteCommit"


@pytest.mark.parametrize(("level", "epochs"), [(0, [1, 1]), (1, [1, 1]), (2, [1, 1])])
def test_an_abort_that_cannot_be_logged_is_tried_at_the_next_look_and_bumps_once(
    level: int, epochs: list[int]
) -> None:
    it = Coordinator(level=level)
    it.begun(version=0)
    it.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    it.runtime.pass_ms(TIMEOUT_MS + 30_000)
    assert it.state == "Ongoing"
    it.runtime.failing = None
    it.runtime.pass_ms(10_000)
    assert [each.producer_epoch for _, each in it.records()[2:] if each is not None] == epochs


def test_a_fence_of_v1_that_failed_to_be_logged_has_fenced_all_the_same() -> None:
    it = Coordinator(level=1)
    it.begun(version=0)
    it.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    it.runtime.pass_ms(TIMEOUT_MS + 10_000)
    it.runtime.failing = None
    assert it.end(7, 0, commit=True, version=0) is Error.PRODUCER_FENCED
    assert it.restarted().end(7, 0, commit=True, version=0) == (-1, -1), "it was never in the log"


def test_a_fence_of_v2_that_failed_to_be_logged_has_not() -> None:
    it = Coordinator(level=2)
    it.begun()
    it.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    it.runtime.pass_ms(TIMEOUT_MS + 10_000)
    it.runtime.failing = None
    assert it.end(7, 0, commit=True) == (7, 1)


def test_after_a_failed_fence_the_next_transaction_is_bumped_again() -> None:
    it = Coordinator(level=1)
    it.begun(version=0)
    it.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    it.init()
    it.runtime.failing = None
    assert it.init() is Error.CONCURRENT_TRANSACTIONS
    assert it.init() == (7, 2)
    it.add(7, 2, version=0)
    assert it.init() is Error.CONCURRENT_TRANSACTIONS
    assert it.init() == (7, 4)


# ---- transactional ids


def of_many_days() -> Coordinator:
    """Return a coordinator that checks for timeouts as rarely as for expiry, so that simulating a week is quick."""
    it = Coordinator()
    it.configure(abort_timed_out_interval_ms=HOUR_MS)
    return it


def test_an_id_is_forgotten_at_the_first_look_seven_days_after_its_last_record() -> None:
    it = of_many_days()
    it.init()
    it.runtime.pass_ms(7 * DAY_MS - 1)
    assert names(it.shard.transactions.values()) == ["x"]
    it.runtime.pass_ms(1)
    assert it.shard.transactions == {}
    assert it.told() == ["Empty 7/0", "tombstone"]
    assert it.restarted().shard.transactions == {}
    assert it.init(7, 0) == (8, 0), "it is unknown now"


def test_only_idle_transactional_ids_are_forgotten() -> None:
    it = of_many_days()
    it.configure(max_timeout_ms=2**31 - 2, transactional_id_expiration_ms=DAY_MS)
    for name in ("empty", "committed", "aborted", "open", "prepared"):
        it.init(name=name, timeout_ms=2**31 - 2)
    for index, name in enumerate(("committed", "aborted", "open", "prepared")):
        it.add(8 + index, 0, T0, name=name)
    it.end(8, 0, commit=True, name="committed")
    it.end(9, 0, commit=False, name="aborted")
    it.markers.is_held = True
    it.end(11, 0, commit=True, name="prepared")
    it.runtime.pass_ms(DAY_MS + HOUR_MS)
    assert names(it.shard.transactions.values()) == ["open", "prepared"]
    assert it.told()[-3:] == ["tombstone"] * 3


def test_an_id_with_a_move_under_way_is_not_forgotten() -> None:
    it = of_many_days()
    it.init()
    it.x.pending_state = ONGOING
    it.runtime.pass_ms(8 * DAY_MS)
    assert it.state == "Empty→Ongoing"


def test_each_record_puts_the_expiry_off() -> None:
    it = of_many_days()
    it.init()
    it.runtime.pass_ms(6 * DAY_MS)
    it.init(7, 0)
    it.runtime.pass_ms(6 * DAY_MS)
    assert it.state == "Empty"


def test_tombstones_that_cannot_be_written_are_tried_an_hour_later(caplog: pytest.LogCaptureFixture) -> None:
    it = of_many_days()
    it.init()
    it.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    it.runtime.pass_ms(7 * DAY_MS)
    assert it.state == "Empty"
    assert "can't be forgotten" in caplog.text
    it.runtime.failing = None
    it.runtime.pass_ms(HOUR_MS)
    assert it.shard.transactions == {}


def test_a_tombstone_with_an_unforeseen_error_leaves_nothing_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = of_many_days()
    it.init()

    def fail(*_: object, **__: object) -> int:
        raise RuntimeError("of ours")

    monkeypatch.setattr(it.runtime, "append", fail)
    with pytest.raises(RuntimeError):
        it.runtime.pass_ms(7 * DAY_MS)
    assert it.state == "Empty"


def test_many_tombstones_go_in_batches_of_bounded_size() -> None:
    it = Coordinator()
    it.configure(transactional_id_expiration_ms=HOUR_MS)
    batches: list[int] = []
    append = it.runtime.append

    def counting(records: list[tuple[bytes, bytes | None]], **rest: bool) -> int:
        if records[0][1] is None:
            batches.append(sum(len(key) for key, _ in records))
        return append(records, **rest)

    it.runtime.append = counting  # type: ignore[method-assign, assignment]
    for index in range(1000):
        it.init(name=f"{index:06}" * 10)
    it.init(name="z" * 20_000)
    it.runtime.pass_ms(HOUR_MS)
    assert it.shard.transactions == {}
    assert len(batches) == 5
    assert sorted(batches)[-2] <= TOMBSTONES_BYTES


def test_ids_that_expire_together_go_a_batch_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "TOMBSTONES_BYTES", 100)
    it = Coordinator()
    it.configure(transactional_id_expiration_ms=HOUR_MS)
    for index in range(20):
        it.init(name=f"{index:020}")
    it.runtime.elapsed_ms += 2 * HOUR_MS
    turns = []
    it.shard.expiry.remove_expired()
    while it.shard.transactions:
        turns.append(len(it.shard.transactions))
        it.runtime.timers.fire_due(lambda: True)
    assert [*dict.fromkeys(turns)] == [16, 12, 8, 4]  # the check for timeouts has a turn of its own


def test_without_an_id_the_time_is_not_checked() -> None:
    it = of_many_days()
    it.shard.start()
    assert len(it.runtime.timers) == 0
    it.init()
    assert len(it.runtime.timers) == 2
    it.runtime.pass_ms(8 * DAY_MS)
    assert len(it.runtime.timers) == 0
    it.begun()
    it.runtime.pass_ms(HOUR_MS)
    assert it.state == "CompleteAbort"


def begin(it: Coordinator, name: str) -> ProducerIdAndEpoch:
    me = it.init(name=name)
    assert isinstance(me, ProducerIdAndEpoch)
    assert it.add(*me, T0, name=name) is Error.NONE
    return me


@pytest.mark.limit("coordinator.transaction.expiry.ABORTS_PER_TURN")
def test_many_that_time_out_together_are_aborted_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "ABORTS_PER_TURN", 2)
    it = Coordinator()
    it.configure(abort_timed_out_interval_ms=2 * TIMEOUT_MS)
    for number in range(5):
        begin(it, f"x{number}")
    it.runtime.elapsed_ms += TIMEOUT_MS + 1
    left = []
    it.shard.expiry.abort_timed_out()
    while it.shard.expiry.timed_out():
        left.append(len(it.shard.expiry.timed_out()))
        it.runtime.timers.fire_due()
    assert left == [3, 1]


def test_a_shard_unloaded_by_the_first_of_many_aborts_aborts_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expiry, "ABORTS_PER_TURN", 1)
    it = Coordinator()
    for number in range(3):
        begin(it, f"x{number}")
    it.runtime.elapsed_ms += TIMEOUT_MS + 1

    async def unload(*_: object) -> None:
        it.shard.expiry.stop()

    monkeypatch.setattr(it.shard.expiry, "_fence_and_abort", unload)
    scheduled = []
    monkeypatch.setattr(it.runtime, "schedule", lambda *what: scheduled.append(what))
    it.shard.expiry.abort_timed_out()
    assert scheduled == []


def test_a_transaction_that_ended_before_its_turn_is_not_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "ABORTS_PER_TURN", 1)
    it = Coordinator()
    begin(it, "x0")
    second = begin(it, "x1")
    it.runtime.elapsed_ms += TIMEOUT_MS + 1
    it.shard.expiry.abort_timed_out()
    assert isinstance(it.end(*second, commit=False, name="x1"), ProducerIdAndEpoch)
    before = len(it.records())
    it.runtime.timers.fire_due()
    assert len(it.records()) == before


def test_a_look_leaves_no_cycle() -> None:
    it = Coordinator()
    with nothing_in_a_cycle():
        it.begun()
        it.runtime.pass_ms(DAY_MS)
        it.shard.expiry.stop()
