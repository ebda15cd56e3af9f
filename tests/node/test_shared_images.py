"""An image of the metadata and its copy: they have much in common, and neither sees what becomes of the other."""

from __future__ import annotations

from random import Random

import pytest

from broker.controller.image import ClusterImage, MetadataContradictionError, PartitionImage
from broker.controller.metadata_log import image_records
from broker.controller.metadata_versions import encode_metadata_record
from protocol.messages import metadata_records as records
from protocol.wire.schema import Message

TOPICS = ("a.b", "a_b", "c")


def said(image: ClusterImage) -> list[bytes]:
    return [encode_metadata_record(record, type(record).VERSIONS[1]) for record in image_records(image)]


def drawn(chance: Random) -> Message:
    name = chance.choice(TOPICS)
    topic_id = name.encode().ljust(16)
    entity = [records.EntityData(entity_type="user", entity_name=chance.choice("uv"))]
    broker_id = chance.choice((1, 2))
    return chance.choice(
        (
            records.TopicRecord(name=name, topic_id=topic_id),
            records.PartitionRecord(topic_id=topic_id, partition_id=chance.randrange(3), leader=1),
            records.PartitionChangeRecord(
                topic_id=topic_id, partition_id=chance.randrange(3), leader=chance.choice((-1, 1))
            ),
            records.PartitionChangeRecord(
                topic_id=topic_id, partition_id=0, eligible_leader_replicas=[1], last_known_elr=[1]
            ),
            records.ClearElrRecord(topic_name=chance.choice(("", name))),
            records.RemoveTopicRecord(topic_id=topic_id),
            records.ConfigRecord(
                resource_type=2, resource_name=name, name="k", value=chance.choice((None, "1", "2"))
            ),
            records.FeatureLevelRecord(name="f", feature_level=chance.randrange(3)),
            records.ProducerIdsRecord(next_producer_id=chance.randrange(5)),
            records.ClientQuotaRecord(entity=entity, key="k", value=1.0, remove=chance.random() < 0.5),
            records.RegisterBrokerRecord(broker_id=broker_id, fenced=True),
            records.UnfenceBrokerRecord(id=broker_id),
            records.UnregisterBrokerRecord(broker_id=broker_id),
        )
    )


def change(image: ClusterImage, chance: Random, applied: list[Message]) -> None:
    record = drawn(chance)
    try:
        image.apply(record)
    except MetadataContradictionError:
        return
    applied.append(record)


@pytest.mark.parametrize("seed", range(50))
def test_neither_copy_sees_the_others_changes(seed: int) -> None:
    chance = Random(seed)
    images: list[tuple[ClusterImage, list[Message]]] = [(ClusterImage(), [])]
    last = [said(images[0][0])]
    for _ in range(200):
        if len(images) < 4 and chance.random() < 0.05:
            image, applied = chance.choice(images)
            images.append((image.copy(), [*applied]))
            last.append(said(images[-1][0]))
        number = chance.randrange(len(images))
        change(images[number][0], chance, images[number][1])
        for other, (image, _) in enumerate(images):
            if other == number:
                last[other] = said(image)
            else:
                assert said(image) == last[other]
    for image, applied in images:
        alone = ClusterImage()
        for record in applied:
            alone.apply(record)
        assert said(image) == said(alone)
        assert image.topics_by_id == {topic.topic_id: topic for topic in image.topics.values()}
        assert {name: image.topics_like(name) for name in TOPICS} == {
            name: alone.topics_like(name) for name in TOPICS
        }


def test_a_copy_does_not_go_through_the_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    image = ClusterImage()
    topic_id = b"T" * 16
    image.apply(records.TopicRecord(name="t", topic_id=topic_id))
    for index in range(3):
        image.apply(records.PartitionRecord(topic_id=topic_id, partition_id=index, leader=1))
    with monkeypatch.context() as patch:
        patch.setattr(PartitionImage, "copy", None)
        copied = image.copy()
        assert copied.topics["t"] is image.topics["t"]
    copied.apply(records.PartitionChangeRecord(topic_id=topic_id, partition_id=1, leader=-1))
    partitions = (copied.topics["t"].partitions, image.topics["t"].partitions)
    assert [index for index in range(3) if partitions[0][index] is not partitions[1][index]] == [1]
    assert (partitions[0][1].leader, partitions[1][1].leader) == (-1, 1)
