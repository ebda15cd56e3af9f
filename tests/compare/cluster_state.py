"""What a cluster's brokers report about it, and waiting until they report the expected state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from protocol.errors import Error
from tests.support.wire import Answer

from .frames import Client, connect
from .waiting import ScriptStuck, until

Partition = tuple[str, int]
CONSUMER, DEBUGGER = -1, -2
"""Replica ids of readers: one sees what is committed, the other everything."""

_OFFSETS = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
_TRANSACTIONS = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    "min.insync.replicas": "2",
    "segment.bytes": "104857600",
    "unclean.leader.election.enable": "false",
}
_SHARE_STATES = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "min.insync.replicas": "2",
    "retention.ms": "-1",
    "segment.bytes": "104857600",
}
INTERNAL_TOPICS = {
    "__consumer_offsets": _OFFSETS,
    "__transaction_state": _TRANSACTIONS,
    "__share_group_state": _SHARE_STATES,
}
INTERNAL_PARTITIONS = 3
"""As many as brokers create according to `properties.py`."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one broker's metadata says."""

    brokers: frozenset[int]
    partitions: Mapping[Partition, Any]


class ClusterState:
    """What those brokers of a cluster know that can be asked: they run and aren't paused."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        self.asked = set(ports)
        self._ports = ports
        self._clients: dict[int, Client] = {}

    def seen(self) -> Iterator[Seen]:
        """Yield what each broker sees."""
        for node_id in sorted(self.asked):
            answer = self.ask(node_id, "Metadata", 12, {"topics": None, "allow_auto_topic_creation": False})
            yield Seen(
                frozenset(broker.node_id for broker in answer.brokers),
                {
                    (topic.name, partition.partition_index): partition
                    for topic in answer.topics
                    for partition in topic.partitions
                },
            )

    def partitions_of(self, topic: str) -> Iterator[list[Any]]:
        """Yield the topic's partitions according to each broker; none if it doesn't know the topic."""
        asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        for node_id in sorted(self.asked):
            (found,) = self.ask(node_id, "Metadata", 12, asked).topics
            yield sorted(found.partitions, key=lambda partition: partition.partition_index)

    def ask(self, node_id: int, api: str, version: int, fields: Mapping[str, Any]) -> Any:
        client = self._clients.get(node_id)
        if client is None or client.closed:
            client = self._clients[node_id] = connect(self._ports[node_id])
        answer = client.receive(client.say(api, version, fields))
        if not isinstance(answer, Answer):
            raise ScriptStuck(f"{api} v{version} of broker {node_id}: {answer.value}")
        return answer.message

    def forget(self, node_id: int) -> None:
        """Forget a node that has ended."""
        self.asked.discard(node_id)
        client = self._clients.pop(node_id, None)
        if client is not None:
            client.close()

    def close(self) -> None:
        for node_id in list(self._clients):
            self._clients.pop(node_id).close()

    def settle(self) -> None:
        """Wait until all brokers are there and can be asked, all replicas are in sync, and the first replica of each
        partition leads."""
        until("all replicas are in sync", lambda: self._all(_in_sync))
        self.ask(min(self.asked), "ElectLeaders", 2, {"topic_partitions": None, "timeout_ms": 30_000})
        until("the first replicas lead", lambda: self._all(_led_by_the_first))
        until("all leaders serve", lambda: all(self._serves(node_id) for node_id in self.asked))

    def _all(self, holds: Callable[[Any], bool]) -> bool:
        return all(
            seen.brokers == self.asked and all(map(holds, seen.partitions.values())) for seen in self.seen()
        )

    def _serves(self, node_id: int) -> bool:
        """Return True if the broker leads what its metadata says, and knows the high watermarks."""
        answer = self.ask(node_id, "Metadata", 12, {"topics": None, "allow_auto_topic_creation": False})
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": partition.partition_index, "timestamp": -1}
                    for partition in topic.partitions
                    if partition.leader_id == node_id
                ],
            }
            for topic in answer.topics
        ]
        answer = self.ask(node_id, "ListOffsets", 7, {"replica_id": -1, "topics": topics, "timeout_ms": 1000})
        return all(partition.error_code == 0 for topic in answer.topics for partition in topic.partitions)

    def leads(self, node_id: int, topic: str, partition: int) -> bool:
        """Return True if the broker serves as the leader, even if it doesn't know the high watermark yet."""
        asked = {"name": topic, "partitions": [{"partition_index": partition, "timestamp": -1}]}
        answer = self.ask(
            node_id, "ListOffsets", 7, {"replica_id": -1, "topics": [asked], "timeout_ms": 1000}
        )
        return answer.topics[0].partitions[0].error_code in (Error.NONE, Error.OFFSET_NOT_AVAILABLE)

    def is_committed(self, node_id: int, topic: str, partition: int, offset: int) -> bool:
        """Return True if a replica on that broker is committed up to the offset."""
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 0}
        fields = {"topics": [{"topic": topic, "partitions": [wanted]}], "session_epoch": -1}
        answer = self.ask(node_id, "Fetch", 12, fields)
        return bool(answer.responses[0].partitions[0].high_watermark >= offset)

    def let_replicas_follow(self, topics: Iterable[str]) -> None:
        """Wait until everything in those partitions of the topics that broker 1 leads is committed."""
        asked = [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": each.partition_index, "timestamp": -1}
                    for each in next(self.partitions_of(topic))
                    if each.leader_id == 1
                ],
            }
            for topic in sorted({*topics})
        ]

        def ends(replica_id: int) -> list[Any]:
            answer = self.ask(1, "ListOffsets", 7, {"replica_id": replica_id, "topics": asked})
            return [partition.offset for topic in answer.topics for partition in topic.partitions]

        until("the replicas have followed", lambda: ends(CONSUMER) == ends(DEBUGGER))

    def make_internal_topics(self) -> None:
        """Create them by hand, because brokers would place them at random."""
        until("all brokers are there", lambda: self._all(_in_sync))
        topics = [
            {
                "name": name,
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [
                    {"partition_index": index, "broker_ids": sorted(self.asked)}
                    for index in range(INTERNAL_PARTITIONS)
                ],
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
            for name, configs in INTERNAL_TOPICS.items()
        ]
        made = self.ask(1, "CreateTopics", 7, {"topics": topics, "timeout_ms": 30_000})
        if any(topic.error_code for topic in made.topics):
            raise ScriptStuck(f"no internal topics: {made}")
        until(
            "all brokers know them",
            lambda: all(
                {name for name, _ in seen.partitions} >= INTERNAL_TOPICS.keys() for seen in self.seen()
            ),
        )
        self.settle()


def _in_sync(partition: Any) -> bool:
    return partition.leader_id >= 0 and sorted(partition.isr_nodes) == sorted(partition.replica_nodes)


def _led_by_the_first(partition: Any) -> bool:
    return bool(partition.leader_id == partition.replica_nodes[0])
