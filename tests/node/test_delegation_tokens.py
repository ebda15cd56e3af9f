"""Delegation tokens: how long they are valid, where they are remembered, and who is asked in whose name.
(`tests/interop/test_delegation_tokens.py` compares the answers with Kafka's.)"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.controller.controller import ControllerResult
from broker.controller.image import ClusterImage
from broker.controller.metadata_versions import METADATA_VERSION, TOKENS_NEED
from broker.controller.token_decisions import INT64_MAX, created, expired, renewed
from broker.controller.token_expiry import MOST_REMOVED
from broker.handlers.token_requests import may_ask_for_tokens
from broker.peers.forwarding import _encoded, principal_of
from broker.security.authorizer import ANONYMOUS, Principal, TokenPrincipal
from broker.security.delegation_tokens import MOST_CREDENTIALS, TokenCredentials, TokenSettings
from broker.server import Server
from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages.metadata import MetadataRequest
from protocol.messages.metadata_records import DelegationTokenRecord, FeatureLevelRecord
from protocol.messages.security import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from protocol.waiting import at_once
from protocol.wire.codec import decode
from tests.node import controllers
from tests.node.test_sasl import ALICE, SETTINGS, connected, shaken, told
from tests.node.test_sasl import principal_of as connected_as
from tests.support.whole_server import clock_of, started
from tests.support.wire import Client

MECHANISMS = "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256"
KEY = "delegation.token.secret.key=the secret of the cluster"
TOKENS = TokenSettings(b"the secret of the cluster", 1000, 100)
USER = Principal("User", "alice")


async def serving(folder: Path, *settings: str) -> Server:
    return await started(folder, *SETTINGS, MECHANISMS, KEY, *settings)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def made(node: Server, lifetime_ms: int = -1) -> CreateDelegationTokenResponse:
    with connected(node) as client:
        await shaken(client)
        await told(client, ALICE)
        answer = await client.answer(CreateDelegationTokenRequest(max_lifetime_ms=lifetime_ms), 3)
        assert isinstance(answer, CreateDelegationTokenResponse)
        assert answer.error_code == Error.NONE
        return answer


async def signed_in(client: Client, token: CreateDelegationTokenResponse) -> Any:
    """Sign in by the token. Returns the last answer."""
    await client.answer(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    bare = f"n={token.token_id},r=nonce,tokenauth=true"
    challenge = await client.answer(SaslAuthenticateRequest(auth_bytes=f"n,,{bare}".encode()), 2)
    if challenge.error_code:
        return challenge
    text = bytes(challenge.auth_bytes).decode()
    nonce, salt, rounds = (each.split("=", 1)[1] for each in text.split(","))
    password = base64.b64encode(bytes(token.hmac))
    salted = hashlib.pbkdf2_hmac("sha256", password, base64.b64decode(salt), int(rounds))
    key = hmac.digest(salted, b"Client Key", "sha256")
    last = f"c=biws,r={nonce}"
    signature = hmac.digest(hashlib.sha256(key).digest(), f"{bare},{text},{last}".encode(), "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    final = f"{last},p={base64.b64encode(proof).decode()}"
    return await client.answer(SaslAuthenticateRequest(auth_bytes=final.encode()), 2)


def token_ids(node: Server) -> list[str]:
    return [record.token_id for record in node.metadata.image.kept.of_type(DelegationTokenRecord)]  # type: ignore[attr-defined]


# --- sessions -----------------------------------------------------------------------------------------------


async def test_signing_in_by_a_token_acts_as_its_owner_until_the_token_ends(tmp_path: Path) -> None:
    node = await serving(tmp_path)
    token = await made(node, 60_000)
    clock_of(node).advance_ms(10_000)
    with connected(node) as client:
        answer = await signed_in(client, token)
        assert (answer.error_code, answer.session_lifetime_ms) == (Error.NONE, 50_000)
        principal = await connected_as(node)
        assert principal == USER
        assert principal.token_authenticated
        clock_of(node).advance_ms(50_000)
        await client.answer(MetadataRequest(topics=[]), 12)
        clock_of(node).advance_ms(1)
        with pytest.raises(ConnectionError):
            await client.answer(MetadataRequest(topics=[]), 12)


async def test_a_token_of_another_broker_is_refused(tmp_path: Path) -> None:
    """That holds even with the same key, because only the other broker's metadata has the token."""
    token = await made(await serving(tmp_path / "other"))
    node = await serving(tmp_path / "this", "connection.failed.authentication.delay.ms=0")
    with connected(node) as client:
        assert (await signed_in(client, token)).error_code == Error.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(("reauth_ms", "lifetime_ms"), [(20_000, 20_000), (90_000, 60_000)])
