"""`python -m tests.bench.floor PORT`: a broker's exchanges with a bare loop that answers without work.

It shows what a request costs before any work on it: the kernel, the loop, and the client. Answers are made once for
each connection, and repeated. Nothing is checked, and only the last few batches are kept, for waiting readers. There is
one broker, and every topic has one partition. `--other` measures it beside others.
"""

from __future__ import annotations

import asyncio
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any

import uvloop

from protocol.apis import APIS
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.metadata import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.produce import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.messages.topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
)
from protocol.wire.codec import decode, encode

HOST, NODE_ID = "127.0.0.1", 1
CLUSTER_ID = "bare-loop-without-work"
KEPT = 20
SERVED = {
    ProduceRequest: (3, 8),
    FetchRequest: (4, 11),
    MetadataRequest: (1, 9),
    FindCoordinatorRequest: (0, 2),
    ApiVersionsRequest: (0, 3),
    CreateTopicsRequest: (2, 4),
    DeleteTopicsRequest: (1, 3),
    InitProducerIdRequest: (0, 1),
    AddPartitionsToTxnRequest: (0, 1),
    EndTxnRequest: (0, 1),
}
"""The versions, none of them with tagged fields in frequent requests."""
OF_KEY: dict[int, Any] = {request.API_KEY: request for request in SERVED}
ANSWERED_ALIKE = {request.API_KEY for request in (ProduceRequest, AddPartitionsToTxnRequest, EndTxnRequest)}
"""APIs that are answered alike on one connection, where the topic is always the same."""
PRODUCE, FETCH = ProduceRequest.API_KEY, FetchRequest.API_KEY

_HEAD = struct.Struct(">ihhih")
_PRODUCED = struct.Struct(">i")


