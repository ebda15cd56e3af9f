"""Each parser that stands before a client is known, or before its keys are: what it is fed with, and what may come of
it. An exception that isn't named here is a fault, and so is whoever is let in by damaged bytes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from broker.config.definitions import ConfigError
from broker.config.tls_config import PEM, PKCS12, Store
from broker.network import tls
from broker.network.answers import CloseConnectionError
from broker.network.sasl_gate import SaslGate, SaslSettings, SignIn, illegal_state
from broker.security.authorizer import ANONYMOUS, Principal
from broker.security.distinguished_names import DerError, alternative_names, subject_name
from broker.security.principal_mapping import RuleError, mapped_name, parse_rules
from broker.security.sasl import (
    InvalidCredentialsError,
    JaasError,
    PlainMechanism,
    SaslRefusal,
    ScramCredential,
    ScramMechanism,
    jaas_options,
)
from protocol.apis import APIS, decode_request_header
from protocol.errors import CodecError
from protocol.messages.metadata import ApiVersionsRequest
from protocol.messages.security import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.wire.codec import decode
from tests.support.certificates import KEPT
from tests.support.wire import header, request_frame


class Door(NamedTuple):
    """`enter` takes bytes and returns, whatever they are; it raises where something is wrong with the parser."""

    name: str
    seeds: Sequence[bytes]
    enter: Callable[[bytes], object]
    share: float = 1.0
    """Of the inputs, beside the others'."""


# --- lines of JAAS, PLAIN, SCRAM --------------------------------------------------------------------------------

_JAAS = (
    b'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b" user_c="d\\"e";',
    b'org.apache.kafka.common.security.scram.ScramLoginModule required\n  username="a"\n  password="b";',
    b"x required a=b;",
)


def _jaas(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    with suppress(JaasError):
        jaas_options(text)


_SECRET = "the secret of alice"
_PLAIN_TOKEN = f"\0alice\0{_SECRET}".encode()


def _plain(data: bytes) -> None:
    mechanism = PlainMechanism({"alice": _SECRET})
    with suppress(SaslRefusal):
        mechanism.evaluate(data)
    if mechanism.is_complete:
        _, user, password = data.split(b"\0")
        assert (user, password) == (b"alice", _SECRET.encode())


def _credential() -> ScramCredential:
    salted = hashlib.pbkdf2_hmac("sha256", _SECRET.encode(), b"salt", 4096)
    stored_key = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    return ScramCredential(b"salt", stored_key, hmac.digest(salted, b"Server Key", "sha256"), 4096)


_CREDENTIAL = _credential()
_BARE = b"n=alice,r=clients"
_FIRST = b"n,," + _BARE
_NONCE = "brokers"


def _final() -> bytes:
    challenge = _scram().evaluate(_FIRST)
    without_proof = b"c=biws,r=clientsbrokers"
    salted = hashlib.pbkdf2_hmac("sha256", _SECRET.encode(), b"salt", 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signed = b",".join((_BARE, challenge, without_proof))
    signature = hmac.digest(_CREDENTIAL.stored_key, signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return without_proof + b",p=" + base64.b64encode(proof)


def _scram() -> ScramMechanism:
    return ScramMechanism(1, lambda _, name: _CREDENTIAL if name == "alice" else None, lambda: _NONCE)


_FINAL = _final()
_SPLIT = b"\xfe|\xfe"  # between the two tokens of one input


def _scram_conversation(data: bytes) -> None:
    mechanism = _scram()
    with suppress(SaslRefusal, InvalidCredentialsError):
        for token in data.split(_SPLIT, 2):
            mechanism.evaluate(token)
            if mechanism.is_complete:
                break
    if mechanism.is_complete:  # the same proof may be written in several ways, and the header isn't signed
        first, final = data.split(_SPLIT, 2)[:2]
        assert first.endswith(_BARE), data
        assert final.partition(b",p=")[0] == _FINAL.partition(b",p=")[0], data


# --- frames at a listener where clients sign in ---------------------------------------------------------------

_CLIENT = {"client_software_name": "t", "client_software_version": "1"}
_FRAMES = [
    request_frame(ApiVersionsRequest(**_CLIENT), 3)[4:],
    request_frame(ApiVersionsRequest(), 0)[4:],
    request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)[4:],
    request_frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0)[4:],
    request_frame(SaslAuthenticateRequest(auth_bytes=_FIRST), 2)[4:],
    request_frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 0)[4:],
]


class _Later:
    def cancel(self) -> None: ...


class _Scheduler:
    def call_later(self, delay_s: float, then: Callable[[], object]) -> _Later:
        return _Later()


class _Requests:
    """In the dispatcher's place: reads what the gate lets through, and asks the gate as the handlers do."""

    gate: SaslGate

    def monotonic_s(self) -> float:
        return 0.0

    def serve(self, connection: Any, frame: memoryview) -> Any:
        key, version, _, _, at = decode_request_header(frame, 0, len(frame))
        api = APIS.get(key)
        if api is None or not api.min_version <= version <= api.max_version:
            raise CloseConnectionError("no such version")
        request = decode(api.request, version, frame, at)
        if isinstance(request, SaslHandshakeRequest):
            self.gate.shake(request.mechanism, version)
        elif isinstance(request, SaslAuthenticateRequest):
            self.gate.authenticate(connection, bytes(request.auth_bytes))
        return [bytes(12)]


