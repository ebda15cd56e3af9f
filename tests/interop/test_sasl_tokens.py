"""Signing in by OAUTHBEARER, good and bad: the same conversations with Apache Kafka and barnabas come to the same."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

pytest.importorskip("joserfc", reason="needs joserfc, of the extra `security`")

import barnabas
from barnabas.tokens import TokenIssuer, unsecured_token
from tests.interop.test_sasl import Conversation
from tests.support import apache_kafka
from tests.support.ports import free_ports
from tests.support.wire import Client

pytestmark = pytest.mark.xdist_group("apache_kafka")

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
LISTENERS = ("UNSECURED", "SCOPED", "SIGNED", "LENIENT")
AUDIENCE, ISSUER = "kafka", "https://idp"
SCOPED = (
    'unsecuredLoginStringClaim_sub="admin" unsecuredValidatorPrincipalClaimName="name" '
    'unsecuredValidatorScopeClaimName="scp" '
    'unsecuredValidatorRequiredScope="read write" unsecuredValidatorAllowableClockSkewMs="60000"'
)


def settings(issuer: TokenIssuer) -> dict[str, str]:
    protocols = ",".join(f"{name}:SASL_PLAINTEXT" for name in LISTENERS)
    found = {
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{protocols}",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "0",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.jwks_url,
        "listener.name.signed.sasl.oauthbearer.expected.audience": f"other, {AUDIENCE}",
        "listener.name.signed.sasl.oauthbearer.expected.issuer": ISSUER,
        "listener.name.lenient.sasl.oauthbearer.allow.unverified.audience": "true",
        "listener.name.lenient.sasl.oauthbearer.allow.unverified.issuer": "true",
        "listener.name.lenient.sasl.oauthbearer.scope.claim.name": "scp",
        "listener.name.lenient.sasl.oauthbearer.sub.claim.name": "name",
        "listener.name.lenient.sasl.oauthbearer.clock.skew.seconds": "3600",
        "listener.name.lenient.oauthbearer.connections.max.reauth.ms": "2500000",
    }
    for name in LISTENERS:
        options = f" {SCOPED}" if name == "SCOPED" else ""
        found[f"listener.name.{name.lower()}.oauthbearer.sasl.jaas.config"] = f"{MODULE} required{options};"
    for name in ("signed", "lenient"):
        found[f"listener.name.{name}.oauthbearer.sasl.server.callback.handler.class"] = HANDLER
    return found


def listening(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer(algorithm="RS256", issuer=ISSUER, audience=AUDIENCE) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def kafka(
    needs_kafka: object, tmp_path_factory: pytest.TempPathFactory, issuer: TokenIssuer
) -> Iterator[Mapping[str, int]]:
    """The ports of Kafka's listeners."""
    ports = dict(zip(("PLAINTEXT", "CONTROLLER", *LISTENERS), free_ports(6), strict=True))
    lines = [f"{name}={value}" for name, value in settings(issuer).items()]
    quorum = f"controller.quorum.voters=1@127.0.0.1:{ports['CONTROLLER']}"
    with pytest.MonkeyPatch.context() as patch:
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.jwks_url}"
        patch.setenv("JAVA_TOOL_OPTIONS", allowed)
        folder = tmp_path_factory.mktemp("kafka")
        with apache_kafka.running(folder, f"listeners={listening(ports)}", quorum, *lines):
            yield ports


@pytest.fixture(scope="module")
def ours(issuer: TokenIssuer) -> Iterator[Mapping[str, int]]:
    ports = dict(zip(("PLAINTEXT", *LISTENERS), free_ports(5), strict=True))
    with barnabas.Broker(config={**settings(issuer), "listeners": listening(ports)}):
        yield ports


# --- tokens -------------------------------------------------------------------------------------------------

LIFETIME_S = 5_500


def written(*parts: object) -> str:
    """Parts as they are given, or as JSON."""
    texts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in parts]
    return ".".join(base64.urlsafe_b64encode(text).rstrip(b"=").decode() for text in texts)


