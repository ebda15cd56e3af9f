"""Opening a connection to another node, before anything else is sent over it.

    versions, session = await opened(entrance, software_version)

By then it is encrypted (`PeerConnection`). The node signs in, if the listener wants that, and asks for the
versions. Sources: `SaslClientAuthenticator`, `NetworkClient`; signing in again, KIP-368.
"""

from __future__ import annotations

import logging
import types
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from protocol.errors import Error, error_name
from protocol.messages.metadata import ApiVersionsRequest, ApiVersionsResponse

if TYPE_CHECKING:
    from broker.environment.scheduler import Chance
    from broker.security.sasl_client import Credentials
    from protocol.wire.schema import Message

log = logging.getLogger("barnabas.peers")

SOFTWARE_NAME = "barnabas"

QUIET_S = 10.0
"""How long to wait between log lines about a node that refuses this one: it tries again and again."""

_SOONEST_PERCENT, _LATEST_PERCENT = 85, 95
"""When to sign in again, in percent of a session's life. It varies so that not all nodes do so at once."""

Versions = Mapping[int, tuple[int, int]]
"""The first and last version of each API."""
Asked = tuple["Message", int]
"""A request, and the version to send it in."""


class NotLetInError(Exception):
    """Why the other node refuses this one, or can't be trusted."""


class Channel(Protocol):
    """The encryption of one connection (`broker.network.tls_channel`)."""

    is_ready: bool
    """True once both sides have agreed on keys."""

    def room(self) -> memoryview:
        """Where received bytes go."""
        ...

    def came(self, count: int) -> None:
        """Note received bytes. Like all methods below, raises OSError if they are invalid."""
        ...

    def shake(self) -> bool:
        """Continue the handshake. Returns True once it is complete."""
        ...

    def read(self, into: memoryview) -> int:
        """Read decrypted bytes, as many as fit. Returns 0 if there are none for now."""
        ...

    def encrypt(self, data: bytes) -> None:
        """Encrypt bytes for `to_send`."""
        ...

    def to_send(self) -> bytes:
        """Return the bytes to send."""
        ...


class Entrance:
    """How this node connects to one listener of other nodes.

    - `credentials`: those it signs in with; None if nobody signs in.
    - `encrypt`: starts the encryption of a connection to a host; None if nothing is encrypted. Raises
      ValueError for an impossible host.
    """

    def __init__(
        self,
        name: str = "",
        credentials: Credentials | None = None,
        encrypt: Callable[[str], Channel] | None = None,
        chance: Chance | None = None,
    ) -> None:
        """`name` is the listener's. Credentials need `chance`."""
        self.name = name
        self.credentials = credentials
        self.encrypt = encrypt
        self._chance = chance
        self._quiet_until_s: dict[str, float] = {}

    @property
    def is_guarded(self) -> bool:
        """True if the listener doesn't let everybody in."""
        return self.credentials is not None or self.encrypt is not None

    def nonce(self) -> str:
        """A nonce for SCRAM."""
        assert self._chance is not None
        return self._chance.token_hex(16)

    def again_after_s(self, lifetime_ms: int) -> float:
        """How long after signing in to sign in again, for a session's lifetime."""
        assert self._chance is not None
        return lifetime_ms * self._chance.randrange(_SOONEST_PERCENT * 10, _LATEST_PERCENT * 10) / 1_000_000

    def complain(self, address: str, why: str, now_s: float) -> None:
        """Log now and then that a node refuses this one."""
        quiet = self._quiet_until_s
        if now_s < quiet.get(address, 0.0):
            return
        self._quiet_until_s = {each: until for each, until in quiet.items() if until > now_s}
        self._quiet_until_s[address] = now_s + QUIET_S
        as_whom = "" if self.credentials is None else f" as {self.credentials.user}"
        log.error("%s doesn't let this node in%s (listener %s): %s", address, as_whom, self.name, why)


OPEN = Entrance()
"""For listeners that let everybody in."""


class OpenedConnection(NamedTuple):
    """A connection that is ready for requests. `lifetime_ms` is its session's lifetime, 0 if it doesn't
    end."""

    versions: Versions
    lifetime_ms: int


@types.coroutine
def _ask(request: Message, version: int) -> Generator[Asked, Any, Any]:
    """Send a request and return the answer."""
    return (yield request, version)


async def opened(entrance: Entrance, software_version: str) -> OpenedConnection:
    """Open a connection. The owner of the connection drives this: it yields requests, and receives answers.
    Raises NotLetInError."""
    lifetime_ms = 0
    if entrance.credentials is not None:
        # In version 0, as Kafka's nodes ask: a server would take a version that it can't read for a token.
        known = _versions_in(await _ask(ApiVersionsRequest(), 0))
        lifetime_ms = await signed_in(entrance, known)
    return OpenedConnection(await _asked_for_versions(software_version), lifetime_ms)


async def _asked_for_versions(software_version: str) -> Versions:
    version = ApiVersionsRequest.VERSIONS[1]
    while True:
        answer = await _ask(
            ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=software_version),
            version,
        )
        if answer.error_code != Error.UNSUPPORTED_VERSION or not version:
            return _versions_in(answer)
        _, last = _told(answer).get(ApiVersionsRequest.API_KEY, (0, 0))
        version = min(max(last, 0), version - 1)


def _versions_in(answer: ApiVersionsResponse) -> Versions:
    if answer.error_code:
        raise NotLetInError(f"it refuses to tell its versions: error {answer.error_code}")
    return _told(answer)


def _told(answer: ApiVersionsResponse) -> Versions:
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


async def signed_in(entrance: Entrance, versions: Versions) -> int:
    """Sign in. Returns how long the session lasts in ms, 0 if it doesn't end. Driven like `opened`. Raises
    NotLetInError."""
    # Imported here, so that nodes which sign in nowhere don't load it.
    from broker.security.sasl_client import UntrustedServerError
    from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest

    credentials = entrance.credentials
    assert credentials is not None
    mechanism = credentials.mechanism
    shaken = await _ask(
        SaslHandshakeRequest(mechanism=mechanism), _common_version(versions, SaslHandshakeRequest, 1)
    )
    if shaken.error_code:
        enabled = ", ".join(shaken.mechanisms)
        raise NotLetInError(
            f"{error_name(shaken.error_code)}: mechanism {mechanism}, and {enabled or 'none'} are enabled there"
        )
    version = _common_version(versions, SaslAuthenticateRequest, 0)
    conversation = credentials.begin(entrance.nonce)
    token: bytes | None = conversation.first()
    lifetime_ms = 0
    while token is not None:
        told = await _ask(SaslAuthenticateRequest(auth_bytes=token), version)
        if told.error_code:
            raise NotLetInError(told.error_message or error_name(told.error_code))
        lifetime_ms = max(lifetime_ms, told.session_lifetime_ms)
        try:
            token = conversation.evaluate(bytes(told.auth_bytes))
        except UntrustedServerError as error:
            raise NotLetInError(str(error)) from None
    return lifetime_ms


def _common_version(versions: Versions, request: type[Message], least: int) -> int:
    version = min(request.VERSIONS[1], versions.get(request.API_KEY, (0, -1))[1])
    if version < least:
        raise NotLetInError(f"it has no version of {request.__name__} that this node knows")
    return version
