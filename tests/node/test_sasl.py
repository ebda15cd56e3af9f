"""A listener at which clients sign in: what is served before, how long it holds, and who waits."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from broker.config.definitions import UsageError
from broker.network.answers import CloseConnectionError
from broker.network.sasl_gate import ADMITTED, SaslGate, SignIn
from broker.security.authorizer import ANONYMOUS, Principal
from broker.server import Server
from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages.configs import AlterClientQuotasRequest, AlterEntryData, EntityData, OpData
from protocol.messages.metadata import ApiVersionsRequest, MetadataRequest
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.support.whole_server import clock_of, configured, started
from tests.support.wire import Client, Outcome, frame, header

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret" user_bob="bob";'
PREFIX = "listener.name.sasl_plaintext."
SETTINGS = (
    "listeners=SASL_PLAINTEXT://127.0.0.1:0",
    "inter.broker.listener.name=SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=PLAIN",
    f"{PREFIX}plain.sasl.jaas.config={JAAS}",
)
ALICE, BOB = b"\0alice\0alice-secret", b"\0bob\0bob"


async def serving(folder: Path, *settings: str) -> Server:
    return await started(folder, *SETTINGS, *settings)


def connected(node: Server) -> Client:
    [listener] = node.listeners.values()
    return Client.connect(listener.port)


async def shaken(client: Client, mechanism: str = "PLAIN") -> Any:
    return await client.answer(SaslHandshakeRequest(mechanism=mechanism), 1)


async def told(client: Client, token: bytes) -> Any:
    return await client.answer(SaslAuthenticateRequest(auth_bytes=token), 2)


async def principal_of(node: Server) -> Principal:
    [listener] = node.listeners.values()
    [connection] = listener.connections
    return connection.principal


async def test_a_client_is_served_as_the_user_it_signed_in_as(tmp_path: Path) -> None:
    node = await serving(tmp_path)
    with connected(node) as client:
        assert (await shaken(client)).error_code == Error.NONE
        assert await principal_of(node) == ANONYMOUS
        assert (await told(client, ALICE)).error_code == Error.NONE
        assert await principal_of(node) == Principal("User", "alice")
        await client.answer(MetadataRequest(topics=[]), 12)


class Served:
    """Stands in for the dispatcher, and notes the requests that it is given."""

    def __init__(self, keys: list[int]) -> None:
        self.keys = keys

    def monotonic_s(self) -> float:
        return 0.0

    def serve(self, connection: Any, data: memoryview) -> list[bytes]:
        self.keys.append(int.from_bytes(data[:2]))
        return [bytes(10)]


def _gate(keys: list[int]) -> SaslGate:
    from broker.network.sasl_gate import SaslSettings

    return SaslGate(SaslSettings({}, {}, 0, 1, lambda: 0), Served(keys), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", SignIn)
def test_each_state_lets_through_the_requests_of_its_table(state: SignIn) -> None:
    admitted = ADMITTED[state]
    for api_key in APIS:
        keys: list[int] = []
        gate = _gate(keys)
        gate.state = state
        connection = _NobodysConnection()
        if state in (SignIn.TOKENS, SignIn.AGAIN, SignIn.BARE_TOKENS) and (
            admitted is None or api_key not in admitted
        ):
            gate._scheduler = _NeverScheduler()  # type: ignore[assignment]
            gate.serve(connection, memoryview(header(api_key, APIS[api_key].max_version, 1)))  # type: ignore[arg-type]
            assert gate.state is SignIn.FAILED or state is SignIn.BARE_TOKENS
        elif admitted is None or api_key in admitted:
            gate.serve(connection, memoryview(header(api_key, APIS[api_key].max_version, 1)))  # type: ignore[arg-type]
            assert keys == [api_key]
            continue
        else:
            with pytest.raises(CloseConnectionError):
                gate.serve(connection, memoryview(header(api_key, APIS[api_key].max_version, 1)))  # type: ignore[arg-type]
        assert keys == []


class _NobodysConnection:
    principal = ANONYMOUS

    class listener:
        name = "SASL_PLAINTEXT"

        @staticmethod
        def not_signed_in(client: str, mechanism: str, why: str) -> None:
            """Do nothing: nobody wants to know."""

    def answer_and_hang_up(self, answer: Any) -> None:
        """Do nothing: nobody reads the answer."""


class _NeverScheduler:
    def call_later(self, *arguments: Any) -> None:
        """Do nothing: the time never comes."""


@pytest.mark.limit("broker.network.sasl_gate.LONGEST_SIGN_IN_S")
async def test_a_client_that_does_not_sign_in_is_hung_up_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await serving(tmp_path)
    monkeypatch.setattr("broker.network.sasl_gate.LONGEST_SIGN_IN_S", 0.0)
    with connected(node) as client:
        assert await asyncio.to_thread(client.receive_frame) is Outcome.CLOSED
    await _nobody_is_connected(node)
    assert node.listeners["SASL_PLAINTEXT"].failed_authentications.total() == 1


async def test_a_client_that_has_signed_in_or_gone_has_no_deadline_any_more(tmp_path: Path) -> None:
    node = await serving(tmp_path)
    with connected(node) as client:
        await shaken(client)
        [connection] = node.listeners["SASL_PLAINTEXT"].connections
        assert connection.gate is not None
        assert connection.gate._deadline is not None
        await told(client, ALICE)
        assert connection.gate._deadline is None
    with connected(node) as client:
        await shaken(client)
        [connection] = {*node.listeners["SASL_PLAINTEXT"].connections} - {connection}
        assert connection.gate is not None
    await _nobody_is_connected(node)
    assert connection.gate._deadline is None


async def test_a_failed_sign_in_is_answered_after_a_while_and_hung_up_on(tmp_path: Path) -> None:
    node = await serving(tmp_path, "connection.failed.authentication.delay.ms=1")
    with connected(node) as client:
        await shaken(client)
        answer = await told(client, b"\0alice\0wrong")
        assert answer.error_code == Error.SASL_AUTHENTICATION_FAILED
        with pytest.raises(ConnectionError):
            await client.answer(MetadataRequest(topics=[]), 12)
    await _nobody_is_connected(node)


async def _nobody_is_connected(node: Server) -> None:
    [listener] = node.listeners.values()
    while listener.connections:
        await asyncio.sleep(0)


async def test_no_quota_is_charged_during_signing_in(tmp_path: Path) -> None:
    """A throttled connection couldn't also wait for the delay of a failed attempt."""
    node = await serving(tmp_path, "connection.failed.authentication.delay.ms=0")
    with connected(node) as client:
        await shaken(client)
        await told(client, ALICE)
        tiny = OpData(key="request_percentage", value=0.0001, remove=False)
        entities = [
            [EntityData(entity_type="user", entity_name="ANONYMOUS")],
            [EntityData(entity_type="client-id", entity_name=None)],
        ]
        entries = [AlterEntryData(entity=each, ops=[tiny]) for each in entities]
        answer = await client.answer(AlterClientQuotasRequest(entries=entries, validate_only=False), 1)
        assert {each.error_code for each in answer.entries} == {Error.NONE}
    node.dispatcher.monotonic_s = time.monotonic  # it takes time
    for _ in range(3):
        with connected(node) as client:
            await shaken(client)
            assert (await told(client, b"\0alice\0wrong")).error_code == Error.SASL_AUTHENTICATION_FAILED
    assert node.failure is None
    await _nobody_is_connected(node)


