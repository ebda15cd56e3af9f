"""Request headers, which stand between a frame's size and its message.

    api_key int16 | api_version int16 | correlation_id int32 | client_id nullable string | tagged fields

The tagged fields are there from the API's first flexible version on; the client id is never a compact string.
Source: RequestHeader.json of Kafka; KIP-482.
"""

import struct
from typing import NamedTuple

from protocol.apis import APIS
from protocol.errors import CodecError
from protocol.wire.codec import encode
from protocol.wire.primitives import Bytes, skip_tagged_fields
from protocol.wire.schema import Message

_FIXED = struct.Struct(">hhih")
_CORRELATION_ID = struct.Struct(">i")
_new_tuple = tuple.__new__  # each request makes one: a call of the class is twice as slow


class RequestHeader(NamedTuple):
    """`body_pos` is where the message begins. `client_id` is None where it's null, by any negative length."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_pos: int


def decode_request_header(data: Bytes, pos: int, end: int) -> RequestHeader:
    """The header in [pos, end). Whether the version is one that we serve is the caller's to ask.

    CodecError where it's cut short, and where a broker has no such API: Kafka closes the connection on both.
    """
    if end - pos < _FIXED.size:
        raise CodecError(f"a request header cut short: {end - pos} bytes")
    api_key, api_version, correlation_id, length = _FIXED.unpack_from(data, pos)
    pos += _FIXED.size
    api = APIS.get(api_key)
    if api is None:
        raise CodecError(f"a broker has no API {api_key}")
    client_id = None
    if length >= 0:
        if length > end - pos:
            raise CodecError(f"a client id of {length} bytes in a header with {end - pos} left")
        client_id = str(data[pos : pos + length], "utf-8", "replace")
        pos += length
    if api_version >= api.first_flexible:
        pos = pos + 1 if pos < end and not data[pos] else skip_tagged_fields(data, pos, end)
    return _new_tuple(RequestHeader, (api_key, api_version, correlation_id, client_id, pos))


def encode_request_frame(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request as a client sends it, its size in front. CodecError for what the version has no form for."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    body = encode(request, version)
    tags = b"\0" if APIS[request.API_KEY].request_header_version(version) == 2 else b""
    header = _FIXED.pack(request.API_KEY, version, correlation_id, length) + name + tags
    return b"".join(((len(header) + len(body)).to_bytes(4, "big"), header, body))


def response_body(data: Bytes, request: type[Message], version: int, correlation_id: int) -> int:
    """Where the answer to a request begins, behind its header. CodecError where it is another one's."""
    if len(data) < _CORRELATION_ID.size:
        raise CodecError(f"a response header cut short: {len(data)} bytes")
    (found,) = _CORRELATION_ID.unpack_from(data)
    if found != correlation_id:
        raise CodecError(f"the answer to request {found} where {correlation_id} was asked")
    if not APIS[request.API_KEY].response_header_version(version):
        return _CORRELATION_ID.size
    return skip_tagged_fields(data, _CORRELATION_ID.size, len(data))
