"""Delegation tokens (KIP-48): their secrets, and signing in with them.

The metadata log has each token without its secret. The secret is the HMAC-SHA-512 of the token's id with
`delegation.token.secret.key`, so that key gives access to every token. A client signs in with SCRAM: the id
is its name, and the HMAC in base64 its password. Sources: Kafka's `DelegationTokenManager`,
`DelegationTokenCache`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.controller.scram_decisions import HASHES, derived_keys
from broker.security.authorizer import Principal
from broker.security.sasl import MIN_ITERATIONS, ScramCredential, TokenCredential
from protocol.messages.metadata_records import DelegationTokenRecord

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage

SECRET_KEY = "delegation.token.secret.key"  # noqa: S105 - the setting's name
MOST_CREDENTIALS = 1_000
"""How many tokens' credentials to keep. Others are derived again, which takes some milliseconds each."""
_SALT_BYTES = 16


class TokenSettings:
    """The secret, and how long tokens are valid in ms, with and without renewal. It has no repr that would
    show the secret."""

    __slots__ = ("_secret", "expiry_time_ms", "max_lifetime_ms")

    def __init__(self, secret: bytes, max_lifetime_ms: int, expiry_time_ms: int) -> None:
        self._secret = secret
        self.max_lifetime_ms = max_lifetime_ms
        self.expiry_time_ms = expiry_time_ms

    def hmac_of(self, token_id: str) -> bytes:
        """Return the token's secret."""
        return hmac.digest(self._secret, token_id.encode(), "sha512")


class Settings(Protocol):
    """The node's settings, as far as they are used here."""

    def get_string(self, name: str) -> str | None: ...

    def get_int(self, name: str) -> int: ...


def token_settings(config: Settings) -> TokenSettings | None:
    """Return the settings of tokens. None without a secret: then there are no tokens."""
    secret = config.get_string(SECRET_KEY)
    if not secret:
        return None
    return TokenSettings(
        secret.encode(),
        config.get_int("delegation.token.max.lifetime.ms"),
        config.get_int("delegation.token.expiry.time.ms"),
    )


def principal_of_text(text: str) -> Principal:
    """Parse `Type:name`, the form in records."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)


# --- Signing in ---------------------------------------------------------------------------------------------


class _Derived(NamedTuple):
    """The keys of one token for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes


class TokenCredentials:
    """The SCRAM credentials of tokens. They are derived when first needed; Kafka derives them when it creates
    the token."""

    def __init__(self, settings: TokenSettings | None, draw: Callable[[int], bytes]) -> None:
        """`draw` makes a salt."""
        self._settings = settings
        self._draw = draw
        self._derived: dict[tuple[int, str], _Derived] = {}

    def find(self, image: ClusterImage, mechanism: int, token_id: str) -> TokenCredential | None:
        """Return the credential with which the token's owner signs in, for the mechanism's code. None if
        there is no such token."""
        record = image.kept.find(DelegationTokenRecord, token_id)
        if self._settings is None or not isinstance(record, DelegationTokenRecord):
            return None
        derived = self._derived.pop((mechanism, token_id), None)
        if derived is None:
            derived = self._derive(self._settings.hmac_of(token_id), mechanism)
            if len(self._derived) >= MOST_CREDENTIALS:
                del self._derived[next(iter(self._derived))]
        self._derived[mechanism, token_id] = derived  # moved to the end: the least recently used go first
        return TokenCredential(
            principal_of_text(record.owner).name,
            record.expiration_timestamp,
            ScramCredential(*derived, MIN_ITERATIONS),
        )

    def _derive(self, secret: bytes, mechanism: int) -> _Derived:
        salt = self._draw(_SALT_BYTES)
        password = base64.b64encode(secret)
        salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password, salt, MIN_ITERATIONS)
        return _Derived(salt, *derived_keys(mechanism, salted))
