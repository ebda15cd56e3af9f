"""PLAIN, SCRAM and lines of JAAS. (`tests/interop/test_sasl.py` compares whole conversations with Kafka's.)"""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.controller.scram_decisions import derived_keys
from broker.security.sasl import (
    LONGEST_MESSAGE,
    InvalidCredentialsError,
    JaasError,
    Mechanism,
    PlainMechanism,
    SaslRefusal,
    ScramCredential,
    ScramMechanism,
    jaas_options,
    passwords_of,
)

PASSWORDS = {"alice": "alice-secret", "müller": "größe"}


def credential(password: str, salt: bytes, digest: str = "sha256", code: int = 1) -> ScramCredential:
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, 4096)
    return ScramCredential(salt, *derived_keys(code, salted), 4096)


USER = credential("pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="))


def scram(
    found: ScramCredential | None = USER, nonce: str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
) -> ScramMechanism:
    return ScramMechanism(1, lambda code, name: found if (code, name) == (1, "user") else None, lambda: nonce)


# --- PLAIN --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("user", "password"), PASSWORDS.items())
@pytest.mark.parametrize("acts_as_itself", [False, True])
def test_plain_accepts_a_user_with_the_password(user: str, password: str, acts_as_itself: bool) -> None:
    mechanism = PlainMechanism(PASSWORDS)
    assert mechanism.evaluate(f"{user if acts_as_itself else ''}\0{user}\0{password}".encode()) == b""
    assert (mechanism.is_complete, mechanism.user) == (True, user)


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0alice-secre",
        b"\0alice\0alice-secret\0",
        b"\0Alice\0alice-secret",
        b"\0mallory\0\x00",
        b"\0mallory\0alice-secret",
        b"admin\0alice\0alice-secret",
        b"\0alice\0",
        b"\0\0alice-secret",
        b"",
    ],
)
def test_plain_accepts_nobody_else(token: bytes) -> None:
    mechanism = PlainMechanism(PASSWORDS)
    with pytest.raises(SaslRefusal):
        mechanism.evaluate(token)
    assert (mechanism.is_complete, mechanism.user) == (False, "")


def test_an_unknown_user_and_a_wrong_password_get_the_same_answer() -> None:
    told = set()
    for token in (b"\0alice\0wrong", b"\0mallory\0wrong"):
        with pytest.raises(SaslRefusal) as refused:
            PlainMechanism(PASSWORDS).evaluate(token)
        told.add(str(refused.value))
    assert told == {"Authentication failed: Invalid username or password"}


# --- SCRAM --------------------------------------------------------------------------------------------------

FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
NONCE = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FINAL = f"c=biws,r={NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()


def test_scram_follows_the_rfcs_example() -> None:
    """The example is in RFC 7677, section 3."""
    mechanism = scram()
    assert mechanism.evaluate(FIRST) == f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert not mechanism.is_complete
    assert mechanism.evaluate(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert (mechanism.is_complete, mechanism.user) == (True, "user")


def test_messages_of_one_conversation_prove_nothing_in_another() -> None:
    mechanism = scram(nonce="another")
    mechanism.evaluate(FIRST)
    with pytest.raises(InvalidCredentialsError, match="nonce"):
        mechanism.evaluate(FINAL)
    replayed = FINAL.replace(NONCE.encode(), b"rOprNGfwEbeRWgbNEkqOanother")
    mechanism = scram(nonce="another")
    mechanism.evaluate(FIRST)
    with pytest.raises(InvalidCredentialsError, match="proof is wrong"):
        mechanism.evaluate(replayed)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"n,,n=mallory,r=x", "no such credential"),
        (b"y,,n=user,r=x", "in the format"),
        (b"p=tls-unique,,n=user,r=x", "in the format"),
        (b"n,,n=us=er,r=x", "in the format"),
        (b"n,,n=user", "in the format"),
        (b"n,,n=user,r=x,tokenauth=true", "delegation token"),
        (b"n,,n=user,r=x\n", "in the format"),
        (b"\xff", "in the format"),
    ],
)
def test_scram_challenges_no_other_first_message(first: bytes, why: str) -> None:
    with pytest.raises(InvalidCredentialsError, match=why):
        scram().evaluate(first)


