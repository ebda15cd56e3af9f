"""The news that group coordinators get of topics that are created, change, and are removed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

from broker.controller.image import TOPIC_RESOURCE, ClusterImage, TopicImage
from broker.coordination.groups import ClusterTopics
from protocol.messages.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.wire.schema import Message


class Followed:
    """The cluster's topics, which follow the records of the metadata log."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        metadata: Any = SimpleNamespace(image=self.image, last_applied_offset=0)
        self.topics = ClusterTopics(metadata)

    def apply(self, *records: Message) -> None:
        for record in records:
            self.image.apply(record)

    def after(self, *records: Message) -> tuple[list[str], bool]:
        self.apply(*records)
        return self.topics.follow(self.image.take_changes())


def id_of(number: int) -> bytes:
    return bytes([number]) * 16


def topic(number: int, partitions: int = 1, name: str | None = None) -> list[Message]:
    made = TopicRecord(name=name or f"t{number}", topic_id=id_of(number))
    return [made, *(partition(number, index) for index in range(partitions))]


def partition(number: int, index: int) -> Message:
    return PartitionRecord(topic_id=id_of(number), partition_id=index, replicas=[1], isr=[1], leader=1)


def removal(number: int) -> Message:
    return RemoveTopicRecord(topic_id=id_of(number))


def test_a_new_topic_is_reported_once() -> None:
    followed = Followed()

    assert followed.after(*topic(1)) == (["t1"], True)
    assert followed.after() == ([], False)


def test_all_topics_are_new_at_a_start() -> None:
    changed, created = Followed().after(*topic(1), *topic(2))

    assert (sorted(changed), created) == (["t1", "t2"], True)


def test_a_topic_that_grew_has_changed_and_is_not_new() -> None:
    followed = Followed()
    followed.after(*topic(1), *topic(2))

    assert followed.after(partition(1, 1)) == (["t1"], False)
    grown = followed.topics.by_name("t1")
    assert grown is not None
    assert grown.partition_count == 2


def test_settings_and_leaders_of_a_topic_mean_nothing_to_groups() -> None:
    followed = Followed()
    followed.after(*topic(1))
    setting = ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="t1", name="retention.ms", value="1")
    election = PartitionChangeRecord(topic_id=id_of(1), partition_id=0, leader=1)

    assert followed.after(setting, election) == ([], False)


def test_a_topic_that_is_removed_has_changed() -> None:
    followed = Followed()
    followed.after(*topic(1), *topic(2))

    assert followed.after(removal(1)) == (["t1"], False)
    assert followed.topics.by_name("t1") is None
    assert followed.topics.by_id(id_of(1)) is None


def test_a_topic_that_is_removed_and_created_again_is_new() -> None:
    followed = Followed()
    followed.after(*topic(1))

    changed, created = followed.after(removal(1), *topic(2, name="t1"))

    assert ({*changed}, created) == ({"t1"}, True)


def test_a_topic_that_came_and_went_at_once_is_not_reported() -> None:
    assert Followed().after(*topic(1), removal(1)) == ([], False)


def test_a_change_within_a_change_is_followed_first() -> None:
    followed = Followed()
    followed.apply(*topic(1), *topic(2))
    outer = followed.image.take_changes()

    assert followed.after(removal(1), partition(2, 1)) == (["t2"], True)
    assert followed.topics.follow(outer) == ([], False)


def test_a_removal_that_is_followed_late_keeps_a_new_topic_of_the_same_name() -> None:
    followed = Followed()
    followed.after(*topic(1))
    followed.apply(removal(1))
    outer = followed.image.take_changes()

    assert followed.after(*topic(2, name="t1")) == (["t1"], True)
    assert followed.topics.follow(outer) == (["t1"], False)
    assert followed.after(partition(2, 1)) == (["t1"], False)


def test_racks_are_taken_from_a_topics_replicas() -> None:
    followed = Followed()
    followed.after(RegisterBrokerRecord(broker_id=1, rack="r"), *topic(1, 2))

    found = followed.topics.by_id(id_of(1))

    assert found is not None
    assert found.racks == (("r",), ("r",))


def test_a_move_to_another_rack_is_a_change_and_a_move_within_the_rack_is_not() -> None:
    followed = Followed()
    brokers = [RegisterBrokerRecord(broker_id=node_id, rack="rrs"[node_id - 1]) for node_id in (1, 2, 3)]
    followed.after(*brokers, *topic(1))

    assert followed.after(reassignment(2)) == ([], False)
    assert followed.after(reassignment(3)) == (["t1"], False)
    found = followed.topics.by_name("t1")
    assert found is not None
    assert found.racks == (("s",),)


def test_a_broker_that_comes_back_in_another_rack_takes_its_partitions_there() -> None:
    followed = Followed()
    followed.after(RegisterBrokerRecord(broker_id=1, rack="r"), *topic(1))

    assert followed.after(RegisterBrokerRecord(broker_id=1, rack="s")) == ([], False)
    found = followed.topics.by_name("t1")
    assert found is not None
    assert found.racks == (("s",),)


def reassignment(node_id: int) -> Message:
    return PartitionChangeRecord(topic_id=id_of(1), partition_id=0, replicas=[node_id])


class NotWalked(dict[str, TopicImage]):
    """Topics that can be looked up, but not iterated over."""

    def __iter__(self) -> Iterator[str]:
        self._walked()

    def keys(self) -> Any:
        self._walked()

    def values(self) -> Any:
        self._walked()

    def items(self) -> Any:
        self._walked()

    @staticmethod
    def _walked() -> NoReturn:
        raise AssertionError("all topics are walked")


def test_a_change_is_followed_without_a_look_at_the_other_topics() -> None:
    followed = Followed()
    followed.after(*topic(1), *topic(2))
    followed.image.topics = NotWalked(followed.image.topics)

    assert followed.after(partition(1, 1)) == (["t1"], False)
    assert followed.after(removal(2)) == (["t2"], False)
    assert followed.after(*topic(3)) == (["t3"], True)
