"""A client so thin that what it measures is the broker: ready requests over one blocking socket."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records.batch import BatchHeader, walk_batches
from protocol.wire.codec import decode, encode
from protocol.wire.schema import Message

# The newest versions that still name topics, and have headers without tagged fields.
PRODUCE_VERSION = 8
FETCH_VERSION = 11
PATIENCE_S = 30.0

_HEADER = struct.Struct(">ihhih5s")
_CLIENT_ID = b"bench"
_SIZE = struct.Struct(">i")
_CORRELATION_ID_SIZE = 4


class RawClient:
    """One connection. The answers it hands out are views of a buffer that the next answer overwrites."""

    def __init__(self, bootstrap: str, largest_answer: int = 64 * 1024 * 1024) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = memoryview(bytearray(largest_answer))

    def close(self) -> None:
        self._socket.close()

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self) -> memoryview:
        """The body of the next answer."""
        self._fill(self._buffer[:4])
        size = _SIZE.unpack_from(self._buffer)[0]
        self._fill(self._buffer[:size])
        return self._buffer[_CORRELATION_ID_SIZE:size]

    def _fill(self, view: memoryview) -> None:
        while view:
            count = self._socket.recv_into(view)
            if count == 0:
                raise ConnectionError("the broker closed the connection")
            view = view[count:]


def produce_frame(topic: str, batch: bytes, acks: int, *, transactional_id: str | None = None) -> bytes:
    """A whole Produce request for partition 0 of the topic."""
    partition = PartitionProduceData(index=0, records=memoryview(batch))
    of_topic = TopicProduceData(name=topic, partition_data=[partition])
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=[of_topic]
    )
    return _frame(request, 0, PRODUCE_VERSION)


def fetch_frame(topic: str, offset: int, partition_max_bytes: int, *, partition: int = 0) -> bytes:
    """A whole Fetch request for one partition of the topic, outside of any session."""
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 * 1024 * 1024,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )
    return _frame(request, 1, FETCH_VERSION)


def produce_in_flight(client: RawClient, frame: bytes, count: int, in_flight: int) -> None:
    """Send the same request `count` times, with so many unanswered at most; RuntimeError for an error."""
    for sent in range(count):
        if sent >= in_flight:
            _take_produce_answer(client)
        client.send(frame)
    for _ in range(min(count, in_flight)):
        _take_produce_answer(client)


def fetch_batches(
    client: RawClient, topic: str, end_offset: int, partition_max_bytes: int, *, partition: int = 0
) -> Iterator[BatchHeader]:
    """The header of each batch up to the offset, each Fetch sent when the answer before has come.

    RuntimeError where the answer has an error, or no whole batch.
    """
    offset = 0
    while offset < end_offset:
        client.send(fetch_frame(topic, offset, partition_max_bytes, partition=partition))
        answer = decode(FetchResponse, FETCH_VERSION, client.receive())
        (of_partition,) = answer.responses[0].partitions
        before = offset
        for _, header in walk_batches(of_partition.records or b""):
            offset = header.last_offset + 1
            yield header
        if offset == before:
            raise RuntimeError(f"fetch at offset {offset}: {of_partition}")


def _take_produce_answer(client: RawClient) -> None:
    answer = decode(ProduceResponse, PRODUCE_VERSION, client.receive())
    (partition,) = answer.responses[0].partition_responses
    if partition.error_code:
        raise RuntimeError(f"produce: {partition}")


def _frame(message: Message, api_key: int, version: int) -> bytes:
    body = encode(message, version)
    size = _HEADER.size - 4 + len(body)
    return _HEADER.pack(size, api_key, version, 0, len(_CLIENT_ID), _CLIENT_ID) + body
