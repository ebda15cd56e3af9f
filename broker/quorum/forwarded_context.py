"""A request that a broker hands on to the controller: whose it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from broker.network.context import RequestContext
from broker.security.principal import Principal
from protocol.errors import CodecError
from protocol.messages.broker_to_controller import DefaultPrincipalData
from protocol.wire.codec import decode

if TYPE_CHECKING:
    from broker.network.connection import Connection
    from protocol.apis import RequestHeader
    from protocol.wire.primitives import Bytes

_VERSION = b"\0\0"


class Sender(NamedTuple):
    """By whose connection it came, and whose it is."""

    connection: Connection
    principal: Principal
    host: str

    def context(self, header: RequestHeader) -> ForwardedContext:
        return ForwardedContext(self, header)


class ForwardedContext(RequestContext):
    """The client's, who is at another node."""

    is_forwarded = True

    __slots__ = ("_sender",)

    def __init__(self, sender: Sender, header: RequestHeader) -> None:
        super().__init__(
            sender.connection, header.api_key, header.api_version, header.correlation_id, header.client_id
        )
        self._sender = sender

    @property
    def principal(self) -> Principal:
        """The client, as its broker knows it."""
        return self._sender.principal

    def mute(self, throttle_ms: int) -> None:
        """The broker that handed it on does so, by what it is told: its connection is others' too
        (`RequestHandlerHelper.sendMaybeThrottle`)."""

    @property
    def peer_host(self) -> str:
        """The client's address."""
        return self._sender.host


def principal_of(data: Bytes | None) -> Principal:
    """As `DefaultKafkaPrincipalBuilder.deserialize`. Raises CodecError."""
    if data is None or bytes(data[:2]) != _VERSION:
        raise CodecError("a principal of no version that is known")
    found = decode(DefaultPrincipalData, 0, bytes(data[2:]))
    return Principal(found.type, found.name)