async def test_the_sooner_of_two_ends_counts(tmp_path: Path, reauth_ms: int, lifetime_ms: int) -> None:
    node = await serving(tmp_path, f"connections.max.reauth.ms={reauth_ms}")
    with connected(node) as client:
        assert (await signed_in(client, await made(node, 60_000))).session_lifetime_ms == lifetime_ms


async def test_an_expired_token_that_is_still_stored_permits_nothing(tmp_path: Path) -> None:
    node = await serving(tmp_path)
    token = await made(node, 1)
    clock_of(node).advance_ms(10)
    with connected(node) as client:
        assert (await signed_in(client, token)).session_lifetime_ms == 0
        clock_of(node).advance_ms(1)
        with pytest.raises(ConnectionError):
            await client.answer(MetadataRequest(topics=[]), 12)


async def test_a_token_cannot_create_another(tmp_path: Path) -> None:
    node = await serving(tmp_path)
    token = await made(node)
    with connected(node) as client:
        await signed_in(client, token)
        secret = bytes(token.hmac)
        for request, version in (
            (CreateDelegationTokenRequest(max_lifetime_ms=-1), 3),
            (RenewDelegationTokenRequest(hmac=secret, renew_period_ms=1), 2),
            (ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1), 2),
            (DescribeDelegationTokenRequest(owners=None), 3),
        ):
            answer = await client.answer(request, version)
            assert answer.error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert token_ids(node) == [token.token_id]


_ALLOWED = [
    (
        protocol,
        principal,
        by_token,
        not by_token and protocol != "PLAINTEXT" and (protocol, principal) != ("SSL", ANONYMOUS),
    )
    for protocol in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    for principal in (ANONYMOUS, USER)
    for by_token in (False, True)
]


@pytest.mark.parametrize(("protocol", "principal", "by_token", "allowed"), _ALLOWED)
def test_asking_for_tokens_requires_a_proven_identity(
    protocol: str, principal: Principal, by_token: bool, allowed: bool
) -> None:
    """A broker forwards requests over its own connection. They are refused only to a client that signed in by a
    token."""
    node: Any = SimpleNamespace(endpoints=[SimpleNamespace(name="L", security_protocol=protocol)])
    sender = TokenPrincipal(*principal) if by_token else principal
    context: Any = SimpleNamespace(principal=sender, is_forwarded=False, listener_name="L")
    assert may_ask_for_tokens(node, context) is allowed
    context.is_forwarded = True
    assert may_ask_for_tokens(node, context) is not by_token


# --- the metadata -------------------------------------------------------------------------------------------


async def test_a_token_is_valid_after_a_restart_only_with_the_same_secret(tmp_path: Path) -> None:
    node = await serving(tmp_path)
    token = await made(node)
    log = b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*.log")))
    assert token.token_id.encode() in log
    assert bytes(token.hmac) not in log
    await node.stop()
    for key, error in (
        (KEY, Error.NONE),
        ("delegation.token.secret.key=another one", Error.SASL_AUTHENTICATION_FAILED),
        ("delegation.token.secret.key=", Error.SASL_AUTHENTICATION_FAILED),
    ):
        node = await serving(tmp_path, key, "connection.failed.authentication.delay.ms=0")
        with connected(node) as client:
            assert (await signed_in(client, token)).error_code == error
        await node.stop()