def test_scram_lets_no_user_act_as_another() -> None:
    with pytest.raises(SaslRefusal, match="different from username"):
        scram().evaluate(b"n,a=admin,n=user,r=x")


@pytest.mark.limit("broker.security.sasl.MIN_ITERATIONS")
def test_a_credential_of_too_few_iterations_signs_nobody_in() -> None:
    with pytest.raises(InvalidCredentialsError, match="4095 iterations"):
        scram(USER._replace(iterations=4095)).evaluate(FIRST)


@pytest.mark.parametrize("proof", [b"", b"AAAA", b"eHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="])
def test_scram_takes_no_other_proof(proof: bytes) -> None:
    mechanism = scram()
    mechanism.evaluate(FIRST)
    with pytest.raises(InvalidCredentialsError):
        mechanism.evaluate(FINAL.partition(b",p=")[0] + b",p=" + proof)
    assert not mechanism.is_complete


@given(st.lists(st.binary() | st.sampled_from([FIRST, FINAL, b"n,,n=user,r=x", b"\0a\0b"]), max_size=4))
def test_nonsense_comes_to_a_refusal_and_to_nobody(tokens: list[bytes]) -> None:
    """Anybody may send these bytes. They cause no other error, and sign nobody in."""
    mechanisms: list[Mechanism] = [scram(nonce="x"), PlainMechanism(PASSWORDS)]
    for mechanism in mechanisms:
        for token in tokens:
            try:
                mechanism.evaluate(token)
            except (SaslRefusal, InvalidCredentialsError):
                break
        assert not mechanism.is_complete


# --- JAAS ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "module", "options"),
    [
        ('a.B required user_a="x";', "a.B", {"user_a": "x"}),
        ("a.B required user_a=x user_b=y;", "a.B", {"user_a": "x", "user_b": "y"}),
        (
            'a.B REQUIRED\n  user_a = "x y"\n  user_b="q\\"u;o=te" ;\n',
            "a.B",
            {"user_a": "x y", "user_b": 'q"u;o=te'},
        ),
        ("a.B required;", "a.B", {}),
    ],
)
def test_a_line_of_jaas_has_a_class_and_options(line: str, module: str, options: dict[str, str]) -> None:
    assert jaas_options(line) == (module, options)


@pytest.mark.parametrize(
    "line",
    ["", "a.B", "a.B required", 'a.B required x="secret', "a.B x=secret;", "a.B required x secret;", ";"],
)
def test_an_invalid_line_of_jaas_is_refused_without_quoting_it(line: str) -> None:
    with pytest.raises(JaasError) as refused:
        jaas_options(line)
    assert "secret" not in str(refused.value)


def test_users_of_plain_stand_by_their_names() -> None:
    assert passwords_of({"user_a": "x", "username": "u", "password": "p", "user_": "e"}) == {
        "a": "x",
        "": "e",
    }


@pytest.mark.limit("broker.security.sasl.LONGEST_MESSAGE")
def test_a_message_of_scram_is_as_long_as_a_client_needs_and_not_much_longer() -> None:
    asked: list[str] = []

    def find(_: int, name: str) -> None:
        asked.append(name)

    first, rest = "n,,n=", ",r=nonce"
    for more in (0, 1):
        name = "a" * (LONGEST_MESSAGE - len(first + rest) + more)
        with pytest.raises(InvalidCredentialsError):
            ScramMechanism(1, find, lambda: "n").evaluate(f"{first}{name}{rest}".encode())
    assert [len(name) for name in asked] == [LONGEST_MESSAGE - len(first + rest)]
