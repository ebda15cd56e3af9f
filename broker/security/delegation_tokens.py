"""Delegation tokens (KIP-48): their secrets, and signing in by them.

A token stands in the metadata log without its secret, which is the HMAC-SHA-512 of its id by
`delegation.token.secret.key`: whoever knows that key knows every token. A client signs in by SCRAM with the id as
its name and the HMAC, in base64, as its password. Sources: Kafka's `DelegationTokenManager`, `DelegationTokenCache`.
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
"""Of how many tokens the credentials are held. Of the others they are derived anew, some milliseconds each."""
_SALT_BYTES = 16


class TokenSettings:
    """The secret, and in ms for how long a token is good, renewed or not. It has no repr that would show the secret."""

    __slots__ = ("_secret", "expiry_time_ms", "max_lifetime_ms")

    def __init__(self, secret: bytes, max_lifetime_ms: int, expiry_time_ms: int) -> None:
        self._secret = secret
        self.max_lifetime_ms = max_lifetime_ms
        self.expiry_time_ms = expiry_time_ms

    def hmac_of(self, token_id: str) -> bytes:
        """The token's secret."""
        return hmac.digest(self._secret, token_id.encode(), "sha512")


class Settings(Protocol):
    """The node's, as far as they are read here."""

    def get_string(self, name: str) -> str | None: ...

    def get_int(self, name: str) -> int: ...


def token_settings(config: Settings) -> TokenSettings | None:
    """None where no secret is given: there are no tokens then."""
    secret = config.get_string(SECRET_KEY)
    if not secret:
        return None
    return TokenSettings(
        secret.encode(),
        config.get_int("delegation.token.max.lifetime.ms"),
        config.get_int("delegation.token.expiry.time.ms"),
    )


def principal_of_text(text: str) -> Principal:
    """Of `Type:name`, as the records have it."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)


# --- Signing in ---------------------------------------------------------------------------------------------


class _Derived(NamedTuple):
    """Of one token, for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes


class TokenCredentials:
    """What SCRAM asks of tokens. It is derived when first asked for; Kafka does so when the token is made."""

    def __init__(self, settings: TokenSettings | None, draw: Callable[[int], bytes]) -> None:
        """`draw` makes a salt."""
        self._settings = settings
        self._draw = draw
        self._derived: dict[tuple[int, str], _Derived] = {}

    def find(self, image: ClusterImage, mechanism: int, token_id: str) -> TokenCredential | None:
        """By which the token's owner signs in, by the code of the mechanism; None where there is no such token."""
        record = image.kept.find(DelegationTokenRecord, token_id)
        if self._settings is None or not isinstance(record, DelegationTokenRecord):
            return None
        derived = self._derived.pop((mechanism, token_id), None)
        if derived is None:
            derived = self._derive(self._settings.hmac_of(token_id), mechanism)
            if len(self._derived) >= MOST_CREDENTIALS:
                del self._derived[next(iter(self._derived))]
        self._derived[mechanism, token_id] = derived  # the last one: those that nobody asks for go first
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
