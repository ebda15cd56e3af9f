"""SASL mechanisms, server side: PLAIN (RFC 4616) and SCRAM-SHA-256 and -512 (RFC 5802). OAUTHBEARER has its
own file.

A mechanism gets each of a client's tokens and returns the answer, until it `is_complete` and its `user` is
known. Secrets are compared in constant time. PLAIN doesn't reveal whether the user or the password was wrong.
With SCRAM, an unknown user gets no challenge, as in Kafka. Sources: Kafka's `PlainSaslServer`,
`ScramSaslServer`, `ScramMessages`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

PLAIN = "PLAIN"
SCRAM = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The codes in the metadata's records (`ScramMechanism`), by name."""
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, *SCRAM, OAUTHBEARER)


class SaslRefusal(Exception):  # noqa: N818 - its text goes to the client
    """A refusal whose text goes to the client (Kafka: `SaslAuthenticationException`)."""


class InvalidCredentialsError(Exception):
    """A refusal that tells the client only that its credentials are invalid. The log says why (Java's
    `SaslException`)."""


class Mechanism(Protocol):
    """The conversation with one client."""

    user: str
    """The user, once the conversation is complete."""
    is_complete: bool
    expires_ms: int | None
    """When its credentials expire (ms since 1970). None if they don't."""
    by_token: bool
    """True if it uses a delegation token."""

    def evaluate(self, token: bytes) -> bytes:
        """Return the answer to a token. Raises SaslRefusal, InvalidCredentialsError: then the conversation is
        over."""
        ...


