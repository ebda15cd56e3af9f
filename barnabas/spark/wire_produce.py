"""Produce requests of many partitions, encoded with one copy of each batch. Part of the adapter (see `wire`).

kafka-python makes an object for each partition, copies its batch into a buffer and that into another. Its connection
asks a request for little else than its bytes, though, so that these can be made here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from kafka.protocol.producer import ProduceRequest

Piece = bytes | bytearray | memoryview

VERSION = 9
HEADER = struct.Struct(">hhi")  # api key, its version, correlation id
ACKS_AND_TIMEOUT = struct.Struct(">hi")
NO_TAGS = b"\0"


class Outgoing(NamedTuple):
    """A record batch for a partition, in pieces that lie one behind the other."""

    topic: str
    partition: int
    pieces: Sequence[Piece]


class Produce:
    """What kafka-python takes for a ProduceRequest: all but its bytes is asked of one that has no records.

    Of a version before 9, which a broker older than Kafka 2.8 may want, kafka-python makes them.
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
        """Frame and header always belong to it."""
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
    """The length of what is compact: one more than it is, in a varint."""
    number += 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
