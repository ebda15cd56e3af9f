"""How a node's listeners are secured: made from the settings once, at the start."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.network.listener import Security

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import ClusterImage
    from broker.environment.scheduler import Chance, Clock, LoopTimers
    from broker.network.sasl_gate import SaslSettings
    from broker.network.tls_gate import Encryption
    from broker.security.delegation_tokens import TokenCredentials
    from broker.security.token_source import TokenSource


class ListenerSecurity:
    """The security of all listeners of a node."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        chance: Chance,
        clock: Clock,
        encryption: Mapping[str, Encryption],
        tokens: Mapping[str, TokenSource],
        timers: LoopTimers,
    ) -> None:
        """By the names of listeners: `encryption` for encrypted ones, `tokens` for those with OAUTHBEARER."""
        self._config = config
        self._image = image
        self._chance = chance
        self._clock = clock
        self._encryption = encryption
        self._tokens = tokens
        self._timers = timers
        self._token_credentials: TokenCredentials | None = None

    def of(self, listener_name: str) -> Security:
        """The security of one listener."""
        return Security(
            self._sasl_settings(listener_name),
            self._encryption.get(listener_name),
            self._config.get_int("connection.failed.authentication.delay.ms"),
        )

    def _sasl_settings(self, listener_name: str) -> SaslSettings | None:
        """How clients sign in to the listener; None if they don't."""
        found = self._config.sasl.get(listener_name)
        if found is None:
            return None
        from broker.controller.scram_decisions import scram_credential
        from broker.network.sasl_gate import sasl_settings
        from broker.security.delegation_tokens import TokenCredentials, token_settings

        credentials = self._token_credentials
        if credentials is None:  # all listeners share them: a token is good at each
            settings = token_settings(self._config)
            credentials = self._token_credentials = TokenCredentials(settings, self._chance.token_bytes)
        tokens = self._tokens.get(listener_name)
        return sasl_settings(
            found,
            lambda code, name: scram_credential(self._image, code, name),
            partial(self._chance.token_hex, 16),
            lambda code, token_id: credentials.find(self._image, code, token_id),
            None if tokens is None else tokens.validating(self._timers),
            failure_delay_ms=self._config.get_int("connection.failed.authentication.delay.ms"),
            max_receive_bytes=self._config.get_int("sasl.server.max.receive.size"),
            now_ms=self._clock.now_ms,
        )
