"""How one version of one API is decoded, handled and encoded, and its answer framed."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from broker.handlers import HANDLERS
from broker.network.answers import Answer, Chunk
from broker.network.frames import joined
from broker.network.pieces import ENTRY_LISTS, bounded
from protocol.apis import APIS
from protocol.errors import CodecError
from protocol.wire.codec import decoder, decoder_in_steps, encoder, encoder_in_steps

if TYPE_CHECKING:
    from broker.network.turns import Steps

PRODUCE_KEY = 0
FETCH_KEY = 1

# One object instead of some dozens, where many answers wait together. A larger one is joined with its neighbours when
# it is written, if at all, and needs no copy before.
JOINED_CHUNKS_BYTES = 4 * 1024

# Topics, and partitions of one, of an answer to Produce or Fetch that is encoded in passing.
SHORT_TOPICS = 20
SHORT_PARTITIONS = 1_000

# Size, correlation id, and in a flexible version that there are no tagged fields.
_HEAD = struct.Struct(">ii")
_FLEXIBLE_HEAD = struct.Struct(">iix")
_SIZE_BYTES = 4  # the size doesn't count itself


class Route:
    """How one version of one API is decoded, handled and encoded."""

    __slots__ = (
        "_request",
        "api_version",
        "decode",
        "encode",
        "entries",
        "handle",
        "has_lists",
        "head",
        "partitions",
        "response",
    )

    def __init__(self, api_key: int, api_version: int) -> None:
        api = APIS[api_key]
        self._request = api.request
        self.api_version = api_version
        module = importlib.import_module(f"broker.handlers.{HANDLERS[api_key]}")
        self.decode: Callable[[memoryview, int, int], tuple[Any, int]] = decoder(api.request, api_version)
        self.response: type[Any] = api.response
        self.entries = ENTRY_LISTS.get(api.name)
        self.partitions = _PARTITIONS.get(api_key)
        self.has_lists = any(field.kind in ("array", "struct") for field in api.response.FIELDS)
        self.encode: Callable[[Any, list[Any]], None] = self._encode_first
        self.handle: Callable[..., Any] = module.handle
        self.head = _HEAD if api.response_header_version(api_version) == 0 else _FLEXIBLE_HEAD

    def _encode_first(self, response: Any, chunks: list[Any]) -> None:
        """Encoders take 2 ms to compile, so that each is once it is needed."""
        self.encode = cast("Callable[[Any, list[Any]], None]", encoder(self.response, self.api_version))
        self.encode(response, chunks)

    def decode_in_steps(self, frame: memoryview, pos: int) -> Steps[tuple[Any, int]]:
        decode = decoder_in_steps(self._request, self.api_version)
        return bounded(self._request, decode(frame, pos, len(frame)))

    def encode_in_steps(self, response: Any, chunks: list[Any]) -> Iterator[None]:
        return encoder_in_steps(self.response, self.api_version)(response, chunks)

    def is_short(self, response: Any) -> bool:
        """Whether the answer is surely encoded in some microseconds: one without lists, or to a Produce or a Fetch."""
        partitions = self.partitions
        if partitions is None:
            return not self.has_lists
        topics = response.responses
        if len(topics) == 1:
            return len(getattr(topics[0], partitions)) <= SHORT_PARTITIONS
        return len(topics) <= SHORT_TOPICS and all(
            len(getattr(topic, partitions)) <= SHORT_PARTITIONS for topic in topics
        )


_PARTITIONS = {PRODUCE_KEY: "partition_responses", FETCH_KEY: "partitions"}


def frame_answer(route: Route, correlation_id: int, response: Any) -> Answer:
    """A response as chunks: size, header, body; a small one is a single chunk."""
    chunks: list[Chunk] = [b""]
    try:
        route.encode(response, chunks)
    except CodecError as error:
        raise RuntimeError(f"an answer of ours can't be encoded: {error}") from error
    return _with_head(route, correlation_id, chunks)


def framed_in_steps(route: Route, correlation_id: int, response: Any) -> Steps[Answer]:
    """The same for an answer that may be long."""
    chunks: list[Chunk] = [b""]
    done = 1
    try:
        for _ in route.encode_in_steps(response, chunks):
            if route.partitions is None:  # a Fetch's records are large, or are in files yet
                chunks[done:] = joined(cast("list[bytes | bytearray | memoryview]", chunks[done:]))
                done = len(chunks)
            yield None
    except CodecError as error:
        raise RuntimeError(f"an answer of ours can't be encoded: {error}") from error
    return _with_head(route, correlation_id, chunks)


def _with_head(route: Route, correlation_id: int, chunks: list[Chunk]) -> list[Chunk]:
    size = sum(map(len, chunks)) + route.head.size
    chunks[0] = route.head.pack(size - _SIZE_BYTES, correlation_id)
    return [b"".join(cast("list[bytes]", chunks))] if size <= JOINED_CHUNKS_BYTES else chunks
