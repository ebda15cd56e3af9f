"""The checker finds each anomaly in a history made by hand, and nothing in one that is as Kafka's may be."""

from __future__ import annotations

import pytest

from tests.clients.checker.anomalies import find
from tests.clients.checker.history import History, Operation, Outcome, Poll, Record, Send, Step

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN

LATER_NS = 1_000


def txn(
    process: int, *steps: Step, outcome: Outcome = OK, commit_at_ns: int | None = 0, in_group: bool = False
) -> Operation:
    if outcome is FAILED:
        commit_at_ns = None
    return Operation(process, outcome, list(steps), commit_at_ns, in_group)


def poll(*records: tuple[int, int, int], at_ns: int = LATER_NS) -> Poll:
    """Records as (key, offset, value)."""
    return Poll([Record(*record) for record in records], at_ns)


def copy(key: int, offset: int, value: int, source: int) -> Send:
    return Send(key, value, offset, source)


# name of the anomaly → a history with just that
HISTORIES: dict[str, History] = {
    "inconsistent-offsets": [
        txn(1, Send(0, 10, 5), outcome=UNKNOWN),
        txn(2, Send(0, 11, 5)),
        txn(9, poll((0, 5, 11))),
    ],
    "duplicate": [
        txn(1, Send(0, 10, 5)),
        txn(9, poll((0, 5, 10), (0, 6, 10))),
    ],
    "G1a": [
        txn(1, Send(0, 10, 5), outcome=FAILED),
        txn(9, poll((0, 5, 10)), outcome=FAILED),
    ],
    "precommitted-read": [
        txn(1, Send(0, 10, 5), poll((0, 5, 10), at_ns=1), commit_at_ns=2),
    ],
    "unwritten-read": [
        txn(9, poll((0, 5, 10))),
    ],
    "lost-write": [
        txn(1, Send(0, 10, 5)),
        txn(1, Send(0, 11, 7)),
        txn(9, poll((0, 7, 11))),
    ],
    "unseen": [
        txn(1, Send(0, 10, 5)),
        txn(1, Send(0, 11, 7)),
        txn(9, poll((0, 5, 10))),
    ],
    "copied-twice": [
        txn(1, Send(0, 10, 5)),
        txn(2, poll((0, 5, 10)), copy(1, 3, 20, source=10)),
        txn(3, poll((0, 5, 10)), copy(1, 5, 21, source=10)),
        txn(9, Poll([Record(1, 3, 20, 10), Record(1, 5, 21, 10)], LATER_NS)),
    ],
    "not-copied": [
        txn(1, Send(0, 10, 5), Send(0, 11, 6)),
        txn(2, poll((0, 5, 10)), copy(1, 3, 20, source=10)),
        txn(9, poll((0, 5, 10), (0, 6, 11)), Poll([Record(1, 3, 20, 10)], LATER_NS)),
    ],
    "G1c": [
        txn(1, Send(0, 10, 5), poll((1, 0, 20))),
        txn(2, Send(1, 20, 0), poll((0, 5, 10))),
    ],
    "poll-skip": [
        txn(1, Send(0, 10, 5), Send(0, 11, 6), Send(0, 12, 7)),
        txn(2, poll((0, 5, 10))),
        txn(2, poll((0, 7, 12))),
        txn(9, poll((0, 5, 10), (0, 6, 11), (0, 7, 12))),
    ],
    "nonmonotonic-poll": [
        txn(1, Send(0, 10, 5), Send(0, 11, 6)),
        txn(2, poll((0, 5, 10), (0, 6, 11))),
        txn(2, poll((0, 5, 10))),
    ],
    "int-poll-skip": [
        txn(1, Send(0, 10, 5), Send(0, 11, 6), Send(0, 12, 7)),
        txn(2, poll((0, 5, 10)), poll((0, 7, 12))),
        txn(9, poll((0, 5, 10), (0, 6, 11), (0, 7, 12))),
    ],
    "int-nonmonotonic-poll": [
        txn(1, Send(0, 10, 5), Send(0, 11, 6)),
        txn(2, poll((0, 6, 11)), poll((0, 5, 10))),
    ],
    "nonmonotonic-send": [
        txn(1, Send(0, 10, 5)),
        txn(1, Send(0, 11, 4)),
        txn(9, poll((0, 4, 11), (0, 5, 10))),
    ],
    "int-nonmonotonic-send": [
        txn(1, Send(0, 10, 5), Send(0, 11, 4)),
        txn(9, poll((0, 4, 11), (0, 5, 10))),
    ],
}


