"""AddPartitionsToTxn and its verification."""

from __future__ import annotations

import pytest

from protocol.errors import Error
from tests.unit.coordinator.transaction.coordinator import T0, T1, Coordinator


def test_the_first_partitions_begin_the_transaction() -> None:
    it = Coordinator()
    it.init()
    it.runtime.pass_ms(100)
    assert it.add(7, 0, T0, T1) is Error.NONE
    assert it.state == "Ongoing"
    assert [*it.x.partitions] == [T0, T1]
    assert it.x.start_timestamp_ms == it.runtime.now_ms()


def test_further_partitions_join_and_the_start_stays() -> None:
    it = Coordinator()
    it.begun(T0)
    start_ms = it.x.start_timestamp_ms
    it.runtime.pass_ms(100)
    assert it.add(7, 0, T1) is Error.NONE
    assert [*it.x.partitions] == [T0, T1]
    assert (it.x.start_timestamp_ms, it.x.last_update_timestamp_ms) == (start_ms, start_ms + 100)


def test_partitions_that_are_in_already_are_not_logged_again() -> None:
    it = Coordinator()
    it.begun(T0, T1)
    assert it.add(7, 0, T1) is Error.NONE
    assert it.told() == ["Empty 7/0", "Ongoing 7/0"]


def test_no_partitions_begin_a_transaction_too_and_it_can_be_committed() -> None:
    it = Coordinator()
    it.init()
    it.add_all(7, 0, [], version=0)
    assert it.state == "Ongoing"
    it.add_all(7, 0, [], version=0)
    assert it.end(7, 0, commit=True, version=0) == (-1, -1)
    assert it.told() == ["Empty 7/0", "Ongoing 7/0", "PrepareCommit 7/0", "CompleteCommit 7/0"]
    assert it.marked() == []


def test_the_next_transaction_has_its_own_start_and_partitions() -> None:
    it = Coordinator()
    me = it.begun(T0)
    it.end(*me, commit=True, version=0)
    it.runtime.pass_ms(50)
    assert it.add(*me, T1, version=0) is Error.NONE
    assert [*it.x.partitions] == [T1]
    assert it.x.start_timestamp_ms == it.runtime.now_ms()


@pytest.mark.parametrize("version", [0, 2])
def test_the_version_of_the_clients_transactions_is_logged(version: int) -> None:
    it = Coordinator()
    it.begun(version=version)
    assert it.x.client_transaction_version == version
    assert it.restarted().x.client_transaction_version == version


def test_partitions_that_cannot_be_logged_are_not_in_the_transaction() -> None:
    it = Coordinator()
    it.begun(T0)
    it.runtime.failing = Error.COORDINATOR_NOT_AVAILABLE
    assert it.add(7, 0, T1) is Error.COORDINATOR_NOT_AVAILABLE
    assert [*it.x.partitions] == [T0]
    it.runtime.failing = None
    assert it.add(7, 0, T1) is Error.NONE


def test_transactions_v2_need_level_1_at_least() -> None:
    it = Coordinator(level=0)
    it.init()
    assert it.add(7, 0, version=2) is Error.UNSUPPORTED_VERSION
    assert it.add(7, 0, version=2) is Error.UNSUPPORTED_VERSION
    assert it.add(7, 0, version=0) is Error.NONE


def test_verification_tells_each_partition_apart() -> None:
    it = Coordinator()
    it.begun(T0)
    assert it.verify(7, 0, T1, T0) == [Error.TRANSACTION_ABORTABLE, Error.NONE]
    assert it.verify(7, 1, T1, T0) == [Error.PRODUCER_FENCED] * 2


def test_verification_changes_nothing() -> None:
    it = Coordinator()
    it.begun(T0)
    it.verify(7, 0, T1)
    assert [*it.x.partitions] == [T0]
    assert len(it.told()) == 2


def test_after_the_end_no_partition_is_verified() -> None:
    it = Coordinator()
    me = it.begun(T0)
    it.end(*me, commit=True, version=0)
    assert it.verify(7, 0, T0) == [Error.TRANSACTION_ABORTABLE]


def test_partitions_of_ten_thousand_names_stay_in_the_order_of_adding() -> None:
    it = Coordinator()
    it.init()
    many = [(f"topic-{index % 97}", index) for index in range(10_000)]
    it.add_all(7, 0, many, version=2)
    assert [*it.x.partitions] == many
    assert set(it.restarted().x.partitions) == set(many)
