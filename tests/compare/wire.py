"""A client of one socket that can say anything: well-formed requests of any version, and bytes that are not."""

from __future__ import annotations

import contextlib
import enum
import itertools
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from protocol.apis import APIS, request_header_version, response_header_version
from protocol.wire.codec import decoder, encode

from .plain import message_from

PATIENCE_S = 10.0
"""How long an answer that must come is waited for. Nothing that goes right ever waits as long."""

API_KEYS = {api.name: api.key for api in APIS.values()}


class Outcome(enum.Enum):
    """What may come instead of an answer."""

    CLOSED = "the connection was closed"
    SILENCE = "no answer"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request on its way: what its answer has to be read as."""

    api: str
    version: int
    correlation_id: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A decoded answer. `canonical` says that encoding it again gives the very bytes that came."""

    message: Any
    correlation_id: int
    canonical: bool
    after_s: float


def unsigned_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tagged_fields(fields: Mapping[int, bytes]) -> bytes:
    """The tag buffer of KIP-482."""
    parts = [unsigned_varint(len(fields))]
    for tag, value in sorted(fields.items()):
        parts += [unsigned_varint(tag), unsigned_varint(len(value)), value]
    return b"".join(parts)


def header(
    api_key: int,
    version: int,
    correlation_id: int,
    *,
    client_id: str | bytes | None = "compare",
    client_id_length: int | None = None,
    tags: Mapping[int, bytes] | None = None,
) -> bytes:
    """A request header as Kafka's clients write it; the length of the client id may be a lie."""
    text = client_id.encode() if isinstance(client_id, str) else client_id
    length = -1 if text is None else len(text)
    if client_id_length is not None:
        length = client_id_length
    out = struct.pack(">hhih", api_key, version, correlation_id, length) + (text or b"")
    if api_key in APIS and request_header_version(api_key, version) >= 2:
        out += tagged_fields(tags or {})
    return out


def body(api: str, version: int, fields: Mapping[str, Any]) -> bytes:
    return bytes(encode(message_from(APIS[API_KEYS[api]].request, fields, version), version))


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Client:
    """One connection. An answer is read by the request that it belongs to, in order."""

    def __init__(self, port: int, *, from_host: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection(
            ("127.0.0.1", port), timeout=PATIENCE_S, source_address=(from_host, 0)
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._correlation_ids = itertools.count(1)
        self.closed = False

    def close(self) -> None:
        self.closed = True
        self._socket.close()

    def finish_sending(self) -> None:
        """Half-close: the broker reads an end, we go on reading."""
        self._socket.shutdown(socket.SHUT_WR)

    def send_bytes(self, data: bytes) -> None:
        # Where the broker has closed the connection already, reading tells.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def next_correlation_id(self) -> int:
        return next(self._correlation_ids)

    def send(
        self,
        api: str,
        version: int,
        fields: Mapping[str, Any],
        *,
        correlation_id: int | None = None,
        client_id: str | bytes | None = "compare",
        after: bytes = b"",
    ) -> Sent:
        """Send a well-formed request, with `after` behind its body but within its frame."""
        sent, data = self.prepare(
            api, version, fields, correlation_id=correlation_id, client_id=client_id, after=after
        )
        self.send_bytes(data)
        return sent

    def prepare(
        self,
        api: str,
        version: int,
        fields: Mapping[str, Any],
        *,
        correlation_id: int | None = None,
        client_id: str | bytes | None = "compare",
        after: bytes = b"",
    ) -> tuple[Sent, bytes]:
        """A request and its frame, not sent yet."""
        if correlation_id is None:
            correlation_id = self.next_correlation_id()
        start = header(API_KEYS[api], version, correlation_id, client_id=client_id)
        data = frame(start + body(api, version, fields) + after)
        return Sent(api, version, correlation_id, time.monotonic()), data

    def receive(self, sent: Sent, *, within_s: float = PATIENCE_S) -> Answer | Outcome:
        """The next answer, read as that of `sent`."""
        payload = self.receive_frame(within_s=within_s)
        if isinstance(payload, Outcome):
            return payload
        after_s = time.monotonic() - sent.at_s
        (correlation_id,) = struct.unpack_from(">i", payload)
        key = API_KEYS[sent.api]
        pos = 4
        if response_header_version(key, sent.version) >= 1:
            pos = 5
            assert payload[4] == 0, "tagged fields in a response header"
        response = APIS[key].response
        message, end = decoder(response, sent.version)(memoryview(payload), pos, len(payload))
        canonical = end == len(payload) and bytes(encode(message, sent.version)) == payload[pos:]
        return Answer(message, correlation_id, canonical, after_s)

    def receive_frame(self, *, within_s: float = PATIENCE_S) -> bytes | Outcome:
        """The payload of the next frame."""
        deadline_s = time.monotonic() + within_s
        needed = 4
        while True:
            if len(self._received) >= 4:
                (size,) = struct.unpack_from(">i", self._received)
                needed = 4 + size
                if len(self._received) >= needed:
                    payload = self._received[4:needed]
                    self._received = self._received[needed:]
                    return payload
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return Outcome.SILENCE
            self._socket.settimeout(left_s)
            try:
                data = self._socket.recv(max(65536, needed - len(self._received)))
            except TimeoutError:
                return Outcome.SILENCE
            except ConnectionResetError:
                data = b""
            if not data:
                self.close()
                return Outcome.CLOSED
            self._received += data
