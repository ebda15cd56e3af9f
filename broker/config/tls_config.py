"""A listener's settings for encryption: `ssl.*`, and before these `listener.name.<listener>.ssl.*`.

The combinations and defaults are those of Kafka's `DefaultSslEngineFactory`. No file is read here:
`broker.network.tls` does that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.config.broker_definitions import BROKER_ROWS
from broker.config.definitions import ConfigError, Value, definition_of, parse_value
from broker.security.principal_mapping import RuleError, parse_rules

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.security.principal_mapping import Rule

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
NO_CLIENT_AUTH, REQUESTED, REQUIRED = "none", "requested", "required"
CLIENT_AUTH, MAPPING_RULES = "ssl.client.auth", "ssl.principal.mapping.rules"
KEY_PASSWORD = "ssl.key.password"  # noqa: S105 - a name
ALLOW_DN_CHANGES, ALLOW_SAN_CHANGES = "ssl.allow.dn.changes", "ssl.allow.san.changes"
PROTOCOLS, CIPHERS = "ssl.enabled.protocols", "ssl.cipher.suites"
IDENTIFICATION = "ssl.endpoint.identification.algorithm"
KEYSTORE, TRUSTSTORE = "ssl.keystore", "ssl.truststore"

SERVED_PROTOCOLS = ("TLSv1.2", "TLSv1.3")
OLD_PROTOCOLS = frozenset(("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"))
"""Java has names for them, but doesn't serve them in its default configuration."""
_CONTEXTS = frozenset(("TLS", "TLSv1.2", "TLSv1.3"))


class Store:
    """Certificates, and perhaps a key, in a file or in the settings themselves. None of it is ever shown.

    - `setting`: the name under which it was given, for messages.
    - `kind`: PEM or PKCS12.
    - `location`: the file. None if `certificates` and `key` are given.
    - `password`: that of the file (PKCS12). `key_password` is that of the key in it.
    """

    __slots__ = ("certificates", "key", "key_password", "kind", "location", "password", "setting")

    def __init__(self, setting: str, kind: str, location: str | None) -> None:
        self.setting = setting
        self.kind = kind
        self.location = location
        self.certificates: str | None = None
        self.key: str | None = None
        self.password: str | None = None
        self.key_password: str | None = None


class TlsConfig:
    """The encryption of one listener, or of connections to such a listener elsewhere.

    `keys` are the node's own; connections may do without. `trusted` signs the other side's certificates; None
    means the authorities that the machine trusts. `names` has the name under which each setting was given,
    and `values` the values, including passwords. `checks_host` is True if a certificate has to match the
    host. `allows_other_name` and `allows_other_addresses` are about certificates that replace others at run
    time.
    """

    __slots__ = (
        "allows_other_addresses",
        "allows_other_name",
        "checks_host",
        "ciphers",
        "client_auth",
        "is_outgoing",
        "is_sasl",
        "keys",
        "listener",
        "names",
        "protocols",
        "rules",
        "trusted",
        "values",
    )

    def __init__(
        self, config: BrokerConfig, listener_name: str, *, is_sasl: bool, is_outgoing: bool = False
    ) -> None:
        """Raises ConfigError, without any key or password."""
        given = _Given(config, listener_name)
        self.names = given.names
        self.values = given.values
        self.listener = listener_name
        self.is_sasl, self.is_outgoing = is_sasl, is_outgoing
        self.client_auth = str(given.get(CLIENT_AUTH))
        if is_sasl and not given.is_own(CLIENT_AUTH):
            self.client_auth = (
                NO_CLIENT_AUTH  # who signs in needs none, unless this very listener asks for one
            )
        self.keys = _keystore(given, is_needed=not is_outgoing)
        self.checks_host = _checks_host(given) if is_outgoing else False
        self.trusted = _truststore(given)
        self.protocols = _protocols(given)
        self.ciphers = _list(given.get(CIPHERS))
        self.rules: tuple[Rule, ...] = ()
        self.allows_other_name = given.get(ALLOW_DN_CHANGES) is True
        self.allows_other_addresses = given.get(ALLOW_SAN_CHANGES) is True
        try:
            self.rules = parse_rules(_text(given.get(MAPPING_RULES)))
        except RuleError as error:
            raise ConfigError(f"{given.name(MAPPING_RULES)}: {error}", given.name(MAPPING_RULES)) from None

    def anew(self, config: BrokerConfig) -> TlsConfig:
        """Return the same listener's configuration with other settings. Raises ConfigError."""
        return TlsConfig(config, self.listener, is_sasl=self.is_sasl, is_outgoing=self.is_outgoing)


class _Given:
    """The settings for one listener."""

    def __init__(self, config: BrokerConfig, listener_name: str) -> None:
        self.listener = listener_name
        self.names: dict[str, str] = {}
        self.values: dict[str, Value] = {}
        self._config = config

    def is_own(self, name: str) -> bool:
        """True if the setting is given for this listener alone."""
        return self.name(name) != name

    def name(self, name: str) -> str:
        """The name under which the setting is given."""
        return self._config.name_given(name, self.listener)

    def get(self, name: str) -> Value:
        """Return the value. Raises ConfigError."""
        said = self.name(name)
        self.names[name] = said
        definition = definition_of(said, BROKER_ROWS[name])
        text = self._config.text_given(said)
        value = parse_value(definition, definition.default if text is None else text)
        self.values[name] = value
        return value

    def refuse(self, name: str, message: str) -> ConfigError:
        """Return an error about this listener."""
        said = self.name(name)
        return ConfigError(f"{said} of listener {self.listener}: {message}", said)


