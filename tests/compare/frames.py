"""Scripts' requests from plain dicts: messages, bodies, and headers with the client id of all recordings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from protocol.apis import APIS
from protocol.wire.codec import encode
from protocol.wire.schema import Message
from tests.support import wire

from .plain import message_from

CLIENT_ID = "compare"
API_KEYS = {api.name: api.key for api in APIS.values()}
PATIENCE_S = 10.0
"""How long to wait for an answer that must come. A correct broker never takes that long."""

header = partial(wire.header, client_id=CLIENT_ID)


def message(api: str, version: int, fields: Mapping[str, Any]) -> Message:
    """Return the request that the dict describes."""
    found: Message = message_from(APIS[API_KEYS[api]].request, fields, version)
    return found


def body(api: str, version: int, fields: Mapping[str, Any]) -> bytes:
    return bytes(encode(message(api, version, fields), version))


class Client(wire.Client):
    """A client that takes requests as dicts, and is less patient than others."""

    patience_s = PATIENCE_S

    def say(self, api: str, version: int, fields: Mapping[str, Any], **how: Any) -> wire.Sent:
        """Send a well-formed request. `how` is as for `send`."""
        return self.send(message(api, version, fields), version, **how)

    def prepare(
        self, api: str, version: int, fields: Mapping[str, Any], **how: Any
    ) -> tuple[wire.Sent, bytes]:
        """Return a request and its frame, without sending it."""
        return self.made(message(api, version, fields), version, **how)


def connect(port: int, *, from_host: str = "127.0.0.1") -> Client:
    return Client(wire.Socket("127.0.0.1", port, from_host=from_host), client_id=CLIENT_ID)


def signed_in(port: int, user: str, password: str) -> Client:
    """Sign in by SASL PLAIN. Raises ConnectionError if that is refused."""
    client = connect(port)
    client.receive(client.say("SaslHandshake", 1, {"mechanism": "PLAIN"}))
    auth_bytes = b"\0".join((b"", user.encode(), password.encode()))
    answer = client.receive(client.say("SaslAuthenticate", 2, {"auth_bytes": auth_bytes}))
    if not isinstance(answer, wire.Answer) or answer.message.error_code:
        client.close()
        raise ConnectionError(f"{user} may not sign in: {answer}")
    return client
