"""A listener with OAUTHBEARER: how long a session holds, which settings go together, where the keys come from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.tokens import TokenIssuer, unsecured_token
from broker.config.definitions import UsageError
from broker.security import token_source
from broker.server import Server
from broker.starting import StartError
from protocol.errors import Error
from protocol.messages.metadata import MetadataRequest
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.support.whole_server import clock_of, configured, started
from tests.support.wire import Client

PREFIX = "listener.name.sasl_plaintext.oauthbearer."
SETTINGS = (
    "listeners=SASL_PLAINTEXT://127.0.0.1:0",
    "inter.broker.listener.name=SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=OAUTHBEARER",
    "connection.failed.authentication.delay.ms=0",
)
OF_KAFKA = "org.apache.kafka.common.security.oauthbearer."
HANDLER = f"{PREFIX}sasl.server.callback.handler.class={OF_KAFKA}OAuthBearerValidatorCallbackHandler"
OLD_HANDLER = HANDLER.replace("OAuthBearerV", "secured.OAuthBearerV")
AUDIENCE, ISSUER = "sasl.oauthbearer.expected.audience=kafka", "sasl.oauthbearer.expected.issuer=https://idp"
URL = "sasl.oauthbearer.jwks.endpoint.url="


async def session(client: Client, token: str) -> Any:
    """Sign in, or sign in again. Returns the answer."""
    assert (await client.answer(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)).error_code == Error.NONE
    message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    return await client.answer(SaslAuthenticateRequest(auth_bytes=message), 2)


def connected(node: Server) -> Client:
    [listener] = node.listeners.values()
    return Client.connect(listener.port)


def ending(node: Server, in_ms: int, user: str = "alice") -> str:
    """Return a token that ends in so many ms by the node's clock."""
    return unsecured_token(user, iat=None, exp=(clock_of(node).now_ms() + in_ms) / 1000)


async def _is_served(client: Client) -> bool:
    try:
        await client.answer(MetadataRequest(topics=[]), 12)
    except ConnectionError:
        return False
    return True


async def test_a_session_ends_with_its_token(tmp_path: Path) -> None:
    node = await started(tmp_path, *SETTINGS)
    clock = clock_of(node)
    with connected(node) as client:
        assert (await session(client, ending(node, 60_000))).session_lifetime_ms == 60_000
        clock.advance_ms(60_000)
        assert await _is_served(client)
        clock.advance_ms(1)
        assert not await _is_served(client)


@pytest.mark.parametrize(("token_ms", "lifetime_ms"), [(60_000, 50_000), (40_000, 40_000)])
async def test_a_session_ends_by_whichever_is_first(tmp_path: Path, token_ms: int, lifetime_ms: int) -> None:
    node = await started(tmp_path, *SETTINGS, f"{PREFIX}connections.max.reauth.ms=50000")
    with connected(node) as client:
        assert (await session(client, ending(node, token_ms))).session_lifetime_ms == lifetime_ms
        clock_of(node).advance_ms(lifetime_ms + 1)
        assert not await _is_served(client)


async def test_a_token_that_has_ended_within_the_skew_serves_for_no_time(tmp_path: Path) -> None:
    jaas = f"{OF_KAFKA}OAuthBearerLoginModule required unsecuredValidatorAllowableClockSkewMs=60000;"
    node = await started(tmp_path, *SETTINGS, f"{PREFIX}sasl.jaas.config={jaas}")
    with connected(node) as client:
        answer = await session(client, ending(node, -30_000))
        assert (answer.error_code, answer.session_lifetime_ms) == (Error.NONE, 0)
        clock_of(node).advance_ms(1)
        assert not await _is_served(client)


async def test_signing_in_again_keeps_the_connection_and_its_user(tmp_path: Path) -> None:
    node = await started(tmp_path, *SETTINGS)
    clock = clock_of(node)
    with connected(node) as client:
        await session(client, ending(node, 60_000))
        clock.advance_ms(50_000)
        assert (await session(client, ending(node, 60_000))).error_code == Error.NONE
        clock.advance_ms(50_000)
        assert await _is_served(client)
        answer = await session(client, ending(node, 60_000, "bob"))
        assert answer.error_code == Error.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals during re-authentication" in answer.error_message
        assert not await _is_served(client)