class _Connection:
    principal: Principal = ANONYMOUS

    def __init__(self) -> None:
        self.listener = self

    def not_signed_in(self, client: str, mechanism: str, why: str) -> None: ...

    def signed_in(self, principal: Principal, requests: Any) -> None:
        self.principal = principal

    def answer_and_hang_up(self, answer: Any) -> None: ...


@cache
def _all_compiled() -> None:
    """What reads and writes each version is made once, and stays."""
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            illegal_state(memoryview(header(api.key, version, 1)))
    for request in (ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest):
        for version in range(5):
            with suppress(CodecError):
                decode(request, version, b"")


def _frames(data: bytes) -> None:
    """The first byte says how far the client is, the next ones which frames came before."""
    _all_compiled()
    requests = _Requests()
    settings = SaslSettings(
        {"PLAIN": lambda: PlainMechanism({"alice": _SECRET}), "SCRAM-SHA-256": _scram},
        {},
        100,
        512 * 1024,
        lambda: 0,
    )
    gate = requests.gate = SaslGate(settings, requests, _Scheduler())  # type: ignore[arg-type]
    connection: Any = _Connection()
    how_far = data[0] if data else 0
    with suppress(CloseConnectionError, CodecError):
        for number in ((), (0,), (0, 2), (0, 3), (2, 4), (3,))[how_far % 6]:
            gate.serve(connection, memoryview(_FRAMES[number]))
        gate.serve(connection, memoryview(data[1:]))
    assert connection.principal is ANONYMOUS, data
    assert gate.state is not SignIn.DONE, data


# --- TLS, keys, names ------------------------------------------------------------------------------------------


def _context() -> tls.ListenerContext:
    context = tls.ListenerContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(KEPT / "server.pem")
    context.load_verify_locations(KEPT / "ca.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


_CONTEXT = _context()


def _hello(version: ssl.TLSVersion) -> bytes:
    context = ssl.create_default_context()
    context.maximum_version = version
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def _tls(data: bytes) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    said: list[bytes] = []
    _CONTEXT.next_begins = data, said.append
    server = _CONTEXT.wrap_bio(incoming, outgoing, server_side=True)
    with suppress(ssl.SSLError):
        server.do_handshake()
        raise AssertionError(f"a handshake is done by a hello alone: {data!r}")


def _certificate(data: bytes) -> None:
    for read in (subject_name, alternative_names):
        with suppress(DerError):
            read(data)


_DER = [ssl.PEM_cert_to_DER_cert((KEPT / name).read_text()) for name in ("server.crt", "alice.crt", "ca.pem")]
_RULES = parse_rules(r"RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/L,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/,DEFAULT")


def _mapped(data: bytes) -> None:
    with suppress(RuleError):
        mapped_name(_RULES, data.decode("utf-8", "replace"))


def _rules(data: bytes) -> None:
    """An administrator's: longer ones take longer to compile, once, at the start."""
    with suppress(RuleError):
        parse_rules(data[:4096].decode("utf-8", "replace"))


def _pem(data: bytes) -> None:
    store = Store("ssl.keystore.key", PEM, None)
    store.certificates = store.key = data.decode("latin-1")
    for read in (lambda: tls._keys_of(store, "ssl.key.password"), lambda: tls._trusted_of(store)):
        with suppress(ConfigError):
            read()


def _pkcs12(read: Any) -> Callable[[bytes], None]:
    def enter(data: bytes) -> None:
        store = Store("ssl.keystore.location", PKCS12, None)
        store.password = "open"
        with suppress(ConfigError):
            read(store, data)

    return enter


def doors() -> list[Door]:
    """All that can be tried here: PKCS12 and tokens need packages."""
    found = [
        Door("JAAS", _JAAS, _jaas),
        Door("PLAIN", [_PLAIN_TOKEN, b"alice" + _PLAIN_TOKEN, b"\0\0"], _plain),
        Door("SCRAM", [_FIRST + _SPLIT + _FINAL, _FIRST, b"y,a=b,m=c,n=a=2Cb,r=x,e=f"], _scram_conversation),
        Door("SASL frames", [bytes([n]) + each for n in range(6) for each in _FRAMES], _frames),
        Door(
            "TLS hello",
            [_hello(version) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)],
            _tls,
            0.2,
        ),
        Door("certificate", _DER, _certificate),
        Door("names", [b"CN=alice,OU=Sales,O=Ex\\, Ltd,C=DE", b"CN=a", b"OU=x,CN=a b"], _mapped),
        Door(
            "mapping rules", [b"RULE:^CN=(.*?),OU=(.*?)$/$1@$2/L,DEFAULT", b"RULE:[^a-b\\d]{2}/x/U"], _rules
        ),
        Door("PEM", [(KEPT / name).read_bytes() for name in ("server.pem", "locked.pem", "ca.pem")], _pem),
    ]
    with suppress(ImportError):
        from tests.fuzz.key_stores import key_store

        found.append(Door("PKCS12", [key_store(b"open", 1)], _pkcs12(tls._opened_pkcs12), 0.05))
    with suppress(ImportError):
        from tests.fuzz import tokens

        found += [
            Door("OAUTHBEARER", tokens.messages(), tokens.message),
            Door("unsecured token", tokens.unsecured_parts(), tokens.unsecured),
            Door("signed token", tokens.signed_parts(), tokens.signed, 0.5),
            Door("JWKS", tokens.key_sets(), tokens.key_set, 0.2),
        ]
    return found
