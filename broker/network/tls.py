"""Encryption of listeners, and of connections to other nodes, by Python's `ssl`: makes contexts from settings.

It is imported only if a listener is encrypted. Source: Kafka's `DefaultSslEngineFactory`.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

from broker.config.definitions import ConfigError
from broker.config.tls_config import (
    ALLOW_DN_CHANGES,
    ALLOW_SAN_CHANGES,
    CIPHERS,
    KEY_PASSWORD,
    NO_CLIENT_AUTH,
    PKCS12,
    REQUIRED,
    SERVED_PROTOCOLS,
    TlsConfig,
)
from broker.environment.encryption import content_of, file_of, is_file, modified_ns
from broker.network.tls_channel import TlsChannel
from broker.security.authorizer import ANONYMOUS, USER_TYPE, Principal
from broker.security.distinguished_names import DerError, alternative_names, subject_name
from broker.security.principal_mapping import RuleError, mapped_name

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from broker.config.broker_config import BrokerConfig
    from broker.config.tls_config import Store

# --- PEM, as Kafka's `PemParser` finds it: in one line or in many, with any text around it ---------------------

# Each pattern looks at a bounded piece of text, so that the time depends only on the text's length.
_BEGIN = re.compile(r"-BEGIN\s{1,8}([A-Z0-9 ]{0,64}?)\s{0,8}-{1,64}\s")
_HEADER = re.compile(r"[^\r\n:]{0,64}:[^\r\n]{0,1024}[\r\n]{1,8}")
_END = re.compile(r"-{1,64}END\s{1,8}([A-Z0-9 ]{0,64}?)\s{0,8}-")
_BODY = re.compile(r"[a-zA-Z0-9/+=\s]*")
_SPACE = re.compile(r"\s*")
_LINE = 64
_CERTIFICATE, _PRIVATE_KEY, _ENCRYPTED = "CERTIFICATE", "PRIVATE KEY", "ENCRYPTED"


def _blocks(text: str, kind: str) -> list[str]:
    """The blocks of a kind, each in the usual form of PEM."""
    found = []
    at = 0
    while (begin := _BEGIN.search(text, at)) is not None:
        start = body = _place_behind(_SPACE, text, begin.end())
        while (header := _HEADER.match(text, body)) is not None:
            body = _place_behind(_SPACE, text, header.end())
        at = text.find("-", body)
        if at < 0:
            break
        end, name = _END.match(text, at), " ".join(begin[1].split())
        if end is None or " ".join(end[1].split()) != name or not name.endswith(kind):
            continue
        if _BODY.fullmatch(text, body, at) is None:
            continue
        if "Proc-Type" in text[start:body]:  # an old form of encryption, with its parameters in front
            lines = [text[start:at].strip()]
        else:
            joined = "".join(text[body:at].split())
            lines = [joined[place : place + _LINE] for place in range(0, len(joined), _LINE)]
        found.append("\n".join((f"-----BEGIN {name}-----", *lines, f"-----END {name}-----")))
    return found


def _place_behind(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()


class _Keys:
    """A key and its certificates, the key's own first, as PEM."""

    def __init__(self, key: str, chain: str) -> None:
        self.key = key
        self.chain = chain


def _refused(store: Store, message: str, setting: str | None = None) -> ConfigError:
    said = setting or store.setting
    where = f" ({store.location})" if store.location is not None else ""
    return ConfigError(f"{said}{where}: {message}", said)


def _content(store: Store) -> bytes:
    assert store.location is not None
    try:
        return content_of(store.location)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise _refused(store, f"it can't be read: {why}") from None


