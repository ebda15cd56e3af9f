"""The gate of a shard: those who wait pass once, in order, and never early."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.commit_waiters import Gate
from protocol.errors import BrokenInvariantError, Error, KafkaError
from tests.support.failing_calls import fail
from tests.unit.coordinator.runtime import FakeRuntime

RECORD = (b"key", b"value")


class Heard:
    """The names that passed, and the error of each."""

    def __init__(self) -> None:
        self.all: list[str | tuple[str, Error]] = []

    def __call__(self, name: str) -> Callable[[KafkaError | None], None]:
        return lambda error: self.all.append(name if error is None else (name, error.error))


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def gate(runtime: FakeRuntime) -> Gate:
    return Gate(runtime)


@pytest.fixture
def heard() -> Heard:
    return Heard()


def test_no_answer_waits_if_nothing_was_appended(gate: Gate, runtime: FakeRuntime, heard: Heard) -> None:
    runtime.lags = True
    gate.when_committed(heard("read"))
    assert heard.all == ["read"]


def test_no_answer_waits_if_appending_is_committing(gate: Gate, heard: Heard) -> None:
    assert gate.append([RECORD, RECORD]) == 2
    gate.when_committed(heard("write"))
    assert heard.all == ["write"]


def test_an_answer_waits_for_earlier_appends(gate: Gate, runtime: FakeRuntime, heard: Heard) -> None:
    runtime.lags = True
    gate.append([RECORD])
    gate.when_committed(heard("write"))
    gate.append([RECORD, RECORD])
    gate.when_committed(heard("second"))
    gate.when_committed(heard("read"))
    assert heard.all == []
    runtime.commit(1)
    assert heard.all == ["write"]
    runtime.commit(2)
    assert heard.all == ["write"]
    runtime.commit()
    assert heard.all == ["write", "second", "read"]
    gate.when_committed(heard("later"))
    assert heard.all[-1] == "later"


def test_a_lost_append_fails_the_answers_that_wait_for_it_and_none_after(
    gate: Gate, runtime: FakeRuntime, heard: Heard
) -> None:
    runtime.lags = True
    gate.append([RECORD])
    gate.when_committed(heard("write"))
    runtime.fail_commits(Error.COORDINATOR_NOT_AVAILABLE)
    assert heard.all == [("write", Error.COORDINATOR_NOT_AVAILABLE)]
    gate.append([RECORD])
    gate.when_committed(heard("next"))
    assert len(heard.all) == 1
    runtime.commit()
    assert heard.all[1:] == ["next"]


def test_answers_waiting_at_a_closed_gate_learn_once_that_the_coordinator_is_elsewhere(
    gate: Gate, runtime: FakeRuntime, heard: Heard
) -> None:
    runtime.lags = True
    gate.append([RECORD])
    gate.when_committed(heard("write"))
    gate.when_committed(heard("read"))
    gate.close()
    refused = [("write", Error.NOT_COORDINATOR), ("read", Error.NOT_COORDINATOR)]
    assert heard.all == refused
    runtime.commit()  # this comes too late
    gate.close()
    assert heard.all == refused
    gate.when_committed(heard("later"))
    assert heard.all[2:] == [("later", Error.NOT_COORDINATOR)]
    with pytest.raises(KafkaError) as refusal:
        gate.append([RECORD])
    assert refusal.value.error is Error.NOT_COORDINATOR
    assert len(runtime.log) == 1


def test_a_refused_append_delays_no_answer(gate: Gate, runtime: FakeRuntime, heard: Heard) -> None:
    runtime.lags = True
    runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(KafkaError):
        gate.append([RECORD])
    gate.when_committed(heard("read"))
    assert heard.all == ["read"]


def test_an_append_in_a_callback_lets_nobody_in_before_the_callback_returns(
    gate: Gate, runtime: FakeRuntime, heard: Heard
) -> None:
    def appends_more(error: KafkaError | None) -> None:
        heard.all.append("begins")
        runtime.lags = False
        gate.append([RECORD])
        gate.when_committed(heard("its own"))
        heard.all.append("ends")

    runtime.lags = True
    gate.append([RECORD])
    gate.when_committed(appends_more)
    gate.when_committed(heard("second"))
    runtime.commit()
    assert heard.all == ["begins", "ends", "second", "its own"]


def test_a_callback_can_close_the_gate_behind_itself(gate: Gate, runtime: FakeRuntime, heard: Heard) -> None:
    runtime.lags = True
    gate.append([RECORD])
    gate.when_committed(lambda error: gate.close())
    gate.when_committed(heard("second"))
    gate.append([RECORD])
    gate.when_committed(heard("third"))
    runtime.commit()
    assert heard.all == [("second", Error.NOT_COORDINATOR), ("third", Error.NOT_COORDINATOR)]


def test_a_failing_callback_delays_nobody_behind_it(gate: Gate, runtime: FakeRuntime, heard: Heard) -> None:
    def fail(error: KafkaError | None) -> None:
        raise RuntimeError("of somebody else")

    runtime.lags = True
    gate.append([RECORD])
    gate.when_committed(fail)
    gate.when_committed(heard("second"))
    runtime.commit()
    gate.when_committed(heard("third"))
    assert heard.all == ["second", "third"]
    assert gate.is_open


def test_a_written_record_that_cannot_be_waited_for_breaks_an_invariant(
    gate: Gate, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.lags = True
    fail(monkeypatch, runtime, "when_committed")
    with pytest.raises(BrokenInvariantError):
        gate.append([RECORD])


def test_a_broken_invariant_is_raised_once_all_have_passed(
    gate: Gate, runtime: FakeRuntime, heard: Heard
) -> None:
    def break_down(error: KafkaError | None) -> None:
        raise BrokenInvariantError("can't be")

    runtime.lags = True
    gate.append([RECORD])
    gate.when_committed(break_down)
    gate.when_committed(heard("second"))
    with pytest.raises(BrokenInvariantError):
        runtime.commit()
    gate.when_committed(heard("third"))
    assert heard.all == ["second", "third"]
