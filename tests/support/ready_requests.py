"""Prepared requests, made once and sent many times, so that they measure the broker."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records.batch import BatchHeader, walk_batches
from protocol.wire.codec import decode
from tests.support.wire import Client, request_frame

# The newest versions that still name topics and have headers without tagged fields.
PRODUCE_VERSION = 8
FETCH_VERSION = 11
CLIENT_ID = "bench"
_CORRELATION_ID_SIZE = 4


def produce_frame(topic: str, batch: bytes, acks: int, *, transactional_id: str | None = None) -> bytes:
    """Return a whole Produce request for partition 0 of the topic."""
    partition = PartitionProduceData(index=0, records=memoryview(batch))
    of_topic = TopicProduceData(name=topic, partition_data=[partition])
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=[of_topic]
    )
    return request_frame(request, PRODUCE_VERSION, client_id=CLIENT_ID)


def fetch_frame(topic: str, offset: int, partition_max_bytes: int, *, partition: int = 0) -> bytes:
    """Return a whole Fetch request for one partition of the topic, outside of any session."""
    asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 * 1024 * 1024,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )
    return request_frame(request, FETCH_VERSION, client_id=CLIENT_ID)


def produce_in_flight(client: Client, frame: bytes, count: int, in_flight: int) -> None:
    """Send the same request `count` times, with at most `in_flight` unanswered. Raises RuntimeError for an error."""
    for sent in range(count):
        if sent >= in_flight:
            _take_produce_answer(client)
        client.send_bytes(frame)
    for _ in range(min(count, in_flight)):
        _take_produce_answer(client)


def fetch_batches(
    client: Client, topic: str, end_offset: int, partition_max_bytes: int, *, partition: int = 0
) -> Iterator[BatchHeader]:
    """Yield the header of each batch up to the offset. Each Fetch is sent after the previous answer.

    Raises RuntimeError if an answer has an error, or no whole batch.
    """
    offset = 0
    while offset < end_offset:
        client.send_bytes(fetch_frame(topic, offset, partition_max_bytes, partition=partition))
        answer = decode(FetchResponse, FETCH_VERSION, client.next_frame()[_CORRELATION_ID_SIZE:])
        (of_partition,) = answer.responses[0].partitions
        before = offset
        for _, header in walk_batches(of_partition.records or b""):
            offset = header.last_offset + 1
            yield header
        if offset == before:
            raise RuntimeError(f"fetch at offset {offset}: {of_partition}")


def _take_produce_answer(client: Client) -> None:
    answer = decode(ProduceResponse, PRODUCE_VERSION, client.next_frame()[_CORRELATION_ID_SIZE:])
    (partition,) = answer.responses[0].partition_responses
    if partition.error_code:
        raise RuntimeError(f"produce: {partition}")
