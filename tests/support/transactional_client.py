"""A transactional producer, request by request, and a read_committed reader, each on its own connection.

They hide nothing: each call sends its request and returns the error code.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.groups import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribedTransaction,
    DescribeTransactionsRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records.batch import ABORT, build_batch, read_control_type, read_records, walk_batches
from storage.files import FileRange
from tests.support.wire import PATIENCE_S, Client

LATEST = -1
READ_COMMITTED = 1

NOT_YET = (
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
    Error.CONCURRENT_TRANSACTIONS,
    Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.LEADER_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER,
    Error.NOT_ENOUGH_REPLICAS,
    Error.OFFSET_NOT_AVAILABLE,
    Error.UNSTABLE_OFFSET_COMMIT,
)
"""Errors of a broker that has just started, or that is still writing markers."""


def system_time_ms() -> int:
    return time.time_ns() // 1_000_000


class Broker:
    """A broker's requests beside transactions. `ask` takes a request and its version."""

    def __init__(self, ask: Callable[[Any, int], Any], now_ms: Callable[[], int] = system_time_ms) -> None:
        self.ask = ask
        self.now_ms = now_ms

    def create_topic(self, name: str, partitions: int) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 4)
        assert answer.topics[0].error_code == 0, answer

    def find_coordinators(self, transactional_id: str, group_id: str) -> None:
        """Wait until both coordinators are there."""
        for key, key_type in ((transactional_id, 1), (group_id, 0)):
            eventually(
                lambda key=key, key_type=key_type: Error(
                    self.ask(FindCoordinatorRequest(key=key, key_type=key_type), 3).error_code
                )
            )

    def end(self, topic: str, partition: int, *, isolation_level: int = 0) -> int:
        """Return the log's end, or for READ_COMMITTED the last stable offset."""
        asked = ListOffsetsPartition(partition_index=partition, timestamp=LATEST, current_leader_epoch=-1)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
        )
        found: list[int] = []

        def ask() -> Error:
            answer = self.ask(request, 4).topics[0].partitions[0]
            found.append(answer.offset)
            return Error(answer.error_code)

        eventually(ask)
        return found[-1]

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """Describe the transaction once the coordinator has loaded."""
        found: list[DescribedTransaction] = []

        def ask() -> Error:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            found.append(self.ask(request, 0).transaction_states[0])
            error = Error(found[-1].error_code)
            return Error.NONE if error is Error.TRANSACTIONAL_ID_NOT_FOUND else error

        eventually(ask)
        return found[-1]

    def state(self, transactional_id: str) -> str:
        """Return the state; Empty if there is no such id."""
        return self.describe(transactional_id).transaction_state

    def committed_offset(self, group_id: str, topic: str) -> tuple[int, Error]:
        """Return partition 0's committed offset, with require_stable."""
        asked = OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        request = OffsetFetchRequest(group_id=group_id, topics=[asked], require_stable=True)
        answer = self.ask(request, 7)
        if answer.error_code:
            return -1, Error(answer.error_code)
        (partition,) = answer.topics[0].partitions
        return partition.committed_offset, Error(partition.error_code)


@contextlib.contextmanager
def connected(port: int) -> Iterator[Broker]:
    """Connect to a broker. Raises ConnectionError if there is none."""
    with Client.connect(port) as client:
        yield Broker(client.ask)


class Reader:
    """A consumer of one partition: the values that it hands to its application, in order."""

    def __init__(self, broker: Broker, topic: str, partition: int, *, committed: bool = True) -> None:
        self.broker = broker
        self.topic = topic
        self.partition = partition
        self.committed = committed
        self.offset = 0
        self.values: list[bytes] = []

    def poll(self, max_wait_ms: int = 0) -> bool:
        """Send one Fetch. Return True if anything came, even only a marker."""
        asked = FetchPartition(
            partition=self.partition, fetch_offset=self.offset, partition_max_bytes=1 << 20
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 22,
            isolation_level=READ_COMMITTED if self.committed else 0,
            topics=[FetchTopic(topic=self.topic, partitions=[asked])],
        )
        answer = self.broker.ask(request, 11).responses[0].partitions[0]
        if Error(answer.error_code) in NOT_YET:
            return False
        assert answer.error_code == 0, answer
        data = memoryview(_bytes_of(answer.records))
        before = self.offset
        aborted = sorted(
            ((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()),
            reverse=True,
        )
        being_aborted: set[int] = set()
        for position, header in walk_batches(data):
            while aborted and aborted[-1][0] <= header.last_offset:
                being_aborted.add(aborted.pop()[1])
            records = [*read_records(data[position : position + header.size_bytes])]
            if header.is_control:
                if read_control_type(records[0].key) == ABORT:
                    being_aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in being_aborted):
                self.values += [bytes(each.value or b"") for each in records if each.offset >= self.offset]
            self.offset = header.last_offset + 1
        return self.offset > before

    def read_on(self) -> list[bytes]:
        """Read all values up to the end for this kind of reader, and return them."""
        while self.poll():
            pass
        return self.values


