"""Tests that each rule for dead letter queues finds what breaks it."""

from __future__ import annotations

import pytest

from coordinator.share_partition.states import AcknowledgeType
from protocol.errors import Error
from tests.simulation.shares.dead_letters import Queue
from tests.simulation.shares.deliveries import Deliveries, Session
from tests.simulation.work import Place

PLACE: Place = ("orders", 0)
VALUE = b"value"
LIMIT = 2
ACCEPT, RELEASE, REJECT, GAP = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.GAP,
)


def queue(
    *said: tuple[int, Error | None], buried: list[bytes | None] | None = None, copies: bool = True
) -> Queue:
    """Make a queue for one record, at offset 3, delivered and acknowledged once for each of `said`."""
    deliveries = Deliveries("g", lock_s=1.0, limit=LIMIT, is_latest=False, may_lose=False)
    session = Session("m")
    for number, (kind, error) in enumerate(said):
        delivery = deliveries.delivered(session, PLACE, 3, number + 1, VALUE, number, number + 0.1, "term")
        [told] = deliveries.acknowledging(session, PLACE, {3: kind}, {3: delivery}, number + 0.2)
        if error is not None:
            deliveries.acknowledged(told, error, number + 0.3, "term")
    found = Queue("dlq.g", deliveries, copies)
    if buried is not None:
        found.letters[PLACE, 3] = buried
    return found


def complaints(found: Queue, begin: int = 0) -> list[str]:
    return [*found.complaints({PLACE: {3: VALUE}}, {PLACE: begin})]


def missing(found: Queue, begin: int = 0) -> list[str]:
    return [*found.missing({PLACE: begin}, set())]


def test_records_rejected_or_delivered_too_often_are_in_the_queue() -> None:
    for said in ([(REJECT, Error.NONE)], [(RELEASE, Error.NONE)] * LIMIT):
        assert missing(queue(*said)) != []
        found = queue(*said, buried=[VALUE, VALUE])
        assert (missing(found), complaints(found)) == ([], [])


@pytest.mark.parametrize("error", [None, Error.NOT_LEADER_OR_FOLLOWER])
def test_records_possibly_rejected_may_be_in_the_queue(error: Error | None) -> None:
    assert missing(queue((REJECT, error))) == []
    assert complaints(queue((REJECT, error), buried=[VALUE])) == []


@pytest.mark.parametrize("kind", [ACCEPT, GAP])
def test_accepted_records_are_not_in_the_queue(kind: int) -> None:
    assert missing(queue((kind, Error.NONE))) == []
    assert complaints(queue((RELEASE, Error.NONE), (kind, Error.NONE), buried=[VALUE])) == [
        f"{PLACE} at 3 is in dlq.g, and was accepted"
    ]


def test_records_not_rejected_and_still_due_are_not_in_the_queue() -> None:
    assert complaints(queue((RELEASE, Error.NONE), buried=[VALUE])) == [
        f"{PLACE} at 3 is in dlq.g, and was neither rejected nor delivered too often"
    ]


def test_deleted_or_given_up_records_need_not_be_in_the_queue() -> None:
    found = queue((REJECT, Error.NONE))
    assert missing(found, begin=4) == []
    assert [*found.missing({PLACE: 0}, {("g", PLACE)})] == []
    assert [*found.missing({PLACE: 0}, {("another", PLACE)})] != []
    assert complaints(queue(buried=[None]), begin=4) == []


@pytest.mark.parametrize(("copies", "value"), [(True, None), (True, b"another"), (False, VALUE)])
def test_the_original_is_in_the_queue_if_wanted(copies: bool, value: bytes | None) -> None:
    [complaint] = complaints(queue((REJECT, Error.NONE), buried=[value], copies=copies))
    assert complaint.startswith(f"{PLACE} at 3 is in dlq.g as")
