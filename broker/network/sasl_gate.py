"""A connection at a SASL listener, until its client has signed in. Nothing else is served before.

The gate takes the dispatcher's place and passes on the requests that its table admits. Source: Kafka's
`SaslServerAuthenticator`; signing in again: KIP-368.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from broker.network.answers import Answer, CloseConnectionError, Requests
from broker.security.authorizer import USER_TYPE, Principal, TokenPrincipal
from broker.security.sasl import (
    OAUTHBEARER,
    PLAIN,
    SCRAM,
    InvalidCredentialsError,
    Mechanism,
    PlainMechanism,
    SaslRefusal,
    ScramCredential,
    ScramMechanism,
    TokenCredential,
)
from protocol.apis import API_VERSIONS_KEY, APIS, decode_request_header
from protocol.errors import BrokenInvariantError, CodecError, Error
from protocol.wire.codec import encode

if TYPE_CHECKING:
    from broker.config.broker_config import SaslConfig
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.network.answers import Chunk, PendingAnswer
    from broker.security.oauthbearer import TokenValidator

HANDSHAKE_KEY, AUTHENTICATE_KEY = 17, 36
MIN_BETWEEN_MS = 1_000
"""A client can't sign in again more than once a second (`KafkaChannel`)."""
LONGEST_SIGN_IN_S = 60.0
"""How long a client may take to sign in after it has connected. Until then it may hold a frame of
`sasl.server.max.receive.size`, and the broker doesn't know who it is."""
_SIZE_BYTES = 4


class SignIn(IntEnum):
    """How far the client has come with signing in."""

    FIRST = 0  # no request of Kafka's protocol has come yet
    SHAKING = 1  # it knows the versions
    TOKENS = 2  # it has chosen a mechanism, and sends SaslAuthenticate
    BARE_TOKENS = 3  # the same, after version 0 of the handshake: tokens without a header
    DONE = 4
    AGAIN = 5  # as TOKENS, for a client that had signed in before
    FAILED = 6


ADMITTED: dict[SignIn, frozenset[int] | None] = {
    SignIn.FIRST: frozenset((API_VERSIONS_KEY, HANDSHAKE_KEY)),
    SignIn.SHAKING: frozenset((HANDSHAKE_KEY,)),
    SignIn.TOKENS: frozenset((AUTHENTICATE_KEY,)),
    SignIn.BARE_TOKENS: frozenset(),
    SignIn.DONE: None,
    SignIn.AGAIN: frozenset((AUTHENTICATE_KEY,)),
    SignIn.FAILED: frozenset(),
}
"""The APIs that are served in each state; None means all."""


class TellsOfFailures(Protocol):
    """The part of the listener that the gate uses."""

    def not_signed_in(self, client: str, mechanism: str, why: str) -> None:
        """Log, now and then, that a client couldn't sign in."""
        ...


class Guarded(Protocol):
    """The part of the connection that the gate uses."""

    @property
    def principal(self) -> Principal: ...

    @property
    def listener(self) -> TellsOfFailures: ...

    def signed_in(self, principal: Principal, requests: Requests) -> None:
        """The client has signed in as `principal`; `requests` serves it from now on."""
        ...

    def answer_and_hang_up(self, answer: list[Chunk]) -> None:
        """Send a last answer, and close."""
        ...

    def hang_up(self) -> None:
        """Close once the answers so far are sent."""
        ...


class SaslSettings(NamedTuple):
    """How clients sign in to one listener. By mechanism: a function that begins a conversation, and how long a session
    may last (0: forever)."""

    mechanisms: Mapping[str, Callable[[], Mechanism]]
    max_reauth_ms: Mapping[str, int]
    failure_delay_ms: int
    max_receive_bytes: int
    now_ms: Callable[[], int]
    """The time by the clock that credentials expire by."""


def sasl_settings(
    config: SaslConfig,
    find: Callable[[int, str], ScramCredential | None],
    nonce: Callable[[], str],
    find_token: Callable[[int, str], TokenCredential | None],
    validate: TokenValidator | None,
    *,
    failure_delay_ms: int,
    max_receive_bytes: int,
    now_ms: Callable[[], int],
) -> SaslSettings:
    """The settings of a listener.

    `find(code, user)` finds a user's credential for a mechanism of SCRAM, `find_token(code, id)` that of a delegation
    token; `nonce` draws a nonce. `validate` finds the user of an OAUTHBEARER token, if the listener has that mechanism.
    `now_ms`: since 1970."""
    make: dict[str, Callable[[], Mechanism]] = {}
    for name in config.mechanisms:
        if name == PLAIN:
            make[name] = partial(PlainMechanism, config.passwords)
        elif name == OAUTHBEARER:
            from broker.security.oauthbearer import OAuthBearerMechanism

            assert validate is not None
            make[name] = partial(OAuthBearerMechanism, validate, now_ms)
        else:
            make[name] = partial(ScramMechanism, SCRAM[name], find, nonce, find_token)
    return SaslSettings(make, config.max_reauth_ms, failure_delay_ms, max_receive_bytes, now_ms)


