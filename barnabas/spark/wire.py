"""The wire: everything that this package knows about kafka-python, which only the modules `wire*` import.

kafka-python's connections (TLS, SASL, bootstrapping) and its messages can carry an explicit producer identity, which no
producer class of any Python library can. Both are internals that have stayed the same in its release line 3.0.x. So the
extra `spark` allows only that line, and `tests/spark/test_wire.py` names what another release breaks.

The versions are those of transactions V1, as older clients speak them (Produce 9, EndTxn 3, AddPartitionsToTxn 3). With
transactions V2 (KIP-890) any Produce would add its partition to the transaction, even a late one. Here only the driver
adds partitions.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from kafka import codec
from kafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from kafka.record.memory_records import MemoryRecords

from barnabas.spark import errors
from barnabas.spark.errors import COORDINATOR_MOVES, LEADER_MOVES, NoAnswerError, ResponseError
from barnabas.spark.wire_connection import GROUP, TRANSACTION, TransactionConnection, check

GZIP_LEVEL = 6
PACKAGES = {"snappy": "python-snappy", "lz4": "lz4", "zstd": "zstandard"}
"""The packages that kafka-python needs for compression, beside Python itself."""


class Record(NamedTuple):
    """A record with the producer id and epoch of its batch, -1 if it has none."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int = -1
    epoch: int = -1


def compress(name: str, data: bytes) -> bytes:
    """Compress in the form that Kafka's clients read: snappy in xerial's frame, lz4 with independent blocks.

    Raises ImportError if this Python lacks the library; kafka-python would only say that it failed.
    """
    if not getattr(codec, f"has_{name}")():
        raise ImportError(f"compression={name!r} needs the package {PACKAGES[name]}")
    return bytes(_ENCODERS[name](data))


_ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: codec.gzip_encode(data, compresslevel=GZIP_LEVEL),
    "snappy": codec.snappy_encode,
    "lz4": codec.lz4_encode,
    "zstd": codec.zstd_encode,
}


def committed(data: bytes, aborted: list[tuple[int, int]], offset: int) -> tuple[list[Record], int]:
    """Return the records outside of aborted transactions, by the rules of Java's consumer, and the next offset."""
    records: list[Record] = []
    open_aborts: set[int] = set()
    batches = MemoryRecords(data)
    while (batch := batches.next_batch()) is not None:
        while aborted and aborted[0][0] <= batch.last_offset:
            open_aborts.add(aborted.pop(0)[1])
        if batch.is_control_batch:
            if all(marker.abort for marker in batch):
                open_aborts.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in open_aborts):
            producer = (batch.producer_id, batch.producer_epoch)
            records += [
                Record(one.offset, one.key, one.value, *producer) for one in batch if one.offset >= offset
            ]
        offset = max(offset, batch.last_offset + 1)
    return records, offset


# --- Produce requests of many partitions, encoded with one copy of each batch -------------------------------
#
# kafka-python makes an object for each partition, copies its batch into a buffer, and that into another. But its
# connection needs little from a request except its bytes, so this module makes them.

Piece = bytes | bytearray | memoryview

VERSION = 9
HEADER = struct.Struct(">hhi")  # API key, API version, correlation id
ACKS_AND_TIMEOUT = struct.Struct(">hi")
NO_TAGS = b"\0"


class Outgoing(NamedTuple):
    """A record batch for a partition, in consecutive pieces."""

    topic: str
    partition: int
    pieces: Sequence[Piece]


