"""Assertions about exactly once, and the stories that they tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import barnabas
from barnabas import assertions
from tests.process.test_looking import produce, transaction
from tests.support.transactional_client import amid_transaction
from tests.support.wire import Client


@pytest.fixture(scope="module")
def shared() -> Iterator[barnabas.Broker]:
    with barnabas.Broker(topics={"in": 2, "out": 1}) as running:
        yield running


@pytest.fixture
def broker(shared: barnabas.Broker) -> barnabas.Broker:
    shared.reset()
    return shared


@pytest.fixture
def client(broker: barnabas.Broker) -> Iterator[Client]:
    with Client.of(broker.bootstrap) as connected:
        produce(connected, "in", [(1_000, None, b"1", ())], 0)
        produce(connected, "in", [(1_000, None, b"2", ())], 1)
        yield connected


def test_a_record_that_came_once_is_exactly_once_whatever_was_aborted(
    broker: barnabas.Broker, client: Client
) -> None:
    transaction(client, "worker", "out", b"1", commit=False)
    transaction(client, "worker", "out", b"1", commit=True)
    transaction(client, "worker", "out", b"2", commit=True)
    broker.assert_exactly_once("in", "out")
    broker.assert_exactly_once([b"1", b"2"], ["out"], key=lambda record: record.value)
    broker.assert_committed("out", ["1", b"2"])
    broker.assert_no_hanging_transactions()


def test_lost_doubled_and_added_records_are_reported_with_their_transactions(
    broker: barnabas.Broker, client: Client
) -> None:
    transaction(client, "worker", "out", b"1", commit=False)
    for _ in range(2):
        transaction(client, "worker", "out", b"2", commit=True)
    transaction(client, "other", "out", b"3", commit=True)
    with pytest.raises(AssertionError) as failed:
        broker.assert_exactly_once("in", "out")
    told = str(failed.value)
    assert told.startswith(
        "not exactly once (2 expected, 3 wrong):\n  lost: b'1' is committed 0 times, not 1\n"
    )
    assert "out-0@0 null: '1', of producer id" in told
    assert "transaction 1 of 'worker' here, which was aborted by the marker at 1" in told
    assert "doubled: b'2' is committed 2 times, not 1" in told
    assert "transaction 2 of 'worker' here, which was committed by the marker at 3" in told
    assert "transaction 3 of 'worker' here, which was committed by the marker at 5" in told
    assert "added: b'3' is committed 1 time, not 0" in told


def test_a_record_of_an_open_transaction_is_not_committed_yet(
    broker: barnabas.Broker, client: Client
) -> None:
    amid_transaction(client.ask, "open", "more", (0,))
    with pytest.raises(AssertionError, match=r"lost: b'x'[^\n]*\n[^\n]*'open' here, which is still open"):
        broker.assert_committed("more", [b"x"])
    with pytest.raises(AssertionError, match=r"lost: b'y'[^\n]*\n    no record of it was ever written"):
        broker.assert_committed("more", [b"y"])
    broker.assert_no_hanging_transactions()


def test_some_of_many_records_are_named(
    broker: barnabas.Broker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assertions, "MOST_TOLD", 1)
    for _ in range(3):
        produce(client, "out", [(1_000, None, b"3", ())])
    with pytest.raises(AssertionError) as failed:
        broker.assert_exactly_once("in", "out")
    told = str(failed.value)
    assert told.endswith("no record of it was ever written\n  and 2 more")
    with pytest.raises(AssertionError, match=r"\n    and 2 more$"):
        broker.assert_committed("out", [b"3"])