async def test_a_frame_is_short_before_signing_in_and_as_long_as_any_later(tmp_path: Path) -> None:
    node = await serving(tmp_path, "sasl.server.max.receive.size=100")
    with connected(node) as client:
        await shaken(client)
        await told(client, ALICE)
        await client.answer(
            ApiVersionsRequest(client_software_name="x" * 200, client_software_version="1"), 3
        )
    with connected(node) as client:
        client.send_bytes(frame(bytes(101)))
        with pytest.raises(ConnectionError):
            await shaken(client)
    await _nobody_is_connected(node)


async def test_a_session_lasts_its_time_and_longer_if_its_client_signs_in_again(tmp_path: Path) -> None:
    node = await serving(tmp_path, "connections.max.reauth.ms=60000")
    clock = clock_of(node)
    with connected(node) as client:
        await shaken(client)
        assert (await told(client, ALICE)).session_lifetime_ms == 60_000
        clock.advance_ms(59_000)
        assert (await shaken(client)).error_code == Error.NONE
        assert (await told(client, ALICE)).error_code == Error.NONE
        clock.advance_ms(59_000)
        await client.answer(MetadataRequest(topics=[]), 12)
        clock.advance_ms(2_000)
        with pytest.raises(ConnectionError):
            await client.answer(MetadataRequest(topics=[]), 12)
    await _nobody_is_connected(node)


