"""Which partitions a node leads once it has started."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.controller import broker_records, metadata_versions
from broker.controller.image import NO_LEADER, ClusterImage
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.topics import CreatableTopic
from tests.support.leadership import elect, register_broker
from tests.support.topics import topics_of
from tests.support.whole_server import crash, started

NODE = 1
OTHER = 2
DIRECTORY = bytes(range(16))
TOPIC_ID = b"T" * 16


def image_of(isr: list[int], elr: list[int], last_known: list[int] | None = None) -> ClusterImage:
    """Return an image with a partition of both nodes that has no leader."""
    image = ClusterImage()
    for level in metadata_versions.feature_levels():
        image.apply(level)
    image.apply(records.TopicRecord(name="t", topic_id=TOPIC_ID))
    image.apply(
        records.PartitionRecord(
            topic_id=TOPIC_ID,
            partition_id=0,
            replicas=[NODE, OTHER],
            isr=isr,
            eligible_leader_replicas=elr,
            last_known_elr=last_known,
            leader=NO_LEADER,
            directories=[DIRECTORY, DIRECTORY],
        )
    )
    return image


@pytest.mark.parametrize(
    ("isr", "elr", "last_known"),
    [
        ([NODE], [], []),
        ([NODE], [OTHER], []),
        ([], [OTHER, NODE], []),
        ([], [], [NODE]),  # Kafka leaves this after an unclean restart
    ],
)
def test_a_replica_that_may_lead_is_elected(isr: list[int], elr: list[int], last_known: list[int]) -> None:
    image = image_of(isr, elr, last_known)
    [change] = elect(image, NODE, [DIRECTORY])
    image.apply(change)
    partition = image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr) == (NODE, [NODE])
    still_eligible = [OTHER] if not isr and OTHER in elr else []  # until the next change, as in Kafka
    assert (partition.elr, partition.last_known_elr) == (still_eligible, [])
    assert broker_records.without_leader(image, NODE, [DIRECTORY]) == []


@pytest.mark.parametrize(
    ("isr", "elr", "last_known"),
    [
        ([OTHER], [], []),
        ([OTHER], [NODE], [NODE]),
        ([], [OTHER], [NODE]),
        ([], [], []),
        ([], [], [OTHER]),
        ([], [], [NODE, OTHER]),
    ],
)
def test_a_replica_that_may_lack_acknowledged_records_is_not_elected(
    isr: list[int], elr: list[int], last_known: list[int]
) -> None:
    image = image_of(isr, elr, last_known)
    for change in elect(image, NODE, [DIRECTORY]):  # the eligible replicas may change
        image.apply(change)
    assert image.topics["t"].partitions[0].leader == NO_LEADER
    assert broker_records.without_leader(image, NODE, [DIRECTORY]) == [("t", 0)]


def test_a_replica_in_an_offline_directory_is_not_elected() -> None:
    assert elect(image_of([NODE], []), NODE, [b"another directory"[:16]]) == []
    assert broker_records.without_leader(image_of([NODE], []), NODE, []) == []


async def test_a_node_alone_leads_partitions_shared_with_brokers_that_cannot_exist(tmp_path: Path) -> None:
    """A cluster that was killed leaves such a folder. The other brokers' sessions would have ended."""
    node = await started(tmp_path)
    topics_of(node).create([CreatableTopic(name="t", num_partitions=1, replication_factor=1)])
    topic_id = node.metadata.image.topics["t"].topic_id
    other = register_broker(OTHER, b"o" * 16, 5, [("PLAINTEXT", "h", 1)], [b"o" * 16], None)
    shared = records.PartitionChangeRecord(
        topic_id=topic_id, partition_id=0, replicas=[OTHER, NODE], isr=[OTHER, NODE], leader=OTHER
    )
    node.metadata.append([other, broker_records.unfence(OTHER, 5), shared])
    node.metadata.flush()
    crash(node)
    node = await started(tmp_path)
    partition = node.metadata.image.topics["t"].partitions[0]
    assert (partition.leader, partition.isr) == (NODE, [NODE])
    assert node.metadata.image.brokers[OTHER].fenced


async def test_a_start_says_which_partitions_it_leaves_without_a_leader(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = await started(tmp_path)
    topics_of(node).create([CreatableTopic(name="t", num_partitions=2, replication_factor=1)])
    topic_id = node.metadata.image.topics["t"].topic_id
    lost = records.PartitionChangeRecord(topic_id=topic_id, partition_id=1, isr=[OTHER], leader=NO_LEADER)
    node.metadata.append([lost])
    node.metadata.flush()
    crash(node)
    node = await started(tmp_path)
    [line] = [each.getMessage() for each in caplog.records if "without a leader" in each.getMessage()]
    assert ": 1, the first t-1." in line
    assert node.partitions.get("t", 0).leader().log.log_end_offset == 0
    with pytest.raises(KafkaError) as refused:
        node.partitions.get("t", 1).leader()
    assert refused.value.error is Error.NOT_LEADER_OR_FOLLOWER
    await node.stop()
