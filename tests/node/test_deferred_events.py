"""What waits for the metadata log runs once, in order, whatever the others do."""

from __future__ import annotations

import pytest

from broker.controller.metadata_log import DeferredEventQueue
from protocol.errors import BrokenInvariantError, Error, KafkaError


def fail(error: KafkaError | None) -> None:
    raise RuntimeError("of somebody else")


def break_down(error: KafkaError | None) -> None:
    raise BrokenInvariantError("can't be")


def test_all_are_told_that_the_controller_is_elsewhere_though_the_first_fails() -> None:
    queue = DeferredEventQueue()
    told: list[KafkaError | None] = []
    queue.when_committed(5, fail)
    queue.when_committed(6, told.append)
    refused = KafkaError(Error.NOT_CONTROLLER)
    queue.fail(refused)
    assert told == [refused]
    assert len(queue) == 0
    queue.when_committed(7, told.append)  # of a later epoch of ours
    queue.commit(7)
    assert told == [refused, None]


def test_no_event_runs_within_another_one() -> None:
    queue = DeferredEventQueue()
    told: list[str] = []

    def waits_anew(error: KafkaError | None) -> None:
        told.append("begins")
        queue.when_committed(3, lambda error: told.append("its own"))
        told.append("ends")

    queue.when_committed(5, waits_anew)
    queue.when_committed(6, lambda error: told.append("second"))
    queue.commit(10)
    assert told[:2] == ["begins", "ends"]
    assert sorted(told[2:]) == ["its own", "second"]


def test_a_broken_invariant_of_an_event_is_raised_once_all_have_run() -> None:
    queue = DeferredEventQueue()
    told: list[KafkaError | None] = []
    queue.when_committed(5, break_down)
    queue.when_committed(6, told.append)
    with pytest.raises(BrokenInvariantError):
        queue.commit(6)
    assert told == [None]
    queue.commit(7)


def test_what_is_committed_already_runs_at_once_and_raises_what_it_raises() -> None:
    queue = DeferredEventQueue()
    queue.commit(5)
    with pytest.raises(RuntimeError):
        queue.when_committed(5, fail)
