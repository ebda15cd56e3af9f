"""Which directory a replica is in or goes to, and what the controller is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from broker.controller.image import LOST, MIGRATING, UNASSIGNED, ClusterImage, PartitionImage
from broker.controller.metadata_versions import DIRECTORIES_SINCE, METADATA_VERSION
from broker.controller.replica_placer import Placement
from broker.disks.moves import ReplicaDirectories
from protocol.messages import metadata_records as records
from protocol.waiting import Later

A, B, GONE = b"a" * 16, b"b" * 16, b"gone............"
TOPIC_ID = b"the topic's id.."
NODE = 7


class Directory(NamedTuple):
    name: str
    is_opened: bool

    def has_unopened_folder(self, topic: str, partition: int) -> bool:
        assert (topic, partition) == ("t", 0)
        return not self.is_opened


def place(
    named: bytes,
    *,
    found: bytes | None = None,
    offline: bool = False,
    is_opened: bool = False,
    level: int = DIRECTORIES_SINCE,
) -> tuple[str | None, list[bytes]]:
    """Return the directory's name, and the names that the controller is told. `is_opened` says that this run has opened
    the log."""
    image = ClusterImage()
    image.apply(records.FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))
    online = {A: Directory("a", is_opened), B: Directory("b", is_opened)}
    log_dirs: Any = SimpleNamespace(online=online, ids=[A, B], offline_paths=["/c"] if offline else [])
    told: list[bytes] = []

    def assign(replica: tuple[bytes, int], directory_id: bytes) -> Later[None]:
        assert replica == (TOPIC_ID, 0)
        told.append(directory_id)
        return Later()

    placement = Placement(NODE, [A, B])
    placement.prefer("t", 0, B)
    directories = ReplicaDirectories(
        image, log_dirs, placement, assign, {} if found is None else {(TOPIC_ID, 0): found}
    )
    wanted = PartitionImage(
        records.PartitionRecord(replicas=[3, NODE], isr=[3], leader=3, directories=[GONE, named])
    )
    directory: Any = directories.directory_of("t", TOPIC_ID, 0, wanted)
    return None if directory is None else directory.name, told


@pytest.mark.parametrize("offline", [False, True])
def test_a_replica_is_in_its_recorded_directory_without_a_report(offline: bool) -> None:
    assert place(A, offline=offline) == ("a", [])
    assert place(A, found=A, offline=offline) == ("a", [])


@pytest.mark.parametrize("named", [A, GONE, LOST, UNASSIGNED, MIGRATING])
def test_a_folder_that_is_found_counts(named: bytes) -> None:
    assert place(named, found=B) == ("b", [B])
    assert place(named, found=B, offline=True) == ("b", [B])


@pytest.mark.parametrize("named", [UNASSIGNED, MIGRATING])
@pytest.mark.parametrize("offline", [False, True])
def test_a_replica_without_a_directory_goes_where_it_is_preferred(named: bytes, offline: bool) -> None:
    assert place(named, offline=offline) == ("b", [B])


@pytest.mark.parametrize("named", [GONE, LOST])
def test_a_replica_of_a_missing_directory_goes_elsewhere_unless_that_may_come_back(named: bytes) -> None:
    assert place(named) == ("b", [B])
    assert place(named, offline=True) == (None, [])


@pytest.mark.parametrize("named", [A, UNASSIGNED])
def test_a_folder_doesnt_count_any_more_for_a_replica_that_left_and_comes_again(named: bytes) -> None:
    other, (name, told) = (A, ("a", [])) if named == A else (B, ("b", [B]))
    found = A if other == B else B
    assert place(named, found=found, is_opened=True) == (name, told)


def test_a_folder_in_a_directory_that_has_failed_since_doesnt_count() -> None:
    assert place(A, found=GONE) == ("a", [])


def test_nothing_is_reported_if_records_do_not_name_directories() -> None:
    assert place(MIGRATING, level=DIRECTORIES_SINCE - 1) == ("b", [])
