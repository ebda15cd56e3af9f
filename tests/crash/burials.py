"""A share group with a dead letter queue, on a broker that may die at any moment: what was asked for, and answered."""

from __future__ import annotations

import contextlib
import time

from protocol.errors import Error
from protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from protocol.messages.fetch import FetchPartition as ReadPartition
from protocol.messages.fetch import FetchRequest
from protocol.messages.fetch import FetchTopic as ReadTopic
from protocol.messages.groups_share import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    ShareGroupHeartbeatRequest,
)
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.records.batch import Record, build_batch, read_records, walk_batches
from tests.support.waiting import until
from tests.support.wire import Client

TOPIC, QUEUE, GROUP = "t", "dlq.t", "g"
GROUP_RESOURCE, SET = 32, 0
ACCEPT, RELEASE, REJECT = 1, 2, 3
DELIVERIES = 2
"""As often as one may be delivered."""
IN_BATCH = 3
BATCHES = 4
RECORDS = BATCHES * IN_BATCH
WAIT_MS = 50
PATIENCE_S = 30.0
COMING = frozenset(
    {
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.LEADER_NOT_AVAILABLE,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_ID,
    }
)
"""What a broker says that has just started."""


def value_of(offset: int) -> bytes:
    return b"original %d" % offset


def is_to_die(offset: int) -> bool:
    """The first and the last of each batch are rejected, or given back as often as that may be; else it is accepted."""
    return offset % IN_BATCH != 1


