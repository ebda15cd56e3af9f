"""How one version of one API is decoded, handled and encoded, and its answer framed."""

from __future__ import annotations

import importlib
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from broker.handlers import HANDLERS
from broker.network.answers import Answer, Chunk, joined
from broker.network.pieces import ENTRY_LISTS, LIST_BYTES, bounded
from protocol.apis import APIS
from protocol.errors import CodecError
from protocol.waiting import Waiting, turn
from protocol.wire.codec import decoder, decoder_in_steps, encoder, encoder_in_steps
from protocol.wire.schema import LATEST

if TYPE_CHECKING:
    from broker.early_requests import Need


PRODUCE_KEY = 0

# One object instead of some dozens, where many answers wait together. A larger one is joined with its neighbours when
# it is written, if at all, and needs no copy before.
JOINED_CHUNKS_BYTES = 4 * 1024

# Topics, and partitions of one, of an answer that is encoded in passing.
SHORT_TOPICS = 20
SHORT_PARTITIONS = 1_000

# Size, correlation id, and in a flexible version that there are no tagged fields.
SIZE_AND_CORRELATION_ID = struct.Struct(">ii")
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
        "internal_topic",
        "need",
        "response",
        "shape",
        "short_bytes",
        "structs",
    )

    def __init__(self, api_key: int, api_version: int, handlers: Mapping[int, str] = HANDLERS) -> None:
        """`handlers`: the names of their modules, by api key."""
        api = APIS[api_key]
        self._request = api.request
        self.api_version = api_version
        module = importlib.import_module(f"broker.handlers.{handlers[api_key]}")
        self.decode: Callable[[memoryview, int, int], tuple[Any, int]] = decoder(api.request, api_version)
        self.response: type[Any] = api.response
        self.entries = ENTRY_LISTS.get(api.name)
        shape = _SHAPES.get(api.name)
        self.shape = shape if shape is not None and api_version <= shape.last_version else None
        kinds = {field.name: field.kind for field in api.response.FIELDS}
        self.has_lists = "array" in kinds.values()
        self.structs = tuple(name for name, kind in kinds.items() if kind == "struct")
        """Where an answer may have lists, unless it is null."""
        self.short_bytes = 0
        """The answer to a request of no more bytes is short, whatever it says."""
        if not self.has_lists and not self.structs:
            self.short_bytes = sys.maxsize
        elif self.shape is not None and self.shape.is_of_request:
            self.short_bytes = LIST_BYTES
        self.encode: Callable[[Any, list[Any]], None] = self._encode_first
        self.handle: Callable[..., Any] = module.handle
        self.needs(None)
        self.head = (
            SIZE_AND_CORRELATION_ID if api.response_header_version(api_version) == 0 else _FLEXIBLE_HEAD
        )

    def needs(self, need: Need | None) -> None:
        """What a request waits for before it is handled, if for anything."""
        self.need = need
        self.internal_topic = None if need is None else need.internal_topic

    def _encode_first(self, response: Any, chunks: list[Any]) -> None:
        """Encoders take 2 ms to compile, so that each is once it is needed."""
        self.encode = cast("Callable[[Any, list[Any]], None]", encoder(self.response, self.api_version))
        self.encode(response, chunks)

    def decode_in_steps(self, frame: memoryview, pos: int) -> Waiting[tuple[Any, int]]:
        decode = decoder_in_steps(self._request, self.api_version)
        return bounded(self._request, decode(frame, pos, len(frame)))

    def encode_in_steps(self, response: Any, chunks: list[Any]) -> Iterator[None]:
        return encoder_in_steps(self.response, self.api_version)(response, chunks)

    def is_short(self, response: Any) -> bool:
        """Whether the answer is surely encoded in passing: one without lists, or of few topics and partitions."""
        shape = self.shape
        if shape is None:
            for name in self.structs:
                if getattr(response, name) is not None:
                    return False
            return not self.has_lists
        topics = getattr(response, shape.topics)
        partitions = shape.partitions
        if len(topics) == 1:
            return len(getattr(topics[0], partitions)) <= SHORT_PARTITIONS
        return len(topics) <= SHORT_TOPICS and all(
            len(getattr(topic, partitions)) <= SHORT_PARTITIONS for topic in topics
        )


class _Shape(NamedTuple):
    """Where topics, and partitions of one, stand in an answer that has no other lists."""

    topics: str
    partitions: str
    last_version: int = LATEST
    is_of_request: bool = True
    """Whether there are no more of them than the request has."""


# By the names of APIs: of those that are asked again and again.
_SHAPES = {
    "Produce": _Shape("responses", "partition_responses"),
    "Fetch": _Shape("responses", "partitions", is_of_request=False),
    "ListOffsets": _Shape("topics", "partitions"),
    "OffsetCommit": _Shape("topics", "partitions"),
    "TxnOffsetCommit": _Shape("topics", "partitions"),
    "AddPartitionsToTxn": _Shape("results_by_topic_v3_and_below", "results_by_partition", 3),
}


def frame_answer(route: Route, correlation_id: int, response: Any) -> Answer:
    """A response as chunks: size, header, body; a small one is a single chunk."""
    chunks: list[Chunk] = [b""]
    try:
        route.encode(response, chunks)
    except CodecError as error:
        raise RuntimeError(f"an answer of ours can't be encoded: {error}") from error
    return _with_head(route, correlation_id, chunks)


async def framed_in_steps(
    route: Route, correlation_id: int, response: Any, turn_is_over: Callable[[], bool]
) -> Answer:
    """The same for an answer that may be long."""
    chunks: list[Chunk] = [b""]
    done = 1
    try:
        for _ in route.encode_in_steps(response, chunks):
            chunks[done:] = joined(chunks[done:])
            done = len(chunks)
            if turn_is_over():
                await turn()
    except CodecError as error:
        raise RuntimeError(f"an answer of ours can't be encoded: {error}") from error
    return _with_head(route, correlation_id, chunks)


def _with_head(route: Route, correlation_id: int, chunks: list[Chunk]) -> list[Chunk]:
    head = route.head
    size = sum(map(len, chunks)) + head.size
    chunks[0] = head.pack(size - _SIZE_BYTES, correlation_id)
    if size > JOINED_CHUNKS_BYTES:
        return chunks
    try:
        return [b"".join(chunks)]  # type: ignore[arg-type]
    except TypeError:
        # The end of a range of a file is among them. To ask for one before would cost every answer.
        return chunks
