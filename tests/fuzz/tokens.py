"""Tokens of OAUTHBEARER: the message that brings one, what stands in it, its signature, and the keys that verify it."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any

from barnabas.tokens import TokenIssuer, unsecured_token
from broker.security.oauthbearer import IllegalTokenError, OAuthBearerMechanism, UnsecuredTokens
from broker.security.sasl import InvalidCredentialsError, SaslRefusal
from broker.security.signed_tokens import JwksError, SignedTokens, SignedTokenSettings, keys_of

NOW_MS = 1_000_000_000_000
_TIMES = {"iat": NOW_MS // 1000, "exp": NOW_MS // 1000 + 60}
_UNSECURED = UnsecuredTokens({"unsecuredValidatorAllowableClockSkewMs": "1000"})
_SPLIT = b"\xfe|\xfe"  # between the parts of one token, before they are in base64


def messages() -> list[bytes]:
    """A client's first ones, as RFC 7628 has them."""
    token = unsecured_token("alice", **_TIMES)
    return [
        f"n,,\x01auth=Bearer {token}\x01\x01".encode(),
        f"n,a=alice,\x01auth=Bearer {token}\x01host=x\x01port=1\x01\x01".encode(),
    ]


def message(data: bytes) -> None:
    """It, and what its client says behind a refusal."""
    mechanism = OAuthBearerMechanism(_UNSECURED, lambda: NOW_MS)
    with suppress(SaslRefusal, InvalidCredentialsError):
        mechanism.evaluate(data)
        if not mechanism.is_complete:
            mechanism.evaluate(b"\x01")
    assert not mechanism.is_complete or mechanism.user


def unsecured_parts() -> list[bytes]:
    """Header and claims in JSON."""
    claims = {"sub": "alice", "scope": ["a", "b"], **_TIMES}
    return [_SPLIT.join((b'{"alg":"none"}', json.dumps(claims).encode()))]


def unsecured(data: bytes) -> None:
    """Such a token: whoever sends it may say what it likes, and is somebody or nobody."""
    head, _, body = data.partition(_SPLIT)
    with suppress(IllegalTokenError):
        assert _UNSECURED(f"{_encoded(head)}.{_encoded(body)}.", NOW_MS).user


_ISSUER = TokenIssuer(issuer="https://idp", audience="kafka")
_ISSUER.close()  # its keys are all that is asked of it
_JWKS = json.dumps(_ISSUER.jwks()).encode()


class _Known:
    keys = keys_of(_JWKS)

    def now(self) -> Any:
        return self.keys

    def missing(self, key_id: object, now_ms: int) -> None: ...


_SIGNED = SignedTokens(
    SignedTokenSettings(frozenset(("kafka",)), "https://idp", 30, "scope", "sub"), _Known()
)


def signed_parts() -> list[bytes]:
    """Of a signed token: header, claims, signature."""
    return [_SPLIT.join(map(_decoded, _ISSUER.token("alice", **_TIMES).split(".")))]


def signed(data: bytes) -> None:
    """Whatever is done to it, it is alice's or nobody's."""
    with suppress(IllegalTokenError):
        assert _SIGNED(".".join(map(_encoded, data.split(_SPLIT))), NOW_MS).user == "alice"


def key_sets() -> list[bytes]:
    """As an issuer serves them."""
    return [_JWKS]


def key_set(data: bytes) -> None:
    """One whose issuer, or whoever stands before it, is out of its mind."""
    with suppress(JwksError):
        keys_of(data)


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
