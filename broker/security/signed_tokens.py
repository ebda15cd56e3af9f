"""Signed tokens (JWT, RFC 7519), and the keys that verify them (JWKS), from a URL or a file.

`joserfc`, of the extra `security`, verifies signatures; no other file imports it. Sources: Kafka's
`BrokerJwtValidator`, `ClaimValidationUtils`, `RefreshingHttpsJwks`, `JwksFileVerificationKeyResolver`, and
what jose4j does for them.
"""

from __future__ import annotations

import http.client
import logging
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from broker.security.oauthbearer import (
    FOR_EVER_MS,
    MOST_TOKEN_BYTES,
    IllegalTokenError,
    ValidToken,
    as_float,
    decoded,
    parsed,
    parts_of,
    text_of_user,
)

if TYPE_CHECKING:
    from joserfc.jws import JWSRegistry

log = logging.getLogger("barnabas.oauthbearer")

ALGORITHMS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", None),
}
"""By name: the kind of key and its curve. None uses a shared secret (HS256): published keys aren't secret."""
RSA_BITS = range(2048, 8193)

MOST_KEYS = 64
MOST_JWKS_BYTES = 256 * 1024
LONGEST_FETCH_S = 10.0
"""The limit for the last byte, even if bytes keep coming. Each wait for the network has the same limit."""
_CHUNK_BYTES = 16 * 1024

MOST_MISSING_KEYS = 16
LONGEST_KEY_ID = 1000
MISSING_KEY_MS = 60_000
MIN_BETWEEN_REFRESHES_MS = 1_000
"""Whatever key ids clients make up, the keys aren't fetched more often."""


class JwksError(Exception):
    """The keys aren't available. The text says why."""


# --- Keys ---------------------------------------------------------------------------------------------------


class _Key(NamedTuple):
    """A key that verifies signatures."""

    kind: str
    curve: str | None
    key_id: str | None
    algorithm: str | None
    key: Any


