"""A client of a broker that may die at any moment: it does everything once, and remembers what was acknowledged."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from protocol.errors import Error
from protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from protocol.records.batch import build_batch
from protocol.wire.schema import Message, Struct
from tests.support.wire import Client

Answer = TypeVar("Answer", bound=Message)

SETTLING_S = 3.0
EARLIEST = -2
NO_TIMESTAMP = -1

# name → settings: one that keeps all, one that retention cuts by size, one whose records have no time of their own
TOPICS = {
    "kept": {"internal.segment.bytes": "2000", "index.interval.bytes": "300"},
    "short": {"internal.segment.bytes": "1000", "retention.bytes": "2000", "file.delete.delay.ms": "0"},
    "timeless": {"internal.segment.bytes": "1000", "file.delete.delay.ms": "0"},
    "gone": {"file.delete.delay.ms": "0"},
}


@dataclass
class Known:
    """What a client knows of one topic."""

    topic: str
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """offset → value"""
    sent: set[bytes] = field(default_factory=set)
    """All values that may be there."""


def check(error_code: int, answer: Message | Struct) -> None:
    """ConnectionError where a write was torn: the broker is about to die."""
    if error_code in (Error.KAFKA_STORAGE_ERROR, Error.UNKNOWN_SERVER_ERROR):
        raise ConnectionError(f"the broker can't write any more: {answer}")
    assert error_code == 0, answer


class Workload:
    """What one client does to one broker after another, on the same folder."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}
        """Of topics that were acknowledged, and that nobody asked to delete."""
        self.doubtful: set[str] = set()
        """Topics with a request that nobody answered."""
        self.producer_ids: list[int] = []
        self._numbers = 0

    def run(self, port: int) -> None:
        """Ends early where the broker is gone."""
        with contextlib.suppress(ConnectionError), self._connected(port) as client:
            for name in TOPICS:
                if name not in self.known:
                    self.create(client, name)
            self.producer_ids.append(
                client.ask(
                    InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1), 1
                ).producer_id
            )
            for round_ in range(12):
                for name in TOPICS:
                    self.produce(client, name)
                if round_ % 4 == 3:
                    self.delete(client, "gone")
                    self.create(client, "gone")
            self.settle(client)

    @contextlib.contextmanager
    def _connected(self, port: int) -> Iterator[Client]:
        with Client.connect(port) as client:  # ConnectionRefusedError is one, too
            yield client

    def create(self, client: Client, name: str) -> None:
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in TOPICS[name].items()]
        wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
        self.doubtful.add(name)
        answer = client.ask(CreateTopicsRequest(topics=[wanted]), 4)
        if answer.topics[0].error_code != Error.TOPIC_ALREADY_EXISTS:  # the last broker did it, and died
            check(answer.topics[0].error_code, answer)
        self.doubtful.discard(name)
        self.known[name] = Known(name)

    def delete(self, client: Client, name: str) -> None:
        self.known.pop(name, None)
        self.doubtful.add(name)
        answer = client.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 3)
        check(answer.responses[0].error_code, answer)
        self.doubtful.discard(name)

    def produce(self, client: Client, name: str) -> None:
        known = self.known[name]
        self._numbers += 1
        value = b"%s %d " % (name.encode(), self._numbers) + b"x" * 250
        known.sent.add(value)
        timestamp_ms = NO_TIMESTAMP if name == "timeless" else time.time_ns() // 1_000_000
        batch = build_batch([(timestamp_ms, None, value, ())])
        partition = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=name, partition_data=[partition])]
        )
        (answered,) = client.ask(request, 8).responses[0].partition_responses
        check(answered.error_code, answered)
        known.acknowledged[answered.base_offset] = value

    def settle(self, client: Client) -> None:
        """Wait until retention has done its work, and what happens by the clock has happened once more."""
        deadline_s = time.monotonic() + SETTLING_S
        asked = ListOffsetsTopic(
            name="short", partitions=[ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)]
        )
        while time.monotonic() < deadline_s:
            answer = client.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 3)
            if answer.topics[0].partitions[0].offset > 0:
                break
            time.sleep(0.02)
        time.sleep(0.3)
        client.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 3)