async def test_the_clock_removes_expired_tokens(tmp_path: Path) -> None:
    node = await serving(tmp_path, "delegation.token.expiry.check.interval.ms=1")
    short, long = await made(node, 1000), await made(node, 60_000)
    clock_of(node).advance_ms(1000)  # in its last millisecond it is good
    with connected(node) as client:
        assert (await signed_in(client, short)).error_code == Error.NONE
    assert token_ids(node) == [short.token_id, long.token_id]
    clock_of(node).advance_ms(1)
    await until(lambda: token_ids(node) == [long.token_id])


@pytest.mark.limit("broker.controller.token_expiry.MOST_REMOVED")
async def test_many_that_have_expired_are_removed_some_at_a_time(tmp_path: Path) -> None:
    node = await serving(tmp_path)
    many = [DelegationTokenRecord(owner="User:a", token_id=str(index)) for index in range(MOST_REMOVED + 5)]
    lasting = DelegationTokenRecord(
        owner="User:a", token_id="lasting", max_timestamp=INT64_MAX, expiration_timestamp=INT64_MAX
    )
    node.metadata.append([*many, lasting])
    await until(lambda: len(token_ids(node)) == len(many) + 1)
    assert node._expire_tokens is not None
    seen: list[int] = []
    submit = node.controller.submit_own

    class Counting:
        begin = staticmethod(node.controller.begin)

        @staticmethod
        async def submit_own(decide: Any, *rest: Any) -> Any:
            async def counted(image: ClusterImage) -> ControllerResult[Any]:
                result: ControllerResult[Any] = await decide(image)
                seen.append(len(result.records))
                return result

            return await submit(counted, *rest)

    node._expire_tokens._controller = Counting()  # type: ignore[assignment]
    node._expire_tokens()
    await until(lambda: token_ids(node) == ["lasting"])
    assert seen == [MOST_REMOVED, 5]


# --- the controller -----------------------------------------------------------------------------------------


def test_a_broker_tells_the_controller_that_its_client_came_by_a_token() -> None:
    for principal in (USER, TokenPrincipal("User", "alice")):
        found = principal_of(_encoded(principal))
        assert found == USER
        assert found.token_authenticated == principal.token_authenticated


@pytest.mark.parametrize(
    ("by_token", "error"),
    [(False, Error.NONE), (True, Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)],
)
async def test_a_controller_makes_no_token_for_users_signed_in_by_a_token(
    tmp_path: Path, by_token: bool, error: Error
) -> None:
    async with controllers.controller(tmp_path, KEY) as node:
        asked = controllers.envelope(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        kind = TokenPrincipal if by_token else Principal
        asked.request_principal = _encoded(kind("User", "alice"))
        answer = await controllers.connected(node).answer(asked, 0)
        told = decode(CreateDelegationTokenResponse, 3, bytes(answer.response_data), 5)
        assert told.error_code == error
        direct = await controllers.connected(node).answer(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
        assert direct.error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_only_a_controller_removes_expired_tokens(tmp_path: Path) -> None:
    async with controllers.controller(tmp_path, "delegation.token.expiry.check.interval.ms=1") as node:
        node.metadata.append([DelegationTokenRecord(owner="User:a", token_id="t")])
        await until(lambda: node.metadata.image.kept.find(DelegationTokenRecord, "t") is None)


async def test_a_broker_asks_the_controller_about_the_right_to_ask(tmp_path: Path) -> None:
    node = await serving(tmp_path)
    token = await made(node)
    asked: list[tuple[str, str]] = []

    class Elsewhere:
        async def ask(self, context: Any, request: Any) -> Any:
            asked.append((str(context.principal), type(request).__name__))
            return APIS[request.API_KEY].response(error_code=Error.NOT_CONTROLLER)

    node.forwarding = Elsewhere()  # type: ignore[assignment]
    node.dispatcher._routes.clear()
    secret = bytes(token.hmac)
    requests = (
        (CreateDelegationTokenRequest(max_lifetime_ms=-1), 3),
        (RenewDelegationTokenRequest(hmac=secret, renew_period_ms=1), 2),
        (ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1), 2),
    )
    with connected(node) as client:
        await signed_in(client, token)
        for request, version in requests:
            refused = await client.answer(request, version)
            assert refused.error_code == Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert asked == []
    with connected(node) as client:
        await shaken(client)
        await told(client, ALICE)
        for request, version in requests:
            assert (await client.answer(request, version)).error_code == Error.NOT_CONTROLLER
        of_group = CreatableRenewers(principal_type="Group", principal_name="g")
        wrong = CreateDelegationTokenRequest(max_lifetime_ms=-1, renewers=[of_group])
        assert (await client.answer(wrong, 3)).error_code == Error.INVALID_PRINCIPAL_TYPE
    assert asked == [("User:alice", type(request).__name__) for request, _ in requests]


def _image(level: int) -> ClusterImage:
    image = ClusterImage()
    image.apply(FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))
    return image


