"""Bugs that Kafka had, each by its number, if the coordinator alone can show them.

The rotation's (KAFKA-18660, 19367, 20090, 20310) are in `test_rotation.py`.
"""

from __future__ import annotations

import pytest

from protocol.errors import Error
from tests.unit.coordinator.transaction.coordinator import T0, T1, TIMEOUT_MS, Coordinator


@pytest.mark.parametrize("commit", [True, False])
def test_kafka_17754_an_end_that_comes_late_does_not_end_the_next_transaction(commit: bool) -> None:
    it = Coordinator()
    it.begun(T0)
    assert it.end(7, 0, commit=commit) == (7, 1)
    assert it.add(7, 1, T1) is Error.NONE
    assert it.end(7, 0, commit=commit) is Error.PRODUCER_FENCED
    assert it.end(7, 0, commit=not commit) is Error.PRODUCER_FENCED
    assert (it.state, [*it.x.partitions]) == ("Ongoing", [T1])


def test_kafka_17754_in_transactions_v1_nothing_tells_it_apart() -> None:
    it = Coordinator()
    it.begun(T0, version=0)
    it.end(7, 0, commit=True, version=0)
    it.add(7, 0, T1, version=0)
    assert it.end(7, 0, commit=True, version=0) == (-1, -1)
    assert it.state == "CompleteCommit"


def test_kafka_14402_partitions_after_an_abort_are_neither_verified_nor_added() -> None:
    it = Coordinator()
    it.begun(T0, version=0)
    assert it.init() is Error.CONCURRENT_TRANSACTIONS
    assert it.verify(7, 0, T0) == [Error.PRODUCER_FENCED]
    it.init()
    it.add(7, 2, T0)
    it.end(7, 2, commit=False)
    assert it.add(7, 2, T0) is Error.PRODUCER_FENCED, "an implicit add of transactions V2"
    assert it.state == "CompleteAbort"


def test_kafka_14402_after_an_abort_of_v1_its_partitions_have_to_be_added_again() -> None:
    it = Coordinator()
    it.begun(T0, version=0)
    it.end(7, 0, commit=False, version=0)
    assert it.verify(7, 0, T0) == [Error.TRANSACTION_ABORTABLE]


def test_kafka_14884_while_the_markers_are_out_nothing_is_verified() -> None:
    it = Coordinator()
    it.begun(T0, version=0)
    it.markers.is_held = True
    it.end(7, 0, commit=False, version=0)
    assert it.verify(7, 0, T0) == [Error.CONCURRENT_TRANSACTIONS]
    it.markers.writes[0].answer()
    assert it.verify(7, 0, T0) == [Error.TRANSACTION_ABORTABLE]


def test_kafka_19999_a_marker_whose_answer_is_lost_is_repeated_unchanged() -> None:
    it = Coordinator()
    it.begun(T0)
    it.markers.is_held = True
    it.end(7, 0, commit=True)
    it.markers.writes[0].answer(Error.REQUEST_TIMED_OUT)
    it.runtime.pass_ms(20)
    assert it.markers.writes[0].marker == it.markers.writes[1].marker
    again = it.restarted(is_held=True)
    assert again.marked() == it.marked()[:1]
    again.markers.writes[0].answer()
    assert again.state == "CompleteCommit"


def test_kafka_18464_an_abort_right_after_a_commit_waits_before_its_epoch_is_looked_at() -> None:
    it = Coordinator()
    it.begun(T0)
    it.markers.is_held = True
    assert it.end(7, 0, commit=True) == (7, 1)
    assert it.end(7, 1, commit=False) is Error.CONCURRENT_TRANSACTIONS
    it.markers.writes[0].answer()
    assert it.end(7, 1, commit=False) == (7, 2)
    assert it.state == "CompleteAbort"