@pytest.mark.limit("broker.network.sasl_gate.MIN_BETWEEN_MS")
async def test_a_client_signs_in_again_once_a_second_at_most(tmp_path: Path) -> None:
    node = await serving(tmp_path, "connections.max.reauth.ms=60000")
    with connected(node) as client:
        await shaken(client)
        await told(client, ALICE)
        for later_ms, error in ((0, Error.NONE), (999, Error.ILLEGAL_SASL_STATE), (1, Error.NONE)):
            clock_of(node).advance_ms(later_ms)
            assert (await shaken(client)).error_code == error
            if error == Error.NONE:
                await told(client, ALICE)
        await client.answer(MetadataRequest(topics=[]), 12)


async def test_even_late_a_client_may_sign_in_again(tmp_path: Path) -> None:
    node = await serving(tmp_path, f"{PREFIX}plain.connections.max.reauth.ms=60000")
    with connected(node) as client:
        await shaken(client)
        await told(client, ALICE)
        clock_of(node).advance_ms(61_000)
        assert (await shaken(client)).error_code == Error.NONE
        await told(client, ALICE)
        await client.answer(MetadataRequest(topics=[]), 12)


async def test_signing_in_again_cannot_change_the_user(tmp_path: Path) -> None:
    node = await serving(
        tmp_path, "connections.max.reauth.ms=60000", "connection.failed.authentication.delay.ms=0"
    )
    with connected(node) as client:
        await shaken(client)
        await told(client, ALICE)
        await shaken(client)
        answer = await told(client, BOB)
        assert answer.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.bob"
        )
        with pytest.raises(ConnectionError):
            await client.answer(MetadataRequest(topics=[]), 12)
    await _nobody_is_connected(node)


async def test_requests_after_the_last_token_are_served_as_the_user_signed_in(tmp_path: Path) -> None:
    """A client may send on before it is answered."""
    node = await serving(tmp_path)
    with connected(node) as client:
        requests = [
            (SaslHandshakeRequest(mechanism="PLAIN"), 1),
            (SaslAuthenticateRequest(auth_bytes=ALICE), 2),
        ]
        made = [client.made(*each) for each in (*requests, (MetadataRequest(topics=[]), 12))]
        client.send_bytes(b"".join(data for _, data in made))
        for sent, _ in made:
            while (answer := client.receive(sent, within_s=0)) is Outcome.SILENCE:
                await asyncio.sleep(0)
            assert not isinstance(answer, Outcome)
        assert await principal_of(node) == Principal("User", "alice")


# --- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "told_"),
    [
        (["sasl.enabled.mechanisms=GSSAPI"], "GSSAPI isn't built"),
        ([f"{PREFIX}sasl.enabled.mechanisms=DIGEST-MD5"], "DIGEST-MD5 isn't built"),
        ([f"{PREFIX}plain.sasl.jaas.config="], "has to say who may sign in"),
        (
            [f"{PREFIX}plain.sasl.jaas.config=a.B required user_alice=topsecret;"],
            "no Java class can be loaded",
        ),
        ([f"{PREFIX}plain.sasl.jaas.config=a.B required user_alice=topsecret"], "with the semicolon"),
    ],
)
def test_an_impossible_setting_is_reported_at_the_start_without_a_password(
    tmp_path: Path, settings: list[str], told_: str
) -> None:
    with pytest.raises(UsageError) as refused:
        configured(tmp_path, *SETTINGS, *settings)
    assert told_ in str(refused.value)
    assert "topsecret" not in str(refused.value)


def test_scram_alone_needs_no_line_of_jaas(tmp_path: Path) -> None:
    config = configured(
        tmp_path, *SETTINGS[:2], "sasl.enabled.mechanisms=SCRAM-SHA-512", "connections.max.reauth.ms=5"
    )
    assert config.sasl["SASL_PLAINTEXT"].mechanisms == ("SCRAM-SHA-512",)
    assert config.sasl["SASL_PLAINTEXT"].max_reauth_ms == {"SCRAM-SHA-512": 5}