# --- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ([f"{PREFIX}sasl.server.callback.handler.class=a.B"], "no Java class can be loaded"),
        ([f"{PREFIX}sasl.jaas.config=a.B required;"], "no Java class can be loaded"),
        ([f"{PREFIX}sasl.jaas.config=topsecret"], "with the semicolon"),
        (
            [
                f"{PREFIX}sasl.jaas.config={OF_KAFKA}OAuthBearerLoginModule required "
                "unsecuredValidatorAllowableClockSkewMs=topsecret;"
            ],
            "unsecuredValidatorAllowableClockSkewMs is milliseconds",
        ),
        ([f"{URL}http://topsecret/"], "has no effect at listener SASL_PLAINTEXT"),
        ([HANDLER, ISSUER, f"{URL}http://a/"], "sasl.oauthbearer.allow.unverified.audience=true"),
        ([HANDLER, AUDIENCE, f"{URL}http://a/"], "sasl.oauthbearer.allow.unverified.issuer=true"),
        ([HANDLER, AUDIENCE, ISSUER], "where the keys are"),
        ([OLD_HANDLER, AUDIENCE, ISSUER], "where the keys are"),
        ([HANDLER, AUDIENCE, ISSUER, f"{URL}ftp://topsecret/"], "a URL of http, https or file"),
        ([HANDLER, AUDIENCE, ISSUER, f"{URL}http://:topsecret/"], "a URL of http, https or file"),
        ([HANDLER, AUDIENCE, ISSUER, f"{URL}file:"], "a URL of http, https or file"),
        (
            [
                HANDLER,
                AUDIENCE,
                ISSUER,
                f"{URL}http://a/",
                f"sasl.oauthbearer.jwt.validator.class={OF_KAFKA}X",
            ],
            "no Java class can be loaded",
        ),
        (
            [HANDLER, AUDIENCE, ISSUER, f"{URL}http://a/", "sasl.oauthbearer.jwks.endpoint.refresh.ms=0"],
            "a number from 1 on",
        ),
        (
            [HANDLER, AUDIENCE, ISSUER, f"{URL}http://a/", f"{PREFIX}sasl.oauthbearer.clock.skew.seconds=-1"],
            "a number from 0 on",
        ),
        (
            [HANDLER, AUDIENCE, ISSUER, f"{URL}http://a/", "sasl.oauthbearer.sub.claim.name="],
            "can't be empty",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(tmp_path: Path, settings: list[str], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        configured(tmp_path, *SETTINGS, *settings)
    assert told in str(refused.value)
    assert "topsecret" not in str(refused.value)


def test_the_nearest_name_of_a_setting_counts(tmp_path: Path) -> None:
    own = PREFIX.removesuffix("oauthbearer.")
    config = configured(
        tmp_path,
        *SETTINGS,
        HANDLER,
        ISSUER,
        f"{URL}http://a/keys",
        "sasl.oauthbearer.expected.audience=all",
        f"{own}sasl.oauthbearer.expected.audience=own, other",
        "sasl.oauthbearer.clock.skew.seconds=1",
        f"{own}sasl.oauthbearer.clock.skew.seconds=2",
        f"{PREFIX}sasl.oauthbearer.clock.skew.seconds=3",
    )
    tokens = config.sasl["SASL_PLAINTEXT"].tokens
    assert tokens is not None
    assert (tokens.audiences, tokens.skew_s, tokens.refresh_ms) == ({"own", "other"}, 3, 3_600_000)
    assert (tokens.scope_claim, tokens.user_claim, tokens.jwks_url) == ("scope", "sub", "http://a/keys")


# --- keys ---------------------------------------------------------------------------------------------------


async def test_without_keys_there_is_no_start(tmp_path: Path) -> None:
    pytest.importorskip("joserfc", reason="needs joserfc, of the extra `security`")
    with pytest.raises(StartError, match=r"SASL_PLAINTEXT aren't available: can't read .*"):
        await started(tmp_path, *SETTINGS, HANDLER, AUDIENCE, ISSUER, f"{URL}file:{tmp_path}/none")


async def test_without_the_package_there_is_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("joserfc", "joserfc.errors", "joserfc.jwk", "joserfc.jws"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    (tmp_path / "keys").write_text('{"keys": []}')
    with pytest.raises(StartError, match=r"pip install 'barnabas\[security\]'"):
        await started(tmp_path, *SETTINGS, HANDLER, AUDIENCE, ISSUER, f"{URL}file:{tmp_path}/keys")


@pytest.mark.parametrize("handler", [HANDLER, OLD_HANDLER])
async def test_tokens_are_verified_by_the_keys_of_a_file(tmp_path: Path, handler: str) -> None:
    pytest.importorskip("joserfc", reason="needs joserfc, of the extra `security`")
    with TokenIssuer(issuer="https://idp", audience="kafka") as issuer:
        (tmp_path / "keys").write_text(json.dumps(issuer.jwks()))
        node = await started(tmp_path, *SETTINGS, handler, AUDIENCE, ISSUER, f"{URL}file:{tmp_path}/keys")
        now_s = clock_of(node).now_ms() // 1000
        with connected(node) as client:
            token = issuer.token("alice", iat=now_s, exp=now_s + 60)
            assert (await session(client, token)).session_lifetime_ms == 60_000


def test_a_refresh_is_due_again_and_again() -> None:
    due: list[tuple[int, Callable[[], None]]] = []

    class Timers:
        def schedule(self, key: object, delay_ms: int, callback: Callable[[], None]) -> None:
            due.append((delay_ms, callback))

    fetches: list[None] = []
    source = token_source.TokenSource(lambda token, now_ms: None, lambda: fetches.append(None), 5)  # type: ignore[arg-type,return-value]
    source.validating(Timers())
    for _ in range(3):
        delay_ms, callback = due.pop()
        assert delay_ms == 5
        callback()
    assert len(fetches) == 3
