"""The context of a request: all that a handler knows beside its body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.apis import APIS

if TYPE_CHECKING:
    from broker.network.connection import Connection
    from broker.security.authorizer import Principal


class RequestContext:
    """One request's sender and header."""

    is_forwarded = False
    """True if a broker forwarded it. It then came by that broker's connection."""

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
        self.computed_s = 0.0  # time that threads beside the loop have spent on it
        self.is_between_nodes = False  # set by its handler: no request quota applies

    def __str__(self) -> str:
        """The API and its version."""
        api = APIS.get(self.api_key)
        return f"{self.api_key if api is None else api.name} v{self.api_version}"

    @property
    def sender(self) -> str:
        """The client, as the end of a sentence in the log."""
        return f" of {self.connection} client {self.client_id}"

    @property
    def principal(self) -> Principal:
        """The principal that sent it."""
        return self.connection.principal

    @property
    def peer_host(self) -> str:
        """The address that it came from."""
        return self.connection.peer_host

    def mute(self, throttle_ms: int) -> None:
        """Throttle the sender for so long (KIP-219)."""
        self.connection.mute(throttle_ms)

    @property
    def listener_name(self) -> str:
        return self.connection.listener.name
