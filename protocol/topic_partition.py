"""A partition, as all layers name it."""

from collections.abc import Iterable

TopicPartition = tuple[str, int]
"""Topic and index (Kafka: `TopicPartition`)."""


def indexes_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, as messages list them."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        found = topics.get(topic)
        if found is None:
            topics[topic] = [index]
        else:
            found.append(index)
    return topics
