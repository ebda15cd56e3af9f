"""A proof on brokers that do what a script says. A run whose brokers fail is a failure of its own, and the runs behind
it still take place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from barnabas.child import BrokerError
from barnabas.proving import trials
from barnabas.proving.grounds import Ground
from barnabas.proving.hazards import Hazard, Strike
from barnabas.proving.reports import junit, line, page, summary
from barnabas.proving.trials import Proof, prove

HAZARDS = [Hazard("EndTxn", nth, Strike.ANSWER_LOST) for nth in (1, 2)]


class Kafka:
    """Brokers with one bill, where each fault happens at once."""

    bootstrap = "localhost:9092"
    running = True

    def records(self, topic: str, *, committed: bool = True) -> list[Any]:
        return [SimpleNamespace(key=None, value=b"bill", outcome="committed")]

    def fault(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(fired=1)

    def disarm_faults(self) -> None:
        """None is armed."""


class ScriptedGround(Ground):
    """A ground that does what `script` says each time something is asked of it. It notes how each run began."""

    size = 1

    def __init__(self, script: Callable[[str], object]) -> None:
        super().__init__()
        self.script = script
        self.begun: list[str] = []
        self.kafka_there = Kafka()

    @property
    def kafka(self) -> Any:
        return self.kafka_there

    def keep(self) -> None:
        """Nothing to keep."""

    def _put_back(self) -> None:
        self.begun.append("put back")
        self.script("put back")

    def _replace(self) -> None:
        self.begun.append("replaced")
        self.script("replaced")

    def end_sessions(self) -> None:
        """There are none."""

    end_all = end_sessions
    kill_and_start = end_sessions

    def settle(self) -> None:
        self.script("settle")

    def struck(self, fault: Any) -> Sequence[str]:
        return ()

    def move(self, api: str) -> list[str]:
        return []

    def requests(self) -> list[Any]:
        self.script("requests")
        return []

    def _nodes(self) -> Iterator[Any]:
        return iter(())

    def close(self) -> None:
        self.begun.append("closed")


class Done:
    """A program that has ended well."""

    status = 0

    def __init__(self, *_: object) -> None:
        """It has no command."""

    def ended(self) -> str:
        return "\x1b[1mdone"


def failing(*failures: tuple[str, int, Exception]) -> Callable[[str], None]:
    """A script by which a step fails the nth time that it is taken."""
    taken: dict[str, int] = {}

    def script(step: str) -> None:
        taken[step] = taken.get(step, 0) + 1
        for failing_step, nth, failure in failures:
            if (failing_step, nth) == (step, taken[step]):
                raise failure

    return script


def proof_on(
    monkeypatch: pytest.MonkeyPatch, script: Callable[[str], None], program: type[Done] = Done, **how: Any
) -> tuple[Proof, ScriptedGround]:
    ground = ScriptedGround(script)
    monkeypatch.setattr(trials, "OneBroker", lambda: ground)
    monkeypatch.setattr(trials, "started", program)
    return prove(["billing"], **{"outputs": ["bills"], "hazards": HAZARDS, **how}), ground


def test_a_run_that_cannot_be_judged_is_a_failure_and_the_next_one_has_new_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = TimeoutError("after 60 s still brokers [2] are fenced")
    proof, ground = proof_on(monkeypatch, failing(("settle", 2, late)))
    unjudged, next_one = proof.trials
    assert not proof.holds
    assert proof.failures == [unjudged]
    assert next_one.holds
    assert unjudged.is_reached
    assert unjudged.unjudged == "TimeoutError: after 60 s still brokers [2] are fenced"
    assert ground.begun == ["put back", "put back", "replaced", "closed"]


def test_all_reports_say_that_it_could_not_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = BrokerError("the broker doesn't run", "line one\nline two")
    proof, _ = proof_on(monkeypatch, failing(("settle", 2, dead)))
    why = (
        "the outcome isn't known, since the brokers failed: BrokerError: the broker doesn't run; it printed:"
    )
    head, *below = line(proof.trials[0]).splitlines()
    assert head.startswith("not judged   EndTxn #1: answer lost")
    assert [each.strip() for each in below] == [why]
    assert summary(proof) == "1 of 2 hazards changed the outcome, weren't reached, or couldn't be judged"
    assert "not judged" in page(proof)
    assert "line one\nline two" in page(proof)
    suite = ElementTree.fromstring(junit(proof).partition("\n")[2])
    [failure] = suite.iter("failure")
    assert (suite.get("failures"), failure.get("message")) == ("1", "not judged")
    assert "line one\nline two" in (failure.text or "")


def test_the_first_failure_counts_where_the_brokers_fail_again_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, again = BrokerError("it has not answered"), BrokerError("the broker doesn't run")
    proof, _ = proof_on(monkeypatch, failing(("settle", 2, first), ("requests", 2, again)))
    assert [each.unjudged for each in proof.trials] == ["BrokerError: it has not answered", ""]


def test_brokers_that_cannot_be_put_back_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    proof, ground = proof_on(monkeypatch, failing(("put back", 2, BrokerError("it doesn't start"))))
    assert proof.holds
    assert ground.begun == ["put back", "put back", "replaced", "put back", "closed"]


def test_a_run_without_new_brokers_fails_and_the_next_one_asks_for_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken, none_free = BrokerError("it doesn't start"), OSError("no port is free")
    proof, ground = proof_on(monkeypatch, failing(("put back", 2, broken), ("replaced", 1, none_free)))
    assert [each.unjudged for each in proof.trials] == ["OSError: no port is free", ""]
    assert ground.begun == ["put back", "put back", "replaced", "replaced", "closed"]


def test_a_program_that_never_ends_is_killed_before_its_transactions_are_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []

    class Idle(Done):
        @property
        def status(self) -> int | None:  # type: ignore[override]
            return None

        def ended(self) -> str:
            events.append("ended")
            return ""

    proof_on(monkeypatch, events.append, Idle, idle_s=0.0, hazards=[])
    assert events == ["put back", "ended", "settle", "requests"]
