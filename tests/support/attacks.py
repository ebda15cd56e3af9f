"""What one client may send to hold up all others, and how long a pinging client waits meanwhile.

The wait is measured in the CPU time of the broker's process: what it did between a ping and its answer. Other load on
the machine doesn't change that.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from barnabas import Broker
from broker.config.broker_definitions import BROKER_ROWS
from broker.network.answers import MAX_CONTROL_REQUEST_BYTES
from broker.network.pieces import MOST_ENTRIES_BY_API, MOST_FETCHED
from protocol.apis import APIS
from protocol.messages.cluster_admin import (
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from protocol.messages.configs import (
    AlterClientQuotasRequest,
    AlterEntryData,
    EntityData,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    OpData,
)
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.messages.metadata import (
    ApiVersionsRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.messages.transactions import ListTransactionsRequest
from protocol.records import compression
from protocol.records.compressed_frames import compress_frame
from protocol.records.validation_budget import LITTLE
from protocol.wire.schema import Message
from tests.support.crowds import strike_by_many
from tests.support.large_requests import large_requests
from tests.support.record_bytes import NOW_MS, batch, record, varint
from tests.support.wire import Client, request_frame

TOPICS, PARTITIONS = 200, 20
GROUP, TRANSACTION = 0, 1  # kinds of coordinators
TRIES = 30
WITH_LISTS = sorted(api.name for api in APIS.values() if any(large_requests(1, only=(api.name,))))
"""The APIs whose requests have lists."""
WAITED_S = 2.0
"""How long to wait for the answer to a damaged request, which may tell the broker to wait for weeks."""


class Attack(NamedTuple):
    name: str
    frames: list[bytes]
    """The frames to send at once on one connection."""
    hangs_up: bool = False
    """True if some of the frames may get no answer."""
    connections: int = 1
    """On how many connections to send them. Several are in a process of their own, so reading them holds up no pinging
    client."""
    before: Callable[[], object] | None = None
    """Prepares each try, so that the attack makes work."""


class Pinger(threading.Thread):
    """Pings until it is stopped."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(daemon=True)
        self.longest_s = 0.0
        self.on = True
        self._clock = ~broker.pid << 3 | 2  # clock_getcpuclockid(3)
        self._client = Client.of(broker.bootstrap)

    def run(self) -> None:
        request = ApiVersionsRequest()
        while self.on:
            before_s = time.clock_gettime(self._clock)
            self._client.ask(request, 0)
            self.longest_s = max(self.longest_s, time.clock_gettime(self._clock) - before_s)
        self._client.close()


def prepare(broker: Broker) -> None:
    """Create the topics that attacks and coordinators need, and call each API once, so that nothing is loaded during an
    attack."""
    with Client.of(broker.bootstrap) as client:
        topics = [
            CreatableTopic(name=str(number), num_partitions=PARTITIONS, replication_factor=1)
            for number in range(TOPICS)
        ]
        client.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
        for key_type in (GROUP, TRANSACTION):
            client.ask(FindCoordinatorRequest(key="g", key_type=key_type), 3)
    for api_name in WITH_LISTS:
        for attack in lists(1, api_name):
            strike(broker, attack)


def strike(broker: Broker, attack: Attack) -> None:
    """Send the attack, and read until the broker has answered everything or hung up.

    If the broker may hang up, the frames after the one at which it did are sent again. So are the frames after one that
    makes the broker wait, such as a Fetch or a join with a wait from damaged bytes.
    """
    if attack.connections > 1:
        strike_by_many(broker.bootstrap, b"".join(attack.frames), attack.connections)
        return
    frames = attack.frames
    while frames:
        answered = _answered(broker, frames, hangs_up=attack.hangs_up)
        frames = frames[answered + 1 :] if attack.hangs_up else []


def _answered(broker: Broker, frames: list[bytes], *, hangs_up: bool) -> int:
    """Return how many were answered, on a connection of their own."""
    host, _, port = broker.bootstrap.rpartition(":")
    answered = 0
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as stream:
        try:
            connection.sendall(b"".join(frames))
            if hangs_up:
                connection.settimeout(WAITED_S)
                with suppress(OSError):  # the broker was first
                    connection.shutdown(socket.SHUT_WR)
            for _ in frames:
                head = stream.read(4)
                if len(head) < 4:
                    break
                left = struct.unpack(">i", head)[0]
                while left:
                    left -= len(stream.read(min(left, 1 << 20))) or left
                answered += 1
        except (ConnectionError, TimeoutError):
            pass
    return answered


def longest_wait_s(broker: Broker, attack: Attack, bound_s: float) -> float:
    """Return a pinging client's longest wait. Whatever holds up the loop does so each time, so the best of some tries
    counts.

    On a core that others use, the same work takes half as long again, sometimes for a few tries in a row.
    """
    best_s = float("inf")
    for _ in range(TRIES):
        if attack.before is not None:
            attack.before()
        pinger = Pinger(broker)
        pinger.start()
        strike(broker, attack)
        pinger.on = False
        pinger.join()
        best_s = min(best_s, pinger.longest_s)
        if best_s <= bound_s:
            break
    return best_s