def _keys_of(store: Store, password_name: str) -> _Keys:
    """The key of a store. Raises ConfigError."""
    if store.kind == PKCS12:
        return _keys_of_pkcs12(store)
    if store.location is None:
        chain, key = store.certificates or "", store.key or ""
    else:
        chain = key = _content(store).decode("latin-1")
    certificates, keys = _blocks(chain, _CERTIFICATE), _blocks(key, _PRIVATE_KEY)
    if not certificates:
        raise _refused(store, "there is no certificate (-----BEGIN CERTIFICATE-----) in it")
    if len(keys) != 1:
        raise _refused(
            store, f"there has to be one key (-----BEGIN PRIVATE KEY-----) in it; there are {len(keys)}"
        )
    is_encrypted = _ENCRYPTED in keys[0]
    if is_encrypted and store.key_password is None:
        raise _refused(store, f"its key is encrypted, and {password_name} is missing")
    if not is_encrypted and store.key_password is not None:
        raise _refused(store, f"its key isn't encrypted, but {password_name} is given", password_name)
    return _Keys(keys[0], "\n".join(certificates))


def _trusted_of(store: Store) -> str:
    """The trusted certificates of a store, as PEM. Raises ConfigError."""
    if store.kind == PKCS12:
        return _certificates_of_pkcs12(store)
    text = store.certificates if store.location is None else _content(store).decode("latin-1")
    certificates = _blocks(text or "", _CERTIFICATE)
    if not certificates:
        raise _refused(store, "there is no certificate (-----BEGIN CERTIFICATE-----) in it")
    return "\n".join(certificates)


# --- PKCS12, which needs the package cryptography ---------------------------------------------------------------


def _pkcs12(store: Store) -> Any:
    return _opened_pkcs12(store, _content(store))


