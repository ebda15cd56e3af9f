"""OAUTHBEARER, server side (RFC 7628), and Kafka's unsecured tokens, which aren't signed.

Sources: Kafka's `OAuthBearerSaslServer`, `OAuthBearerClientInitialResponse`, `OAuthBearerUnsecuredJws`,
`OAuthBearerUnsecuredValidatorCallbackHandler`. The client isn't authenticated yet, so everything read here is
bounded.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, Protocol

from broker.security.sasl import InvalidCredentialsError, SaslRefusal

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

MOST_TOKEN_BYTES = 64 * 1024
"""The largest token. Kafka's only bound is `sasl.server.max.receive.size`, half a megabyte."""
MOST_BRACKETS = 512
"""The most objects and arrays in a part of a token, at any depth."""
FOR_EVER_MS = 2**63 - 1

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIRS = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_FIRST = re.compile(rf"n,(?:a=(?P<acts_as>{_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_AUTH = re.compile(r"(?P<scheme>[A-Za-z0-9_]+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_BASE64 = re.compile(r"[A-Za-z0-9_-]*")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_ACKNOWLEDGED = b"\x01"


class IllegalTokenError(Exception):
    """The token is refused. The text says why, for the log. `scope` is the scope that it lacks."""

    def __init__(self, why: str, scope: str | None = None) -> None:
        super().__init__(why)
        self.scope = scope


class ValidToken(NamedTuple):
    """The token's user, and when it expires, in ms since 1970."""

    user: str
    expires_ms: int


class TokenValidator(Protocol):
    """Validates tokens."""

    def __call__(self, token: str, now_ms: int, /) -> ValidToken:
        """Return the token's user. Raises IllegalTokenError."""
        ...


class OAuthBearerMechanism:
    """Takes one token. A client whose token is refused acknowledges that with a byte, and then gets an
    error."""

    by_token = False  # a delegation token

    def __init__(self, validate: TokenValidator, now_ms: Callable[[], int]) -> None:
        self._validate = validate
        self._now_ms = now_ms
        self._refusal: str | None = None
        self.user = ""
        self.expires_ms: int | None = None
        self.is_complete = False

    def evaluate(self, token: bytes) -> bytes:
        """Return nothing for a valid token, otherwise the reason for the refusal, in JSON. As with Kafka's
        handlers, extensions may have any value."""
        if token == _ACKNOWLEDGED and self._refusal is not None:
            raise SaslRefusal(self._refusal)
        self._refusal = None
        acts_as, bearer = _first_message(token)
        try:
            valid = self._validate(bearer, self._now_ms())
        except IllegalTokenError as error:
            self._refusal = (
                '{"status":"invalid_token"}'
                if error.scope is None
                else f'{{"status":"insufficient_scope", "scope":"{error.scope}"}}'
            )
            return self._refusal.encode()
        if acts_as not in ("", valid.user):
            raise SaslRefusal(
                f"Authentication failed: Client requested an authorization id ({acts_as}) that is different from "
                f"the token's principal name ({valid.user})"
            )
        self.user, self.expires_ms = valid
        self.is_complete = True
        return b""


def _first_message(message: bytes) -> tuple[str, str]:
    """Return whom to act as, and the token. Raises InvalidCredentialsError, without any part of the token."""
    match = _FIRST.fullmatch(message.decode(errors="replace"))
    if match is None:
        raise InvalidCredentialsError("the client's first message isn't in the format of OAUTHBEARER")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise InvalidCredentialsError("the client's first message has no bearer token")
    return match["acts_as"] or "", auth["token"]


# --- Parsing both kinds of tokens ---------------------------------------------------------------------------


def parts_of(token: str) -> list[str]:
    """Split a token into header, claims and signature. Raises IllegalTokenError."""
    if len(token) > MOST_TOKEN_BYTES:
        raise IllegalTokenError(f"it has {len(token)} bytes")
    parts = token.split(".", 3)
    if len(parts) != 3 or not parts[1]:
        raise IllegalTokenError("it doesn't have three parts")
    return parts


def decoded(part: str) -> str:
    """Decode URL-safe base64 without padding. Raises IllegalTokenError."""
    if _BASE64.fullmatch(part) is None or len(part) % 4 == 1:
        raise IllegalTokenError("malformed Base64 URL encoded value")
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)).decode()
    except UnicodeDecodeError:
        raise IllegalTokenError("malformed JSON") from None