def unsecured(**claims: Any) -> str:
    return unsecured_token("alice", **{"lifetime": LIFETIME_S, **claims})


def with_body(body: object, header: object = None) -> str:
    return written({"alg": "none"} if header is None else header, body) + "."


def now() -> int:
    return int(time.time())


def scoped(**claims: Any) -> str:
    return unsecured(**{"sub": None, "name": "bob", "scp": ["write", "read", "more"], **claims})


Make = Callable[[TokenIssuer], str]
TOKENS: dict[str, tuple[str, Make]] = {}
"""By name: at which listener, and the token."""


def at(listener: str, **tokens: Make) -> None:
    TOKENS.update({f"{listener.lower()}_{name}": (listener, make) for name, make in tokens.items()})


at(
    "UNSECURED",
    good=lambda _: unsecured(),
    without_iat=lambda _: unsecured(iat=None),
    with_fractions=lambda _: unsecured(iat=now() - 0.5, exp=now() + 5_500.5),
    expired=lambda _: unsecured(iat=now() - 20, exp=now() - 10),
    of_the_future=lambda _: unsecured(iat=now() + 100),
    ended_before_it_began=lambda _: unsecured(iat=now() - 5, exp=now() - 5),
    no_exp=lambda _: unsecured(exp=None),
    exp_a_text=lambda _: unsecured(exp="9999999999"),
    exp_null=lambda _: with_body({"sub": "alice", "exp": None}),
    exp_of_a_boolean=lambda _: unsecured(exp=True),
    iat_a_text=lambda _: unsecured(iat="1"),
    no_sub=lambda _: unsecured(sub=None),
    sub_a_number=lambda _: unsecured(sub=5),
    sub_true=lambda _: unsecured(sub=True),
    sub_null=lambda _: with_body({"sub": None, "exp": now() + LIFETIME_S}),
    sub_an_object=lambda _: unsecured(sub={"a": 1}),
    sub_a_list=lambda _: unsecured(sub=["alice"]),
    sub_blank=lambda _: unsecured(sub="  "),
    sub_empty=lambda _: unsecured(sub=""),
    sub_in_other_letters=lambda _: unsecured(sub="Ünïcødé 用户"),
    scope_a_number=lambda _: unsecured(scope=5),
    scope_an_object=lambda _: unsecured(scope={}),
    alg_of_another_case=lambda _: with_body({"sub": "alice", "exp": now() + LIFETIME_S}, {"alg": "NONE"}),
    alg_null=lambda _: with_body({"sub": "alice", "exp": now() + LIFETIME_S}, {"alg": None}),
    alg_a_number=lambda _: with_body({"sub": "alice", "exp": now() + LIFETIME_S}, {"alg": 5}),
    signed=lambda _: unsecured() + "AAAA",
    signed_by_the_issuer=lambda issuer: issuer.token("alice"),
    two_parts=lambda _: unsecured().rstrip("."),
    four_parts=lambda _: unsecured() + "AA.AA",
    two_dots=lambda _: "a..b",
    one_part=lambda _: "abc",
    empty_claims=lambda _: with_body(b" "),
    claims_that_are_no_json=lambda _: with_body(b"{"),
    claims_that_are_a_list=lambda _: with_body([1]),
    claims_that_are_no_base64=lambda _: written({"alg": "none"}) + ".a+b.",
    claims_of_five_characters=lambda _: written({"alg": "none"}) + ".abcde.",
    header_that_is_no_json=lambda _: with_body({"sub": "alice", "exp": now() + LIFETIME_S}, b"{"),
    json_with_a_rest=lambda _: with_body(b'{"sub": "alice", "exp": %d} rest' % (now() + LIFETIME_S)),
    a_name_twice=lambda _: with_body(b'{"sub": "bob", "sub": "alice", "exp": %d}' % (now() + LIFETIME_S)),
    no_utf8=lambda _: with_body(b'{"sub": "\xff", "exp": %d}' % (now() + LIFETIME_S)),
    a_control_character=lambda _: with_body(b'{"sub": "a\x07", "exp": %d}' % (now() + LIFETIME_S)),
)
at(
    "SCOPED",
    good=lambda _: scoped(),
    within_the_skew=lambda _: scoped(iat=now() - 100, exp=now() - 10),
    beyond_the_skew=lambda _: scoped(iat=now() - 200, exp=now() - 70),
    issued_within_the_skew=lambda _: scoped(iat=now() + 30),
    no_scope=lambda _: scoped(scp=None),
    one_scope_missing=lambda _: scoped(scp=["read"]),
    scopes_as_one_text=lambda _: scoped(scp="read write"),
    scopes_with_spaces=lambda _: scoped(scp=[" read", "write ", " "]),
    the_wrong_claim=lambda _: scoped(name=None, sub="alice"),
    no_scope_and_expired=lambda _: scoped(scp=None, iat=None, exp=now() - 100),
)
at(
    "SIGNED",
    good=lambda issuer: issuer.token("alice", lifetime=LIFETIME_S),
    with_spaces=lambda issuer: issuer.token(" alice ", lifetime=LIFETIME_S),
    one_audience_of_two=lambda issuer: issuer.token("alice", lifetime=LIFETIME_S, aud=["x", "other"]),
    scopes=lambda issuer: issuer.token("alice", lifetime=LIFETIME_S, scope=["a", "b"]),
    scope_of_another_kind=lambda issuer: issuer.token("alice", lifetime=LIFETIME_S, scope=5),
    within_the_skew=lambda issuer: issuer.token("alice", iat=now() - 100, exp=now() - 10),
    expired=lambda issuer: issuer.expired_token("alice"),
    of_the_future=lambda issuer: issuer.token("alice", lifetime=LIFETIME_S, iat=now() + 1_000),
    not_yet=lambda issuer: issuer.token("alice", lifetime=LIFETIME_S, nbf=now() + 1_000),
    begins_behind_its_end=lambda issuer: issuer.token("alice", iat=now() + 9_000, exp=now() + 8_000),
    no_exp=lambda issuer: issuer.token("alice", exp=None),
    no_iat=lambda issuer: issuer.token("alice", iat=None),
    iat_before_1970=lambda issuer: issuer.token("alice", iat=-5),
    exp_a_text=lambda issuer: issuer.token("alice", exp=str(now() + 60)),
    exp_with_a_fraction=lambda issuer: issuer.token("alice", exp=now() + LIFETIME_S + 0.5),
    no_sub=lambda issuer: issuer.token("alice", sub=None),
    sub_a_number=lambda issuer: issuer.token("alice", sub=5),
    sub_blank=lambda issuer: issuer.token("  "),
    jti_a_number=lambda issuer: issuer.token("alice", lifetime=LIFETIME_S, jti=5),
    another_audience=lambda issuer: issuer.token("alice", aud="else"),
    no_audience=lambda issuer: issuer.token("alice", aud=None),
    audience_a_number=lambda issuer: issuer.token("alice", aud=5),
    another_issuer=lambda issuer: issuer.token("alice", iss="https://else"),
    no_issuer=lambda issuer: issuer.token("alice", iss=None),
    scope_empty=lambda issuer: issuer.token("alice", scope=""),
    scope_twice=lambda issuer: issuer.token("alice", scope=["a", "a"]),
    scope_blank_in_a_list=lambda issuer: issuer.token("alice", scope=["a", " "]),
    unsecured=lambda _: unsecured(iss=ISSUER, aud=AUDIENCE),
    without_its_signature=lambda issuer: issuer.token("alice").rpartition(".")[0] + ".",
    of_another_signature=lambda issuer: flipped(issuer.token("alice")),
    of_other_claims=lambda issuer: swapped(issuer.token("alice"), issuer.token("bob")),
    of_four_parts=lambda issuer: issuer.token("alice") + ".AA",
    with_a_dot_behind=lambda issuer: issuer.token("alice") + ".",
    by_an_unknown_key=lambda issuer: issuer.token("alice", lifetime=60) and by_another_key(),
    by_a_secret_that_is_the_public_key=lambda issuer: confused(issuer),
    nonsense=lambda _: "a.b.c",
)
at(
    "LENIENT",
    good=lambda issuer: issuer.token("x", name="alice", lifetime=LIFETIME_S, aud=None, iss=None),
    any_audience=lambda issuer: issuer.token("x", name="alice", lifetime=LIFETIME_S, aud="any", iss="any"),
    issuer_a_number=lambda issuer: issuer.token("x", name="alice", lifetime=LIFETIME_S, iss=5),
    audience_a_number=lambda issuer: issuer.token("x", name="alice", lifetime=LIFETIME_S, aud=5),
    of_the_wrong_claim=lambda issuer: issuer.token("alice"),
    scope_twice=lambda issuer: issuer.token("x", name="alice", scp=["a", "a"]),
    ended_within_the_skew=lambda issuer: issuer.token("x", name="alice", iat=now() - 900, exp=now() - 600),
)