class Produce:
    """Stands in for kafka-python's ProduceRequest. Everything except its bytes comes from one without records.

    For versions before 9, which a broker older than Kafka 2.8 may need, kafka-python makes the bytes.
    """

    def __init__(self, transactional_id: str, timeout_ms: int, batches: Sequence[Outgoing]) -> None:
        self.__dict__["_batches"] = batches
        self.__dict__["_inner"] = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=timeout_ms,
            topic_data=[],
            max_version=VERSION,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)

    def __repr__(self) -> str:
        return f"<Produce of {len(self._batches)} batch(es)>"

    def encode(self, *, framed: bool, header: bool) -> bytes:
        """Return the bytes, always with frame and header."""
        if self._inner.API_VERSION != VERSION:
            return self._by_the_library()
        pieces = list(self._body())
        client_id = self._inner.header.client_id.encode()
        start = HEADER.pack(self._inner.API_KEY, VERSION, self._inner.header.correlation_id)
        start += struct.pack(">h", len(client_id)) + client_id + NO_TAGS
        size = len(start) + sum(map(len, pieces))
        return b"".join([struct.pack(">i", size), start, *pieces])

    def _body(self) -> Iterator[Piece]:
        inner = self._inner
        yield b"\0" if inner.transactional_id is None else _string(inner.transactional_id)
        yield ACKS_AND_TIMEOUT.pack(inner.acks, inner.timeout_ms)
        topics = [(topic, list(batches)) for topic, batches in groupby(self._batches, lambda one: one.topic)]
        yield _count(len(topics))
        for topic, batches in topics:
            yield _string(topic) + _count(len(batches))
            for one in batches:
                yield struct.pack(">i", one.partition) + _count(sum(map(len, one.pieces)))
                yield from one.pieces
                yield NO_TAGS
            yield NO_TAGS
        yield NO_TAGS

    def _by_the_library(self) -> bytes:
        shape = ProduceRequest.TopicProduceData
        self._inner.topic_data = [
            shape(
                name=topic,
                partition_data=[
                    shape.PartitionProduceData(index=one.partition, records=b"".join(one.pieces))
                    for one in batches
                ],
            )
            for topic, batches in groupby(self._batches, lambda one: one.topic)
        ]
        return bytes(self._inner.encode(framed=True, header=True))


def _string(text: str) -> bytes:
    data = text.encode()
    return _count(len(data)) + data


def _count(number: int) -> bytes:
    """Encode the length of a compact field: the length plus one, as a varint."""
    number += 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


# --- A cluster, as the sink uses it -------------------------------------------------------------------------

__all__ = [
    "LEADER_MOVES",
    "Appended",
    "Identity",
    "NoAnswerError",
    "Outgoing",
    "Pending",
    "ResponseError",
    "Wire",
]

TOPIC, BROKER = 2, 4  # types of resources with configs
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST = -1, -2


class Identity(NamedTuple):
    """The identity from InitProducerId.

    contested: an earlier request of ours got no answer. If it is still in flight, it will fence this identity.
    """

    producer_id: int
    epoch: int
    contested: bool = False


class Appended(NamedTuple):
    """The place of an appended batch. `log_append_time_ms` is -1 for a fresh append to a CreateTime topic."""

    base_offset: int
    log_append_time_ms: int


@dataclass(frozen=True, slots=True)
class Pending:
    """A Produce request in flight. places: topic and partition of each batch."""

    places: Sequence[tuple[str, int]]
    future: Any


