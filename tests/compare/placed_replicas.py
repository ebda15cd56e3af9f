"""Where the replicas of a cluster's partitions are: waits until all brokers know it, and shows it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from .play import Play
from .requests import metadata
from .scene import Topic


def until_placed(
    play: Play, topic: Topic, replicas: Sequence[int], *, isr: Collection[int], by: int, partition: int = 0
) -> None:
    """Wait until all brokers know these replicas in that order, and the leader with this ISR."""

    def placed() -> bool:
        for found in play.cluster.state.partitions_of(topic.name):
            known = {each.partition_index: each for each in found}.get(partition)
            if known is None or [*known.replica_nodes] != [*replicas]:
                return False
        return True

    play.until(f"{topic.name}-{partition} is on {replicas}", placed)
    play.cluster.until_led(topic.name, by=by, isr=isr, partition=partition)


def described(*topics: Topic) -> dict[str, Any]:
    """DescribeTopicPartitions."""
    return {"topics": [{"name": topic.name} for topic in topics], "response_partition_limit": 2000}


def listed(*topics: Topic, partitions: Sequence[int] = (0,)) -> dict[str, Any]:
    """ListPartitionReassignments."""
    asked = [{"name": topic.name, "partition_indexes": [*partitions]} for topic in topics]
    return {"timeout_ms": 30_000, "topics": asked}


def show(play: Play, case: str, *topics: Topic, on: str = "main") -> None:
    """Show where they are now, by every API that tells."""
    names = [topic.name for topic in topics]
    play.ask(f"{case}: metadata", "Metadata", 12, metadata(*names), on=on)
    play.ask(f"{case}: described", "DescribeTopicPartitions", 0, described(*topics), on=on)
    play.ask(
        f"{case}: what is under way",
        "ListPartitionReassignments",
        0,
        listed(*topics, partitions=(0, 1)),
        on=on,
    )
