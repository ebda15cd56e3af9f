"""Signed tokens, and where the keys that verify them come from. (`tests/interop/test_sasl_tokens.py` asks Kafka.)"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("joserfc", reason="needs joserfc, of the extra `security`")

from barnabas.tokens import ALGORITHMS, TokenIssuer
from broker.security import signed_tokens
from broker.security.oauthbearer import IllegalTokenError
from broker.security.signed_tokens import (
    FetchedKeys,
    FileKeys,
    JwksError,
    SignedTokens,
    SignedTokenSettings,
    fetched,
    file_of,
    keys_of,
)

NOW_MS = 1_000_000_000
TIMES = {"iat": NOW_MS // 1000, "exp": NOW_MS // 1000 + 60}
SETTINGS = SignedTokenSettings(frozenset(("kafka",)), "https://idp", 30, "scope", "sub")


class Known:
    """A source of keys that are already given."""

    def __init__(self, text: bytes) -> None:
        self.keys = keys_of(text)
        self.asked: list[object] = []

    def now(self) -> Any:
        return self.keys

    def missing(self, key_id: object, now_ms: int) -> None:
        self.asked.append(key_id)


def jwks(issuer: TokenIssuer) -> bytes:
    return json.dumps(issuer.jwks()).encode()


def issuing(algorithm: str = "ES256") -> TokenIssuer:
    return TokenIssuer(algorithm=algorithm, issuer="https://idp", audience="kafka")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm_is_verified(algorithm: str) -> None:
    with issuing(algorithm) as issuer:
        validate = SignedTokens(SETTINGS, Known(jwks(issuer)))
        token = issuer.token("alice", **TIMES)
        assert validate(token, NOW_MS) == ("alice", NOW_MS + 60_000)
        head, body, signature = token.split(".")
        for other in (f"{head}.{body}.{signature[::-1]}", f"{head}.{body}.AAAA", f"{head}.{body}."):
            with pytest.raises(IllegalTokenError, match="sign"):
                validate(other, NOW_MS)


def test_eddsa_is_verified() -> None:
    from joserfc import jwt
    from joserfc.jwk import OKPKey

    key = OKPKey.generate_key("Ed25519")
    keys = Known(json.dumps({"keys": [key.as_dict(private=False)]}).encode())
    claims = {"sub": "alice", "iss": "https://idp", "aud": "kafka", **TIMES}
    with pytest.warns(Warning, match="EdDSA"):
        token = jwt.encode({"alg": "EdDSA"}, claims, key, algorithms=["EdDSA"])
    assert SignedTokens(SETTINGS, keys)(token, NOW_MS).user == "alice"


def test_a_key_is_chosen_by_its_id_and_an_unknown_one_is_fetched() -> None:
    with issuing() as issuer:
        old = issuer.token("alice", **TIMES)
        issuer.rotate(keep=True)
        keys = Known(jwks(issuer))
        validate = SignedTokens(SETTINGS, keys)
        assert validate(old, NOW_MS).user == validate(issuer.token("alice", **TIMES), NOW_MS).user == "alice"
        issuer.rotate()
        with pytest.raises(IllegalTokenError, match="no key"):
            validate(issuer.token("alice", **TIMES), NOW_MS)
        assert keys.asked == ["key-3"]


@pytest.mark.parametrize(
    "change",
    [
        {"kty": "oct", "k": "AAAA"},
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"x": "AAAA"},
        {"crv": "P-1"},
        {"kty": []},
        {"x": 5},
    ],
    ids=str,
)
def test_a_key_that_verifies_nothing_is_skipped(change: dict[str, Any]) -> None:
    with issuing() as issuer:
        [key] = issuer.jwks()["keys"]
        assert keys_of(json.dumps({"keys": [{**key, **change}]}).encode()) == ()


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys": 5}', b"\xff", b"[" * 100_000])
def test_an_invalid_set_of_keys_is_refused(text: bytes) -> None:
    with pytest.raises(JwksError, match="not a set of"):
        keys_of(text)


@pytest.mark.limit("broker.security.signed_tokens.MOST_KEYS")
def test_keys_have_a_limit() -> None:
    with issuing() as issuer:
        [key] = issuer.jwks()["keys"]
    most = signed_tokens.MOST_KEYS
    assert len(keys_of(json.dumps({"keys": [key] * most}).encode())) == most
    with pytest.raises(JwksError, match="up to"):
        keys_of(json.dumps({"keys": [key] * (most + 1)}).encode())


# --- in a file ----------------------------------------------------------------------------------------------


def test_a_file_is_read_again_when_it_has_changed_and_missed_when_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "with a space.json"
    path.write_text('{"keys": []}')
    keys = FileKeys(file_of(path.as_uri()))
    assert keys.now() == ()
    with issuing() as issuer:
        path.write_bytes(jwks(issuer))
    os.utime(path, ns=(1, 1))
    assert len(keys.now()) == 1
    path.unlink()
    with pytest.raises(JwksError, match="can't read"):
        keys.now()


# --- of a URL -----------------------------------------------------------------------------------------------


class Source:
    """A source that gives one answer after the other, and the last one from then on."""

    def __init__(self, *answers: bytes | JwksError) -> None:
        self.answers = [*answers]
        self.asked = 0
        self.slept: list[float] = []
        self.works: list[Callable[[], None]] = []

    def __call__(self) -> bytes:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, JwksError):
            raise answer
        return answer

    def keys(self) -> FetchedKeys:
        return FetchedKeys(
            self, backoff_ms=100, backoff_max_ms=1_000, in_thread=self.works.append, sleep=self.slept.append
        )


EMPTY = b'{"keys": []}'
GONE = JwksError("gone")


def test_a_fetch_that_fails_is_tried_again_for_as_long_as_the_settings_say() -> None:
    source = Source(GONE, GONE, EMPTY)
    source.keys()
    assert source.slept == [0.1, 0.2]
    source = Source(GONE)
    with pytest.raises(JwksError, match="gone"):
        source.keys()
    assert sum(source.slept) == pytest.approx(1.0)


def test_keys_that_cannot_be_fetched_again_stay_as_they_were() -> None:
    with issuing() as issuer:
        source = Source(jwks(issuer), GONE)
    keys = source.keys()
    keys.refresh()
    source.works.pop()()
    assert len(keys.now()) == 1
    source.answers = [EMPTY]
    keys.refresh()
    source.works.pop()()
    assert keys.now() == ()


def test_one_thread_fetches_at_a_time() -> None:
    source = Source(EMPTY)
    keys = source.keys()
    keys.refresh()
    keys.refresh()
    assert len(source.works) == 1
    source.works.pop()()
    keys.refresh()
    assert len(source.works) == 1


def missed(keys: FetchedKeys, source: Source, key_id: object, now_ms: int) -> bool:
    """Report a missing key, and return whether the keys are fetched for it."""
    keys.missing(key_id, now_ms)
    done = [work() for work in source.works]
    source.works.clear()
    return bool(done)


@pytest.mark.limit("broker.security.signed_tokens.MIN_BETWEEN_REFRESHES_MS")
def test_unknown_keys_are_asked_for_once_a_second_and_one_once_a_minute() -> None:
    source = Source(EMPTY)
    keys = source.keys()
    between = signed_tokens.MIN_BETWEEN_REFRESHES_MS
    assert missed(keys, source, "a", 0)
    assert not missed(keys, source, "b", between - 1)
    assert missed(keys, source, "b", between)
    assert not missed(keys, source, "a", signed_tokens.MISSING_KEY_MS - 1)
    assert missed(keys, source, "a", signed_tokens.MISSING_KEY_MS)
    assert not missed(keys, source, None, 10**9)


@pytest.mark.limit("broker.security.signed_tokens.LONGEST_KEY_ID")
def test_a_key_with_a_longer_id_is_not_fetched() -> None:
    source = Source(EMPTY)
    keys = source.keys()
    longest = "k" * signed_tokens.LONGEST_KEY_ID
    assert not missed(keys, source, longest + "k", 0)
    assert missed(keys, source, longest, 0)


@pytest.mark.limit("broker.security.signed_tokens.MOST_MISSING_KEYS")
def test_remembered_unknown_keys_have_a_limit() -> None:
    source = Source(EMPTY)
    keys = source.keys()
    between = signed_tokens.MIN_BETWEEN_REFRESHES_MS
    for number in range(signed_tokens.MOST_MISSING_KEYS):
        assert missed(keys, source, f"{number}", number * between)
    at_ms = signed_tokens.MOST_MISSING_KEYS * between
    assert not missed(keys, source, "0", at_ms)
    assert missed(keys, source, "one more", at_ms)
    assert missed(keys, source, "0", at_ms + between)


class Serving:
    """A server on a loopback port. It sends these chunks to one client."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/jwks?secret=topsecret"
        self.request = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        client, _ = self._socket.accept()
        with client:
            self.request = client.recv(4096)
            try:
                for chunk in self._chunks:
                    client.sendall(chunk)
            except OSError:
                pass  # the client has heard enough

    def __enter__(self) -> Serving:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._socket.close()