class Member:
    """Of the share group, on one connection."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name
        self._epoch = 0
        self._topic_id = b""

    def join(self) -> None:
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        epoch = 0

        def has_joined() -> bool:
            nonlocal epoch
            if self._client.ask(find, 4).coordinators[0].error_code:
                return False
            asked = ShareGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self._name,
                member_epoch=epoch,
                subscribed_topic_names=None if epoch else [TOPIC],
            )
            answer = self._client.ask(asked, 1)
            assert answer.error_code in {Error.NONE, *COMING}, answer
            if answer.error_code == Error.NONE:
                epoch = answer.member_epoch
            if answer.assignment is None or not answer.assignment.topic_partitions:
                return False
            self._topic_id = bytes(answer.assignment.topic_partitions[0].topic_id)
            return True

        until(has_joined, f"{self._name} has joined", PATIENCE_S)

    def fetch(self, wait_ms: int = WAIT_MS) -> list[tuple[int, int, int]]:
        """First and last offset and delivery count of what it is given now."""
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=self._name,
            share_session_epoch=self._epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=IN_BATCH,
            batch_size=IN_BATCH,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=[FetchPartition(partition_index=0)])],
        )
        answer = self._client.ask(request, 2)
        assert answer.error_code in {Error.NONE, *COMING}, answer
        if answer.error_code:
            return []
        self._epoch += 1
        [partition] = [each for topic in answer.responses for each in topic.partitions] or [None]
        if partition is None:
            return []
        assert partition.error_code in {Error.NONE, *COMING}, partition
        return [
            (each.first_offset, each.last_offset, each.delivery_count) for each in partition.acquired_records
        ]

    def acknowledge(self, first: int, last: int, kinds: list[int]) -> Error:
        batch = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=kinds)
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self._name,
            share_session_epoch=self._epoch,
            topics=[AcknowledgeTopic(topic_id=self._topic_id, partitions=[partition])],
        )
        answer = self._client.ask(request, 2)
        assert answer.error_code == Error.NONE, answer
        self._epoch += 1
        return Error(answer.responses[0].partitions[0].error_code)


class Workload:
    """What a member rejects and accepts until its broker dies, and what another one is given afterwards."""

    def __init__(self) -> None:
        self.dead: set[int] = set()
        """What was rejected, or given back for the last time, and was answered."""
        self.accepted: set[int] = set()
        self.came_again: set[int] = set()
        """To the second member."""
        self.is_done = False

    def run(self, port: int) -> None:
        """Ends early where the broker dies."""
        with contextlib.suppress(ConnectionError), Client.connect(port) as client:
            self._prepare(client)
            member = Member(client, "first")
            member.join()
            left = set(range(RECORDS))
            while left:
                for first, last, count in member.fetch():
                    self._say(member, first, last, count, left)
                # what is said next is written behind what becomes of these, in each run alike
                until(lambda: self.dead <= queued(client).keys(), "they are in the queue", PATIENCE_S)
            self._settle(client, member)
            self.is_done = True

    def _say(self, member: Member, first: int, last: int, count: int, left: set[int]) -> None:
        """Of the last batch what is to die is given back, and not rejected."""
        offsets = range(first, last + 1)
        kinds = [
            ACCEPT if not is_to_die(offset) else REJECT if offset < RECORDS - IN_BATCH else RELEASE
            for offset in offsets
        ]
        error = member.acknowledge(first, last, kinds)
        if error in (Error.UNKNOWN_SERVER_ERROR, Error.COORDINATOR_NOT_AVAILABLE):
            raise ConnectionError("a write was torn, and the broker is about to die")
        assert error is Error.NONE
        for offset, kind in zip(offsets, kinds, strict=True):
            if kind == ACCEPT:
                self.accepted.add(offset)
            elif kind == REJECT or count >= DELIVERIES:
                self.dead.add(offset)
            else:
                continue
            left.discard(offset)

    def go_on(self, port: int) -> dict[int, list[Record]]:
        """With a broker that lives: until all is done with. What is in the queue then, by the offset that it is of."""
        with Client.connect(port) as client:
            self._prepare(client)
            member = Member(client, "second")
            member.join()
            self._settle(client, member)
            return queued(client)

    def _settle(self, client: Client, member: Member) -> None:
        """All that comes is accepted, and records are added until the group begins behind all that there were: a start
        is written with what is said of another record."""

        def is_over() -> bool:
            produce(client, [b"one more"])
            for first, last, _ in member.fetch():
                self.came_again.update(offset for offset in range(first, last + 1) if offset < RECORDS)
                member.acknowledge(first, last, [ACCEPT])
            return start_of(client) >= RECORDS

        until(is_over, "all is done with", PATIENCE_S)

    def _prepare(self, client: Client) -> None:
        """What isn't there yet of topics, settings and records."""
        for name, configs in ((TOPIC, {}), (QUEUE, {"errors.deadletterqueue.group.enable": "true"})):
            wanted = CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            made = client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 7)
            assert made.topics[0].error_code in (Error.NONE, Error.TOPIC_ALREADY_EXISTS), made
        settings = {
            "share.auto.offset.reset": "earliest",
            "share.delivery.count.limit": f"{DELIVERIES}",
            "errors.deadletterqueue.topic.name": QUEUE,
            "errors.deadletterqueue.copy.record.enable": "true",
        }
        changes = [
            IncrementalAlterableConfig(name=name, config_operation=SET, value=value)
            for name, value in settings.items()
        ]
        resource = IncrementalAlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=GROUP, configs=changes
        )
        told = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        assert told.responses[0].error_code == Error.NONE, told
        while (end := len(records_of(client, TOPIC))) < RECORDS:
            produce(client, [value_of(end + number) for number in range(IN_BATCH)])


def produce(client: Client, values: list[bytes]) -> None:
    batch = build_batch([(time.time_ns() // 1_000_000, None, value, ()) for value in values])
    partition = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[partition])]
    )
    [told] = client.ask(request, 8).responses[0].partition_responses
    assert told.error_code == Error.NONE, told


def records_of(client: Client, topic: str) -> list[Record]:
    found: list[Record] = []
    while data := _read(client, topic, len(found)):
        for position, header in walk_batches(data):
            found += read_records(memoryview(data)[position : position + header.size_bytes])
    return found


def _read(client: Client, topic: str, offset: int) -> bytes:
    asked = ReadPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, topics=[ReadTopic(topic=topic, partitions=[asked])])
    [partition] = client.ask(request, 11).responses[0].partitions
    assert partition.error_code == Error.NONE, partition
    return bytes(partition.records or b"")


def queued(client: Client) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {}
    for record in records_of(client, QUEUE):
        found.setdefault(int(dict(record.headers)[b"__dlq.errors.offset"] or b""), []).append(record)
    return found


def start_of(client: Client) -> int:
    topic = DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[0])
    group = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=[topic])
    [told] = client.ask(DescribeShareGroupOffsetsRequest(groups=[group]), 1).groups
    if told.error_code:
        return -1
    start: int = told.topics[0].partitions[0].start_offset
    return start
