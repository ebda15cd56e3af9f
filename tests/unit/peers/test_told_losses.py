"""What a controller elsewhere is told about directories that have failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.controller.image import LOST
from broker.disks.failures import ToldLosses
from tests.support.controller_channel import Timers
from tests.unit.peers.several_brokers import OWN, cluster

TOPIC_ID = b"the topic's id.."
ONLINE = bytes(16)  # the directory of the cluster's replicas


class Lifecycle:
    def __init__(self) -> None:
        self.lost: list[bytes] = []
        self.known: set[bytes] = set()
        self.is_over = False

    def lost_directory(self, directory_id: bytes) -> None:
        self.lost.append(directory_id)

    def knows_lost(self, directory_id: bytes) -> bool:
        return directory_id in self.known


class Node:
    def __init__(self, *offline: int) -> None:
        self.timers, self.lifecycle = Timers(), Lifecycle()
        self.assigned: dict[tuple[bytes, int], bytes] = {}
        self.failures: list[BaseException] = []
        self.online = {ONLINE}
        partitions: Any = SimpleNamespace(offline=lambda: {(TOPIC_ID, index) for index in offline})
        log_dirs: Any = SimpleNamespace(ids=self.online)
        lifecycle: Any = self.lifecycle
        self.losses = ToldLosses(
            OWN,
            cluster("t", [OWN, OWN]),
            log_dirs=log_dirs,
            partitions=partitions,
            lifecycle=lifecycle,
            assign=self.assigned.__setitem__,
            scheduler=self.timers,
            timeout_ms=30_000,
            failed=self.failures.append,
        )


def test_heartbeats_say_it_and_a_move_that_ends_with_it_is_taken_back() -> None:
    node = Node()
    node.losses.lost(b"gone", {(TOPIC_ID, 1): ONLINE})
    assert node.lifecycle.lost == [b"gone"]
    assert node.assigned == {(TOPIC_ID, 1): ONLINE}


@pytest.mark.parametrize(("is_known", "is_over"), [(True, False), (False, True), (False, False)])
def test_a_broker_stops_that_cant_tell_it_in_time(is_known: bool, is_over: bool) -> None:
    node = Node()
    node.losses.lost(b"gone", {})
    node.lifecycle.known = {b"gone"} if is_known else set()
    node.lifecycle.is_over = is_over
    assert node.timers.next() == 30_000
    assert [str(failure) for failure in node.failures] == (
        []
        if is_known or is_over
        else [
            "the controller couldn't be told of a failed log directory within 30000 ms (log.dir.failure.timeout.ms)"
        ]
    )


def test_a_replica_that_cant_be_opened_is_in_no_directory() -> None:
    """If the directory itself can't be used, the controller knows it by the registration."""
    node = Node(1, 7)
    node.losses.lost_partitions()
    assert node.assigned == {(TOPIC_ID, 1): LOST}
    elsewhere = Node(1)
    elsewhere.online.clear()
    elsewhere.losses.lost_partitions()
    assert elsewhere.assigned == {}