class SaslAnswer(NamedTuple):
    """An answer to SaslAuthenticate."""

    error: Error
    message: str | None
    token: bytes
    lifetime_ms: int = 0


def _is_taken(answer: Answer | PendingAnswer) -> bool:
    """True if the answer to ApiVersions has no error: the error comes first in the body."""
    head = b"".join(map(bytes, answer)) if isinstance(answer, list) else b""  # type: ignore[arg-type]
    return head[8:10] == b"\0\0"


def illegal_state(frame: memoryview) -> Answer:
    """The answer to another request amid tokens: ILLEGAL_SASL_STATE, if the answer has an error field.

    Kafka decodes the request for it. barnabas decodes nothing of a client that hasn't signed in. None if there is no
    such API.
    """
    api_key, version, correlation_id, _, _ = decode_request_header(frame, 0, len(frame))
    api = APIS.get(api_key)
    if api is None or not api.min_version <= version <= api.max_version:
        return None
    response: Any = api.response()
    if hasattr(response, "error_code"):
        response.error_code = Error.ILLEGAL_SASL_STATE
    try:
        body = bytes(encode(response, version))
    except CodecError:  # it can't be empty
        return None
    tags = b"\0" if api.response_header_version(version) else b""
    head = correlation_id.to_bytes(4, signed=True) + tags
    return [(len(head) + len(body)).to_bytes(_SIZE_BYTES) + head + body]


