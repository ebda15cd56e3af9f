"""A transactional producer that speaks to a broker in this process, request by request."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.handlers import HANDLERS
from broker.network.context import RequestContext
from broker.security.authorizer import ANONYMOUS
from broker.server import Server
from protocol.errors import Error
from protocol.messages.groups import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.metadata import FindCoordinatorRequest
from protocol.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.messages.topics import CreatableTopic
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records.batch import BatchHeader, build_batch, walk_batches
from tests.support.topics import topics_of
from tests.support.whole_server import handled, started

CLIENT = SimpleNamespace(
    listener=SimpleNamespace(name="PLAINTEXT"),
    peer_host="127.0.0.1",
    peer_port=1,
    client_software=None,
    principal=ANONYMOUS,
)
TIMEOUT_MS = 60_000


def ask(node: Server, request: Any, version: int) -> Any:
    """Return the response, or an awaitable of it."""
    api_key = type(request).API_KEY
    context = RequestContext(CLIENT, api_key, version, 1, "client")  # type: ignore[arg-type]
    handler = importlib.import_module(f"broker.handlers.{HANDLERS[api_key]}")
    return handled(node, handler, context, request)


async def coordinating(folder: Path, *settings: str, partitions: int = 2) -> Server:
    """Start a broker that is already coordinator, with a topic `t` and one partition of each internal topic."""
    node = await started(
        folder, "transaction.state.log.num.partitions=1", "offsets.topic.num.partitions=1", *settings
    )
    if "t" not in node.metadata.image.topics:
        create(node, "t", partitions)
        assert find(node).error_code == Error.NONE
        assert ask(node, FindCoordinatorRequest(key="g"), 3).error_code == Error.NONE
    return node


def create(node: Server, name: str, partitions: int = 1) -> None:
    topics_of(node).create([CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)])


def delete(node: Server, name: str) -> None:
    topics_of(node).delete([node.metadata.image.topics[name]])


def find(node: Server, transactional_id: str = "tx") -> Any:
    return ask(node, FindCoordinatorRequest(key=transactional_id, key_type=1), 3)


def batches(node: Server, topic: str, index: int = 0) -> list[BatchHeader]:
    log = node.partitions.get(topic, index).log
    data = log.read(0, 2**30, upper_bound=log.log_end_offset, min_one_batch=True).records
    return [header for _, header in walk_batches(data)]


def markers(node: Server, topic: str = "t", index: int = 0) -> list[BatchHeader]:
    return [header for header in batches(node, topic, index) if header.is_control]


def state(node: Server, transactional_id: str = "tx") -> str:
    [described] = ask(
        node, DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0
    ).transaction_states
    assert described.error_code == Error.NONE, Error(described.error_code)
    return str(described.transaction_state)


class Producer:
    """A producer of transactions version 1 or 2. `begin` is an InitProducerId that has to succeed."""

    def __init__(self, node: Server, transactional_id: str = "tx", *, version: int = 2) -> None:
        self.node = node
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def begin(self) -> Producer:
        answer = self.init()
        assert answer.error_code == Error.NONE, Error(answer.error_code)
        return self

    def init(self, *, timeout_ms: int = TIMEOUT_MS, version: int = 5, known: bool = False) -> Any:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id if known else -1,
            producer_epoch=self.epoch if known else -1,
        )
        answer = ask(self.node, request, version)
        if answer.error_code == Error.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return answer

    def add(self, *partitions: tuple[str, int], version: int = 3) -> list[Error]:
        topics: dict[str, list[int]] = {}
        for name, index in partitions:
            topics.setdefault(name, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
            ],
        )
        answer = ask(self.node, request, version)
        return [
            Error(result.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]

    def produce(
        self,
        *partitions: tuple[str, int],
        version: int | None = None,
        sequence: int | None = None,
        acks: int = -1,
    ) -> Any:
        """Send one record to each partition. Returns the response, or an awaitable of it. Sequences don't advance."""
        data: dict[str, list[PartitionProduceData]] = {}
        for name, index in partitions:
            batch = build_batch(
                [(self.node.clock.now_ms(), b"k", b"v", ())],
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=self.sequences.get((name, index), 0) if sequence is None else sequence,
                transactional=True,
            )
            data.setdefault(name, []).append(PartitionProduceData(index=index, records=memoryview(batch)))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=acks,
            timeout_ms=1_000,
            topic_data=[TopicProduceData(name=name, partition_data=each) for name, each in data.items()],
        )
        return ask(self.node, request, version or (12 if self.version == 2 else 11))

    def send(self, topic: str = "t", index: int = 0, *, version: int | None = None) -> Error:
        """Send one record. The sequence advances if it is accepted."""
        answer = self.produce((topic, index), version=version)
        error = errors_of(answer)[0]
        if error is Error.NONE:
            self.sequences[topic, index] = self.sequences.get((topic, index), 0) + 1
        return error

    def end(self, *, commit: bool = True, version: int | None = None) -> Error:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        version = version or (5 if self.version == 2 else 4)
        answer = ask(self.node, request, version)
        if version >= 5 and answer.error_code == Error.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return Error(answer.error_code)

    def add_offsets(self, group_id: str = "g", *, version: int = 4) -> Error:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        return Error(ask(self.node, request, version).error_code)

    def commit_offsets(
        self,
        offset: int,
        group_id: str = "g",
        *,
        topics: Sequence[tuple[str, int]] = (("t", 0),),
        version: int | None = None,
        **member: Any,
    ) -> list[Error]:
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
                for name, index in topics
            ],
            **{"member_id": "", **member},
        )
        answer = ask(self.node, request, version or (5 if self.version == 2 else 4))
        return [Error(partition.error_code) for topic in answer.topics for partition in topic.partitions]


def errors_of(produced: Any) -> list[Error]:
    return [
        Error(partition.error_code) for topic in produced.responses for partition in topic.partition_responses
    ]


def committed(node: Server, group_id: str = "g") -> tuple[int, Error]:
    """Return the committed offset of t-0, and its error, that a consumer gets when it requires a stable one."""
    request = OffsetFetchRequest(
        group_id=group_id,
        topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
        require_stable=True,
    )
    answer = ask(node, request, 7)
    [partition] = answer.topics[0].partitions
    return partition.committed_offset, Error(partition.error_code)