class PlainMechanism:
    """Takes one token, which includes the password."""

    expires_ms: int | None = None
    by_token = False

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user = ""
        self.is_complete = False

    def evaluate(self, token: bytes) -> bytes:
        """Handle `[whom to act as] NUL user NUL password`, in UTF-8."""
        parts = token.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            raise SaslRefusal(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        acts_as, user, password = parts
        if not user:
            raise SaslRefusal("Authentication failed: username not specified")
        if not password:
            raise SaslRefusal("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        # also for an unknown user, so that it takes as long
        is_right = hmac.compare_digest(password.encode(), (expected or "\0").encode())
        if expected is None or not is_right:
            raise SaslRefusal("Authentication failed: Invalid username or password")
        if acts_as not in ("", user):
            raise SaslRefusal(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = user
        self.is_complete = True
        return b""


class ScramCredential(NamedTuple):
    """The stored form of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class TokenCredential(NamedTuple):
    """A delegation token: its owner's name, when it expires (ms since 1970), and the stored form of its
    secret."""

    owner: str
    expires_ms: int
    credential: ScramCredential


_SASL_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_FIRST = re.compile(
    rf"n,(?:a=(?P<acts_as>{_SASL_NAME}))?,(?:m={_VALUE},)?"
    rf"(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE})(?:{_EXTENSIONS})),p=(?P<proof>{_BASE64})"
)
HASHES = {1: "sha256", 2: "sha512"}
"""By the mechanism's code."""
MIN_ITERATIONS = 4096
LONGEST_MESSAGE = 8192
"""In bytes. A message as long as a frame may be would take a quarter of a second to read."""
_TOKEN_AUTH = "tokenauth"  # noqa: S105 - the name of an extension
"""The extension of clients whose name is a token's id and whose password is its secret."""


def _no_token(code: int, token_id: str) -> None:
    return None


def _is_of_token(extensions: str) -> bool:
    """Check the extensions `,name=value,...`. If a name comes twice, the last one counts. "true" may have any
    case."""
    told = dict(each.split("=", 1) for each in extensions.split(",") if each)
    return told.get(_TOKEN_AUTH, "").lower() == "true"


class ScramMechanism:
    """Takes two tokens: the user's name, and the proof that the client knows the password."""

    def __init__(
        self,
        code: int,
        find: Callable[[int, str], ScramCredential | None],
        nonce: Callable[[], str],
        find_token: Callable[[int, str], TokenCredential | None] = _no_token,
    ) -> None:
        """`find` returns a user's credential for the mechanism's code, `find_token` that of a delegation
        token by its id."""
        self._code = code
        self._find = find
        self._find_token = find_token
        self._nonce = nonce
        self._credential: ScramCredential | None = None
        self._first = self._challenge = self._expected_nonce = ""
        self.user = ""
        self.is_complete = False
        self.expires_ms: int | None = None
        self.by_token = False

    def evaluate(self, token: bytes) -> bytes:
        """Return the challenge, and then the server's own proof."""
        if len(token) > LONGEST_MESSAGE:
            raise InvalidCredentialsError(f"a message of {len(token)} bytes is too long for SCRAM")
        text = token.decode(errors="replace")
        return self._challenged(text) if self._credential is None else self._verified(text)

    def _challenged(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise InvalidCredentialsError("the client's first message isn't in the format of SCRAM")
        name = match["name"].replace("=2C", ",").replace("=3D", "=")
        user, expires_ms = name, None
        if _is_of_token(match["extensions"]):
            token = self._find_token(self._code, name)
            if token is None:
                raise InvalidCredentialsError(f"there is no delegation token {name!r}")
            user, expires_ms, credential = token
            self.by_token = True
        else:
            found = self._find(self._code, name)
            if found is None:
                raise InvalidCredentialsError(f"there is no such credential for user {name!r}")
            credential = found
        if match["acts_as"] not in (None, name):
            raise SaslRefusal(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if credential.iterations < MIN_ITERATIONS:
            raise InvalidCredentialsError(
                f"{credential.iterations} iterations are less than the minimum {MIN_ITERATIONS}"
            )
        self.user = user
        self.expires_ms = expires_ms
        self._credential = credential
        self._first = match["bare"]
        self._expected_nonce = match["nonce"] + self._nonce()
        salt = base64.b64encode(credential.salt).decode()
        self._challenge = f"r={self._expected_nonce},s={salt},i={credential.iterations}"
        return self._challenge.encode()

    def _verified(self, text: str) -> bytes:
        assert self._credential is not None
        match = _FINAL.fullmatch(text)
        if match is None:
            raise InvalidCredentialsError("the client's final message isn't in the format of SCRAM")
        if match["nonce"] != self._expected_nonce:
            raise InvalidCredentialsError("the client's final message has a different nonce")
        digest = HASHES[self._code]
        signed = f"{self._first},{self._challenge},{match['without_proof']}".encode()
        signature = hmac.digest(self._credential.stored_key, signed, digest)
        try:
            proof = base64.b64decode(match["proof"], validate=True)
        except binascii.Error:
            raise InvalidCredentialsError("the client's proof isn't base64") from None
        if len(proof) != len(signature):
            raise InvalidCredentialsError("the client's proof has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(digest, client_key).digest(), self._credential.stored_key):
            raise InvalidCredentialsError("the client's proof is wrong")
        server_signature = hmac.digest(self._credential.server_key, signed, digest)
        self.is_complete = True
        return b"v=" + base64.b64encode(server_signature)


# --- JAAS lines ---------------------------------------------------------------------------------------------

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_TOKEN = re.compile(r'\s*("(?:[^"\\]|\\.)*"|[^\s=;"]+|=|;)')


class JaasError(ValueError):
    """An invalid JAAS line."""


def jaas_options(line: str) -> tuple[str, dict[str, str]]:
    """Return the login module's class and its options from `class required name="value" ...;`.

    Raises JaasError, without any part of the line, since it has passwords.
    """
    tokens: list[str] = []
    position = 0
    while position < len(line.rstrip()):
        match = _TOKEN.match(line, position)
        if match is None:
            raise JaasError("a quotation mark isn't closed")
        tokens.append(match[1])
        position = match.end()
    if len(tokens) < 3 or tokens[-1] != ";":
        raise JaasError("it has to be 'class required name=\"value\" ...;', with the semicolon")
    module, flag, *rest = tokens[:-1]
    if flag.lower() not in ("required", "requisite", "sufficient", "optional"):
        raise JaasError("'required' has to follow the class")
    if len(rest) % 3 or any(rest[index + 1] != "=" for index in range(0, len(rest), 3)):
        raise JaasError('options are name="value"')
    return module, {rest[index]: _unquoted(rest[index + 2]) for index in range(0, len(rest), 3)}


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith('"') else text


def passwords_of(options: Mapping[str, str]) -> dict[str, str]:
    """The users of PLAIN and their passwords: `user_<name>="password"`."""
    return {name.removeprefix("user_"): value for name, value in options.items() if name.startswith("user_")}