class Topic:
    """What all connections share: the end of the log, its last batches, and who waits for the next one."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.batches: dict[int, bytes] = {}
        """The last ones, by base offset."""
        self.waiting: list[Callable[[], None]] = []

    def append(self, batch: bytes) -> None:
        """Append a whole batch of one record or more."""
        (last_delta,) = struct.unpack_from(">i", batch, 23)
        self.batches[self.end_offset] = struct.pack(">q", self.end_offset) + batch[8:]
        if len(self.batches) > KEPT:
            del self.batches[next(iter(self.batches))]
        self.end_offset += last_delta + 1
        waiting, self.waiting = self.waiting, []
        for wake in waiting:
            wake()


class Bare(asyncio.Protocol):
    """A connection. `topics`: shared by all."""

    def __init__(self, port: int, topics: dict[str, Topic]) -> None:
        self._port = port
        self._topics = topics
        self._pending = b""
        self._answers: dict[tuple[int, int], bytes] = {}
        self._produced_to: tuple[Topic, int] | None = None
        """The topic, and where in a request the batch begins."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._pending:
            data = self._pending + data
        at = 0
        while len(data) - at >= _HEAD.size:
            size, api_key, version, correlation_id, client_id_size = _HEAD.unpack_from(data, at)
            if len(data) - at < 4 + size:
                break
            body_at = at + _HEAD.size + max(client_id_size, 0)
            frame = data[at : at + 4 + size] if size < 1 << 16 else memoryview(data)[at : at + 4 + size]
            self._answer(api_key, version, correlation_id, frame, body_at - at)
            at += 4 + size
        self._pending = data[at:]

    def _answer(self, api_key: int, version: int, correlation_id: int, frame: Any, body_at: int) -> None:
        known = self._answers.get((api_key, version))
        if known is None:
            request = OF_KEY[api_key]
            if APIS[api_key].request_header_version(version) >= 2:
                body_at += 1
            message = decode(request, version, bytes(frame), body_at)
            if api_key == FETCH:
                self._fetch(message, version, correlation_id)
                return
            if api_key == PRODUCE:
                self._remember(message, frame)
            known = bytes(encode(ANSWERS[request](self, message), version))
            if APIS[api_key].response_header_version(version) >= 1:
                known = b"\0" + known
            if api_key in ANSWERED_ALIKE:
                self._answers[api_key, version] = known
        if api_key == PRODUCE and self._produced_to is not None:
            topic, batch_at = self._produced_to
            topic.append(bytes(frame[batch_at:]))
        self._transport.write(struct.pack(">ii", len(known) + 4, correlation_id) + known)

    def _remember(self, message: ProduceRequest, frame: Any) -> None:
        [of_topic] = message.topic_data
        records = of_topic.partition_data[0].records
        assert records is not None
        self._produced_to = self._topics.setdefault(of_topic.name, Topic()), len(frame) - len(bytes(records))

    def _fetch(self, message: FetchRequest, version: int, correlation_id: int) -> None:
        [asked] = message.topics
        offset = asked.partitions[0].fetch_offset
        topic = self._topics.setdefault(asked.topic, Topic())

        def answer() -> None:
            batch = topic.batches.get(offset, b"")
            partition = PartitionData(
                partition_index=0,
                high_watermark=topic.end_offset,
                last_stable_offset=topic.end_offset,
                log_start_offset=0,
                aborted_transactions=None,
                records=batch,
            )
            response = FetchResponse(
                responses=[FetchableTopicResponse(topic=asked.topic, partitions=[partition])]
            )
            body = bytes(encode(response, version))
            self._transport.write(struct.pack(">ii", len(body) + 4, correlation_id) + body)

        if offset < topic.end_offset:
            answer()
        else:
            topic.waiting.append(answer)

    # --- answers to decoded requests ------------------------------------------------------------------------------

    def api_versions(self, _: ApiVersionsRequest) -> ApiVersionsResponse:
        keys = [
            ApiVersion(api_key=request.API_KEY, min_version=first, max_version=last)
            for request, (first, last) in SERVED.items()
        ]
        return ApiVersionsResponse(error_code=0, api_keys=keys)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = [*self._topics] if request.topics is None else [topic.name for topic in request.topics]
        for name in names:
            self._topics.setdefault(str(name), Topic())
        partition = MetadataResponsePartition(
            error_code=0,
            partition_index=0,
            leader_id=NODE_ID,
            replica_nodes=[NODE_ID],
            isr_nodes=[NODE_ID],
        )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=NODE_ID, host=HOST, port=self._port)],
            cluster_id=CLUSTER_ID,
            controller_id=NODE_ID,
            topics=[MetadataResponseTopic(error_code=0, name=name, partitions=[partition]) for name in names],
        )

    def created(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        for topic in request.topics:
            self._topics[topic.name] = Topic()
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=topic.name, error_code=0) for topic in request.topics]
        )

    def deleted(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(
            responses=[DeletableTopicResult(name=name, error_code=0) for name in request.topic_names]
        )

    def coordinator(self, _: FindCoordinatorRequest) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(error_code=0, node_id=NODE_ID, host=HOST, port=self._port)

    def producer_id(self, _: InitProducerIdRequest) -> InitProducerIdResponse:
        return InitProducerIdResponse(error_code=0, producer_id=1, producer_epoch=0)

    def produced(self, request: ProduceRequest) -> ProduceResponse:
        partition = PartitionProduceResponse(index=0, error_code=0, base_offset=0)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(name=topic.name, partition_responses=[partition])
                for topic in request.topic_data
            ]
        )

    def added(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        partition = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=0)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=[partition])
                for topic in request.v3_and_below_topics
            ]
        )

    def ended(self, _: EndTxnRequest) -> EndTxnResponse:
        return EndTxnResponse(error_code=0)


ANSWERS: dict[Any, Callable[[Bare, Any], Any]] = {
    ApiVersionsRequest: Bare.api_versions,
    MetadataRequest: Bare.metadata,
    CreateTopicsRequest: Bare.created,
    DeleteTopicsRequest: Bare.deleted,
    FindCoordinatorRequest: Bare.coordinator,
    InitProducerIdRequest: Bare.producer_id,
    ProduceRequest: Bare.produced,
    AddPartitionsToTxnRequest: Bare.added,
    EndTxnRequest: Bare.ended,
}


async def _serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    topics: dict[str, Topic] = {}
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, stopped.set)
    server = await loop.create_server(lambda: Bare(port, topics), HOST, port)
    await stopped.wait()
    server.close()


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].isdecimal():
        sys.exit("usage: python -m tests.bench.floor PORT")
    uvloop.run(_serve(int(sys.argv[1])))