def lists(entries: int, api_name: str) -> Iterator[Attack]:
    """Long lists of an API; if it has a limit, as long as the broker accepts."""
    count = min(entries, MOST_ENTRIES_BY_API.get(api_name, entries) * 9 // 10)
    for large in large_requests(count, only=(api_name,)):
        frame = request_frame(large.message, large.version, 1)
        if len(frame) < MAX_CONTROL_REQUEST_BYTES:
            yield Attack(str(large), [frame])


def batches(scale: int) -> Iterator[Attack]:
    """Batches that are small to send and long to check. `scale`: the work; 1 is about a second without limits."""
    headers = 500_000 * scale
    many_headers = (
        b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(headers) + bytes(2 * headers)
    )
    yield _produced("zstd of empty headers", batch([varint(len(many_headers)) + many_headers], attributes=4))
    one_byte = (1 | 0x80000000).to_bytes(4, "little") + b"x"
    blocks = compress_frame(b"", 9)[:7] + one_byte * (50_000 * scale) + bytes(4)
    yield _produced("lz4 in blocks of a byte", packed(compression.LZ4, blocks))
    members = compression.compress(compression.GZIP, b"") * (15_000 * scale)
    yield _produced("gzip of empty members", packed(compression.GZIP, members))
    large = record(0, value=bytes(min(120 * scale, 240) << 20))
    bomb = batch([large], attributes=compression.ZSTD)
    yield _produced("what unpacks to 20 times 240 MiB", *([bomb] * (2 * scale)))
    little = batch([record(0, value=bytes(LITTLE.unpacked_bytes - 1_000))], attributes=compression.GZIP)
    yield _produced("batches that are each little to check", *([little] * PARTITIONS))
    records = [record(index, value=b"%d" % (index % 7919)) for index in range(60_000 * scale)]
    yield _produced("many records, the last one bad", batch([*records, b"\2\0"], attributes=compression.ZSTD))
    future = [record(index, timestamp_delta=index % 100) for index in range(60_000 * scale)]
    yield _produced(
        "records of the future", batch(future, attributes=compression.ZSTD, base_timestamp=NOW_MS * 3)
    )


def searches() -> Iterator[Attack]:
    """Searches by time, in batches that take long to unpack, or to read record by record."""
    now_ms = int(time.time() * 1000)  # otherwise retention deletes it
    payload = [record(0, value=bytes(120 << 20))]
    large = batch(payload, attributes=compression.ZSTD, base_timestamp=now_ms, max_timestamp=now_ms)
    records = [record(index, timestamp_delta=index // 49_999) for index in range(50_000)]
    many = batch(records, attributes=compression.ZSTD, base_timestamp=now_ms, max_timestamp=now_ms + 1)
    yield _produced("what is searched then", large, many)
    for timestamp in (now_ms, now_ms + 1, -3):
        wanted = [
            ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in range(PARTITIONS)
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="0", partitions=wanted)])
        yield Attack(f"a search for {timestamp}", [request_frame(request, 7, 1)])


def changes(records: int) -> Iterator[Attack]:
    """Changes of the metadata, some thousand records at once. Everything created is deleted again."""
    wide = [CreatableTopic(name="wide", num_partitions=records, replication_factor=1)]
    many = [
        CreatableTopic(name=f"many-{n}", num_partitions=1, replication_factor=1)
        for n in range(records * 2 // 5)  # each takes two, and two more where it grows
    ]
    setting = IncrementalAlterableConfig(name="retention.ms", config_operation=0, value="1000000")
    altered = [
        IncrementalAlterConfigsResource(resource_type=2, resource_name=topic.name, configs=[setting])
        for topic in many
    ]
    grown = [CreatePartitionsTopic(name=topic.name, count=3) for topic in many]
    requests: list[tuple[Message, int]] = [
        (CreateTopicsRequest(topics=wide, timeout_ms=60_000), 7),
        (CreateTopicsRequest(topics=many, timeout_ms=60_000), 7),
        (IncrementalAlterConfigsRequest(resources=altered), 1),
        (CreatePartitionsRequest(topics=grown, timeout_ms=60_000), 3),
        (DescribeLogDirsRequest(topics=None), 4),
        (DescribeTopicPartitionsRequest(topics=[]), 0),
        (MetadataRequest(topics=None), 12),
        (ElectLeadersRequest(topic_partitions=None, timeout_ms=60_000), 2),
        (ListPartitionReassignmentsRequest(topics=None, timeout_ms=60_000), 0),
    ]
    names = [DeleteTopicState(name=topic.name) for topic in [*wide, *many]]
    requests.append((DeleteTopicsRequest(topics=names, timeout_ms=60_000), 6))
    yield Attack("thousands of topics", [request_frame(*request, 1) for request in requests])
    quotas = [
        AlterEntryData(
            entity=[EntityData(entity_type="user", entity_name=f"user-{n}")],
            ops=[OpData(key="producer_byte_rate", value=1e9)],
        )
        for n in range(records)
    ]
    yield Attack("thousands of quotas", [request_frame(AlterClientQuotasRequest(entries=quotas), 1, 1)])


def fetches() -> Iterator[Attack]:
    """Fetches of as many partitions as one request may name, with and without a session, answered at once and after a
    wait."""
    per_topic = MOST_FETCHED * 9 // 10 // TOPICS
    topics = [
        FetchTopic(
            topic=str(number),
            partitions=[
                FetchPartition(partition=index, partition_max_bytes=1000) for index in range(per_topic)
            ],
        )
        for number in range(TOPICS)
    ]
    for session_epoch in (-1, 0):
        for max_wait_ms in (0, 100):
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=max_wait_ms,
                min_bytes=1 << 30,
                session_epoch=session_epoch,
                topics=topics,
                forgotten_topics_data=[],
            )
            name = f"a Fetch of {per_topic * TOPICS}, session {session_epoch}, {max_wait_ms} ms"
            yield Attack(name, [request_frame(request, 12, 1)])


def subscriptions() -> Iterator[Attack]:
    """Members of a consumer group subscribe to all topics, one after the other, with either assignor; then they leave.

    With `group.consumer.assignment.interval.ms=0` each of them triggers a new assignment.
    """
    names = [str(number) for number in range(TOPICS)]
    for assignor in ("uniform", "range"):
        joins = [
            ConsumerGroupHeartbeatRequest(
                group_id=f"of all, {assignor}",
                member_id=f"member-{number}",
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=names,
                server_assignor=assignor,
                topic_partitions=[],
            )
            for number in range(8)
        ]
        leaves = [
            ConsumerGroupHeartbeatRequest(group_id=join.group_id, member_id=join.member_id, member_epoch=-1)
            for join in joins
        ]
        frames = [request_frame(request, 1, 1) for request in (*joins, *leaves)]
        yield Attack(f"subscriptions to all topics, {assignor}", frames)


def texts() -> Iterator[Attack]:
    """Texts of a string's maximal length: different regular expressions, and list settings."""
    expressions = ["(?i)" + "[a-z]" * 6_499 + str(number) for number in range(5)]
    joins = [
        ConsumerGroupHeartbeatRequest(
            group_id=f"by expression {number}",
            member_id="member",
            rebalance_timeout_ms=60_000,
            subscribed_topic_regex=expression,
            topic_partitions=[],
        )
        for number, expression in enumerate(expressions)
    ]
    leaves = [
        ConsumerGroupHeartbeatRequest(group_id=join.group_id, member_id=join.member_id, member_epoch=-1)
        for join in joins
    ]
    yield Attack("expressions of groups", [request_frame(request, 1, 1) for request in (*joins, *leaves)])
    listings = [ListTransactionsRequest(transactional_id_pattern=expression) for expression in expressions]
    yield Attack("expressions of transactions", [request_frame(request, 2, 1) for request in listings])
    value = ",".join(map(str, range(5_600)))
    for operation in (2, 3):
        configs = [
            IncrementalAlterableConfig(name=name, config_operation=operation, value=value)
            for name, row in BROKER_ROWS.items()
            if row[0] == "LIST"
        ]
        resource = IncrementalAlterConfigsResource(resource_type=4, resource_name="", configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
        yield Attack(f"list settings, operation {operation}", [request_frame(request, 1, 1)])


def packed(codec: int, payload: bytes) -> bytearray:
    """Return a batch with this payload after the header."""
    from protocol.records.batch import BATCH_LENGTH_POS, BATCH_OVERHEAD, LOG_OVERHEAD, patch_crc

    data = bytearray(batch([record(0)], attributes=codec)[:BATCH_OVERHEAD]) + payload
    data[BATCH_LENGTH_POS : BATCH_LENGTH_POS + 4] = (len(data) - LOG_OVERHEAD).to_bytes(4, "big")
    patch_crc(data, 0, len(data))
    return data


def _produced(name: str, *of_partitions: bytes | bytearray) -> Attack:
    data = [
        PartitionProduceData(index=index % PARTITIONS, records=bytes(records))
        for index, records in enumerate(of_partitions)
    ]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="0", partition_data=data)]
    )
    return Attack(name, [request_frame(request, 9, 1)])


def pipelined(count: int) -> Attack:
    """Return an attack of this many requests at once."""
    return Attack("requests at once", [request_frame(ApiVersionsRequest(), 0, 1)] * count)


def damaged(frames: int, seed: int, *, at_once: int = 50) -> Iterator[Attack]:
    """Requests of all APIs in all versions with some bytes changed, `frames` in all."""
    luck = random.Random(seed)
    whole = [
        request_frame(large.message, large.version, 1) for large in large_requests(20, every_version=True)
    ]
    for start in range(0, frames, at_once):
        some = []
        for _ in range(min(at_once, frames - start)):
            frame = bytearray(luck.choice(whole))
            for _ in range(luck.randrange(4)):
                frame[luck.randrange(8, len(frame))] = luck.randrange(256)
            some.append(bytes(frame))
        yield Attack(f"damaged frames from {start} on, by the seed {seed}", some, hangs_up=True)


def counted() -> bool:
    """Return True if another process's CPU time can be read here."""
    return os.uname().sysname == "Linux"
