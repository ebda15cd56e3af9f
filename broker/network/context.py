"""What a handler knows of the request besides its body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.apis import APIS

if TYPE_CHECKING:
    from broker.network.connection import Connection
    from broker.security.authorizer import Principal


class RequestContext:
    """One request: who sent it, and by which header."""

    is_forwarded = False
    """Whether a broker handed it on, whose connection it came by."""

    __slots__ = (
        "api_key",
        "api_version",
        "client_id",
        "computed_s",
        "connection",
        "correlation_id",
        "is_between_nodes",
    )

    def __init__(
        self,
        connection: Connection,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.connection = connection
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.computed_s = 0.0  # in its name, in threads beside the loop
        self.is_between_nodes = False  # as its handler finds: no quota of requests holds

    def __str__(self) -> str:
        """Which API in which version."""
        api = APIS.get(self.api_key)
        return f"{self.api_key if api is None else api.name} v{self.api_version}"

    @property
    def sender(self) -> str:
        """Who sent it, as the end of a text."""
        return f" of {self.connection} client {self.client_id}"

    @property
    def principal(self) -> Principal:
        """Who sent it."""
        return self.connection.principal

    @property
    def peer_host(self) -> str:
        """The address that it came from."""
        return self.connection.peer_host

    def mute(self, throttle_ms: int) -> None:
        """Its sender is throttled for so long (KIP-219)."""
        self.connection.mute(throttle_ms)

    @property
    def listener_name(self) -> str:
        return self.connection.listener.name
