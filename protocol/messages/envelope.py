"""Envelope (58): a client's request that a broker hands on to the controller, whole, with who sent it (KIP-590).

`request_data` begins with the request's header and `response_data` with the answer's, both as the client has them.
`request_principal` is an int16 0, and `DefaultPrincipalData`.
"""

from protocol.wire.primitives import Bytes
from protocol.wire.schema import Message, binary, boolean, int16, string


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    request_data: Bytes = binary("0+")
    request_principal: Bytes | None = binary("0+", nullable="0+")
    client_host_address: Bytes = binary("0+")


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    response_data: Bytes | None = binary("0+", nullable="0+", default=None)
    error_code: int = int16("0+")


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str = string("0+")
    name: str = string("0+")
    token_authenticated: bool = boolean("0+")
