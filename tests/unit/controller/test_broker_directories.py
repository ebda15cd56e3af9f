"""Directories of a registration: the cases of `hasOnlineDir` in Kafka's ClusterControlManagerTest, and its order."""

from __future__ import annotations

import pytest

from broker.controller.image import LOST, MIGRATING, UNASSIGNED
from broker.controller.replica_directories import has_online, in_order, is_reserved
from protocol.wire.primitives import uuid_from_text

FIRST, SECOND = uuid_from_text("dir1SEbpRuG1dcpTRGOvJw"), uuid_from_text("dir2xaEwR2m3JHTiy7PWwA")
OTHER = uuid_from_text("otherAA1QFK4U1GWzkjZ5A")


@pytest.mark.parametrize("directory_id", [FIRST, SECOND, UNASSIGNED, MIGRATING])
def test_a_replica_can_be_in_a_registered_directory_or_in_none_yet(directory_id: bytes) -> None:
    assert has_online([FIRST, SECOND], directory_id)


@pytest.mark.parametrize("directory_id", [OTHER, LOST])
def test_a_replica_cannot_be_in_an_unregistered_directory(directory_id: bytes) -> None:
    assert not has_online([FIRST, SECOND], directory_id)


def test_without_registered_directories_each_but_a_lost_one_counts_as_online() -> None:
    assert has_online([], OTHER)
    assert has_online([], UNASSIGNED)
    assert not has_online([], LOST)


def test_directory_ids_are_ordered_by_two_signed_numbers() -> None:
    zero, one, last = bytes(8), bytes(7) + b"\x01", b"\xff" * 8
    ordered = [last + zero, last + one, zero + last, zero + zero, zero + one, one + last, one + zero]
    assert in_order(reversed(ordered)) == ordered


def test_ids_that_mean_something_else_are_reserved() -> None:
    assert all(is_reserved(each) for each in (UNASSIGNED, MIGRATING, LOST))
    assert not is_reserved(FIRST)
