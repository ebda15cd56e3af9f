"""The shards of a topic of a node, which write down what becomes of them."""

from __future__ import annotations

import contextlib

import pytest

from broker.coordination.hosted_shards import HostedShards, PartitionRuntime
from broker.replicas.partition import Partition
from broker.server import Server
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.metadata_records import PartitionChangeRecord
from protocol.waiting import Waiting, at_once
from protocol.wire.primitives import Bytes
from tests.support.whole_server import clock_of

NONSENSE = b"nonsense"


class RecordedShard:
    """A shard that writes down what becomes of it."""

    def __init__(self, runtime: PartitionRuntime, leader_epoch: int, events: list[str]) -> None:
        self.runtime = runtime
        self.leader_epoch = leader_epoch
        self._events = events

    def interpose(self, barriers: object) -> None:
        assert barriers is None, "no test has it wait"

    def stands_alone(self, value: Bytes | None) -> bool:
        return False

    def replay(self, key: Bytes, value: Bytes | None, record_offset: int, producer_id: int) -> None:
        if key == NONSENSE:
            raise CodecError("nonsense")
        self._events.append(f"replay {bytes(key).decode()}")

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Do nothing: there are no transactions here."""

    def start(self, end_offset: int) -> None:
        self._events.append("start")
        self.runtime.schedule("timer", 10, lambda: self._events.append("timer"))

    def told(self, what: str) -> None:
        self._events.append(what)

    def unload(self) -> None:
        self._events.append("unload")


def not_carried_out(group_id: str, steps: Waiting[None]) -> None:
    """Do nothing: these shards compute nothing."""


def not_begun(steps: object) -> None:
    raise AssertionError("nothing is begun here")


class Hosting:
    """The shards of topic `t` of a broker."""

    def __init__(self, node: Server, *, reloads_in_new_epoch: bool = False) -> None:
        self.node = node
        self.events: list[str] = []
        self.shards = HostedShards(
            "t",
            7,
            node.partitions,
            node.scheduler,
            self.runtime_of,
            lambda runtime, leader_epoch: RecordedShard(runtime, leader_epoch, self.events),
            content="things",
            unreadable=Error.COORDINATOR_LOAD_IN_PROGRESS,
            reloads_in_new_epoch=reloads_in_new_epoch,
        )

    def runtime_of(self, partition: Partition) -> PartitionRuntime:
        return PartitionRuntime(
            partition, self.node.clock, self.node.timers, lambda: bytes(16), not_carried_out, not_begun
        )

    def follow(self) -> None:
        """Take all steps of following at once: nobody is served in between."""
        at_once(self.shards.follow())

    def append(self, index: int, key: bytes) -> None:
        self.runtime_of(self.node.partitions.get("t", index)).append([(key, b"value")])

    def loaded(self) -> list[int]:
        """Return the partitions whose shards can be asked."""
        found = []
        for index in self.node.partitions.by_name["t"].partitions:
            with contextlib.suppress(KafkaError):
                self.shards.at(index)
                found.append(index)
        return found

    def error_at(self, index: int) -> Error:
        with pytest.raises(KafkaError) as refused:
            self.shards.at(index)
        return refused.value.error

    def fire_timers(self) -> None:
        clock_of(self.node).advance_ms(10)
        self.node.timers.fire_due()


def elect_again(node: Server, topic: str, index: int = 0) -> None:
    """Begin a new leader epoch of the partition, which is still led here."""
    before = node.partitions.get(topic, index).leader_epoch
    topic_id = node.metadata.image.topics[topic].topic_id
    node.metadata.append(
        [
            PartitionChangeRecord(
                topic_id=topic_id, partition_id=index, leader=node.node_id, isr=[node.node_id]
            )
        ]
    )
    assert node.partitions.get(topic, index).leader_epoch == before + 1