def keys_of(text: bytes) -> tuple[_Key, ...]:
    """Return the keys in a JWKS (RFC 7517) that can verify signatures, and ignore others. Raises
    JwksError."""
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    try:
        listed = parsed(text.decode()).get("keys")
    except (IllegalTokenError, UnicodeDecodeError) as error:
        raise JwksError(f"not a set of keys: {error}") from None
    if not isinstance(listed, list) or len(listed) > MOST_KEYS:
        raise JwksError(f"not a set of up to {MOST_KEYS} keys")
    keys = []
    for each in listed:
        if not isinstance(each, dict) or each.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        operations = each.get("key_ops", ["verify"])
        if each.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
            continue
        public = {name: each[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in each}
        try:
            key: Any = import_key(public)
            if each["kty"] == "RSA" and key.raw_value.key_size not in RSA_BITS:
                continue
        except (JoseError, ValueError, TypeError, KeyError, AttributeError):
            continue
        curve = each.get("crv")
        keys.append(_Key(each["kty"], curve, each.get("kid"), each.get("alg"), key))
    return tuple(keys)


def chosen(keys: tuple[_Key, ...], header: dict[str, Any]) -> Any:
    """Return the key for a token's header, or None (jose4j's `VerificationJwkSelector`)."""
    kind, curve = ALGORITHMS[header["alg"]]
    fitting = [each for each in keys if each.kind == kind]
    if header.get("kid") is not None:
        fitting = [each for each in fitting if each.key_id == header["kid"]]
    if len(fitting) > 1:
        fitting = [each for each in fitting if each.algorithm in (None, header["alg"])]
    if curve is not None:
        fitting = [each for each in fitting if each.curve == curve]
    return fitting[0].key if fitting else None


class Keys(Protocol):
    """A source of keys."""

    def now(self) -> tuple[_Key, ...]:
        """Return the known keys. Raises JwksError."""
        ...

    def missing(self, key_id: object, now_ms: int) -> None:
        """Note that a token was signed with an unknown key."""
        ...


class FileKeys:
    """Keys in a file, which is read again when it has changed."""

    def __init__(self, path: str) -> None:
        """Raises JwksError."""
        self._path = path
        self._changed: tuple[int, int] | None = None
        self._keys: tuple[_Key, ...] = ()
        self.now()

    def now(self) -> tuple[_Key, ...]:
        """Return the keys in the file. Raises JwksError, so that nobody signs in with keys that were
        removed."""
        try:
            status = os.stat(self._path)
            changed = (status.st_mtime_ns, status.st_size)
            if changed != self._changed:
                with open(self._path, "rb") as file:
                    text = file.read(MOST_JWKS_BYTES + 1)
                if len(text) > MOST_JWKS_BYTES:
                    raise JwksError(f"{self._path} has more than {MOST_JWKS_BYTES} bytes")
                self._keys = keys_of(text)
                self._changed = changed
        except OSError as error:
            raise JwksError(f"can't read {self._path}: {error.strerror}") from None
        return self._keys

    def missing(self, key_id: object, now_ms: int) -> None:
        """Do nothing: the file has all keys."""


class FetchedKeys:
    """Keys from a URL. A thread fetches them periodically, and when a token names an unknown key
    (KIP-768)."""

    def __init__(
        self,
        fetch: Callable[[], bytes],
        *,
        backoff_ms: int,
        backoff_max_ms: int,
        in_thread: Callable[[Callable[[], None]], None],
        sleep: Callable[[float], None],
    ) -> None:
        """`fetch` raises JwksError. `in_thread` starts a thread, one at a time. The constructor waits for the
        first fetch, and raises JwksError if that fails: without keys nobody could sign in."""
        self._fetch = fetch
        self._sleep = sleep
        self._backoff = backoff_ms, backoff_max_ms
        self._in_thread = in_thread
        self._is_fetching = False
        self._asked_ms: int | None = None
        self._missing: OrderedDict[str, int] = OrderedDict()
        self._keys = self._tried()

    def now(self) -> tuple[_Key, ...]:
        """Return the keys of the last successful fetch."""
        return self._keys

    def refresh(self) -> None:
        """Fetch the keys again, unless that is in progress."""
        if not self._is_fetching:
            self._is_fetching = True
            self._in_thread(self._fetch_again)

    def missing(self, key_id: object, now_ms: int) -> None:
        """Fetch the keys: for one id once a minute, for all ids once a second."""
        if not isinstance(key_id, str) or len(key_id) > LONGEST_KEY_ID:
            return
        if now_ms < self._missing.get(key_id, now_ms):
            return
        if self._asked_ms is not None and now_ms - self._asked_ms < MIN_BETWEEN_REFRESHES_MS:
            return
        self._asked_ms = now_ms
        self._missing[key_id] = now_ms + MISSING_KEY_MS
        self._missing.move_to_end(key_id)
        if len(self._missing) > MOST_MISSING_KEYS:
            self._missing.popitem(last=False)
        self.refresh()

    def _fetch_again(self) -> None:
        """Fetch the keys in the thread."""
        try:
            self._keys = self._tried()
        except JwksError as error:
            log.warning("can't fetch the keys that verify tokens, keeping the old ones: %s", error)
        finally:
            self._is_fetching = False

    def _tried(self) -> tuple[_Key, ...]:
        """Fetch the keys, and try again for as long as the settings say. Raises the last JwksError."""
        wait_ms, longest_ms = self._backoff
        left_ms = longest_ms
        while True:
            try:
                return keys_of(self._fetch())
            except JwksError:
                wait_ms = min(wait_ms, left_ms)
                if wait_ms <= 0:
                    raise
            self._sleep(wait_ms / 1000)
            left_ms, wait_ms = left_ms - wait_ms, 2 * wait_ms


def fetched(url: str, monotonic_s: Callable[[], float]) -> bytes:
    """Fetch an http or https URL, without following redirects or using proxies. Raises JwksError."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    ends_s = monotonic_s() + LONGEST_FETCH_S
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # the rest may be secret
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=LONGEST_FETCH_S)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", path, headers={"Accept": "application/json", "Connection": "close"})
            with connection.getresponse() as answer:
                if answer.status != 200:
                    raise JwksError(f"{place} answers with status {answer.status}")
                return _read(answer, place, lambda: monotonic_s() > ends_s)
        finally:
            connection.close()
    except OSError as error:
        raise JwksError(f"{place} can't be fetched: {type(error).__name__}: {error}") from None
    except (http.client.HTTPException, ValueError) as error:  # the text may have the whole URL
        raise JwksError(f"{place} can't be fetched: {type(error).__name__}") from None


def _read(answer: http.client.HTTPResponse, place: str, is_late: Callable[[], bool]) -> bytes:
    text = bytearray()
    while chunk := answer.read1(_CHUNK_BYTES):
        text += chunk
        if len(text) > MOST_JWKS_BYTES:
            raise JwksError(f"{place} answers with more than {MOST_JWKS_BYTES} bytes")
        if is_late():
            raise JwksError(f"{place} takes longer than {LONGEST_FETCH_S:g} s")
    if answer.length:
        raise JwksError(f"{place} ended {answer.length} bytes too early")
    return bytes(text)


def file_of(url: str) -> str:
    """Return the path in a `file:` URL."""
    return unquote(urlsplit(url).path)


# --- Tokens -------------------------------------------------------------------------------------------------


class SignedTokenSettings(NamedTuple):
    """A listener's requirements for tokens. Without audiences or an issuer, those aren't checked."""

    audiences: frozenset[str]
    issuer: str | None
    skew_s: int
    scope_claim: str
    user_claim: str


class SignedTokens:
    """Verifies signed tokens."""

    def __init__(self, settings: SignedTokenSettings, keys: Keys) -> None:
        self._settings = settings
        self._keys = keys
        self._registry = _registry()

    def __call__(self, token: str, now_ms: int, /) -> ValidToken:
        """Verify a token. Raises IllegalTokenError."""
        head, body, signature = parts_of(token)
        if not signature:
            raise IllegalTokenError("it isn't signed")
        header = parsed(decoded(head), _once)
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise IllegalTokenError("its algorithm isn't one of " + ", ".join(ALGORITHMS))
        try:
            key = chosen(self._keys.now(), header)
        except JwksError as error:
            raise IllegalTokenError(str(error)) from None
        if key is None:
            self._keys.missing(header.get("kid"), now_ms)
            raise IllegalTokenError("there is no key for it")
        self._verify(token, key, algorithm)
        claims = parsed(decoded(body), _once)
        self._check_who(claims)
        return self._valid(claims, now_ms)

    def _verify(self, token: str, key: Any, algorithm: str) -> None:
        from joserfc.errors import JoseError, SecurityWarning
        from joserfc.jws import deserialize_compact

        try:
            with warnings.catch_warnings():  # EdDSA stands for two curves, and is out of fashion
                warnings.simplefilter("ignore", SecurityWarning)
                deserialize_compact(token, key, [algorithm], self._registry)
        except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise IllegalTokenError(f"its signature is wrong: {type(error).__name__}") from None

    def _check_who(self, claims: dict[str, Any]) -> None:
        """Check whom the token is for, and who issued it."""
        for name in ("iss", "sub", "jti"):
            if name in claims and not isinstance(claims[name], str | None):
                raise IllegalTokenError(f"{name} isn't a text")
        settings = self._settings
        if settings.audiences:
            audience = claims.get("aud")
            told = audience if isinstance(audience, list) else [audience]
            if not all(isinstance(each, str) for each in told) or settings.audiences.isdisjoint(told):
                raise IllegalTokenError("it is for another audience")
        if settings.issuer is not None and claims.get("iss") != settings.issuer:
            raise IllegalTokenError("it is from another issuer")

    def _valid(self, claims: dict[str, Any], now_ms: int) -> ValidToken:
        """Check when the token is valid. Return its user."""
        expires, issued, not_before = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
        if expires is None or issued is None:
            raise IllegalTokenError("exp or iat is missing")
        now_s, skew_s = now_ms // 1000, self._settings.skew_s
        if now_s - skew_s >= expires:
            raise IllegalTokenError("it has expired")
        if expires < issued or (not_before is not None and expires < not_before):
            raise IllegalTokenError("it ends before it begins")
        if not_before is not None and now_s + skew_s < not_before:
            raise IllegalTokenError("it isn't valid yet")
        if issued < 0:
            raise IllegalTokenError("iat is before 1970")
        self._check_scope(claims.get(self._settings.scope_claim))
        user = claims.get(self._settings.user_claim)
        if not isinstance(user, str) or not user.strip():
            raise IllegalTokenError(f"{self._settings.user_claim} isn't a user name")
        return ValidToken(text_of_user(user.strip()), min(expires * 1000, FOR_EVER_MS))

    def _check_scope(self, value: object) -> None:
        """Check the scope. It may be missing. Otherwise it is one text or several, none of them empty or
        repeated."""
        texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
        if not all(isinstance(each, str) and each.strip() for each in texts):
            raise IllegalTokenError("its scope isn't a text")
        if len({each.strip() for each in texts}) != len(texts):
            raise IllegalTokenError("it names a scope twice")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError if a name is repeated: the token would be ambiguous."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _seconds(claims: dict[str, Any], name: str) -> int | None:
    """Return a number, or None if there is none. Raises IllegalTokenError if it isn't a number."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise IllegalTokenError(f"{name} isn't a number")
    return int(min(max(as_float(value), -(2.0**62)), 2.0**62))


def _registry() -> JWSRegistry:
    """Raise joserfc's limits: tokens may be longer."""
    from joserfc.jws import JWSRegistry

    registry = JWSRegistry(algorithms=[*ALGORITHMS], strict_check_header=False)
    registry.max_header_length = registry.max_payload_length = MOST_TOKEN_BYTES
    registry.max_signature_length = MOST_TOKEN_BYTES
    return registry
