"""A client of one connection that hides nothing: well-formed requests of any version, and malformed bytes.

Every test that speaks Kafka's protocol itself uses it. A socket carries the bytes, or nothing at all:
`support.straight` hands them to a node of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import EllipsisType
from typing import Any, Protocol

from protocol.apis import APIS, request_header_version
from protocol.wire.codec import decode, decoder, encode
from protocol.wire.schema import Message

PATIENCE_S = 240.0
"""How long to wait for an answer that must come. A correct broker never takes that long."""

SMALLEST_BUFFER_BYTES = 64 * 1024

_SIZE = struct.Struct(">i")


class Outcome(enum.Enum):
    """What may happen instead of an answer."""

    CLOSED = "the connection was closed"
    SILENCE = "no answer"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request in flight, with what is needed to read its answer."""

    api_key: int
    version: int
    correlation_id: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A decoded answer. `canonical` is True if encoding it again gives the same bytes."""

    message: Any
    correlation_id: int
    canonical: bool
    after_s: float


# --- bytes ------------------------------------------------------------------------------------------------------


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tagged_fields(fields: Mapping[int, bytes]) -> bytes:
    """Encode the tag buffer of KIP-482."""
    parts = [unsigned_varint(len(fields))]
    for tag, value in sorted(fields.items()):
        parts += [unsigned_varint(tag), unsigned_varint(len(value)), value]
    return b"".join(parts)


def header(
    api_key: int,
    version: int,
    correlation_id: int,
    *,
    client_id: str | bytes | None = None,
    client_id_length: int | None = None,
    tags: Mapping[int, bytes] | None = None,
) -> bytes:
    """Return a request header as Kafka's clients write it. The length of the client id may be wrong on purpose."""
    text = client_id.encode() if isinstance(client_id, str) else client_id
    length = -1 if text is None else len(text)
    if client_id_length is not None:
        length = client_id_length
    out = struct.pack(">hhih", api_key, version, correlation_id, length) + (text or b"")
    if api_key in APIS and request_header_version(api_key, version) >= 2:
        out += tagged_fields(tags or {})
    return out


def frame(payload: bytes) -> bytes:
    return _SIZE.pack(len(payload)) + payload


def request_frame(
    request: Message,
    version: int,
    correlation_id: int = 0,
    *,
    client_id: str | bytes | None = None,
    after: bytes = b"",
) -> bytes:
    """Return a whole request, with `after` behind its body but within its frame."""
    start = header(type(request).API_KEY, version, correlation_id, client_id=client_id)
    return frame(start + bytes(encode(request, version)) + after)


# --- carriers of bytes ------------------------------------------------------------------------------------------


class Carrier(Protocol):
    """Sends and receives bytes."""

    def send(self, data: bytes) -> None: ...

    def receive_into(self, view: memoryview, within_s: float) -> int:
        """Return how many bytes came, 0 at the end. Raises TimeoutError."""
        ...

    def finish_sending(self) -> None:
        """Half-close: the broker reads an end, and we go on reading."""
        ...

    def close(self) -> None: ...


class Socket:
    """A connection over loopback, or to wherever the broker is."""

    def __init__(self, host: str, port: int, *, from_host: str | None = None) -> None:
        self._socket = socket.create_connection(
            (host, port), timeout=PATIENCE_S, source_address=None if from_host is None else (from_host, 0)
        )
        self._timeout_s = PATIENCE_S
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive_into(self, view: memoryview, within_s: float) -> int:
        if within_s != self._timeout_s:
            self._socket.settimeout(within_s)
            self._timeout_s = within_s
        return self._socket.recv_into(view)

    def finish_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()


# --- the client -------------------------------------------------------------------------------------------------


