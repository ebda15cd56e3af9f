"""One partition as the cases of Kafka's PartitionChangeBuilderTest have it, and the changes to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.controller.image import NO_LEADER, UNASSIGNED, PartitionImage
from broker.controller.partition_changes import Terms, TopicIdPartition, Wish, partition_change
from protocol.messages.metadata_records import PartitionChangeRecord, PartitionRecord

KEY = TopicIdPartition(b"T" * 16, 3)

IV_3_5 = 11  # 3.5-IV2, the last version in which a smaller ISR begins a new epoch
IV_3_6 = 12
IV_3_7_DIRECTORIES = 17
LATEST = 30

WITHOUT = {"elr": False, "level": 15}
WITH_DIRECTORIES = {"elr": False, "level": IV_3_7_DIRECTORIES}
WITH_ELR = {"elr": True, "level": LATEST}
EVERY = pytest.mark.parametrize("where", [WITHOUT, WITH_DIRECTORIES, WITH_ELR])


def home(broker_id: int) -> bytes:
    """Return the id of a broker's directory."""
    return b"home of node" + broker_id.to_bytes(4, "big")


def partition(replicas: list[int], isr: list[int], leader: int, **others: Any) -> PartitionImage:
    fields: dict[str, Any] = {
        "partition_id": KEY.partition_id,
        "topic_id": KEY.topic_id,
        "leader_epoch": 100,
        "partition_epoch": 200,
        "directories": [home(replica) for replica in replicas],
    }
    return PartitionImage(PartitionRecord(replicas=replicas, isr=isr, leader=leader, **(fields | others)))


FOO = partition([2, 1, 3], [2, 1, 3], 1)
BAR = partition([1, 2, 3, 4], [1, 2, 3], 1, removing_replicas=[1], adding_replicas=[4])
BAZ = partition([2, 1, 3], [1, 3], 3)
OFFLINE = partition([2, 1, 3], [3], NO_LEADER)
OFFLINE_WITH_ELR = partition([2, 1, 3], [], NO_LEADER, eligible_leader_replicas=[3], last_known_elr=[2])


def everybody(replica: int) -> bool:
    return True


def nobody(replica: int) -> bool:
    return False


def all_but(*those: int) -> Callable[[int], bool]:
    return lambda replica: replica not in those


def only(*those: int) -> Callable[[int], bool]:
    return lambda replica: replica in those


ALL_BUT_3 = all_but(3)
NOTHING = Wish()


def change(
    of: PartitionImage,
    wish: Wish = NOTHING,
    accepts: Callable[[int], bool] = ALL_BUT_3,
    *,
    elr: bool = True,
    level: int = LATEST,
    min_isr: int = 2,
) -> PartitionChangeRecord | None:
    terms = Terms(
        level,
        elr,
        min_isr,
        accepts=lambda image, replica: image is of and accepts(replica),
        default_directory=lambda broker_id: UNASSIGNED,
    )
    return partition_change(KEY, of, wish, terms)


def record(**fields: Any) -> PartitionChangeRecord:
    """Return a record with these fields. All others say that nothing changes."""
    return PartitionChangeRecord(partition_id=KEY.partition_id, topic_id=KEY.topic_id, **fields)


def after(of: PartitionImage, changed: PartitionChangeRecord | None) -> PartitionImage:
    assert changed is not None
    altered = of.copy()
    altered.change(changed)
    return altered