def parsed(text: str, pairs: Callable[[list[tuple[str, Any]]], dict[str, Any]] = dict) -> dict[str, Any]:
    """Parse the object at the beginning of `text`. Raises IllegalTokenError, without any part of `text`."""
    if text.count("{") + text.count("[") > MOST_BRACKETS:
        raise IllegalTokenError("there is too much in it")
    try:
        value, _ = json.JSONDecoder(object_pairs_hook=pairs, parse_constant=_no_number).raw_decode(
            text.lstrip(" \t\r\n")
        )
    except (ValueError, RecursionError):
        raise IllegalTokenError("malformed JSON") from None
    if not isinstance(value, dict):
        raise IllegalTokenError("it isn't an object")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def text_of_user(user: str) -> str:
    """Return the user if it can be encoded. Raises IllegalTokenError."""
    try:
        user.encode()
    except UnicodeEncodeError:
        raise IllegalTokenError("the principal's name isn't Unicode") from None
    return user


def as_float(value: float) -> float:
    """Convert like Java's `doubleValue`: too large values become infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


# --- Unsigned tokens ----------------------------------------------------------------------------------------


class UnsecuredTokens:
    """Unsigned tokens, for tests, as in Kafka: a client may claim to be anybody. The options are in the JAAS
    line."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Raises ValueError for an invalid option."""
        self._principal_claim = options.get("unsecuredValidatorPrincipalClaimName", "").strip() or "sub"
        self._scope_claim = options.get("unsecuredValidatorScopeClaimName", "").strip() or "scope"
        self._required = options.get("unsecuredValidatorRequiredScope", "").split()
        if not all(map(_SCOPE.fullmatch, self._required)):
            raise ValueError("unsecuredValidatorRequiredScope has a character that no scope has")
        skew = options.get("unsecuredValidatorAllowableClockSkewMs", "").strip() or "0"
        if not skew.isdecimal() or int(skew) >= 2**31:
            raise ValueError("unsecuredValidatorAllowableClockSkewMs is milliseconds")
        self._skew_ms = int(skew)

    def __call__(self, token: str, now_ms: int, /) -> ValidToken:
        """Validate a token. Raises IllegalTokenError."""
        head, body, signature = parts_of(token)
        header, claims = parsed(decoded(head)), parsed(decoded(body))
        if header.get("alg") != "none":
            raise IllegalTokenError("Unsecured JWS must have 'none' for an algorithm")
        if signature:
            raise IllegalTokenError("Unsecured JWS must not contain a digital signature")
        scope = self._scope_of(claims)
        expires = _number(claims, "exp")
        if expires is None:
            raise IllegalTokenError("No expiration time in JWT")
        user = _java_text(claims.get(self._principal_claim, []))  # a list has no text, either
        if user is None or not user.strip():
            raise IllegalTokenError(f"No principal name in JWT claim: {self._principal_claim}")
        issued = _number(claims, "iat")
        if issued is not None and 1000 * issued > now_ms + self._skew_ms:
            raise IllegalTokenError("it was issued in the future")
        if now_ms - self._skew_ms >= 1000 * expires:
            raise IllegalTokenError("it has expired")
        if issued is not None and expires <= issued:
            raise IllegalTokenError("it expired before it was issued")
        if not scope.issuperset(self._required):
            raise IllegalTokenError("a scope is missing", f"[{', '.join(self._required)}]")
        return ValidToken(text_of_user(user), int(min(1000 * expires + 0.5, FOR_EVER_MS)))

    def _scope_of(self, claims: dict[str, Any]) -> frozenset[str]:
        """Return the scopes. As in Kafka, a text is one scope, even with spaces."""
        value = claims.get(self._scope_claim, [])
        if isinstance(value, list):
            texts = ["" if isinstance(each, list) else _java_text(each) or str(each) for each in value]
        else:
            text = _java_text(value)
            if text is None:
                raise IllegalTokenError("the scope is neither a text nor a list")
            texts = [text]
        return frozenset(filter(None, map(str.strip, texts)))


def _java_text(value: Any) -> str | None:
    """Return the text that Kafka makes of a value (`JsonNode.asText`): of anything but numbers and lists."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return "" if isinstance(value, dict) else None


def _number(claims: dict[str, Any], name: str) -> float | None:
    """Return a number, or None if there is none. Raises IllegalTokenError if the claim isn't a number."""
    if name not in claims:
        return None
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise IllegalTokenError(f"The '{name}' claim was not of type Number")
    return as_float(value)