def test_kafka_18464_so_it_does_where_the_commit_brings_a_new_producer_id() -> None:
    it = Coordinator()
    it.begun(T0)
    it.x.producer_epoch = 32766
    it.markers.is_held = True
    assert it.end(7, 32766, commit=True) == (8, 0)
    assert it.end(8, 0, commit=False) is Error.CONCURRENT_TRANSACTIONS
    it.markers.writes[0].answer()
    assert it.end(8, 0, commit=False) == (8, 1)


def test_kafka_16352_answers_to_the_coordinator_before_do_not_complete_for_the_next_one() -> None:
    it = Coordinator()
    it.begun(T0, T1)
    it.markers.is_held = True
    it.end(7, 0, commit=True)
    again = it.restarted(is_held=True)
    it.shard.unload()
    it.markers.writes[0].answer()
    assert again.state == "PrepareCommit→CompleteCommit"
    again.markers.writes[0].answer(Error.NONE, T0)
    assert again.state == "PrepareCommit→CompleteCommit"
    again.markers.writes[0].answer(Error.NONE, T1)
    assert again.state == "CompleteCommit"
    assert it.told()[-1] == "PrepareCommit 7/1"


def test_kafka_9777_a_prepared_transaction_is_not_stuck_though_its_markers_fail_for_long() -> None:
    it = Coordinator()
    it.begun(T0, T1)
    it.markers.errors = {T0: Error.NOT_ENOUGH_REPLICAS, T1: Error.UNKNOWN_TOPIC_OR_PARTITION}
    it.end(7, 0, commit=False)
    it.runtime.pass_ms(3_600_000)
    assert it.state == "PrepareAbort→CompleteAbort"
    it.markers.errors = {T0: Error.NONE, T1: None}
    it.runtime.pass_ms(1_000)
    assert it.state == "CompleteAbort"


def test_kafka_17507_the_next_transaction_waits_until_the_offsets_partition_has_answered() -> None:
    it = Coordinator()
    offsets = ("__consumer_offsets", 12)
    it.begun(T0, offsets)
    it.markers.is_held = True
    it.end(7, 0, commit=True)
    it.markers.writes[0].answer(Error.NONE, T0)
    assert it.add(7, 1, T0) is Error.CONCURRENT_TRANSACTIONS
    it.markers.writes[0].answer(Error.NONE, offsets)
    assert it.add(7, 1, T0) is Error.NONE


def test_kafka_14904_verification_ignores_pending_changes() -> None:
    it = Coordinator()
    it.begun(T0, version=0)
    append = it.runtime.append
    seen: list[list[Error]] = []

    def verifying(*records: object, **rest: object) -> int:
        seen.append(it.verify(7, 0, T0, T1))
        return append(*records, **rest)  # type: ignore[arg-type]

    it.runtime.append = verifying  # type: ignore[method-assign]
    it.add(7, 0, T1, version=0)
    assert seen == [[Error.NONE, Error.TRANSACTION_ABORTABLE]]


@pytest.mark.parametrize("version", [0, 2])
def test_kafka_8803_a_clock_that_goes_back_stops_no_transaction(version: int) -> None:
    it = Coordinator()
    it.begun(T0, version=version)
    it.runtime.elapsed_ms -= 3_600_000
    assert it.add(7, 0, T1, version=version) is Error.NONE
    it.runtime.elapsed_ms -= 3_600_000
    assert it.end(7, 0, commit=True, version=version) == ((7, 1) if version else (-1, -1))
    assert it.state == "CompleteCommit"
    it.runtime.elapsed_ms -= 3_600_000
    epoch = it.x.producer_epoch
    assert it.init(7, epoch) == (7, epoch + 1)
    assert it.restarted().state == "Empty"


def test_kafka_8803_a_transaction_begun_before_the_clock_went_back_times_out_in_the_end() -> None:
    it = Coordinator()
    it.begun(T0)
    now_ms = it.runtime.now_ms
    it.runtime.now_ms = lambda: now_ms() - 3_600_000  # type: ignore[method-assign]
    it.runtime.pass_ms(TIMEOUT_MS + 10_000)
    assert it.state == "Ongoing"
    it.runtime.pass_ms(3_600_000)
    assert it.state == "CompleteAbort"
