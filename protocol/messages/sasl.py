"""SaslHandshake (17) and SaslAuthenticate (36).

SaslHandshake: v1 is followed by SaslAuthenticate requests, v0 by bare tokens (KIP-152). SaslAuthenticate:
v1 the session's lifetime (KIP-368), v2 flexible.
"""

from protocol.wire.schema import Message, array, binary, int16, int64, string


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = binary("0+")


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = binary("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