class Wire(TransactionConnection):
    """Connections to one cluster. Calls that are safe to repeat are repeated until `timeout_ms` has passed.

    Raises ResponseError and NoAnswerError.
    """

    # ---- the driver's requests for transactions

    def init_producer_id(self, transactional_id: str, timeout_ms: int) -> Identity:
        """Take a new epoch. It fences everything with an older one, and aborts its open transaction."""
        contested = False

        def attempt() -> Identity:
            nonlocal contested
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
                max_version=4,
            )
            try:
                answer = self._ask_coordinator(TRANSACTION, transactional_id, request)
            except NoAnswerError:
                contested = True
                raise
            check(answer.error_code, f"InitProducerId for {transactional_id}")
            return Identity(answer.producer_id, answer.producer_epoch, contested)

        return self._repeat(attempt, {*COORDINATOR_MOVES, errors.CONCURRENT_TRANSACTIONS})

    def add_partitions(
        self, transactional_id: str, identity: Identity, partitions: Mapping[str, Iterable[int]]
    ) -> None:
        """Add partitions to the transaction, which begins it."""
        shape = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic

        def attempt() -> None:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=[
                    shape(name=topic, partitions=list(numbers)) for topic, numbers in partitions.items()
                ],
                max_version=3,
            )
            answer = self._ask_coordinator(TRANSACTION, transactional_id, request)
            found = [
                (one.partition_error_code, f"AddPartitionsToTxn of {topic.name}-{one.partition_index}")
                for topic in answer.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ]
            # If one partition is refused, all others get this code, in any order.
            for code, what in sorted(found, key=lambda each: each[0] == errors.OPERATION_NOT_ATTEMPTED):
                check(code, what)

        self._repeat(attempt, {*COORDINATOR_MOVES, errors.CONCURRENT_TRANSACTIONS})

    def commit_offsets(
        self, transactional_id: str, identity: Identity, group: str, offsets: Mapping[str, Mapping[int, int]]
    ) -> None:
        """Add a group's offsets to the transaction (AddOffsetsToTxn, TxnOffsetCommit)."""

        def add() -> None:
            request = AddOffsetsToTxnRequest(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                group_id=group,
                max_version=3,
            )
            answer = self._ask_coordinator(TRANSACTION, transactional_id, request)
            check(answer.error_code, f"AddOffsetsToTxn for the group {group}")

        shape = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        element = shape.TxnOffsetCommitRequestPartition

        def commit() -> None:
            request = TxnOffsetCommitRequest(
                transactional_id=transactional_id,
                group_id=group,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=[
                    shape(
                        name=topic,
                        partitions=[
                            element(partition_index=number, committed_offset=offset, committed_metadata="")
                            for number, offset in ends.items()
                        ],
                    )
                    for topic, ends in offsets.items()
                ],
                max_version=3,
            )
            answer = self._ask_coordinator(GROUP, group, request)
            for topic in answer.topics:
                for one in topic.partitions:
                    what = f"TxnOffsetCommit of {topic.name}-{one.partition_index} for the group {group}"
                    check(one.error_code, what)

        self._repeat(add, {*COORDINATOR_MOVES, errors.CONCURRENT_TRANSACTIONS})
        self._repeat(commit, COORDINATOR_MOVES)

    def end_transaction(self, transactional_id: str, identity: Identity, *, commit: bool) -> None:
        """Commit or abort. Not repeated if no answer comes: the marker shows whether it was carried out."""

        def attempt() -> None:
            request = EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=commit,
                max_version=3,
            )
            answer = self._ask_coordinator(TRANSACTION, transactional_id, request)
            check(answer.error_code, f"EndTxn for {transactional_id}")

        self._repeat(attempt, {*COORDINATOR_MOVES, errors.CONCURRENT_TRANSACTIONS}, unanswered=False)

    # ---- writing and reading records

    def send(self, leader: int, transactional_id: str, batches: Sequence[Outgoing]) -> Pending:
        """Begin to send record batches, at most one per partition, sorted by topic; `wait` for the answers.

        Never repeated here.
        """
        request = Produce(transactional_id, self.timeout_ms, batches)
        pending = Pending([(one.topic, one.partition) for one in batches], self._begin(leader, request))
        self._poll(0)  # send now as much as the socket takes
        return pending

    def wait(self, pending: Pending) -> list[Appended | ResponseError]:
        """Return the answer to each batch that was sent, in that order."""
        found = {
            (topic.name, one.index): one
            for topic in self._finish(pending.future).responses
            for one in topic.partition_responses
        }
        answers: list[Appended | ResponseError] = []
        for place in pending.places:
            one = found[place]
            try:
                detail = f" ({one.error_message})" if one.error_message else ""
                check(one.error_code, f"Produce to {place[0]}-{place[1]}{detail}")
            except ResponseError as error:
                answers.append(error)
            else:
                answers.append(Appended(one.base_offset, one.log_append_time_ms))
        return answers

    def append(
        self, leader: int, transactional_id: str, topic: str, partition: int, *pieces: Piece
    ) -> Appended:
        """Send one record batch, and wait for its answer. Raises the broker's error."""
        (answer,) = self.wait(self.send(leader, transactional_id, [Outgoing(topic, partition, pieces)]))
        if isinstance(answer, ResponseError):
            raise answer
        return answer

    def offset(self, topic: str, partition: int, leader: int, timestamp: int, isolation: int) -> int:
        """Look up an offset by LATEST or EARLIEST. LATEST with READ_COMMITTED is the last stable offset."""
        return self.offsets(topic, partition, leader, [(timestamp, isolation)])[0]

    def offsets(self, topic: str, partition: int, leader: int, asked: Iterable[tuple[int, int]]) -> list[int]:
        """Like `offset`, for several pairs of timestamp and isolation: sent together, looked up one after the other."""
        shape = ListOffsetsRequest.ListOffsetsTopic
        sent = []
        for timestamp, isolation in asked:
            one = shape.ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=-1, timestamp=timestamp
            )
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[shape(name=topic, partitions=[one])],
                max_version=7,
            )
            sent.append(self._begin(leader, request))
        found = []
        for future in sent:
            (answered,) = self._finish(future).topics
            (one,) = answered.partitions
            check(one.error_code, f"ListOffsets of {topic}-{partition}")
            found.append(int(one.offset))
        return found

    def read_committed(
        self, topic: str, partition: int, leader: int, offset: int
    ) -> tuple[list[Record], int]:
        """Return the committed records of one Fetch from this offset on, and the offset to continue from."""
        one = self._fetch(leader, topic, partition, offset, READ_COMMITTED, max_bytes=1 << 20, max_wait_ms=0)
        aborted = [(each.first_offset, each.producer_id) for each in one.aborted_transactions or ()]
        return committed(bytes(one.records or b""), sorted(aborted), offset)

    def _fetch(
        self,
        leader: int,
        topic: str,
        partition: int,
        offset: int,
        isolation: int,
        *,
        max_bytes: int,
        max_wait_ms: int,
    ) -> Any:
        """Send one Fetch for one partition, and return the partition's part of the answer."""
        shape = FetchRequest.FetchTopic
        asked = shape.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        deadline_s = time.monotonic() + self.timeout_ms / 1000
        while True:
            request = FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=max_bytes,
                isolation_level=isolation,
                topics=[shape(topic=topic, partitions=[asked])],
                forgotten_topics_data=[],
                rack_id="",
                max_version=11,
            )
            answer = self._finish(self._begin(leader, request))
            check(answer.error_code, "Fetch")
            if answer.responses:
                break
            # A client above its quota gets nothing, not even the partition. It asks again when its throttle time has
            # passed, which `_begin` waits for.
            if time.monotonic() + answer.throttle_time_ms / 1000 > deadline_s:
                raise NoAnswerError(
                    f"Fetch of {topic}-{partition}: throttled for longer than {self.timeout_ms} ms"
                )
        (answered,) = answer.responses
        (one,) = answered.partitions
        check(one.error_code, f"Fetch of {topic}-{partition}")
        return one

    # ---- topics

    def leaders(self, topics: Sequence[str]) -> dict[str, dict[int, int]]:
        """Return each topic's partitions with the node id of the leader. UNKNOWN_TOPIC_OR_PARTITION isn't retried."""

        def attempt() -> dict[str, dict[int, int]]:
            shape = MetadataRequest.MetadataRequestTopic
            request = MetadataRequest(
                topics=[shape(name=topic) for topic in topics], allow_auto_topic_creation=False, max_version=9
            )
            answer = self._finish(self._begin(self.any_node(), request))
            found: dict[str, dict[int, int]] = {}
            for topic in answer.topics:
                check(topic.error_code, f"Metadata of {topic.name}")
                for one in topic.partitions:
                    check(one.error_code, f"Metadata of {topic.name}-{one.partition_index}")
                found[topic.name] = {
                    one.partition_index: one.leader_id
                    for one in sorted(topic.partitions, key=lambda each: each.partition_index)
                }
            return found

        return self._repeat(attempt, {errors.LEADER_NOT_AVAILABLE})

    def configs(self, kind: int, name: str, keys: Sequence[str]) -> dict[str, str]:
        """Return configs of a TOPIC or BROKER by name."""

        def attempt() -> dict[str, str]:
            shape = DescribeConfigsRequest.DescribeConfigsResource
            resource = shape(resource_type=kind, resource_name=name, configuration_keys=list(keys))
            request = DescribeConfigsRequest(resources=[resource], max_version=4)
            node = int(name) if kind == BROKER else self.any_node()
            (result,) = self._finish(self._begin(node, request)).results
            check(result.error_code, f"DescribeConfigs of {name}")
            return {config.name: config.value for config in result.configs}

        return self._repeat(attempt, set())

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Create a topic with the cluster's default replication factor. It may exist already."""

        def attempt() -> None:
            shape = CreateTopicsRequest.CreatableTopic
            topic = shape(
                name=name,
                num_partitions=partitions,
                replication_factor=-1,
                assignments=[],
                configs=[shape.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            request = CreateTopicsRequest(
                topics=[topic], timeout_ms=self.timeout_ms, validate_only=False, max_version=5
            )
            (result,) = self._finish(self._begin(self._controller(), request)).topics
            if result.error_code != errors.TOPIC_ALREADY_EXISTS:
                detail = f" ({result.error_message})" if result.error_message else ""
                check(result.error_code, f"CreateTopics of {name}{detail}")

        self._repeat(attempt, {errors.NOT_CONTROLLER})
