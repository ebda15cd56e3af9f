"""The size of partitions on disk."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from cli.client.cluster import BrokerLostError, KafkaCluster
from cli.client.offsets import NO_LEADER, Partition
from protocol.messages.cluster_admin import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


def sizes_of_leaders(cluster: KafkaCluster, leaders: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return the bytes of each leader's log, from DescribeLogDirs. Partitions that the broker doesn't report are
    missing."""
    by_node: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (topic, index), node in leaders.items():
        if node != NO_LEADER:
            by_node[node][topic].append(index)
    sizes: dict[Partition, int] = {}
    for node, topics in by_node.items():
        asked = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
        try:
            answer = cluster.ask(DescribeLogDirsRequest(topics=asked), DescribeLogDirsResponse, node)
        except BrokerLostError:
            continue
        for directory in answer.results:
            if directory.error_code:
                continue
            for of_topic in directory.topics:
                for each in of_topic.partitions:
                    if not each.is_future_key:
                        sizes[of_topic.name, each.partition_index] = each.partition_size
    return sizes