def _opened_pkcs12(store: Store, content: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise _refused(
            store,
            "PKCS12 needs the package cryptography, which isn't installed: pip install 'barnabas[security]', or "
            f"openssl pkcs12 -in {store.location} -nodes -out {store.location}.pem makes PEM of it, which "
            f"{store.setting} takes with the type PEM",
        ) from None
    password = None if store.password is None else store.password.encode()
    try:
        return pkcs12.load_pkcs12(content, password)
    except ValueError:
        raise _refused(store, "it isn't PKCS12, or its password is another one") from None


def _keys_of_pkcs12(store: Store) -> _Keys:
    from_file = _pkcs12(store)
    if from_file.key is None or from_file.cert is None:
        raise _refused(store, "there is no key with its certificate in it")
    from cryptography.hazmat.primitives import serialization

    key = from_file.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = [from_file.cert, *from_file.additional_certs]
    store.key_password = None  # the file's password has opened the key, too
    return _Keys(key.decode(), "\n".join(_pem_of(each.certificate) for each in chain))


def _certificates_of_pkcs12(store: Store) -> str:
    found = _pkcs12(store)
    certificates = [each for each in (found.cert, *found.additional_certs) if each is not None]
    if not certificates:
        raise _refused(store, "there is no certificate in it")
    return "\n".join(_pem_of(each.certificate) for each in certificates)


def _pem_of(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return str(certificate.public_bytes(Encoding.PEM).decode())


# --- Names of cipher suites, Java's and OpenSSL's ----------------------------------------------------------------

TLS13_SUITES = frozenset(("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"))
_EXCHANGES = {"ECDHE_ECDSA": "ECDHE-ECDSA-", "ECDHE_RSA": "ECDHE-RSA-", "DHE_RSA": "DHE-RSA-", "RSA": ""}
_CIPHER = re.compile(
    r"(?:TLS|SSL)_([A-Z_]+?)_WITH_(?:AES_(128|256)_(CBC|GCM)|(CHACHA20_POLY1305))_(SHA(?:256|384)?)"
)


def openssl_suite(name: str) -> str | None:
    """OpenSSL's name of a suite of TLS 1.2, from the standard name, as in Java. None if it can't be derived."""
    match = _CIPHER.fullmatch(name)
    if match is None or match[1] not in _EXCHANGES:
        return None
    exchange, bits, mode, chacha, digest = match.groups()
    if chacha:
        return f"{_EXCHANGES[exchange]}CHACHA20-POLY1305"
    middle = "-GCM" if mode == "GCM" else ""
    return f"{_EXCHANGES[exchange]}AES{bits}{middle}-{digest}"


def _choose_ciphers(context: ssl.SSLContext, config: TlsConfig) -> tuple[str, ...]:
    """Set the ciphers. Returns the protocols that they leave. Raises ConfigError for a suite that doesn't exist."""
    if not config.ciphers:
        return config.protocols
    setting = config.names[CIPHERS]
    of_13 = {each for each in config.ciphers if each in TLS13_SUITES}
    others = []
    for name in config.ciphers:
        if name in TLS13_SUITES:
            continue
        suite = openssl_suite(name)
        if suite is None or not _has(suite):
            raise ConfigError(f"{setting}: there is no cipher suite {name} here", setting)
        others.append(suite)
    if of_13 and of_13 != TLS13_SUITES and "TLSv1.3" in config.protocols:
        missing = ", ".join(sorted(TLS13_SUITES - of_13))
        raise ConfigError(
            f"{setting}: Python can't choose among the suites of TLS 1.3: name {missing} too, or none of them",
            setting,
        )
    usable = {"TLSv1.2": bool(others), "TLSv1.3": bool(of_13)}
    protocols = tuple(each for each in config.protocols if usable[each])
    if not protocols:
        raise ConfigError(f"{setting}: none of the suites is for {' or '.join(config.protocols)}", setting)
    if others:
        context.set_ciphers(":".join(others))
    return protocols


def _has(suite: str) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(suite)
    except ssl.SSLError:
        return False
    return True


# --- Contexts ------------------------------------------------------------------------------------------------


class LastWords(ssl.SSLObject):
    """Tells the client why its handshake failed: `say` gets the bytes of the alert. asyncio would only hang up."""

    outgoing: ssl.MemoryBIO | None = None
    say: Callable[[bytes], None] | None = None

    def do_handshake(self) -> None:
        """As usual."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            if self.say is not None and self.outgoing is not None:
                self.say(self.outgoing.read())
            raise
        self.say = self.outgoing = None


class ListenerContext(ssl.SSLContext):
    """The context of one listener. `next_begins`: for the next handshake, the bytes that its client has sent already,
    and the function that sends an alert."""

    sslobject_class = LastWords
    next_begins: tuple[bytes, Callable[[bytes], None]] | None = None

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """As usual."""
        made = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        begins, self.next_begins = self.next_begins, None
        if begins is not None and isinstance(made, LastWords):
            heard, made.say = begins
            made.outgoing = outgoing
            incoming.write(heard)
        return made


class _Stores:
    """Keys and certificates in use, which may be replaced while the node runs (Kafka: `SslFactory`).

    `context` is made from them. A connection keeps the context with which it began."""

    __slots__ = ("_certificate", "_config", "_modified", "context")

    def __init__(self, config: TlsConfig) -> None:
        """Raises ConfigError for files that can't be used."""
        self._config = config
        self._modified = _modified(config)
        self.context, self._certificate = self._made(config)

    def _made(self, config: TlsConfig) -> tuple[ssl.SSLContext, bytes]:
        """A context, and the certificate that it shows (DER)."""
        raise NotImplementedError

    def check(self, after: BrokerConfig) -> None:
        """Check that this could change to the settings, and to the present files. Raises ConfigError."""
        self._followed(after)

    def follow(self, config: BrokerConfig) -> bool:
        """Change to the present settings and files. Returns True if they differ from before.

        Raises ConfigError; nothing has changed then."""
        followed = self._followed(config)
        if followed is None:
            return False
        self._become(followed)
        return True

    def _become(self, other: Self) -> None:
        self._config, self._modified = other._config, other._modified
        self.context, self._certificate = other.context, other._certificate

    def _followed(self, config: BrokerConfig) -> Self | None:
        """This with the present settings and files; None if they are as before (Kafka:
        `SslFactory.createNewSslEngineFactory`)."""
        now = self._config
        after = now.anew(config)
        if after.values == now.values and _modified(after) == self._modified:
            return None
        for store in filter(None, (after.keys, after.trusted)):
            if store.location is not None and not is_file(store.location):
                raise _refused(store, "it isn't a file")
        if now.trusted is None and after.trusted is not None:
            raise _refused(after.trusted, "a listener without a trust store can get one only at a start")
        if (now.keys is None) != (after.keys is None):
            raise ConfigError(
                f"listener {now.listener}: it can get or lose a key store only at a start", None
            )
        followed = copy(self)
        _Stores.__init__(followed, after)
        if after.keys is not None:
            _check_takes_place(after, self._certificate, followed._certificate)
        return followed


class OutgoingTls(_Stores):
    """How this node encrypts its connections to a listener of other nodes."""

    __slots__ = ()

    def _made(self, config: TlsConfig) -> tuple[ssl.SSLContext, bytes]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        certificate = _choose(context, config)
        context.check_hostname = config.checks_host
        trusted = None if config.trusted is None else _trusted_of(config.trusted)
        _trust(context, config, trusted, ssl.Purpose.SERVER_AUTH)
        return context, certificate

    def begin(self, host: str) -> TlsChannel:
        """Begin to encrypt a connection to the host. Raises ValueError if it can't be a host's name."""
        return TlsChannel(self.context, host)


class Tls(_Stores):
    """How one listener is encrypted, and the principals of its clients by their certificates."""

    __slots__ = ("_outgoing", "is_for_principals")

    no_name: tuple[type[Exception], ...] = (RuleError, DerError)
    """The errors that `principal` raises."""

    def __init__(self, config: TlsConfig, *, is_for_principals: bool) -> None:
        """Raises ConfigError for files that can't be used. `is_for_principals`: certificates name the principals, since
        the listener has no SASL."""
        self.is_for_principals = is_for_principals
        self._outgoing: OutgoingTls | None = None
        super().__init__(config)

    def _made(self, config: TlsConfig) -> tuple[ssl.SSLContext, bytes]:
        return _listener_context(config)

    def meet(self, outgoing: OutgoingTls) -> None:
        """Tie this to the keys with which brokers, this one among them, connect to the listener.

        From now on both change together, and only to keys with which a restarted broker and one that isn't yet can
        connect to each other. Raises ConfigError if they can't connect as they are."""
        self._outgoing = outgoing
        check_against_each_other(self.context, outgoing.context, self._config.listener)

    def _followed(self, config: BrokerConfig) -> Self | None:
        followed, before = super()._followed(config), self._outgoing
        if before is None:
            return followed
        outgoing = before._followed(config)
        if followed is None and outgoing is None:
            return None
        followed = followed or copy(self)
        followed._outgoing = outgoing or before
        check_against_each_other(self.context, followed._outgoing.context, self._config.listener)
        check_against_each_other(followed.context, before.context, self._config.listener)
        return followed

    def _become(self, other: Self) -> None:
        super()._become(other)
        if self._outgoing is not None and other._outgoing is not None:
            self._outgoing._become(other._outgoing)

    def principal(self, transport: Any) -> Principal:
        """The principal of a connection. Raises RuleError or DerError if its certificate names none."""
        certificate = transport.get_extra_info("ssl_object").getpeercert(True)
        if not self.is_for_principals or certificate is None:
            return ANONYMOUS
        return Principal(USER_TYPE, mapped_name(self._config.rules, subject_name(certificate)))


def check_against_each_other(listener: ssl.SSLContext, outgoing: ssl.SSLContext, listener_name: str) -> None:
    """Check that brokers with these settings can connect to each other, whatever their hosts (Kafka: `SslFactory`,
    `keystoreVerifiableUsingTruststore`). Raises ConfigError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    checked, outgoing.check_hostname = outgoing.check_hostname, False
    try:
        client = outgoing.wrap_bio(to_client, to_server)
    finally:
        outgoing.check_hostname = checked
    server = listener.wrap_bio(to_server, to_client, server_side=True)
    left = [client, server]
    while left:
        for side in [*left]:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                why = getattr(error, "verify_message", "") or _reason(error)
                raise ConfigError(
                    f"listener {listener_name}: a client with its settings can't connect to a server with them, as "
                    f"brokers do: {why.removesuffix('.')} (ssl.keystore, ssl.truststore)",
                    None,
                ) from None
            left.remove(side)


def _modified(config: TlsConfig) -> list[int | None]:
    """When the files were last written, in ns. This is asked before they are read."""
    stores = (config.keys, config.trusted)
    return [None if each is None or each.location is None else modified_ns(each.location) for each in stores]


def _check_takes_place(config: TlsConfig, before: bytes, after: bytes) -> None:
    """Check that clients and ACLs that know the certificate `before` also know `after` (both DER; Kafka:
    `CertificateEntries`). Raises ConfigError."""
    assert config.keys is not None
    try:
        names = [subject_name(each) for each in (before, after)]
        addresses = [alternative_names(each) for each in (before, after)]
    except DerError as error:
        raise _refused(config.keys, f"its certificate can't be read: {error}") from None
    if not config.allows_other_name and _canonical(names[0]) != _canonical(names[1]):
        raise _refused(
            config.keys, f"its certificate is {names[1]}, not {names[0]} as before ({ALLOW_DN_CHANGES})"
        )
    missing = addresses[0] - addresses[1]
    if missing and not config.allows_other_addresses:
        known = ", ".join(sorted(f"{tag & 31}:{_shown(value)}" for tag, value in missing))
        raise _refused(
            config.keys,
            f"its certificate lacks the alternative names {known} of the one before ({ALLOW_SAN_CHANGES})",
        )


def _canonical(name: str) -> str:
    return " ".join(name.split()).lower()


def _shown(value: bytes) -> str:
    return value.decode("ascii") if value.isascii() and value.decode("ascii").isprintable() else value.hex()


def _listener_context(config: TlsConfig) -> tuple[ListenerContext, bytes]:
    context = ListenerContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = _choose(context, config)
    trusted = None if config.trusted is None else _trusted_of(config.trusted)
    if config.client_auth == NO_CLIENT_AUTH:
        return context, certificate
    context.verify_mode = ssl.CERT_REQUIRED if config.client_auth == REQUIRED else ssl.CERT_OPTIONAL
    _trust(context, config, trusted, ssl.Purpose.CLIENT_AUTH)
    return context, certificate


def _choose(context: ssl.SSLContext, config: TlsConfig) -> bytes:
    """Set protocols, ciphers and this node's keys. Returns this node's certificate (DER), or empty bytes."""
    context.options |= ssl.OP_NO_RENEGOTIATION
    protocols = _choose_ciphers(context, config)
    context.minimum_version = _VERSIONS[protocols[0]]
    context.maximum_version = _VERSIONS[protocols[-1]]
    if config.keys is None:
        return b""
    return _load_keys(context, config.keys, config.names[KEY_PASSWORD])


def _trust(context: ssl.SSLContext, config: TlsConfig, trusted: str | None, purpose: ssl.Purpose) -> None:
    # Every certificate in the trust store is trusted, as in Java, even if it isn't a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if trusted is None:
        context.load_default_certs(purpose)
        return
    assert config.trusted is not None
    try:
        context.load_verify_locations(cadata=trusted)
    except ssl.SSLError as error:
        raise _refused(config.trusted, f"its certificates can't be read: {_reason(error)}") from None


_VERSIONS: Mapping[str, ssl.TLSVersion] = {
    SERVED_PROTOCOLS[0]: ssl.TLSVersion.TLSv1_2,
    SERVED_PROTOCOLS[1]: ssl.TLSVersion.TLSv1_3,
}


def _load_keys(context: ssl.SSLContext, store: Store, password_name: str) -> bytes:
    keys = _keys_of(store, password_name)
    password = store.key_password
    try:
        with file_of(f"{keys.key}\n{keys.chain}\n") as path:
            context.load_cert_chain(path, password=lambda: password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise _refused(store, "the key doesn't belong to the first certificate in it") from None
        if password is not None:
            raise _refused(store, f"{password_name} doesn't open its key, or {_reason(error)}") from None
        raise _refused(store, f"key and certificate can't be read: {_reason(error)}") from None
    return ssl.PEM_cert_to_DER_cert(_blocks(keys.chain, _CERTIFICATE)[0])


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's name of the error."""
    return (error.reason or "unknown reason").replace("_", " ").lower()