def _created(
    image: ClusterImage, settings: TokenSettings | None, now_ms: int = 5
) -> CreateDelegationTokenResponse:
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
    decided, answer = created(
        image, settings, request, owner=USER, requester=USER, token_id="t", now_ms=now_ms
    )
    assert len(decided) == (not answer.error_code)
    for record in decided:
        image.apply(record)
    return answer


@pytest.mark.parametrize(
    ("level", "settings", "error"),
    [
        (TOKENS_NEED, TOKENS, Error.NONE),
        (TOKENS_NEED - 1, TOKENS, Error.UNSUPPORTED_VERSION),
        (TOKENS_NEED, None, Error.DELEGATION_TOKEN_AUTH_DISABLED),
        (TOKENS_NEED - 1, None, Error.DELEGATION_TOKEN_AUTH_DISABLED),
    ],
)
def test_without_a_secret_or_at_a_lower_level_nothing_is_decided(
    level: int, settings: TokenSettings | None, error: Error
) -> None:
    image = _image(level)
    assert _created(image, settings).error_code == error
    if error is Error.NONE:
        return
    secret = TOKENS.hmac_of("t")
    renewal = renewed(image, settings, RenewDelegationTokenRequest(hmac=secret), asks=USER, now_ms=5)
    assert at_once(renewal)[1].error_code == error
    end = expired(image, settings, ExpireDelegationTokenRequest(hmac=secret), asks=USER, now_ms=5)
    assert at_once(end)[1].error_code == error


def test_a_time_that_is_too_large_is_the_largest() -> None:
    settings = TokenSettings(b"k", INT64_MAX, INT64_MAX)
    image = _image(TOKENS_NEED)
    answer = _created(image, settings)
    assert answer.max_timestamp_ms == answer.expiry_timestamp_ms == INT64_MAX
    request = RenewDelegationTokenRequest(hmac=settings.hmac_of("t"), renew_period_ms=-1)
    assert at_once(renewed(image, settings, request, asks=USER, now_ms=6))[1].expiry_timestamp_ms == INT64_MAX


# --- secrets ------------------------------------------------------------------------------------------------


def test_the_secret_is_in_no_text() -> None:
    assert "secret of the cluster" not in f"{TOKENS!r} {TOKENS}"


@pytest.mark.limit("broker.security.delegation_tokens.MOST_CREDENTIALS")
def test_credentials_are_held_for_some_tokens_and_derived_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.security.delegation_tokens.MIN_ITERATIONS", 1)
    image = _image(TOKENS_NEED)
    credentials = TokenCredentials(TOKENS, bytes)
    for index in range(MOST_CREDENTIALS + 3):
        image.apply(DelegationTokenRecord(owner="User:a", token_id=str(index), expiration_timestamp=7))
        found = credentials.find(image, 1, str(index))
        assert found is not None
        assert (found.owner, found.expires_ms) == ("a", 7)
    assert len(credentials._derived) == MOST_CREDENTIALS
    assert credentials.find(image, 1, "none") is None
    assert TokenCredentials(None, bytes).find(image, 1, "0") is None
