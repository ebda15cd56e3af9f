"""Which partitions a node leads once it has started."""

import pytest

from broker.controller import registration
from broker.controller.image import NO_LEADER, ClusterImage
from protocol.messages import metadata_records as records

NODE = 1
OTHER = 2
DIRECTORY = bytes(range(16))
TOPIC_ID = b"T" * 16


def image_of(isr: list[int], elr: list[int]) -> ClusterImage:
    """A partition of both nodes that nobody leads."""
    image = ClusterImage()
    image.apply(records.TopicRecord(name="t", topic_id=TOPIC_ID))
    image.apply(
        records.PartitionRecord(
            topic_id=TOPIC_ID,
            partition_id=0,
            replicas=[NODE, OTHER],
            isr=isr,
            eligible_leader_replicas=elr,
            leader=NO_LEADER,
            directories=[DIRECTORY, DIRECTORY],
        )
    )
    return image


@pytest.mark.parametrize(
    ("isr", "elr"), [([NODE, OTHER], []), ([NODE], []), ([], [NODE]), ([], [OTHER, NODE])]
)
def test_a_replica_in_sync_or_eligible_becomes_leader(isr: list[int], elr: list[int]) -> None:
    image = image_of(isr, elr)
    [change] = registration.elect(image, NODE, [DIRECTORY])
    image.apply(change)
    partition = image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr, partition.elr) == (NODE, [NODE], [])


@pytest.mark.parametrize(("isr", "elr"), [([OTHER], []), ([], [OTHER]), ([], [])])
def test_a_replica_that_may_lack_what_was_acknowledged_does_not(isr: list[int], elr: list[int]) -> None:
    assert registration.elect(image_of(isr, elr), NODE, [DIRECTORY]) == []


def test_nor_one_whose_directory_is_offline() -> None:
    assert registration.elect(image_of([NODE], []), NODE, []) == []
