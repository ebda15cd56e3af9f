"""`barnabas transactions abort`: its checks before it writes, and its refusals."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from cli import aborting, explaining, transactions
from cli.client import transactions as client_transactions
from cli.client.cluster import KafkaCluster
from cli.client.transactions import NEVER_MS, CoordinatedTransaction, OpenTransaction
from cli.errors import CommandError
from cli.explaining import HANGING, OPEN, Blocker
from cli.explanation_words import end_of
from cli.pasting import secrets_again, which_kafka
from protocol.messages.produce import InitProducerIdRequest, InitProducerIdResponse

HERE = ("orders", 0)
OLD = OpenTransaction(HERE, 7, 3, 100, 5, 0)
KNOWN = CoordinatedTransaction("-bill ing", 1, "Ongoing", 7, 3, 1, 90_000, frozenset({HERE}))
NOWHERE = cast(KafkaCluster, None)


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    transactions.add_arguments(parser)
    return parser.parse_args(
        ["abort", "--topic", "orders", "--partition", "0", "--start-offset", "100", "--yes", *arguments]
    )


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[OpenTransaction]:
    """The written markers."""
    found: list[OpenTransaction] = []
    monkeypatch.setattr(aborting, "write_abort_marker", lambda _, one: found.append(one))
    monkeypatch.setattr(explaining, "coordinators_are_complete", lambda _: True)
    return found


def looks(
    monkeypatch: pytest.MonkeyPatch,
    opened: Sequence[list[OpenTransaction]],
    known: Sequence[list[CoordinatedTransaction]],
) -> None:
    """The answers of the partition and the coordinators, look by look."""
    of_partition, of_coordinators = iter(opened), iter(known)
    monkeypatch.setattr(explaining, "open_transactions", lambda *_: {HERE: next(of_partition)})
    monkeypatch.setattr(explaining, "list_transactions", lambda *_: next(of_coordinators))


def test_a_transaction_that_hangs_at_both_looks_is_aborted(
    monkeypatch: pytest.MonkeyPatch, written: list[OpenTransaction]
) -> None:
    looks(monkeypatch, [[OLD]] * 4, [[], []])
    assert transactions._abort(NOWHERE, options()) == 0
    assert written == [OLD]


@pytest.mark.parametrize(
    ("then", "known", "said"),
    [
        ([], [], "no open transaction of orders-0 starts at 100"),
        ([replace(OLD, producer_id=8)], [], "it has changed meanwhile"),
        ([OLD], [KNOWN], "it has changed meanwhile"),
    ],
)
def test_a_transaction_that_changed_while_the_user_was_asked_is_not_aborted(
    monkeypatch: pytest.MonkeyPatch,
    written: list[OpenTransaction],
    then: list[OpenTransaction],
    known: list[CoordinatedTransaction],
    said: str,
) -> None:
    looks(monkeypatch, [[OLD], [OLD], then, then], [[], known])
    with pytest.raises(CommandError, match=said):
        transactions._abort(NOWHERE, options())
    assert written == []


def test_a_young_transaction_that_no_coordinator_knows_is_aborted_only_by_force(
    monkeypatch: pytest.MonkeyPatch, written: list[OpenTransaction]
) -> None:
    young = replace(OLD, last_timestamp_ms=round(time.time() * 1000) - 60_000)
    looks(monkeypatch, [[young]] * 2, [[]])
    with pytest.raises(
        CommandError, match="that you may describe, and its last record is younger than 15 min"
    ):
        transactions._abort(NOWHERE, options())
    assert written == []
    looks(monkeypatch, [[young]] * 4, [[], []])
    assert transactions._abort(NOWHERE, options("--force")) == 0
    assert written == [young]


def test_an_open_transaction_is_refused_with_the_command_that_ends_it_as_a_shell_takes_it(
    monkeypatch: pytest.MonkeyPatch, written: list[OpenTransaction]
) -> None:
    looks(monkeypatch, [[OLD]] * 2, [[KNOWN]])
    given = options(
        "--bootstrap", "b:1", "--config", "my file", "-X", "sasl.username=a b", "-X", "sasl.password=x"
    )
    with pytest.raises(CommandError) as refused:
        transactions._abort(NOWHERE, given)
    assert (
        "barnabas transactions abort --id='-bill ing' --bootstrap b:1 --config 'my file' -X 'sasl.username=a b' (or"
        in str(refused.value)
    )
    assert "password" not in which_kafka(given)
    assert "-X sasl.password=…" in (secrets_again(given) or "")
    assert secrets_again(options("-X", "ssl.key.location=key.pem")) is None
    assert which_kafka(options("-X", "ssl.key.location=key.pem")) == " -X ssl.key.location=key.pem"


def test_a_topic_that_begins_with_a_dash_is_no_option_of_a_printed_command() -> None:
    one = Blocker(replace(OLD, partition=("-x", 0)), 1, None, HANGING, "")
    assert "--topic=-x --partition 0" in (end_of(one, "") or "")
    assert "--id=-bill" in (
        end_of(Blocker(OLD, 1, replace(KNOWN, transactional_id="-bill"), OPEN, ""), "") or ""
    )


@pytest.mark.parametrize("then", [replace(KNOWN, started_ms=2), replace(KNOWN, state="Empty")])
def test_an_id_that_got_on_while_its_user_was_asked_isnt_fenced(
    monkeypatch: pytest.MonkeyPatch, then: CoordinatedTransaction
) -> None:
    found = iter([KNOWN, then])
    monkeypatch.setattr(aborting, "describe_transaction", lambda *_: next(found))
    monkeypatch.setattr(aborting, "fence", lambda *_: pytest.fail("it was fenced"))
    given = argparse.Namespace(id="x", topic=None, partition=None, start_offset=None, yes=True)
    with pytest.raises(CommandError, match="gone on meanwhile"):
        transactions._abort(NOWHERE, given)


def test_a_two_phase_transaction_is_fenced_with_a_timeout_that_a_broker_takes() -> None:
    asked: list[int] = []

    class Coordinator:
        def coordinator(self, *_: object) -> int:
            return 1

        def until_passed(self, ask: Callable[[], Any], _error_of: object) -> Any:
            return ask()

        def ask(self, request: InitProducerIdRequest, *_: object, **_more: Any) -> InitProducerIdResponse:
            asked.append(request.transaction_timeout_ms)
            return InitProducerIdResponse(producer_id=7, producer_epoch=4)

    for timeout_ms in (90_000, NEVER_MS):
        client_transactions.fence(cast(KafkaCluster, Coordinator()), replace(KNOWN, timeout_ms=timeout_ms))
    assert asked == [90_000, 60_000]