def flipped(token: str) -> str:
    """The token with a changed first byte of its signature."""
    head, _, signature = token.rpartition(".")
    return f"{head}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"


def swapped(token: str, other: str) -> str:
    """The token with the claims of the other one."""
    head, _, signature = token.split(".")
    return f"{head}.{other.split('.')[1]}.{signature}"


def by_another_key() -> str:
    """Whose id is that of the issuer's key."""
    with TokenIssuer(algorithm="RS256", issuer=ISSUER, audience=AUDIENCE) as other:
        return other.token("alice")


def confused(issuer: TokenIssuer) -> str:
    """Signed as with a secret (HS256) by what everybody can read: the issuer's public key."""
    from joserfc.jwk import RSAKey

    public = issuer.jwks()["keys"][0]
    claims = {"sub": "alice", "iat": now(), "exp": now() + 60, "iss": ISSUER, "aud": AUDIENCE}
    signed = written({"alg": "HS256", "kid": public["kid"]}, claims)
    secret = RSAKey.import_key(public).as_pem(private=False)
    signature = hmac.digest(secret, signed.encode(), "sha256")
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


# --- conversations ------------------------------------------------------------------------------------------


def first(token: str, header: str = "n,,", scheme: str = "Bearer ", rest: str = "") -> bytes:
    return f"{header}\x01auth={scheme}{token}\x01{rest}\x01".encode()