def _checks_host(given: _Given) -> bool:
    algorithm = _text(given.get(IDENTIFICATION)) or ""
    if algorithm.lower() not in ("", "https"):
        raise given.refuse(IDENTIFICATION, f"it can be https, or nothing, not {algorithm}")
    return bool(algorithm)


def _keystore(given: _Given, *, is_needed: bool) -> Store | None:
    location, password = _text(given.get(f"{KEYSTORE}.location")), _text(given.get(f"{KEYSTORE}.password"))
    chain_name, key_name = f"{KEYSTORE}.certificate.chain", f"{KEYSTORE}.key"
    chain, key = _text(given.get(chain_name)), _text(given.get(key_name))
    kind = _text(given.get(f"{KEYSTORE}.type")) or JKS
    if key is None and chain is None and location is None:
        if not is_needed:
            return None
        raise given.refuse(
            f"{KEYSTORE}.location",
            "it has to say where key and certificate are: a PEM file with both, and ssl.keystore.type=PEM",
        )
    if key is not None or chain is not None:
        if kind != PEM:
            raise given.refuse(f"{KEYSTORE}.type", f"a key and a chain in the settings are {PEM}, not {kind}")
        if key is None or chain is None:
            missing = key_name if key is None else chain_name
            raise given.refuse(missing, f"it is missing: {key_name} and {chain_name} go together")
        if location is not None:
            raise given.refuse(
                f"{KEYSTORE}.location", f"either this, or {key_name} and {chain_name}: not both"
            )
    _check_kind(given, KEYSTORE, kind, location)
    if kind == PEM and password is not None:
        raise given.refuse(f"{KEYSTORE}.password", f"{PEM} has none; its key may have {KEY_PASSWORD}")
    if kind != PEM and password is None:
        raise given.refuse(f"{KEYSTORE}.password", "it is missing, for the key store that is given")
    store = Store(given.name(f"{KEYSTORE}.location" if key is None else key_name), kind, location)
    store.certificates, store.key, store.password = chain, key, password
    store.key_password = _text(given.get(KEY_PASSWORD))
    return store


def _truststore(given: _Given) -> Store | None:
    location, password = (
        _text(given.get(f"{TRUSTSTORE}.location")),
        _text(given.get(f"{TRUSTSTORE}.password")),
    )
    certificates_name = f"{TRUSTSTORE}.certificates"
    certificates = _text(given.get(certificates_name))
    kind = _text(given.get(f"{TRUSTSTORE}.type")) or JKS
    if location is None and certificates is None:
        if password is not None:
            raise given.refuse(f"{TRUSTSTORE}.password", "there is no trust store that it could be for")
        return None
    if certificates is not None and kind != PEM:
        raise given.refuse(f"{TRUSTSTORE}.type", f"certificates in the settings are {PEM}, not {kind}")
    if certificates is not None and location is not None:
        raise given.refuse(f"{TRUSTSTORE}.location", f"either this, or {certificates_name}: not both")
    _check_kind(given, TRUSTSTORE, kind, location)
    if kind == PEM and password is not None:
        raise given.refuse(f"{TRUSTSTORE}.password", f"{PEM} has none")
    store = Store(
        given.name(f"{TRUSTSTORE}.location" if certificates is None else certificates_name), kind, location
    )
    store.certificates, store.password = certificates, password
    return store


def _check_kind(given: _Given, which: str, kind: str, location: str | None) -> None:
    name = f"{which}.type"
    if kind in (PEM, PKCS12):
        return
    file = location or "FILE"
    if kind == JKS:
        raise given.refuse(
            name,
            f"JKS, which is Kafka's default, isn't read. If {file} is PEM, say {name}={PEM}; else keytool "
            f"-importkeystore -srckeystore {file} -destkeystore {file}.p12 -deststoretype PKCS12 converts it, for "
            f"{name}={PKCS12}",
        )
    raise given.refuse(name, f"{kind} isn't read; it can be {PEM} or {PKCS12}")


def _protocols(given: _Given) -> tuple[str, ...]:
    """Return which of TLSv1.2 and TLSv1.3 to serve."""
    wanted = _list(given.get(PROTOCOLS))
    context = _text(given.get("ssl.protocol"))
    if context not in _CONTEXTS:
        raise given.refuse("ssl.protocol", f"it can be {', '.join(sorted(_CONTEXTS))}, not {context}")
    unknown = [each for each in wanted if each not in OLD_PROTOCOLS and each not in SERVED_PROTOCOLS]
    if unknown:
        raise given.refuse(
            PROTOCOLS, f"there is no {', '.join(unknown)}: {' and '.join(SERVED_PROTOCOLS)} are"
        )
    served = tuple(each for each in SERVED_PROTOCOLS if each in wanted or not wanted)
    if not served:
        raise given.refuse(
            PROTOCOLS, f"{', '.join(wanted)} aren't safe, and not served: TLSv1.2 and TLSv1.3 are"
        )
    return served


def _text(value: Value) -> str | None:
    assert value is None or isinstance(value, str)
    return value


def _list(value: Value) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