class Client:
    """One connection. Answers are read in the order of their requests."""

    patience_s = PATIENCE_S

    def __init__(self, carrier: Carrier, *, client_id: str | bytes | None = None) -> None:
        self.closed = False
        self._carrier = carrier
        self._client_id = client_id
        self._correlation_ids = itertools.count(1)
        self._buffer = memoryview(bytearray(SMALLEST_BUFFER_BYTES))
        self._have = 0

    @classmethod
    def connect(
        cls,
        port: int,
        host: str = "127.0.0.1",
        *,
        from_host: str | None = None,
        client_id: str | bytes | None = None,
    ) -> Client:
        """Connect. Raises ConnectionError if nobody listens."""
        return cls(Socket(host, port, from_host=from_host), client_id=client_id)

    @classmethod
    def of(cls, bootstrap: str, *, client_id: str | bytes | None = None) -> Client:
        """Connect to the bootstrap address host:port."""
        host, _, port = bootstrap.rpartition(":")
        return cls.connect(int(port), host, client_id=client_id)

    def close(self) -> None:
        self.closed = True
        self._carrier.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # one request and its answer

    def ask(self, request: Message, version: int) -> Any:
        """Return the answer's message. Raises ConnectionError if the broker is gone."""
        self.tell(request, version)
        api = APIS[type(request).API_KEY]
        data = self.next_frame()
        return decode(api.response, version, data, 5 if api.response_header_version(version) >= 1 else 4)

    def tell(self, request: Message, version: int) -> None:
        """Send it, without reading the answer."""
        self._carrier.send(request_frame(request, version, client_id=self._client_id))

    async def answer(self, request: Message, version: int) -> Any:
        """Like `ask`, for a node that runs on the loop of this test."""
        sent = self.send(request, version)
        while (answer := self.receive(sent, within_s=0)) is Outcome.SILENCE:
            await asyncio.sleep(0)
        if isinstance(answer, Outcome):
            raise ConnectionError(answer.value)
        return answer.message

    # step by step

    def finish_sending(self) -> None:
        """Half-close: the broker reads an end, and we go on reading."""
        self._carrier.finish_sending()

    def send_bytes(self, data: bytes) -> None:
        # If the broker has already closed the connection, reading shows it.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._carrier.send(data)

    def next_correlation_id(self) -> int:
        return next(self._correlation_ids)

    def send(
        self,
        request: Message,
        version: int,
        *,
        correlation_id: int | None = None,
        client_id: str | bytes | EllipsisType | None = ...,
        after: bytes = b"",
    ) -> Sent:
        """Send a well-formed request, with `after` behind its body but within its frame."""
        sent, data = self.made(
            request, version, correlation_id=correlation_id, client_id=client_id, after=after
        )
        self.send_bytes(data)
        return sent

    def made(
        self,
        request: Message,
        version: int,
        *,
        correlation_id: int | None = None,
        client_id: str | bytes | EllipsisType | None = ...,
        after: bytes = b"",
    ) -> tuple[Sent, bytes]:
        """Return a request and its frame, without sending it."""
        if correlation_id is None:
            correlation_id = self.next_correlation_id()
        named = self._client_id if client_id is ... else client_id
        data = request_frame(request, version, correlation_id, client_id=named, after=after)
        return Sent(type(request).API_KEY, version, correlation_id, time.monotonic()), data

    def receive(self, sent: Sent, *, within_s: float | None = None) -> Answer | Outcome:
        """Return the next answer, read as the answer to `sent`."""
        payload = self.receive_frame(within_s=within_s)
        if isinstance(payload, Outcome):
            return payload
        after_s = time.monotonic() - sent.at_s
        (correlation_id,) = _SIZE.unpack_from(payload)
        api = APIS[sent.api_key]
        pos = 4
        if api.response_header_version(sent.version) >= 1:
            pos = 5
            assert payload[4] == 0, "tagged fields in a response header"
        message, end = decoder(api.response, sent.version)(memoryview(payload), pos, len(payload))
        canonical = end == len(payload) and bytes(encode(message, sent.version)) == payload[pos:]
        return Answer(message, correlation_id, canonical, after_s)

    def receive_frame(self, *, within_s: float | None = None) -> bytes | Outcome:
        """Return the payload of the next frame. Parts of an incomplete one are kept for the next call."""
        deadline_s = time.monotonic() + (self.patience_s if within_s is None else within_s)
        try:
            self._fill(4, deadline_s)
            size = _SIZE.unpack_from(self._buffer)[0]
            self._fill(4 + size, deadline_s)
        except TimeoutError:
            return Outcome.SILENCE
        except ConnectionError:
            self.close()
            return Outcome.CLOSED
        self._have = 0
        return bytes(self._buffer[4 : 4 + size])

    def next_frame(self) -> memoryview:
        """Return the payload of the next frame, in a buffer that the next one overwrites.

        Raises ConnectionError if the broker is gone, TimeoutError if it sends nothing. It copies nothing and reads no
        clock, so measurements with it measure the broker.
        """
        self._fill(4)
        size = _SIZE.unpack_from(self._buffer)[0]
        self._fill(4 + size)
        self._have = 0
        return self._buffer[4 : 4 + size]

    def _fill(self, needed: int, deadline_s: float | None = None) -> None:
        """Read until exactly this many bytes are there."""
        if needed > len(self._buffer):
            larger = memoryview(bytearray(max(needed, 2 * len(self._buffer))))
            larger[: self._have] = self._buffer[: self._have]
            self._buffer = larger
        within_s = PATIENCE_S
        while self._have < needed:
            if deadline_s is not None:
                # Wait at least a moment: what is already there is read, however late.
                within_s = max(deadline_s - time.monotonic(), 1e-6)
            came = self._carrier.receive_into(self._buffer[self._have : needed], within_s)
            if came == 0:
                raise ConnectionError("the broker is gone")
            self._have += came
