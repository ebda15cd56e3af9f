"""Exactly once from topic to topic, with workers and broker killed; `make exactly-once` kills 200 times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.consume_transform_produce.accounting import Output, find
from tests.clients.consume_transform_produce.crew import BROKER, Crew
from tests.clients.transactions import running_server

KILLS = 8


@pytest.mark.parametrize("seed", [1])
def test_every_input_is_in_the_output_once_though_workers_and_broker_are_killed(
    tmp_path: Path, seed: int
) -> None:
    with running_server(tmp_path / "server") as server:
        report = Crew(server, seed).run(KILLS)

    assert report.found == {}
    assert report.outputs == report.inputs > 0
    assert report.killed == KILLS
    assert report.kills[BROKER] > 0
    # or nothing was put to the test
    assert report.aborted_outputs > 0


INPUTS = {2: "numbers-0 @ 0", 3: "numbers-1 @ 0"}


def output(number: int, transaction: str, square: int | None = None) -> Output:
    return Output(number, number**2 if square is None else square, transaction, f"squares-0 @ {number}")


def test_the_accounting_finds_nothing_where_all_is_well() -> None:
    committed = [output(2, "A"), output(3, "C")]

    assert find(INPUTS, committed, [*committed, output(3, "B")], {"A", "C"}) == {}


def test_the_accounting_says_which_transactions_doubled_an_input() -> None:
    committed = [output(2, "A"), output(3, "A"), output(2, "B")]

    assert find(INPUTS, committed, committed, {"A", "B"}) == {
        "doubled": ["input 2 (numbers-0 @ 0) is committed by A (squares-0 @ 2) and B (squares-0 @ 2)"]
    }


def test_the_accounting_says_which_transactions_wrote_a_missing_input() -> None:
    committed = [output(2, "A")]
    written = [*committed, output(3, "B"), output(3, "C")]

    assert find(INPUTS, committed, written, {"A", "C"}) == {
        "missing": ["input 3 (numbers-1 @ 0) was written by B (aborted), C (acknowledged)"],
        "lost": ["C, of 1 records, was acknowledged and can't be read"],
    }


def test_the_accounting_finds_an_input_that_nobody_wrote() -> None:
    committed = [output(2, "A")]

    assert find(INPUTS, committed, committed, {"A"}) == {
        "missing": ["input 3 (numbers-1 @ 0) was written by no transaction"]
    }


def test_the_accounting_finds_a_transaction_that_is_half_visible() -> None:
    committed = [output(2, "A"), output(3, "B")]

    found = find(INPUTS, committed, [*committed, output(3, "A")], set())

    assert found == {"torn": ["A wrote 2 records, 1 can be read"]}


def test_the_accounting_finds_outputs_that_should_not_be() -> None:
    committed = [output(2, "A", square=5), output(3, "A"), output(4, "A")]

    assert find(INPUTS, committed, committed, {"A"}) == {
        "wrong": ["input 2 became 5 in A (squares-0 @ 2)"],
        "invented": ["input 4, of A (squares-0 @ 4), was never sent"],
    }