OK = b"HTTP/1.1 200 OK\r\n\r\n"


def test_keys_are_fetched() -> None:
    with Serving(OK, EMPTY) as serving:
        assert fetched(serving.url, time.monotonic) == EMPTY
        assert serving.request.startswith(b"GET /jwks?secret=topsecret HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "status 302"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "status 404"),
        (b"", "can't be fetched"),
        (b"nonsense\r\n\r\n", "can't be fetched"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nx", "49 bytes too early"),
    ],
)
def test_any_other_answer_is_reported_without_secrets(answer: bytes, told: str) -> None:
    with Serving(answer) as serving, pytest.raises(JwksError, match=told) as raised:
        fetched(serving.url, time.monotonic)
    assert "topsecret" not in str(raised.value)


@pytest.mark.limit("broker.security.signed_tokens.MOST_JWKS_BYTES")
def test_a_set_of_keys_has_a_limit_of_bytes(tmp_path: Path) -> None:
    most = signed_tokens.MOST_JWKS_BYTES
    with Serving(OK, b" " * most) as serving:
        assert len(fetched(serving.url, time.monotonic)) == most
    with Serving(OK, b" " * (most + 1)) as serving, pytest.raises(JwksError, match="more than"):
        fetched(serving.url, time.monotonic)
    path = tmp_path / "keys"
    path.write_bytes(EMPTY + b" " * (most - len(EMPTY)))
    keys = FileKeys(str(path))
    path.write_bytes(EMPTY + b" " * (most + 1 - len(EMPTY)))
    with pytest.raises(JwksError, match="more than"):
        keys.now()


@pytest.mark.limit("broker.security.signed_tokens.LONGEST_FETCH_S")
def test_a_set_of_keys_comes_in_time() -> None:
    clock = iter((0.0, signed_tokens.LONGEST_FETCH_S, signed_tokens.LONGEST_FETCH_S + 0.1))
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n \r\n1\r\n \r\n0\r\n\r\n"
    with Serving(chunked) as serving, pytest.raises(JwksError, match="takes longer"):
        fetched(serving.url, lambda: next(clock))