@pytest.mark.parametrize("name", HISTORIES)
def test_an_anomaly_is_found_and_nothing_else(name: str) -> None:
    assert list(find(HISTORIES[name])) == [name]


def test_a_torn_transaction_of_unknown_outcome_is_a_lost_write() -> None:
    history = [
        txn(1, Send(0, 10, 5), Send(1, 11, 6), Send(2, 12, None), outcome=UNKNOWN),
        txn(9, poll((0, 5, 10), (1, 9, 13))),
        txn(2, Send(1, 13, 9)),
    ]

    assert list(find(history)) == ["lost-write", "unseen"]


def test_a_cycle_of_three_is_found() -> None:
    history = [
        txn(1, Send(0, 10, 0), poll((2, 0, 12))),
        txn(2, Send(1, 11, 0), poll((0, 0, 10))),
        txn(3, Send(2, 12, 0), poll((1, 0, 11))),
        txn(4, poll((2, 0, 12))),
    ]

    (sentence,) = find(history)["G1c"]

    assert sentence.count("→") == 2
    assert "process 4" not in sentence


ALLOWED: dict[str, History] = {
    "an unknown outcome of which nothing was read": [
        txn(1, Send(0, 10, 5), Send(1, 11, None), outcome=UNKNOWN),
        txn(9, poll()),
    ],
    "an unknown outcome of which everything was read": [
        txn(1, Send(0, 10, None), Send(1, 11, 3), outcome=UNKNOWN),
        txn(9, poll((0, 5, 10), (1, 3, 11))),
    ],
    "aborted writes that nobody read": [
        txn(1, Send(0, 10, 5), outcome=FAILED),
        txn(1, Send(0, 11, 7)),
        txn(9, poll((0, 7, 11))),
    ],
    "transactions that overlap in the log, with a cycle by its order": [
        txn(1, Send(0, 10, 1), Send(1, 11, 0), commit_at_ns=1),
        txn(2, Send(0, 20, 0), poll((1, 0, 11), at_ns=2), commit_at_ns=3),
        txn(9, poll((0, 0, 20), (0, 1, 10), (1, 0, 11))),
    ],
    "a consumer that rewinds after its transaction failed": [
        txn(1, Send(0, 10, 5), Send(0, 11, 6)),
        txn(2, poll((0, 5, 10))),
        txn(2, poll((0, 6, 11)), outcome=FAILED),
        txn(2, poll((0, 6, 11))),
    ],
    "offsets of markers and aborted records passed over": [
        txn(1, Send(0, 10, 5), Send(0, 12, 8)),
        txn(3, Send(0, 11, 6), outcome=FAILED),
        txn(2, poll((0, 5, 10)), poll((0, 8, 12))),
    ],
    "a consumer whose group gave it other positions": [
        txn(1, Send(0, 10, 5), Send(0, 11, 6), Send(0, 12, 7)),
        txn(2, poll((0, 5, 10)), in_group=True),
        txn(2, poll((0, 7, 12)), in_group=True),
        txn(2, poll((0, 6, 11)), in_group=True),
    ],
    "sends of one transaction with others' between": [
        txn(1, Send(0, 10, 5), Send(0, 11, 9)),
        txn(2, Send(0, 12, 7)),
        txn(9, poll((0, 5, 10), (0, 7, 12), (0, 9, 11))),
    ],
    "copies of which the first attempt was aborted": [
        txn(1, Send(0, 10, 5)),
        txn(2, poll((0, 5, 10)), copy(1, 3, 20, source=10), outcome=FAILED),
        txn(3, poll((0, 5, 10)), copy(1, 5, 21, source=10)),
        txn(9, Poll([Record(1, 5, 21, 10)], LATER_NS)),
    ],
}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_kafka_allows_is_no_anomaly(what: str) -> None:
    assert find(ALLOWED[what]) == {}
