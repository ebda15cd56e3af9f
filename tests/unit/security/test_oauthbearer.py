"""OAUTHBEARER and unsecured tokens. (`tests/interop/test_sasl_tokens.py` compares whole conversations with Kafka's.)"""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.security import oauthbearer
from broker.security.oauthbearer import (
    FOR_EVER_MS,
    IllegalTokenError,
    OAuthBearerMechanism,
    UnsecuredTokens,
    ValidToken,
)
from broker.security.sasl import InvalidCredentialsError, SaslRefusal

NOW_MS = 1_000_000
ENDS = 2_000


def encoded(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def token(claims: object, header: object = None) -> str:
    return f"{encoded({'alg': 'none'} if header is None else header)}.{encoded(claims)}."


ALICE = token({"sub": "alice", "exp": ENDS})


def validated(text: str, **options: str) -> ValidToken:
    return UnsecuredTokens(options)(text, NOW_MS)


def refused(text: str, **options: str) -> IllegalTokenError:
    with pytest.raises(IllegalTokenError) as raised:
        validated(text, **options)
    return raised.value


def asked(message: bytes) -> OAuthBearerMechanism:
    mechanism = OAuthBearerMechanism(UnsecuredTokens({}), lambda: NOW_MS)
    mechanism.evaluate(message)
    return mechanism


def first(text: str, header: str = "n,,") -> bytes:
    return f"{header}\x01auth=Bearer {text}\x01\x01".encode()


# --- the conversation ---------------------------------------------------------------------------------------


def test_a_valid_token_completes_it_until_the_token_ends() -> None:
    mechanism = asked(first(ALICE))
    assert (mechanism.is_complete, mechanism.user, mechanism.expires_ms) == (True, "alice", 1000 * ENDS)


def test_a_refused_token_is_acknowledged_before_the_error() -> None:
    mechanism = OAuthBearerMechanism(UnsecuredTokens({}), lambda: NOW_MS)
    assert mechanism.evaluate(first("a.b.c")) == b'{"status":"invalid_token"}'
    assert not mechanism.is_complete
    with pytest.raises(SaslRefusal, match="invalid_token"):
        mechanism.evaluate(b"\x01")


def test_a_missing_scope_is_named() -> None:
    options = {"unsecuredValidatorRequiredScope": "a b"}
    mechanism = OAuthBearerMechanism(UnsecuredTokens(options), lambda: NOW_MS)
    assert mechanism.evaluate(first(ALICE)) == b'{"status":"insufficient_scope", "scope":"[a, b]"}'


def test_an_acknowledgment_of_nothing_is_no_message() -> None:
    with pytest.raises(InvalidCredentialsError):
        asked(b"\x01")


def test_a_token_acts_only_as_its_own_user() -> None:
    assert asked(first(ALICE, "n,a=alice,")).is_complete
    with pytest.raises(SaslRefusal, match="is different from the token's principal name"):
        asked(first(ALICE, "n,a=bob,"))


@given(st.binary(max_size=60) | st.text(alphabet="n,a=\x01uthBer .2CD3", max_size=60).map(str.encode))
def test_whatever_comes_is_answered_or_refused(message: bytes) -> None:
    mechanism = OAuthBearerMechanism(UnsecuredTokens({}), lambda: NOW_MS)
    with contextlib.suppress(InvalidCredentialsError, SaslRefusal):
        assert mechanism.evaluate(message) == b'{"status":"invalid_token"}'
    assert not mechanism.is_complete


def test_an_error_quotes_nothing_of_a_token() -> None:
    with pytest.raises(InvalidCredentialsError) as raised:
        asked(b"n,,\x01auth=Basic topsecret\x01\x01")
    assert "topsecret" not in str(raised.value)
    assert "topsecret" not in str(refused(token(b"{topsecret")))
    assert "topsecret" not in str(refused("topsecret"))


# --- unsecured tokens ---------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["sub", "exp", "iat", "scope", "x"]), JSON))
def test_whatever_the_claims_are_it_is_a_user_or_refused(claims: dict[str, Any]) -> None:
    try:
        user, expires_ms = validated(token(claims))
    except IllegalTokenError:
        return
    assert user.strip()
    assert user.encode()
    assert NOW_MS <= expires_ms <= FOR_EVER_MS


@pytest.mark.parametrize(
    "text",
    [
        token({"sub": "\ud800", "exp": ENDS}),
        token({"exp": ENDS}),
        token(b'{"sub": "alice", "exp": NaN}'),
        token(b'{"sub": "alice", "exp": ' + b"9" * 5_000 + b"}"),
        token(b"[" * 500 + b"]" * 500),
        f"{encoded({'alg': 'none'})}..",
        ALICE[:-1],
        f"{ALICE}a.",
    ],
)
def test_an_invalid_token_is_refused(text: str) -> None:
    refused(text)


def test_a_clock_may_be_off_by_the_option() -> None:
    ended = token({"sub": "alice", "exp": 999})
    assert "expired" in str(refused(ended, unsecuredValidatorAllowableClockSkewMs="1000"))
    assert validated(ended, unsecuredValidatorAllowableClockSkewMs="1001") == ("alice", 999_000)


@pytest.mark.parametrize(
    "options",
    [
        {"unsecuredValidatorRequiredScope": 'a "'},
        {"unsecuredValidatorAllowableClockSkewMs": "-1"},
        {"unsecuredValidatorAllowableClockSkewMs": "x"},
        {"unsecuredValidatorAllowableClockSkewMs": "2147483648"},
    ],
)
def test_a_nonsense_option_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="unsecuredValidator"):
        UnsecuredTokens(options)


@pytest.mark.limit("broker.security.oauthbearer.MOST_TOKEN_BYTES")
def test_a_token_has_a_limit_of_bytes() -> None:
    spare = oauthbearer.MOST_TOKEN_BYTES // 4 * 3 - 100
    longest = token({"sub": "alice", "exp": ENDS, "x": "x" * spare})
    claims = {"sub": "alice", "exp": ENDS, "x": "x" * (spare + 1_000)}
    assert len(longest) <= oauthbearer.MOST_TOKEN_BYTES < len(token(claims))
    assert validated(longest).user == "alice"
    assert "bytes" in str(refused(token(claims)))


@pytest.mark.limit("broker.security.oauthbearer.MOST_BRACKETS")
def test_a_token_has_a_limit_of_objects_and_lists() -> None:
    most = oauthbearer.MOST_BRACKETS - 2
    assert validated(token({"sub": "alice", "exp": ENDS, "x": [[]] * most})).user == "alice"
    assert "too much" in str(refused(token({"sub": "alice", "exp": ENDS, "x": [[]] * (most + 1)})))
