"""A run of a program, on a ground that says what happens there."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas import cluster, prove_command
from barnabas.child import BrokerError
from barnabas.faults import Fault
from barnabas.journal import Request
from barnabas.proving.grounds import SeveralBrokers
from barnabas.proving.hazards import Hazard, Strike, Thoroughness, client_of, hazards_of, lasting
from barnabas.proving.trials import _Bench, _Run

MOVED = Hazard("Produce", 1, Strike.MOVED)


class Ended:
    """A program that has ended with status 0."""

    printed = ""

    def __init__(self) -> None:
        self.is_killed = False

    @property
    def status(self) -> int:
        return 0

    def ended(self) -> str:
        self.is_killed = True
        return ""


def run_with(hazard: Hazard | None = None, **ground: Any) -> _Run:
    given = {"struck": lambda fault: (), "news": list, "requests": list, **ground}
    bench = SimpleNamespace(
        ground=SimpleNamespace(**given),
        timeout_s=60.0,
        idle_s=8.0,
        started=lambda folder: Ended(),
        client_of=lambda api: None,
    )
    return _Run(cast("_Bench", bench), hazard, None, "")


@pytest.mark.parametrize(
    ("moved", "note"),
    [([], "nothing could be moved"), (["bills-0 moved to broker 2"], "bills-0 moved to broker 2")],
)
def test_a_move_is_reached_only_if_something_moved(moved: list[str], note: str) -> None:
    moves: list[str] = []

    def move(api: str) -> list[str]:
        moves.append(api)
        return moved

    fault = SimpleNamespace(fired=1, disarm=lambda: None)
    run = run_with(MOVED, move=move, kafka=SimpleNamespace(fault=lambda *_, **__: fault))
    run.go()
    assert (run.is_reached, run.notes, moves) == (bool(moved), [note], ["Produce"])


def test_programs_end_even_if_no_broker_can_be_asked_any_more() -> None:
    def requests() -> list[Any]:
        raise BrokerError("the broker doesn't run")

    run, program = run_with(requests=requests), Ended()
    run._programs.append(cast("Any", program))
    with pytest.raises(BrokerError):
        run.end()
    assert program.is_killed


@pytest.mark.parametrize("api", ["InitProducerId", "TxnOffsetCommit", "Produce"])
def test_a_request_that_names_nothing_moves_nothing(api: str) -> None:
    """The journal leaves out what is empty: an idempotent producer has no transactional id."""
    held = {"api": api, "took_ms": None}
    broker = SimpleNamespace(ask=lambda _: {"requests": [held], "next": None})
    ground = SeveralBrokers.__new__(SeveralBrokers)
    ground._struck = cast("Any", broker)
    assert ground.move(api) == []


def test_a_coordinator_is_moved_only_if_one_was_asked() -> None:
    seen: list[dict[str, Any]] = [{"api": "InitProducerId"}, {"api": "Produce"}]
    moves = Hazard("InitProducerId", 1, Strike.MOVED)
    assert moves not in hazards_of(seen, Thoroughness.NORMAL, 500, brokers=3)
    seen[0]["transactional_ids"] = ["payer"]
    assert moves in hazards_of(seen, Thoroughness.NORMAL, 500, brokers=3)


def test_a_broker_that_dies_is_reported_in_the_commands_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def prove(*_: object, **__: object) -> None:
        raise BrokerError("the broker did not start")

    monkeypatch.setattr(prove_command, "prove", prove)
    assert prove_command.main(["--output", "bills", "--", "true"]) == 1
    assert capsys.readouterr().err == "barnabas: the broker did not start\n"


def test_a_report_that_cannot_be_written_is_refused_before_any_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--html", "--junit"):
        with pytest.raises(SystemExit, match="2"):
            prove_command.main(["--output", "bills", option, str(tmp_path / "none" / "report"), "--", "true"])
        assert "No such file or directory" in capsys.readouterr().err


def test_requests_between_brokers_are_no_steps_of_the_program() -> None:
    """From version 4 on a client sends no AddPartitionsToTxn (KIP-890)."""
    of_program: Request = {"api": "AddPartitionsToTxn", "version": 3, "client_id": "billing"}
    of_broker: Request = {"api": "AddPartitionsToTxn", "version": 5, "client_id": "2"}
    assert [*lasting([of_broker, of_program])] == [of_program]
    assert {each.api for each in hazards_of([of_broker], Thoroughness.NORMAL, 500, brokers=3)} == set()
    assert client_of([of_program, of_broker], "AddPartitionsToTxn") == "billing"
    assert (
        client_of([of_program], "AddPartitionsToTxn") is None
    )  # an id that changes with each start is no hindrance


def test_where_no_cluster_can_be_made_no_folder_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_cluster(*_: object, **__: object) -> None:
        raise OSError("no port is free")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cluster, "Cluster", no_cluster)
    with pytest.raises(OSError, match="no port is free"):
        SeveralBrokers(3)
    assert [*tmp_path.iterdir()] == []


class Node:
    """A broker with a fault that says how often it has fired."""

    paused = False
    pid = 1

    def __init__(self, fired: int) -> None:
        self.fired = fired
        self.is_disarmed = False

    def __str__(self) -> str:
        return "a broker"

    def ask(self, question: Mapping[str, object]) -> Any:
        if question["ask"] == "arm_fault":
            return 1
        self.is_disarmed = self.is_disarmed or question["ask"] == "disarm_fault"
        return {"seen": self.fired, "fired": self.fired, "standing": 0}


def test_a_hazard_that_has_happened_at_two_brokers_says_so() -> None:
    nodes = [Node(0), Node(1), Node(1)]
    fault = Fault(cast("Any", nodes), {"do": "close"}, may_not_fire=True)
    ground = SeveralBrokers.__new__(SeveralBrokers)
    ground._cluster = cast("Any", nodes)
    run = run_with(
        Hazard("Produce", 1, Strike.ANSWER_LOST),
        struck=ground.struck,
        kafka=SimpleNamespace(fault=lambda *_, **__: fault),
    )
    run.go()
    assert run.notes == ["it happened at a broker at the same time"]
    assert [each.is_disarmed for each in nodes] == [True, False, True]
