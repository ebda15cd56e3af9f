"""The checker finds each anomaly in a history made by hand, and nothing in a history that Kafka allows."""

from __future__ import annotations

import pytest

from tests.clients.checker.anomalies import find
from tests.clients.checker.history import Committed, History, Operation, Outcome, Poll, Record, Send, Step

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN

LATER_NS = 1_000


def txn(
    process: int, *steps: Step, outcome: Outcome = OK, commit_at_ns: int | None = 0, group: str = ""
) -> Operation:
    if outcome is FAILED:
        commit_at_ns = None
    return Operation(process, outcome, list(steps), commit_at_ns, group)


def singly(process: int, *sends: Send) -> Operation:
    """As an idempotent producer sends, without a transaction."""
    is_acknowledged = all(send.offset is not None for send in sends)
    return Operation(process, OK if is_acknowledged else UNKNOWN, list(sends), singly=True)


def read_in(group: str, *records: tuple[int, int, int], done_at_ns: int = LATER_NS) -> Operation:
    """What a member read, whose offsets were committed."""
    return Operation(5, OK, [poll(*records)], group=group, done_at_ns=done_at_ns)


def committed(group: str, ends: dict[int, int], at_ns: int) -> Operation:
    return Operation(0, OK, [Committed(group, ends, at_ns)])


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
    "skipped-by-group": [
        txn(1, Send(0, 10, 5), Send(0, 11, 6), Send(0, 12, 7)),
        read_in("theirs", (0, 5, 10)),
        read_in("theirs", (0, 7, 12)),
        read_in("others", (0, 6, 11)),
        committed("theirs", {0: 8}, LATER_NS),
        txn(9, poll((0, 5, 10), (0, 6, 11), (0, 7, 12))),
    ],
    "offset-back": [
        txn(1, Send(0, 10, 5), Send(0, 11, 6)),
        read_in("theirs", (0, 5, 10), (0, 6, 11)),
        committed("theirs", {0: 7}, LATER_NS),
        committed("theirs", {0: 6}, LATER_NS + 1),
        txn(9, poll((0, 5, 10), (0, 6, 11))),
    ],
}

# the same for records of idempotent producers
SINGLE: dict[str, History] = {
    "lost-write": [
        singly(1, Send(0, 10, 5), Send(0, 11)),
        singly(1, Send(0, 12, 7)),
        txn(9, poll((0, 7, 12))),
    ],
    "unseen": [
        singly(1, Send(0, 10, 5)),
        singly(1, Send(0, 11, 6), Send(0, 12)),
        txn(9, poll((0, 5, 10))),
    ],
    "duplicate": [
        singly(1, Send(0, 10)),
        txn(9, poll((0, 5, 10), (0, 6, 10))),
    ],
    "nonmonotonic-send": [
        singly(1, Send(0, 10, 6)),
        singly(1, Send(0, 11)),
        txn(9, poll((0, 5, 11), (0, 6, 10))),
    ],
    "int-nonmonotonic-send": [
        singly(1, Send(0, 10), Send(0, 11)),
        txn(9, poll((0, 5, 11), (0, 6, 10))),
    ],
}


@pytest.mark.parametrize("name", HISTORIES)
def test_an_anomaly_is_found_and_nothing_else(name: str) -> None:
    assert list(find(HISTORIES[name])) == [name]


@pytest.mark.parametrize("name", SINGLE)
def test_an_anomaly_of_an_idempotent_producer_is_found_and_nothing_else(name: str) -> None:
    assert list(find(SINGLE[name])) == [name]


@pytest.mark.parametrize("later", [{}, {0: 6}], ids=["none", "an earlier one"])
def test_a_committed_offset_that_was_acknowledged_and_is_not_there_any_more_is_found(
    later: dict[int, int],
) -> None:
    history = [
        txn(1, Send(0, 10, 5), Send(0, 11, 6)),
        read_in("theirs", (0, 5, 10), (0, 6, 11), done_at_ns=1),
        committed("theirs", later, at_ns=2),
    ]

    assert list(find(history)) == ["offset-back"]


def test_a_copy_that_one_of_two_groups_has_not_made_is_missed() -> None:
    history = [
        txn(1, Send(0, 10, 5), Send(0, 11, 6)),
        txn(2, poll((0, 5, 10), (0, 6, 11)), copy(1, 3, 20, source=10), copy(1, 4, 21, source=11)),
        txn(3, poll((0, 5, 10)), copy(2, 3, 30, source=10)),
        txn(9, Poll([Record(1, 3, 20, 10), Record(1, 4, 21, 11), Record(2, 3, 30, 10)], LATER_NS)),
    ]

    assert find(history) == {"not-copied": ["11 of 0 has no copy in 2"]}


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
        txn(2, poll((0, 5, 10)), group="of them"),
        txn(2, poll((0, 7, 12)), group="of them"),
        txn(2, poll((0, 6, 11)), group="of them"),
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
    "records of an idempotent producer without an acknowledgement, of which some are there": [
        singly(1, Send(0, 10), Send(0, 11), Send(0, 12)),
        txn(9, poll((0, 5, 11))),
    ],
    "records of an idempotent producer that are read before it has gone on": [
        singly(1, Send(0, 10, 5), Send(0, 11, 6)),
        txn(9, poll((0, 5, 10), (0, 6, 11), at_ns=-1)),
    ],
    "a record copied once by each of two groups": [
        txn(1, Send(0, 10, 5)),
        txn(2, poll((0, 5, 10)), copy(1, 3, 20, source=10)),
        txn(3, poll((0, 5, 10)), copy(2, 3, 30, source=10)),
        txn(9, Poll([Record(1, 3, 20, 10), Record(2, 3, 30, 10)], LATER_NS)),
    ],
    "records that a group has read again": [
        txn(1, Send(0, 10, 5), Send(0, 11, 6)),
        read_in("theirs", (0, 5, 10), done_at_ns=1),
        committed("theirs", {0: 6}, at_ns=2),
        read_in("theirs", (0, 5, 10), (0, 6, 11), done_at_ns=3),
        committed("theirs", {0: 7}, at_ns=4),
    ],
    "an offset whose commit was acknowledged only after it was asked for": [
        txn(1, Send(0, 10, 5)),
        read_in("theirs", (0, 5, 10), done_at_ns=2),
        committed("theirs", {}, at_ns=1),
    ],
}


@pytest.mark.parametrize("what", ALLOWED)
def test_behaviour_that_kafka_allows_is_no_anomaly(what: str) -> None:
    assert find(ALLOWED[what]) == {}
