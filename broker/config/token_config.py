"""Which tokens clients may use with OAUTHBEARER: Kafka's settings of a listener, and Kafka's handlers by
name.

Sources: Kafka's `SaslChannelBuilder`, `OAuthBearerValidatorCallbackHandler`, `BrokerJwtValidator` and
`ConfigurationUtils`.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from broker.config.broker_config import JAAS, BrokerConfig, TokenConfig, jaas_options
from broker.config.broker_definitions import broker_definition, listener_prefix
from broker.config.definitions import ConfigError, parse_int, trimmed
from broker.security.oauthbearer import MODULE, UnsecuredTokens

_OF_KAFKA = "org.apache.kafka.common.security.oauthbearer."
UNSECURED_HANDLER = _OF_KAFKA + "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
SIGNED_HANDLERS = (
    _OF_KAFKA + "OAuthBearerValidatorCallbackHandler",
    _OF_KAFKA + "secured.OAuthBearerValidatorCallbackHandler",  # its name in Kafka 3
)
VALIDATORS = (_OF_KAFKA + "DefaultJwtValidator", _OF_KAFKA + "BrokerJwtValidator")

HANDLER = "sasl.server.callback.handler.class"
_OAUTH = "sasl.oauthbearer."
_URL = _OAUTH + "jwks.endpoint.url"


def token_config(config: BrokerConfig, listener_name: str) -> TokenConfig:
    """Return a listener's settings for tokens. Raises ConfigError."""
    prefix = f"{listener_prefix(listener_name)}oauthbearer."
    options = _options(config, f"{prefix}{JAAS}")
    settings = _Settings(config, listener_name)
    name = f"{prefix}{HANDLER}"
    given = trimmed(config.text_given(name) or "")
    if not given and settings.text(_URL) and not _verifies_anywhere(config):
        raise ConfigError(
            f"{settings.name(_URL)} has no effect at listener {listener_name}, where unsigned tokens would be let in: "
            f"{name}={SIGNED_HANDLERS[0]} has them verified by its keys, {UNSECURED_HANDLER} lets them in",
            name,
        )
    handler = given or UNSECURED_HANDLER
    if handler == UNSECURED_HANDLER:
        try:
            UnsecuredTokens(options)
        except ValueError as error:
            raise ConfigError(f"{prefix}{JAAS}: {error}", f"{prefix}{JAAS}") from None
        return TokenConfig(options)
    if handler not in SIGNED_HANDLERS:
        raise ConfigError(
            f"{name}: no Java class can be loaded; {SIGNED_HANDLERS[0]} and {UNSECURED_HANDLER} are built in",
            name,
        )
    return _signed(settings, options)


def _verifies_anywhere(config: BrokerConfig) -> bool:
    """True if some listener uses the keys, so that another one may do without on purpose."""
    named = (name for name in config.effective_names() if name.endswith(f".oauthbearer.{HANDLER}"))
    return any(trimmed(config.text_given(name) or "") in SIGNED_HANDLERS for name in named)


def _options(config: BrokerConfig, name: str) -> dict[str, str]:
    line = config.text_given(name)
    return jaas_options(name, line, MODULE) if line else {}


class _Settings:
    """The settings for one listener. In order of precedence: its own for the mechanism, its own for all
    mechanisms, the general one, the default."""

    def __init__(self, config: BrokerConfig, listener_name: str) -> None:
        self._config = config
        self._prefixes = (
            f"{listener_prefix(listener_name)}oauthbearer.",
            listener_prefix(listener_name),
            "",
        )

    def name(self, name: str) -> str:
        """The name under which a setting is given."""
        names = (prefix + name for prefix in self._prefixes)
        return next((each for each in names if self._config.text_given(each) is not None), name)

    def text(self, name: str) -> str:
        """The text without surrounding spaces. Empty if it isn't set."""
        given = self._config.text_given(self.name(name))
        if given is None:
            definition = broker_definition(name)
            given = None if definition is None or definition.default is None else str(definition.default)
        return trimmed(given or "")

    def number(self, name: str, least: int) -> int:
        """Return a number. Raises ConfigError."""
        number = parse_int(self.text(name))
        if number is None or not least <= number < 2**63:
            raise ConfigError(f"{self.name(name)} has to be a number from {least} on", self.name(name))
        return number

    def needed(self, name: str, unless: str) -> str:
        """Return the text. Raises ConfigError if neither setting is given."""
        text = self.text(name)
        if not text and self.text(unless).lower() != "true":
            raise ConfigError(
                f"{name} has to say what tokens are checked for; {unless}=true takes them whatever they say there",
                name,
            )
        return text


def _signed(settings: _Settings, options: dict[str, str]) -> TokenConfig:
    validator = settings.text(_OAUTH + "jwt.validator.class")
    if validator not in VALIDATORS:
        name = settings.name(_OAUTH + "jwt.validator.class")
        raise ConfigError(f"{name}: no Java class can be loaded; {VALIDATORS[0]} is built in", name)
    audiences = settings.needed(_OAUTH + "expected.audience", _OAUTH + "allow.unverified.audience")
    issuer = settings.needed(_OAUTH + "expected.issuer", _OAUTH + "allow.unverified.issuer")
    backoff_ms = settings.number(_OAUTH + "jwks.endpoint.retry.backoff.ms", 0)
    backoff_max_ms = settings.number(_OAUTH + "jwks.endpoint.retry.backoff.max.ms", backoff_ms)
    scope_claim, user_claim = (settings.text(f"{_OAUTH}{each}.claim.name") for each in ("scope", "sub"))
    if not scope_claim or not user_claim:
        raise ConfigError(
            f"{_OAUTH}scope.claim.name and {_OAUTH}sub.claim.name can't be empty", _OAUTH + "sub.claim.name"
        )
    return TokenConfig(
        options,
        jwks_url=_url(settings),
        refresh_ms=settings.number(_OAUTH + "jwks.endpoint.refresh.ms", 1),
        backoff_ms=backoff_ms,
        backoff_max_ms=backoff_max_ms,
        audiences=frozenset(filter(None, map(trimmed, audiences.split(",")))),
        issuer=issuer or None,
        skew_s=settings.number(_OAUTH + "clock.skew.seconds", 0),
        scope_claim=scope_claim,
        user_claim=user_claim,
    )


def _url(settings: _Settings) -> str:
    """Return the URL. Errors don't show it, because it may hold a secret. Kafka has a system property that
    lists the allowed URLs. There is no counterpart here: only those who write this node's settings can set
    the URL."""
    name, url = settings.name(_URL), settings.text(_URL)
    if not url:
        raise ConfigError(f"{_URL} has to say where the keys are that verify tokens", _URL)
    try:
        parts = urlsplit(url)
        fits = parts.port != 0 and bool(parts.path if parts.scheme == "file" else parts.hostname)
    except ValueError:
        fits = False
    if (
        not fits
        or parts.scheme not in ("http", "https", "file")
        or not url.isascii()
        or not url.isprintable()
    ):
        raise ConfigError(f"{name} has to be a URL of http, https or file", name)
    return url
