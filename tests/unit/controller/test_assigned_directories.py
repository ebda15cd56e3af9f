"""Which directories count as online, by the ids that records name."""

import pytest

from broker.controller.image import LOST, MIGRATING, UNASSIGNED, PartitionImage
from broker.controller.replica_directories import directory_of, is_online
from protocol.messages.metadata_records import PartitionRecord

ONLINE, FAILED = b"o" * 16, b"f" * 16


def partition(*directories: bytes) -> PartitionImage:
    return PartitionImage(PartitionRecord(replicas=[1, 2], isr=[1, 2], leader=1, directories=[*directories]))


@pytest.mark.parametrize(
    ("named", "expected"),
    [(ONLINE, True), (FAILED, False), (UNASSIGNED, True), (MIGRATING, True), (LOST, False)],
)
def test_an_unnamed_directory_counts_as_online(named: bytes, expected: bool) -> None:
    assert is_online(partition(ONLINE, named), 2, [ONLINE]) is expected


def test_the_reserved_ids_are_those_that_kafka_writes() -> None:
    assert [int.from_bytes(each, "big") for each in (MIGRATING, UNASSIGNED, LOST)] == [0, 1, 2]


def test_a_record_that_names_no_directories_is_of_the_time_before_there_were_any() -> None:
    assert directory_of(partition(), 2) == MIGRATING