class Producer:
    """A producer of transactions version 1 or 2. Each method sends one request, and returns its error, or all its
    errors.

    A successful end of version 2 returns the epoch to use next. Sequences go on if nothing was refused.
    """

    def __init__(self, broker: Broker, transactional_id: str, version: int) -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, *, timeout_ms: int = 60_000, known: bool = False) -> Error:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id if known else -1,
            producer_epoch=self.epoch if known else -1,
        )
        answer = self.broker.ask(request, 5)
        if answer.error_code == 0:
            self._becomes(answer.producer_id, answer.producer_epoch)
        return Error(answer.error_code)

    def _becomes(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences = {}
        self.producer_id, self.epoch = producer_id, epoch

    def add(self, topic: str, partitions: Sequence[int]) -> list[Error]:
        """Add partitions as clients of version 1 do. Version 2 leaves this to Produce."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[*partitions])],
        )
        answer = self.broker.ask(request, 3)
        return [
            Error(each.partition_error_code)
            for of_topic in answer.results_by_topic_v3_and_below
            for each in of_topic.results_by_partition
        ]

    def produce(self, topic: str, values: dict[int, bytes]) -> list[Error]:
        """Produce one record to each partition, in one request."""
        data = [
            PartitionProduceData(
                index=partition,
                records=memoryview(
                    build_batch(
                        [(self.broker.now_ms(), None, value, ())],
                        producer_id=self.producer_id,
                        producer_epoch=self.epoch,
                        base_sequence=self.sequences.get((topic, partition), 0),
                        transactional=True,
                    )
                ),
            )
            for partition, value in values.items()
        ]
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        answer = self.broker.ask(request, 12 if self.version == 2 else 11)
        errors = []
        for each in answer.responses[0].partition_responses:
            errors.append(Error(each.error_code))
            if each.error_code == 0:
                place = topic, each.index
                self.sequences[place] = self.sequences.get(place, 0) + 1
        return errors

    def add_offsets(self, group_id: str) -> Error:
        """Add offsets as clients of version 1 do. Version 2 leaves this to TxnOffsetCommit."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        return Error(self.broker.ask(request, 3).error_code)

    def commit_offset(self, group_id: str, topic: str, offset: int) -> Error:
        """Commit an offset of partition 0."""
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            member_id="",
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        answer = self.broker.ask(request, 5 if self.version == 2 else 3)
        return Error(answer.topics[0].partitions[0].error_code)

    def end_request(self, *, commit: bool) -> tuple[EndTxnRequest, int]:
        """Return the request and its version."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        return request, 5 if self.version == 2 else 4

    def end(self, *, commit: bool) -> Error:
        answer = self.broker.ask(*self.end_request(commit=commit))
        if self.version == 2 and answer.error_code == 0:
            self._becomes(answer.producer_id, answer.producer_epoch)
        return Error(answer.error_code)

    def send(self, topic: str, values: dict[int, bytes], group_id: str, offset: int) -> None:
        """Send the contents of a transaction: records, and an offset of the group. It is patient with a starting
        broker."""
        if self.version == 1:
            eventually(lambda: worst(self.add(topic, [*values])))
            eventually(lambda: self.add_offsets(group_id))
        for partition, value in values.items():
            eventually(
                lambda partition=partition, value=value: worst(self.produce(topic, {partition: value}))
            )
        eventually(lambda: self.commit_offset(group_id, topic, offset))


def amid_transaction(
    ask: Callable[[Any, int], Any], transactional_id: str, topic: str, partitions: Sequence[int]
) -> Producer:
    """Return a producer of version 1 with a record in each partition of a new topic."""
    broker = Broker(ask)
    broker.create_topic(topic, len(partitions))
    broker.find_coordinators(transactional_id, transactional_id)
    producer = Producer(broker, transactional_id, 1)
    eventually(producer.init)
    eventually(lambda: worst(producer.add(topic, partitions)))
    for index in partitions:
        eventually(lambda index=index: worst(producer.produce(topic, {index: b"x"})))
    return producer


def worst(errors: Sequence[Error]) -> Error:
    """Return one of several answers that isn't NONE, if there is any."""
    return next((error for error in errors if error is not Error.NONE), Error.NONE)


def eventually(ask: Any, patience_s: float = PATIENCE_S) -> None:
    """Ask until the answer isn't "too early". Raises AssertionError for any other error."""
    deadline_s = time.monotonic() + patience_s
    while (error := ask()) is not Error.NONE:
        assert error in NOT_YET, error
        assert time.monotonic() < deadline_s, error
        time.sleep(0.01)


def _bytes_of(records: Any) -> bytes:
    """Return the records' bytes. A node in this process may leave the rest of them in a file."""
    if isinstance(records, list):
        return b"".join(part.read(0, len(part)) if isinstance(part, FileRange) else part for part in records)
    return bytes(records or b"")