def heard(port: int, *messages: bytes, works: bool = True) -> list[Any]:
    """What came of the messages, with lifetimes in thousands of seconds: clocks go on."""
    with Client.connect(port) as client:
        talk = Conversation(client)
        talk.versions()
        talk.shake("OAUTHBEARER")
        for message in messages:
            talk.token(message)
        if works:
            talk.works()
    return [
        (*each[:3], each[3] // 1_000_000) if isinstance(each, tuple) and len(each) == 4 else each
        for each in talk.heard
    ]


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_is_judged_as_by_kafka(
    name: str, kafka: Mapping[str, int], ours: Mapping[str, int], issuer: TokenIssuer
) -> None:
    """What is refused is acknowledged, as clients do."""
    listener, make = TOKENS[name]
    token = make(issuer)
    answers = [heard(ports[listener], first(token)) for ports in (ours, kafka)]
    assert answers[0] == answers[1]
    if b"status" in answers[1][2][2]:
        answers = [heard(ports[listener], first(token), b"\x01") for ports in (ours, kafka)]
        assert answers[0] == answers[1]
        assert answers[1][3][0] != 0


GOOD = unsecured()
MESSAGES: dict[str, tuple[bytes, ...]] = {
    "acts as itself": (first(GOOD, "n,a=alice,"),),
    "acts as another": (first(GOOD, "n,a=bob,"),),
    "acts as one with a comma": (first(GOOD, "n,a=b=2Cob,"),),
    "acts as nobody": (first(GOOD, "n,a=,"),),
    "an extension": (first(GOOD, rest="traceId=123\x01"),),
    "an extension of several lines": (first(GOOD, rest="a=1 \t\r\n=\x01b=2\x01"),),
    "an extension with a digit": (first(GOOD, rest="a1=1\x01"),),
    "an extension without a value": (first(GOOD, rest="a=\x01"),),
    "a scheme in small letters": (first(GOOD, scheme="bearer  "),),
    "no scheme": (first(GOOD, scheme=""),),
    "auth twice": (first("a.b.c", rest=f"auth=Bearer {GOOD}\x01"),),
    "no auth": (b"n,,\x01host=a\x01\x01",),
    "nothing": (b"",),
    "no pairs": (b"n,,\x01\x01",),
    "channel binding": (first(GOOD, "y,,"),),
    "no end": (first(GOOD)[:-1],),
    "bytes behind": (first(GOOD) + b"x",),
    "no utf-8": (b"n,,\x01auth=Bearer \xff\x01\x01",),
    "padding": (first("a.b.c=="),),
    "an acknowledgment of nothing": (b"\x01",),
    "a good token behind a bad one": (first("a.b.c"), first(GOOD)),
    "nonsense behind a bad token": (first("a.b.c"), b"x"),
    "two bad tokens": (first("a.b.c"), first("a.b.c"), b"\x01"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_are_answered_as_by_kafka(
    name: str, kafka: Mapping[str, int], ours: Mapping[str, int]
) -> None:
    answers = [heard(ports["UNSECURED"], *MESSAGES[name]) for ports in (ours, kafka)]
    assert answers[0] == answers[1]


_REFUSED = (0, "", b'{"status":"invalid_token"}', 0)
STUMBLES: dict[str, tuple[bytes, Any]] = {
    "no algorithm": (first(with_body({"sub": "alice", "exp": now() + LIFETIME_S}, {})), _REFUSED),
    "a header that is a list": (first(with_body({"sub": "alice", "exp": now() + LIFETIME_S}, [])), _REFUSED),
    "a lifetime of millennia": (first(unsecured(exp=10**13)), (0, "", b"", 10**10 - now() // 1000 - 1)),
    "another scheme": (
        first(GOOD, scheme="Basic "),
        (
            58,
            "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER",
            b"",
            0,
        ),
    ),
}
"""Where Kafka fails, and closes without an answer: the message, and our answer."""


@pytest.mark.parametrize("name", STUMBLES)
def test_inputs_that_make_kafka_stumble(name: str, kafka: Mapping[str, int], ours: Mapping[str, int]) -> None:
    message, answer = STUMBLES[name]
    assert heard(kafka["UNSECURED"], message, works=False)[-1] == "closed"
    told = heard(ours["UNSECURED"], message, works=False)[-1]
    assert told == answer or (told[:3] == answer[:3] and abs(told[3] - answer[3]) <= 1)


# --- signing in again ---------------------------------------------------------------------------------------


def again(port: int, *tokens: str) -> list[Any]:
    with Client.connect(port) as client:
        talk = Conversation(client)
        for token in tokens:
            talk.shake("OAUTHBEARER")
            talk.token(first(token))
        talk.works()
    return [
        (*each[:3], each[3] // 1_000_000) if isinstance(each, tuple) and len(each) == 4 else each
        for each in talk.heard
    ]


@pytest.mark.parametrize("claims", [{}, {"sub": "bob"}, {"exp": 5}], ids=str)
def test_signing_in_again_requires_the_same_user(
    claims: dict[str, Any], kafka: Mapping[str, int], ours: Mapping[str, int]
) -> None:
    tokens = (unsecured(), unsecured(**claims))
    assert again(ours["UNSECURED"], *tokens) == again(kafka["UNSECURED"], *tokens)