class SaslGate(Requests):
    """The gate of one connection."""

    def __init__(
        self,
        settings: SaslSettings,
        requests: Requests,
        scheduler: Scheduler,
    ) -> None:
        """`requests` serves admitted requests."""
        self.state = SignIn.FIRST
        self.monotonic_s = requests.monotonic_s
        self._settings = settings
        self._requests = requests
        self._scheduler = scheduler
        self._mechanism_name = ""
        self._mechanism: Mechanism | None = None
        self._expires_s: float | None = None
        self._began_again_s: float | None = None
        self._why = ""
        self._deadline: Scheduled | None = None

    # --- the time that signing in may take ------------------------------------------------------------------

    def begin(self, connection: Guarded) -> None:
        """The connection is accepted: its time to sign in begins."""
        self._deadline = self._scheduler.call_later(LONGEST_SIGN_IN_S, partial(self._is_too_slow, connection))

    def end(self) -> None:
        """The client has signed in, or is gone."""
        deadline, self._deadline = self._deadline, None
        if deadline is not None:
            deadline.cancel()

    def _is_too_slow(self, connection: Guarded) -> None:
        self._deadline = None
        why = f"it hasn't done so in {LONGEST_SIGN_IN_S:.0f} s"
        connection.listener.not_signed_in(str(connection), self._mechanism_name, why)
        connection.hang_up()

    # --- requests -------------------------------------------------------------------------------------------

    def soon(self, then: Callable[[], object], /) -> None:
        """As the dispatcher."""
        self._requests.soon(then)

    def held(self, connection: Guarded, frame: memoryview, took_s: float) -> None:
        """As the dispatcher."""
        if self.state is SignIn.DONE:
            self._requests.held(connection, frame, took_s)

    def is_of_many(self, frame: memoryview) -> bool:
        """As the dispatcher."""
        return self.state is SignIn.DONE and self._requests.is_of_many(frame)

    def failed(self, connection: Guarded, error: BaseException) -> None:
        """As the dispatcher."""
        self._requests.failed(connection, error)

    def serve(self, connection: Guarded, frame: memoryview) -> Answer | PendingAnswer:
        """As the dispatcher, for admitted requests. Raises CloseConnectionError for others, CodecError for nonsense."""
        if self.state is SignIn.BARE_TOKENS:
            return self._bare(connection, bytes(frame))
        api_key = decode_request_header(frame, 0, len(frame)).api_key
        admitted = ADMITTED[self.state]
        if admitted is None:
            if self._expires_s is not None and self._is_over(api_key):
                raise CloseConnectionError(f"{connection.principal} didn't sign in again in time")
        elif api_key not in admitted:
            name = APIS[api_key].name if api_key in APIS else f"api key {api_key}"
            if AUTHENTICATE_KEY not in admitted:
                raise CloseConnectionError(f"{name} before its client has signed in (SASL)")
            self._fail(f"it sends {name} where a token is expected")
            return self._failed(connection, illegal_state(frame))
        before = self.state
        answer = self._requests.serve(connection, frame)
        if before is SignIn.FIRST and api_key == API_VERSIONS_KEY and _is_taken(answer):
            self.state = SignIn.SHAKING
        if self.state is SignIn.FAILED:
            return self._failed(connection, answer if isinstance(answer, list) else [])
        return answer

    def _is_over(self, api_key: int) -> bool:
        assert self._expires_s is not None
        return api_key != HANDSHAKE_KEY and self.monotonic_s() > self._expires_s

    # --- called by the handlers of SaslHandshake and SaslAuthenticate ---------------------------------------

    def shake(self, mechanism: str, version: int) -> Error:
        """The client chooses a mechanism. Returns the error of the answer."""
        again = self.state is SignIn.DONE
        if again and not self._may_again():
            return Error.ILLEGAL_SASL_STATE
        make = self._settings.mechanisms.get(mechanism)
        if make is None:
            self._fail(f"it asks for the mechanism {mechanism[:50]!r}")
            return Error.UNSUPPORTED_SASL_MECHANISM
        if again and mechanism != self._mechanism_name:
            self._fail("it signs in again by another mechanism")
            return Error.NONE
        self._mechanism_name, self._mechanism = mechanism, make()
        if again:
            self._began_again_s = self.monotonic_s()
            self.state = SignIn.AGAIN
        else:
            self.state = SignIn.TOKENS if version >= 1 else SignIn.BARE_TOKENS
        return Error.NONE

    def _may_again(self) -> bool:
        if self._expires_s is None:
            return False
        began = self._began_again_s
        return began is None or self.monotonic_s() - began >= MIN_BETWEEN_MS / 1000

    @property
    def mechanisms(self) -> list[str]:
        """The mechanisms by which a client can sign in."""
        return [*self._settings.mechanisms]

    def authenticate(self, connection: Guarded, token: bytes) -> SaslAnswer:
        """Evaluate a client's token. The answer is ILLEGAL_SASL_STATE if none is expected."""
        if self.state not in (SignIn.TOKENS, SignIn.AGAIN, SignIn.BARE_TOKENS) or self._mechanism is None:
            return SaslAnswer(
                Error.ILLEGAL_SASL_STATE,
                "SaslAuthenticate request received after successful authentication",
                b"",
            )
        mechanism = self._mechanism
        doing = "re-authentication" if self.state is SignIn.AGAIN else "authentication"
        try:
            answer = mechanism.evaluate(token)
            if not mechanism.is_complete:
                return SaslAnswer(Error.NONE, "", answer)
            kind = TokenPrincipal if mechanism.by_token else Principal
            principal = kind(USER_TYPE, mechanism.user)
            if self.state is SignIn.AGAIN and principal != connection.principal:
                was, now = connection.principal, principal
                raise SaslRefusal(
                    f"Cannot change principals during re-authentication from {was.type}.{was.name}: "
                    f"{now.type}.{now.name}"
                )
        except SaslRefusal as error:
            self._fail(str(error))
            return SaslAnswer(Error.SASL_AUTHENTICATION_FAILED, str(error), b"")
        except InvalidCredentialsError as error:
            self._fail(str(error))
            return SaslAnswer(
                Error.SASL_AUTHENTICATION_FAILED,
                f"Authentication failed during {doing} due to invalid credentials with SASL mechanism "
                f"{self._mechanism_name}",
                b"",
            )
        return SaslAnswer(
            Error.NONE, "", answer, self._signed_in(connection, principal, mechanism.expires_ms)
        )

    def _signed_in(self, connection: Guarded, principal: Principal, expires_ms: int | None) -> int:
        """Let the client in. Returns the session's lifetime in ms: until the credential expires or
        `connections.max.reauth.ms` is over, whichever comes first.

        0 means that it has no end, or that the credential has expired within the allowed clock skew."""
        self._mechanism = None
        self.state = SignIn.DONE
        self.end()
        most_ms = self._settings.max_reauth_ms.get(self._mechanism_name, 0)
        ends = [] if expires_ms is None else [max(0, expires_ms - self._settings.now_ms())]
        lifetime_ms = min([*ends, most_ms] if most_ms > 0 else ends, default=None)
        if lifetime_ms is not None:
            self._expires_s = self.monotonic_s() + lifetime_ms / 1000
        connection.signed_in(principal, self._requests if lifetime_ms is None else self)
        return lifetime_ms or 0

    # --- tokens without a header ----------------------------------------------------------------------------

    def _bare(self, connection: Guarded, token: bytes) -> Answer | PendingAnswer:
        told = self.authenticate(connection, token)
        if told.error is not Error.NONE:
            return self._failed(connection, [])
        return [len(told.token).to_bytes(_SIZE_BYTES) + told.token]

    # --- failure --------------------------------------------------------------------------------------------

    def _fail(self, why: str) -> None:
        self.state = SignIn.FAILED
        self._mechanism = None
        self._why = why

    def _failed(self, connection: Guarded, answer: Answer) -> PendingAnswer:
        """Answer after a while, then close: so a client that guesses passwords has to wait."""
        connection.listener.not_signed_in(str(connection), self._mechanism_name, self._why)
        close = partial(connection.answer_and_hang_up, answer or [])
        return _Never(self._scheduler.call_later(self._settings.failure_delay_ms / 1000, close))


class _Never:
    """Takes the place of an answer: when its time is over, the connection closes."""

    def __init__(self, timer: Scheduled) -> None:
        self._timer = timer

    def when_answered(self, then: Callable[[], None]) -> None:
        """There never is an answer."""

    def take(self) -> Answer:
        """Never called, since there is no answer."""
        raise BrokenInvariantError("there is no answer to take")

    def abandon(self) -> None:
        """The client has hung up first."""
        self._timer.cancel()
